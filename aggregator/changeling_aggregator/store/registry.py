"""The things that a server runs on: published surveys and their early ends, tokens, and the time that was believed."""

import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from changeling_protocol import EarlyEnd, MalformedBytes, Survey, SurveyId, UnixMilliseconds, UnixSeconds
from sqlalchemy import delete, func, insert, select, update

from .database import Bound
from .schema import store, surveys, tokens

TOKEN_BYTES = 32
PREFIX = "changeling_"
"""Begins every token, so that programs that look for lost secrets know one."""
MOST_NAME_CHARACTERS = 100


class KeptTime(NamedTuple):
    """The latest time of a clock that was believed, in Unix milliseconds, 0 for none; and whether it jumped since."""

    told: UnixMilliseconds
    jumped: bool


class TokenScope(StrEnum):
    """The uses of tokens."""

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
    """A token as it is kept. id: the first 4 bytes of its hash. created: Unix seconds."""

    id: bytes
    name: str
    scopes: frozenset[TokenScope]
    created: int


def new_token() -> str:
    """The text of a new token: 32 random bytes, so that its plain hash tells nothing of it."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def hash_of(token: str) -> bytes:
    """The hash of a token's text, which is all that the store keeps."""
    return sha256(token.encode(errors="surrogateescape")).digest()


def readable(signed: Mapping[SurveyId, bytes]) -> dict[SurveyId, Survey]:
    """The surveys that this version can read, of those in these signed bytes: one that it cannot harms no other."""
    read = {}
    for id_, of_survey in signed.items():
        with suppress(MalformedBytes):
            read[id_] = _survey_in(of_survey)
    return read


@lru_cache(maxsize=1024)
def _survey_in(signed: bytes) -> Survey:
    """The survey in signed bytes whose signature was checked before they were kept. Raises MalformedBytes."""
    return Survey.unverified(signed)


class ReadRegistry(Bound):
    """Reads surveys, tokens and the time."""

    def signed_surveys(self) -> dict[SurveyId, bytes]:
        """The signed bytes of every survey, by id."""
        rows = self._connection.execute(select(surveys.c.id, surveys.c.signed).order_by(surveys.c.id))
        return {row.id: row.signed for row in rows}

    def surveys(self) -> dict[SurveyId, Survey]:
        """The surveys that this version can read, by id."""
        return readable(self.signed_surveys())

    def public_surveys(self) -> set[SurveyId]:
        """The surveys whose results are open to all."""
        return set(self._connection.scalars(select(surveys.c.id).where(surveys.c.public)))

    def early_ends(self) -> dict[SurveyId, EarlyEnd]:
        """Every early end, by the survey's id."""
        query = select(surveys.c.id, surveys.c.last).where(surveys.c.last.is_not(None))
        return {row.id: EarlyEnd(row.id, row.last) for row in self._connection.execute(query)}

    def signed_early_end(self, survey: SurveyId) -> bytes | None:
        """A survey's early end as it was signed; None if it has none."""
        query = select(surveys.c.signed_end).where(surveys.c.id == survey)
        signed: bytes | None = self._connection.scalar(query)
        return signed

    def tokens(self) -> dict[bytes, Token]:
        """All tokens by their hashes, the oldest first."""
        rows = self._connection.execute(select(tokens).order_by(tokens.c.created, tokens.c.hash))
        return {row.hash: _token(row.hash, row.name, row.scopes, row.created) for row in rows}

    def kept_time(self) -> KeptTime:
        """The latest time of a clock that was believed, as a server kept it."""
        return KeptTime(*self._connection.execute(select(store.c.believed, store.c.jumped)).one())

    def database_time(self) -> UnixSeconds | None:
        """The time of the database's own clock, Unix seconds; None where the database is a file."""
        if self._connection.dialect.name != "postgresql":
            return None
        epoch = select(func.extract("epoch", func.clock_timestamp()))
        return UnixSeconds(float(self._connection.execute(epoch).scalar_one()))


class WriteRegistry(ReadRegistry):
    """Writes surveys, tokens and the time."""

    def add_survey(self, id_: SurveyId, signed: bytes, public: bool | None = None) -> bool:
        """Keep a survey whose signature was checked; False where it is there already, and stays as it was.

        public: whether its results are open to all. That is the operator's to change; None leaves it, and a new one
        closed.
        """
        if self._inserted(surveys, id=id_, signed=signed, public=bool(public)):
            return True
        if public is not None:
            self._connection.execute(update(surveys).where(surveys.c.id == id_).values(public=public))
        return False

    def add_early_end(self, end: EarlyEnd, signed: bytes) -> bool:
        """Keep an end whose signature was checked; False where the same one is there already.

        Raises ValueError where the survey ends after another period, or is not published here.
        """
        putting = update(surveys).where(surveys.c.id == end.survey, surveys.c.last.is_(None))
        if self._connection.execute(putting.values(last=end.last, signed_end=signed)).rowcount:
            return True
        kept = self.early_ends().get(end.survey)
        if kept is None:
            raise ValueError(f"survey {end.survey.hex()} is not published here")
        if kept != end:
            raise ValueError(f"the survey was ended after period {kept.last} before: an end stays as it is")
        return False

    def add_token(self, token: str, name: str, scopes: Collection[TokenScope], now: UnixSeconds) -> Token:
        """Keep a new token's hash. name: whose it is, or which app's. Raises ValueError without a name, or a scope."""
        if not name.strip() or len(name) > MOST_NAME_CHARACTERS:
            raise ValueError(f"a token has a name of 1 to {MOST_NAME_CHARACTERS} characters, got {name!r}")
        if not scopes:
            raise ValueError("a token is for something: give it a scope")
        hashed, kept = hash_of(token), " ".join(sorted(scopes))
        self._connection.execute(insert(tokens).values(hash=hashed, name=name, scopes=kept, created=int(now)))
        return _token(hashed, name, kept, int(now))

    def revoke_token(self, id_: bytes) -> Token:
        """Take a token away. Raises ValueError where there is none with this id."""
        for hashed, token in self.tokens().items():
            if token.id == id_:
                self._connection.execute(delete(tokens).where(tokens.c.hash == hashed))
                return token
        raise ValueError(f"there is no token {id_.hex()}: `changeling token list` shows those there are")

    def take_surveys(self, other: ReadRegistry) -> None:
        """Publish what is published in another store, nothing of which is sealed or shown here."""
        query = select(surveys.c.id, surveys.c.signed, surveys.c.public, surveys.c.last, surveys.c.signed_end)
        if rows := [dict(row) for row in other._connection.execute(query).mappings()]:
            self._connection.execute(insert(surveys), rows)

    def keep_time(self, kept: KeptTime) -> None:
        """Remember what was believed of a clock."""
        self._connection.execute(update(store).values(believed=kept.told, jumped=kept.jumped))


def _token(hashed: bytes, name: str, scopes: str, created: int) -> Token:
    known = frozenset(TokenScope(each) for each in scopes.split() if each in TokenScope.__members__.values())
    return Token(hashed[:4], name, known, created)
