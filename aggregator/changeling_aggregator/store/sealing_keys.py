"""Sealing keys: made here, signed by the authority, destroyed one grace after they expire.

One is valid at a time: so a server cannot mark devices by the key that it gives them. A private key never leaves the
store but into the fold's memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from changeling_protocol import LAST_INSTANT, SealingKey, UnixSeconds, key_id
from changeling_statistics import format_instant
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import ColumnElement, Connection, Select, and_, insert, select, update

from .at_rest import AtRest, in_clear
from .schema import sealing_keys


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


def make_key(connection: Connection, at_rest: AtRest) -> bytes:
    """Make a private key; returns the public one, 32 bytes, for the authority to sign.

    Raises StoreError where those that are there are under another store key.
    """
    private_keys(connection, at_rest)
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    id_ = key_id(public)
    kept = at_rest.kept(private.private_bytes_raw(), id_)
    connection.execute(insert(sealing_keys).values(id=id_, public=public, private=kept))
    return public


def publish_key(connection: Connection, key: SealingKey, signed: bytes) -> bool:
    """Put a checked signature to a key made here; False where the same one is there already.

    Raises ValueError where the key was not made here, is destroyed, was published with other dates, or is valid while
    another is: of two keys the later begins in the second in which the earlier expires, so that there is always one.
    """
    # Of two who publish at once one waits here, and then sees the other's dates.
    connection.execute(select(sealing_keys.c.id).order_by(sealing_keys.c.id).with_for_update()).all()
    row = connection.execute(
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
    _check_alone(key, (each.key for each in published_keys(connection).values()))
    connection.execute(
        update(sealing_keys)
        .where(sealing_keys.c.id == key.id)
        .values(signed=signed, begins=key.begins, expires=key.expires)
    )
    return True


def published_keys(connection: Connection) -> dict[bytes, PublishedKey]:
    """The keys that the authority has signed and whose private half is there, by id; the latest to expire first."""
    rows = connection.execute(
        select(sealing_keys)
        .where(sealing_keys.c.signed.is_not(None), sealing_keys.c.private.is_not(None))
        .order_by(sealing_keys.c.expires.desc(), sealing_keys.c.id)
    )
    return {row.id: PublishedKey(SealingKey(row.public, row.begins, row.expires), row.signed) for row in rows}


def key_lives(connection: Connection) -> list[KeyLife]:
    """Of every key that was made here, the latest to expire first."""
    rows = connection.execute(select(sealing_keys).order_by(sealing_keys.c.expires.desc(), sealing_keys.c.id))
    return [
        KeyLife(row.id, row.begins, row.expires, row.private is None, row.private is not None and in_clear(row.private))
        for row in rows
    ]


def private_keys(connection: Connection, at_rest: AtRest) -> dict[bytes, X25519PrivateKey]:
    """The private keys not yet destroyed, by id. Raises StoreError where they are under another store key."""
    rows = connection.execute(_private_halves()).all()
    return {row.id: X25519PrivateKey.from_private_bytes(at_rest.taken(row.private, row.id)) for row in rows}


def encrypt_again(connection: Connection, old: AtRest, new: AtRest) -> int:
    """Put the private keys under another store key; returns how many. Raises StoreError where they are not under `old`.

    What they were before is overwritten once the store's `forget_overwritten` had its turn.
    """
    rows = connection.execute(_private_halves()).all()
    for row in rows:
        _put(connection, row.id, new.kept(old.taken(row.private, row.id), row.id))
    return len(rows)


def encrypt_in_clear(connection: Connection, at_rest: AtRest) -> bool:
    """Encrypt the private keys that are not yet; returns whether there was one, and a store key to encrypt it under."""
    rows = [row for row in connection.execute(_private_halves()).all() if in_clear(row.private)]
    if at_rest.secret is None or not rows:
        return False
    for row in rows:
        _put(connection, row.id, at_rest.kept(row.private, row.id))
    return True


def any_expired(connection: Connection, before: UnixSeconds) -> bool:
    """Whether there is a private key left that expired before this Unix time, in seconds."""
    return connection.execute(select(sealing_keys.c.id).where(_expired(before))).first() is not None


def destroy_expired(connection: Connection, before: UnixSeconds) -> int:
    """Destroy the private keys that expired before this Unix time, in seconds; returns how many."""
    return connection.execute(update(sealing_keys).where(_expired(before)).values(private=None)).rowcount


def _put(connection: Connection, id_: bytes, kept: bytes) -> None:
    connection.execute(update(sealing_keys).where(sealing_keys.c.id == id_).values(private=kept))


def _private_halves() -> Select[tuple[bytes, bytes]]:
    return select(sealing_keys.c.id, sealing_keys.c.private).where(sealing_keys.c.private.is_not(None))


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
