"""Editions of open surveys, and the keys that they are signed with: made here, certified by the authority.

Of each survey the latest are kept. What was published once under an edition's name is never changed. A private key
never leaves the store but into a serving process's memory; it lies there as `at_rest` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from changeling_protocol import ResultsKey, SurveyId, UnixSeconds, decode, edition_id, encode, key_id
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import and_, delete, func, insert, select, update

from .database import Bound
from .schema import editions, results_keys

KEPT_EDITIONS = 16
"""Of each survey."""


@dataclass(frozen=True, slots=True)
class StoredEdition:
    """An edition as it is published. revision, last: which one. id: its name. files: each compressed with gzip."""

    revision: int
    last: int
    id: bytes
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that editions are signed with. certificate: the authority's, signed; None where it has certified none."""

    private: Ed25519PrivateKey
    certificate: bytes | None


class ReadEditions(Bound):
    """Reads editions and their keys."""

    def newest_editions(self) -> dict[SurveyId, tuple[int, int, bytes]]:
        """The revision, the last period and the name of the newest edition of each survey that has any."""
        columns = editions.c.survey, editions.c.revision, editions.c.last, editions.c.id
        rows = self._connection.execute(select(*columns).order_by(editions.c.revision, editions.c.made))
        return {row.survey: (row.revision, row.last, row.id) for row in rows}

    def edition(self, survey: SurveyId, id_: bytes) -> StoredEdition | None:
        """The edition of this name; None where there is none, or no more."""
        query = select(editions).where(editions.c.survey == survey, editions.c.id == id_)
        row = self._connection.execute(query).first()
        return None if row is None else StoredEdition(row.revision, row.last, row.id, decode(row.files))

    def signing_key(self, now: UnixSeconds) -> SigningKey | None:
        """The key to sign with now, Unix seconds: a certified one while it is valid, else the newest; None without any.

        Raises StoreError where it is under another store key.
        """
        rows = self._connection.execute(select(results_keys).order_by(results_keys.c.made.desc())).all()
        valid = [row for row in rows if row.signed and row.begins <= now <= row.expires]
        for row in [*valid, *rows][:1]:
            private = Ed25519PrivateKey.from_private_bytes(self._at_rest.taken(row.private, row.id))
            return SigningKey(private, row.signed if valid else None)
        return None


class WriteEditions(ReadEditions):
    """Writes editions and their keys."""

    def make_results_key(self, now: UnixSeconds) -> bytes:
        """The public key that the authority may certify, 32 bytes: one that it has not yet, made if there is none."""
        known = select(results_keys.c.public).where(results_keys.c.signed.is_(None)).order_by(results_keys.c.made)
        if (public := self._connection.scalar(known)) is None:
            private = Ed25519PrivateKey.generate()
            public = private.public_key().public_bytes_raw()
            row = {"id": key_id(public), "public": public, "made": int(now)}
            kept = self._at_rest.kept(private.private_bytes_raw(), key_id(public))
            self._connection.execute(insert(results_keys).values(**row, private=kept))
        return bytes(public)

    def certify_results_key(self, key: ResultsKey, signed: bytes) -> bool:
        """Put a checked certificate to a key made here; False where the same one is there already.

        Raises ValueError where the key was not made here.
        """
        named = results_keys.c.id == key_id(key.public)
        row = self._connection.execute(select(results_keys.c.signed).where(named)).first()
        if row is None:
            raise ValueError("this server did not make that key: ask it for one with `changeling keys new --results`")
        dates = {"begins": key.begins, "expires": key.expires}
        self._connection.execute(update(results_keys).where(named).values(signed=signed, **dates))
        return bool(row.signed != signed)

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
