"""The things that a server runs on: published surveys, tokens, keys, editions, and the time that was believed.

Sealing keys are made here, signed by the authority, and destroyed one grace after they expire. One is valid at a time:
so a server cannot mark devices by the key that it gives them. Results keys, which editions of open surveys are signed
with, are made here and certified by the authority. A private key never leaves the store but into the memory of the
process that uses it. An edition that was published under a name is never changed; of each survey the latest are kept.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from changeling_protocol import (
    LAST_INSTANT,
    EarlyEnd,
    ProtocolError,
    ResultsKey,
    SealingKey,
    Survey,
    SurveyId,
    UnixMilliseconds,
    UnixSeconds,
    decode,
    edition_id,
    encode,
    format_instant,
    key_id,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import ColumnElement, and_, delete, func, insert, null, select, update

from .database import PRIVATE_BYTES, AtRest, Bound
from .schema import editions, keys, store, surveys, tokens

TOKEN_BYTES = 32
PREFIX = "changeling_"
"""Begins every token, so that programs that look for lost secrets know one."""
MOST_NAME_CHARACTERS = 100


class KeptTime(NamedTuple):
    """The latest time of a clock that was believed, in Unix milliseconds, 0 for none; and whether it jumped since.

    database: the time by the database's own clock, Unix seconds; None where the database is a file.
    """

    told: UnixMilliseconds
    jumped: bool
    database: UnixSeconds | None = None


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


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far a survey has been looked at for snapshots.

    revision: how often what is shown has changed. final: the period up to which all closings are shown for good.
    due, folded: up to which period, and after how many folded requests, it was looked at last.
    """

    revision: int = 0
    final: int = 0
    due: int = 0
    folded: int = 0


@dataclass(frozen=True, slots=True)
class StoredSurvey:
    """A published survey as it is kept.

    signed: its signed bytes. public: whether its results are open to all. end, signed_end: where the authority ended it
    early, and that as it was signed. sealed: the period up to which all its closings are sealed; 0 if none is. looked:
    how far it has been looked at for snapshots.
    """

    id: SurveyId
    signed: bytes
    public: bool = False
    end: EarlyEnd | None = None
    signed_end: bytes | None = None
    sealed: int = 0
    looked: SnapshotProgress = SnapshotProgress()

    @property
    def survey(self) -> Survey:
        """The survey itself. Raises ProtocolError where this version cannot read it, or finds that it costs more."""
        return _survey_in(self.signed)

    @property
    def last(self) -> int:
        """The last period that counts: the calendar's, or an earlier one. Raises as `survey` does."""
        return self.survey.calendar.periods if self.end is None else self.end.last

    def closed(self, time: UnixSeconds) -> int:
        """How many of the periods that count had closed by this Unix time, in seconds. Raises as `survey` does."""
        return min(self.survey.calendar.closed(time), self.last)


def readable(stored: Mapping[SurveyId, StoredSurvey]) -> dict[SurveyId, StoredSurvey]:
    """Those of these surveys that this version can read: one that it cannot harms no other."""
    read = {}
    for id_, each in stored.items():
        with suppress(ProtocolError):
            _survey_in(each.signed)
            read[id_] = each
    return read


@lru_cache(maxsize=1024)
def _survey_in(signed: bytes) -> Survey:
    """The survey in signed bytes whose signature was checked before they were kept. Raises ProtocolError."""
    return Survey.unverified(signed)


def _token(hashed: bytes, name: str, scopes: str, created: int) -> Token:
    known = frozenset(TokenScope(each) for each in scopes.split() if each in TokenScope.__members__.values())
    return Token(hashed[:4], name, known, created)


# Sealing keys


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """A sealing key and the signed bytes that clients check."""

    key: SealingKey
    signed: bytes


class KeyState(StrEnum):
    """Where a key is in its life."""

    UNSIGNED = "unsigned"
    """Made here; the authority has not signed it, or it was not published."""
    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"
    """Nothing is sealed to it any more; what was sealed to it can be opened."""
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A sealing key that was made here, without its private half.

    public: 32 bytes. begins, expires: Unix seconds. signed: as the authority signed it. These are None before that.
    destroyed: whether the private half is. in_clear: whether it is there and not encrypted.
    """

    id: bytes
    public: bytes
    begins: int | None
    expires: int | None
    signed: bytes | None
    destroyed: bool
    in_clear: bool

    def state(self, now: UnixSeconds) -> KeyState:
        """Where it is in its life at a Unix time, in seconds."""
        if self.destroyed:
            return KeyState.DESTROYED
        if self.begins is None or self.expires is None:
            return KeyState.UNSIGNED
        if now < self.begins:
            return KeyState.PENDING
        return KeyState.ACTIVE if now <= self.expires else KeyState.EXPIRED


def published(keys_: Iterable[StoredKey]) -> dict[bytes, PublishedKey]:
    """Those of these keys that the authority has signed and whose private half is there, by id."""
    return {
        each.id: PublishedKey(SealingKey(each.public, each.begins, each.expires), each.signed)
        for each in keys_
        if not each.destroyed and each.signed and each.begins is not None and each.expires is not None
    }


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that editions are signed with. certificate: the authority's, signed; None where it has certified none."""

    private: Ed25519PrivateKey
    certificate: bytes | None


class KeyPurpose(StrEnum):
    """The uses of private keys."""

    SEALING = "sealing"
    """Opens uploads."""
    RESULTS = "results"
    """Signs editions."""


_SEALING, _RESULTS = (keys.c.purpose == each.value for each in KeyPurpose)


def expired(before: int) -> ColumnElement[bool]:
    """The condition for private keys that expired before this Unix time, in milliseconds."""
    return and_(_SEALING, keys.c.private.is_not(None), keys.c.expires * 1000 < before)


def _check_alone(key: SealingKey, others: Iterable[SealingKey]) -> None:
    for other in others:
        if key.begins < other.expires and other.begins < key.expires:
            begins, expires = (format_instant(min(time, LAST_INSTANT)) for time in (other.begins, other.expires))
            raise ValueError(
                f"key {other.id.hex()} is valid from {begins} to {expires}, and one key is at a time: sign this one "
                f"with --begins {expires} or later, or with --expires {begins} or earlier"
            )


# What is read and written

KEPT_EDITIONS = 16
"""The most editions that are kept of a survey."""


class ReadRegistry(Bound):
    """Reads surveys, tokens, keys, editions and the time."""

    def surveys(self, only: SurveyId | None = None) -> dict[SurveyId, StoredSurvey]:
        """Every published survey by its id, or only one; also those that this version cannot read."""
        query = select(surveys).order_by(surveys.c.id)
        rows = self._connection.execute(query if only is None else query.where(surveys.c.id == only))
        return {
            row.id: StoredSurvey(
                row.id,
                row.signed,
                row.public,
                None if row.last is None else EarlyEnd(row.id, row.last),
                row.signed_end,
                row.sealed,
                SnapshotProgress(row.revision, row.final, row.due, row.folded),
            )
            for row in rows
        }

    def tokens(self) -> dict[bytes, Token]:
        """All tokens by their hashes, the oldest first."""
        rows = self._connection.execute(select(tokens).order_by(tokens.c.created, tokens.c.hash))
        return {row.hash: _token(row.hash, row.name, row.scopes, row.created) for row in rows}

    def kept_time(self) -> KeptTime:
        """The latest time of a clock that was believed, as a server kept it."""
        has_clock = self._connection.dialect.name == "postgresql"
        now = func.extract("epoch", func.clock_timestamp()) if has_clock else null()
        told, jumped, database = self._connection.execute(select(store.c.believed, store.c.jumped, now)).one()
        return KeptTime(told, jumped, None if database is None else UnixSeconds(float(database)))

    def sealing_keys(self) -> list[StoredKey]:
        """Every sealing key that was made here, the latest to expire first."""
        rows = self._connection.execute(select(keys).where(_SEALING).order_by(keys.c.expires.desc(), keys.c.id))
        return [
            StoredKey(
                *(row.id, row.public, row.begins, row.expires, row.signed),
                destroyed=row.private is None,
                in_clear=row.private is not None and len(row.private) == PRIVATE_BYTES,
            )
            for row in rows
        ]

    def private_keys(self) -> dict[bytes, X25519PrivateKey]:
        """The private sealing keys that are not destroyed, by id. Raises StoreError where they are under another store
        key."""
        opened = ((id_, self._at_rest.taken(kept, id_)) for kept, id_ in self._private_halves(_SEALING))
        return {id_: X25519PrivateKey.from_private_bytes(private) for id_, private in opened}

    def keys_in_clear(self) -> list[bytes]:
        """The ids of all keys, results keys included, whose private half is here and not encrypted."""
        return sorted(id_ for kept, id_ in self._private_halves() if len(kept) == PRIVATE_BYTES)

    def signing_key(self, now: UnixSeconds) -> SigningKey | None:
        """The key to sign with now, Unix seconds: a certified one while it is valid, else the newest; None without any.

        Raises StoreError where it is under another store key.
        """
        newest_first = select(keys).where(_RESULTS).order_by(keys.c.begins.desc().nulls_first())
        rows = self._connection.execute(newest_first).all()
        valid = [row for row in rows if row.signed and row.begins <= now <= row.expires]
        for row in [*valid, *rows][:1]:
            private = Ed25519PrivateKey.from_private_bytes(self._at_rest.taken(row.private, row.id))
            return SigningKey(private, row.signed if valid else None)
        return None

    def _private_halves(self, *which: ColumnElement[bool]) -> list[tuple[bytes, bytes]]:
        """The private halves, as they are stored, and the ids, of keys that are not destroyed."""
        query = select(keys.c.private, keys.c.id).where(keys.c.private.is_not(None), *which)
        return [(row.private, row.id) for row in self._connection.execute(query)]

    def newest_editions(self) -> dict[SurveyId, tuple[int, int, bytes]]:
        """The revision, the last period and the name of the newest edition of each survey that has any."""
        columns = editions.c.survey, editions.c.revision, editions.c.last, editions.c.id
        rows = self._connection.execute(select(*columns).order_by(editions.c.revision, editions.c.made))
        return {row.survey: (row.revision, row.last, row.id) for row in rows}

    def edition(self, survey: SurveyId, id_: bytes) -> dict[str, bytes] | None:
        """The files of the edition of this name, each compressed with gzip; None where there is none, or no more."""
        query = select(editions.c.files).where(editions.c.survey == survey, editions.c.id == id_)
        files: bytes | None = self._connection.scalar(query)
        return None if files is None else decode(files)


class WriteRegistry(ReadRegistry):
    """Writes surveys, tokens, keys, editions and the time."""

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
        stored = self.surveys(end.survey).get(end.survey)
        if stored is None or stored.end is None:
            raise ValueError(f"survey {end.survey.hex()} is not published here")
        if stored.end != end:
            raise ValueError(f"the survey was ended after period {stored.end.last} before: an end stays as it is")
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

    def keep_time(self, kept: KeptTime) -> None:
        """Remember what was believed of a clock."""
        self._connection.execute(update(store).values(believed=kept.told, jumped=kept.jumped))

    def make_key(self) -> bytes:
        """Make a private sealing key; returns the public one, 32 bytes, for the authority to sign.

        Raises StoreError where those that are there are under another store key.
        """
        self.private_keys()
        return self._put_key(KeyPurpose.SEALING, X25519PrivateKey.generate())

    def make_results_key(self) -> bytes:
        """The public key that the authority may certify, 32 bytes: one that it has not yet, made if there is none."""
        known = self._connection.scalar(select(keys.c.public).where(_RESULTS, keys.c.signed.is_(None)))
        return self._put_key(KeyPurpose.RESULTS, Ed25519PrivateKey.generate()) if known is None else bytes(known)

    def publish_key(self, key: SealingKey | ResultsKey, signed: bytes) -> bool:
        """Put a checked signature to a key made here; False where the same one is there already.

        Raises ValueError where the key was not made here; and where a sealing key's private half is not here, though
        the same signature may be; where it was published with other dates, or is valid while another is: of two keys
        the later begins in the second in which the earlier expires, so that there is always one.
        """
        is_sealing = isinstance(key, SealingKey)
        purpose, option = (_SEALING, "") if is_sealing else (_RESULTS, " --results")
        # Of two who publish at once one waits here, and then sees the other's dates.
        rows = self._connection.execute(select(keys).where(purpose).order_by(keys.c.id).with_for_update()).all()
        row = next((row for row in rows if row.id == key_id(key.public)), None)
        if row is None:
            raise ValueError(f"this server did not make that key: ask it for one with `changeling keys new{option}`")
        if isinstance(key, SealingKey) and row.private is None:
            raise ValueError(
                "that key was published before, and its private half is not in this store: it is destroyed, or the "
                "store was restored from a backup, which has none; make a new key instead"
            )
        if row.signed == signed:
            return False
        if isinstance(key, SealingKey):
            if row.signed is not None:
                raise ValueError("that key is published already, with other dates: make a new one instead")
            _check_alone(key, (each.key for each in published(self.sealing_keys()).values()))
        signing = update(keys).where(keys.c.id == row.id)
        self._connection.execute(signing.values(signed=signed, begins=key.begins, expires=key.expires))
        return True

    def encrypt_keys(self, under: AtRest) -> int:
        """Put the private keys under a store key; returns how many were not.

        What they were before is overwritten once `Store.forget_overwritten` had its turn. Raises StoreError where they
        are neither under that nor under the store's own.
        """
        private = [each for each in self._private_halves() if not under.holds(*each)]
        for kept, id_ in private:
            again = under.kept(self._at_rest.taken(kept, id_), id_)
            self._connection.execute(update(keys).where(keys.c.id == id_).values(private=again))
        return len(private)

    def _put_key(self, purpose: KeyPurpose, private: X25519PrivateKey | Ed25519PrivateKey) -> bytes:
        public = private.public_key().public_bytes_raw()
        id_ = key_id(public)
        row = {"id": id_, "purpose": purpose.value, "public": public}
        self._connection.execute(
            insert(keys).values(row | {"private": self._at_rest.kept(private.private_bytes_raw(), id_)})
        )
        return public

    def add_edition(
        self, survey: SurveyId, revision: int, last: int, made: int, signed: bytes, files: Mapping[str, bytes]
    ) -> bool:
        """Publish an edition; False where there is one of this revision and last period, which stays as it is.

        made: Unix seconds. signed: the edition. files: compressed with gzip, by their names. The oldest beyond
        KEPT_EDITIONS go.
        """
        row = {"survey": survey, "revision": revision, "last": last, "made": made, "id": edition_id(signed)}
        if not self._inserted(editions, **row, files=encode(dict(files))):
            return False
        of_survey = editions.c.survey == survey
        newest = select(editions.c.revision).where(of_survey).order_by(editions.c.revision.desc())
        oldest = newest.offset(KEPT_EDITIONS - 1).limit(1).scalar_subquery()
        self._connection.execute(
            delete(editions).where(and_(of_survey, editions.c.revision < func.coalesce(oldest, 0)))
        )
        return True
