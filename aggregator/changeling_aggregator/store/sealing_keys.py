"""Sealing keys: made here, signed by the authority, destroyed one grace after they expire.

One is valid at a time: so a server cannot mark devices by the key that it gives them. A private key never leaves the
store but into the fold's memory; it lies there as `at_rest` says.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from changeling_protocol import LAST_INSTANT, SealingKey, UnixSeconds, key_id
from changeling_statistics import format_instant
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import ColumnElement, Table, and_, insert, select, update

from .at_rest import PRIVATE_BYTES, AtRest
from .database import Bound
from .schema import results_keys, sealing_keys


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
class KeyLife:
    """A key's life, without the key. begins, expires: Unix seconds; None before it is published."""

    id: bytes
    begins: int | None
    expires: int | None
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


class ReadKeys(Bound):
    """Reads sealing keys."""

    def published_keys(self) -> dict[bytes, PublishedKey]:
        """The keys that the authority has signed and whose private half is there, by id; the latest to expire first."""
        rows = self._connection.execute(
            select(sealing_keys)
            .where(sealing_keys.c.signed.is_not(None), sealing_keys.c.private.is_not(None))
            .order_by(sealing_keys.c.expires.desc(), sealing_keys.c.id)
        )
        return {row.id: PublishedKey(SealingKey(row.public, row.begins, row.expires), row.signed) for row in rows}

    def key_lives(self) -> list[KeyLife]:
        """The life of every key that was made here, the latest to expire first."""
        rows = self._connection.execute(select(sealing_keys).order_by(sealing_keys.c.expires.desc(), sealing_keys.c.id))
        return [
            KeyLife(
                row.id,
                row.begins,
                row.expires,
                row.private is None,
                row.private is not None and len(row.private) == PRIVATE_BYTES,
            )
            for row in rows
        ]

    def private_keys(self) -> dict[bytes, X25519PrivateKey]:
        """The private keys that are not destroyed, by id. Raises StoreError where they are under another store key."""
        opened = ((id_, self._at_rest.taken(kept, id_)) for id_, kept in self._private_halves())
        return {id_: X25519PrivateKey.from_private_bytes(private) for id_, private in opened}

    def any_key_expired(self, before: UnixSeconds) -> bool:
        """Tell whether there is a private key left that expired before this Unix time, in seconds."""
        return self._connection.execute(select(sealing_keys.c.id).where(_expired(before))).first() is not None

    def _private_halves(self, keys: Table = sealing_keys) -> list[tuple[bytes, bytes]]:
        """The ids of keys that are not destroyed, with their private halves as they are stored."""
        query = select(keys.c.id, keys.c.private).where(keys.c.private.is_not(None))
        return [(row.id, row.private) for row in self._connection.execute(query)]


class WriteKeys(ReadKeys):
    """Writes sealing keys."""

    def make_key(self) -> bytes:
        """Make a private key; returns the public one, 32 bytes, for the authority to sign.

        Raises StoreError where those that are there are under another store key.
        """
        self.private_keys()
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        id_ = key_id(public)
        kept = self._at_rest.kept(private.private_bytes_raw(), id_)
        self._connection.execute(insert(sealing_keys).values(id=id_, public=public, private=kept))
        return public

    def publish_key(self, key: SealingKey, signed: bytes) -> bool:
        """Put a checked signature to a key made here; False where the same one is there already.

        Raises ValueError where the key was not made here, is destroyed, was published with other dates, or is valid
        while another is: of two keys the later begins in the second in which the earlier expires, so that there is
        always one.
        """
        # Of two who publish at once one waits here, and then sees the other's dates.
        self._connection.execute(select(sealing_keys.c.id).order_by(sealing_keys.c.id).with_for_update()).all()
        row = self._connection.execute(
            select(sealing_keys.c.signed, sealing_keys.c.private).where(sealing_keys.c.id == key.id)
        ).first()
        if row is None:
            raise ValueError("this server did not make that key: ask it for one with `changeling keys new`")
        if row.signed == signed:
            return False
        if row.signed is not None:
            raise ValueError("that key is published already, with other dates: make a new one instead")
        if row.private is None:
            raise ValueError("that key's private half is destroyed: make a new one instead")
        _check_alone(key, (each.key for each in self.published_keys().values()))
        self._connection.execute(
            update(sealing_keys)
            .where(sealing_keys.c.id == key.id)
            .values(signed=signed, begins=key.begins, expires=key.expires)
        )
        return True

    def encrypt_keys(self, new: AtRest) -> int:
        """Put the private keys under another store key; returns how many.

        What they were before is overwritten once `Store.forget_overwritten` had its turn. Raises StoreError where they
        are not under the store's own.
        """
        private = [(keys, id_, self._at_rest.taken(kept, id_)) for keys, id_, kept in self._all_private_halves()]
        for keys, id_, each in private:
            self._put_private(keys, id_, new.kept(each, id_))
        return len(private)

    def encrypt_keys_in_clear(self) -> bool:
        """Encrypt the private keys that are not yet; whether there was one, and a store key to encrypt it under."""
        in_clear = [each for each in self._all_private_halves() if len(each[2]) == PRIVATE_BYTES]
        if self._at_rest.secret is None or not in_clear:
            return False
        for keys, id_, private in in_clear:
            self._put_private(keys, id_, self._at_rest.kept(private, id_))
        return True

    def take_keys(self, other: ReadKeys) -> None:
        """Take the keys of another store that are not destroyed, under this one's own store key."""
        query = select(sealing_keys).where(sealing_keys.c.private.is_not(None))
        for row in other._connection.execute(query).mappings():
            private = self._at_rest.kept(other._at_rest.taken(row["private"], row["id"]), row["id"])
            self._connection.execute(insert(sealing_keys).values({**row, "private": private}))

    def destroy_expired_keys(self, before: UnixSeconds) -> int:
        """Destroy the private keys that expired before this Unix time, in seconds; returns how many."""
        return self._connection.execute(update(sealing_keys).where(_expired(before)).values(private=None)).rowcount

    def _all_private_halves(self) -> list[tuple[Table, bytes, bytes]]:
        """Those of sealing keys and of results keys, with the table that each is in."""
        return [(keys, id_, kept) for keys in (sealing_keys, results_keys) for id_, kept in self._private_halves(keys)]

    def _put_private(self, keys: Table, id_: bytes, kept: bytes) -> None:
        self._connection.execute(update(keys).where(keys.c.id == id_).values(private=kept))


def _expired(before: UnixSeconds) -> ColumnElement[bool]:
    return and_(sealing_keys.c.private.is_not(None), sealing_keys.c.expires < before)


def _check_alone(key: SealingKey, others: Iterable[SealingKey]) -> None:
    for other in others:
        if key.begins < other.expires and other.begins < key.expires:
            begins, expires = (format_instant(min(time, LAST_INSTANT)) for time in (other.begins, other.expires))
            raise ValueError(
                f"key {other.id.hex()} is valid from {begins} to {expires}, and one key is at a time: sign this one "
                f"with --begins {expires} or later, or with --expires {begins} or earlier"
            )
