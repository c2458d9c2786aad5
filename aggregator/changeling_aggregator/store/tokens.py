"""Tokens: who may do what on a server. The store has their hashes alone.

A token is 32 random bytes, so its plain hash tells nothing of it, and finding the hash in an index takes the same time
for every token that is wrong.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from changeling_protocol import UnixSeconds
from sqlalchemy import Connection, delete, insert, select

from .schema import tokens

TOKEN_BYTES = 32
PREFIX = "changeling_"
"""Begins every token, so that programs that look for lost secrets know one."""
MOST_NAME_CHARACTERS = 100


class TokenScope(StrEnum):
    """What a token is for."""

    SURVEY_WRITE = "survey:write"
    """Publish surveys, their ends and sealing keys."""
    FOLD = "fold"
    """Have the log folded, and say what time it is."""
    READ = "read"
    """Read the results of every survey, and how its reports are doing."""
    UPLOAD = "upload"
    """Send reports, on a server that asks for that. It names an app, never a person."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token. id: the first 4 bytes of its hash. created: Unix seconds."""

    id: bytes
    name: str
    scopes: frozenset[TokenScope]
    created: int


def new_token() -> str:
    """The text of a new token."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def hash_of(token: str) -> bytes:
    """What the store keeps of a token's text."""
    return sha256(token.encode(errors="surrogateescape")).digest()


def add_token(connection: Connection, token: str, name: str, scopes: Collection[TokenScope], now: UnixSeconds) -> Token:
    """Keep a new token's hash. name: whose it is, or which app's. Raises ValueError without a name, or a scope."""
    if not name.strip() or len(name) > MOST_NAME_CHARACTERS:
        raise ValueError(f"a token has a name of 1 to {MOST_NAME_CHARACTERS} characters, got {name!r}")
    if not scopes:
        raise ValueError("a token is for something: give it a scope")
    hashed = hash_of(token)
    kept = " ".join(sorted(scopes))
    connection.execute(insert(tokens).values(hash=hashed, name=name, scopes=kept, created=int(now)))
    return _token(hashed, name, kept, int(now))


def tokens_by_hash(connection: Connection) -> dict[bytes, Token]:
    """All tokens, the oldest first."""
    rows = connection.execute(select(tokens).order_by(tokens.c.created, tokens.c.hash))
    return {row.hash: _token(row.hash, row.name, row.scopes, row.created) for row in rows}


def revoke_token(connection: Connection, id_: bytes) -> Token:
    """Take a token away. Raises ValueError where there is none with this id."""
    for hashed, token in tokens_by_hash(connection).items():
        if token.id == id_:
            connection.execute(delete(tokens).where(tokens.c.hash == hashed))
            return token
    raise ValueError(f"there is no token {id_.hex()}: `changeling token list` shows those there are")


def _token(hashed: bytes, name: str, scopes: str, created: int) -> Token:
    known = frozenset(TokenScope(each) for each in scopes.split() if each in TokenScope.__members__.values())
    return Token(hashed[:4], name, known, created)
