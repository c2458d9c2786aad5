"""Sealing keys: made here, signed by the authority, destroyed one grace after they expire.

A private key never leaves the store but into the fold's memory.
"""

from dataclasses import dataclass

from changeling_protocol import SealingKey
from changeling_protocol.quantities import UnixSeconds
from changeling_protocol.sealing import key_id
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from .schema import sealing_keys


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """A sealing key and the signed bytes that clients check."""

    key: SealingKey
    signed: bytes


def make_key(connection: Connection) -> bytes:
    """Make a private key; returns the public one, 32 bytes, for the authority to sign."""
    private = X25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    connection.execute(
        insert(sealing_keys).values(id=key_id(public), public=public, private=private.private_bytes_raw())
    )
    return public


def publish_key(connection: Connection, key: SealingKey, signed: bytes) -> bool:
    """Put a checked signature to a key made here; False where the same one is there already.

    Raises ValueError where the key was not made here, or was published with other dates.
    """
    published = connection.execute(
        update(sealing_keys)
        .where(sealing_keys.c.id == key.id, sealing_keys.c.signed.is_(None))
        .values(signed=signed, begins=key.begins, expires=key.expires)
    )
    if published.rowcount:
        return True
    row = connection.execute(select(sealing_keys.c.signed).where(sealing_keys.c.id == key.id)).first()
    if row is None:
        raise ValueError("this server did not make that key: ask it for one with `changeling keys new`")
    if row.signed != signed:
        raise ValueError("that key is published already, with other dates: make a new one instead")
    return False


def published_keys(connection: Connection) -> dict[bytes, PublishedKey]:
    """Every key that the authority has signed, by id, whatever its dates; the latest to expire first."""
    rows = connection.execute(
        select(sealing_keys)
        .where(sealing_keys.c.signed.is_not(None))
        .order_by(sealing_keys.c.expires.desc(), sealing_keys.c.id)
    )
    return {row.id: PublishedKey(SealingKey(row.public, row.begins, row.expires), row.signed) for row in rows}


def private_keys(connection: Connection) -> dict[bytes, X25519PrivateKey]:
    """The private keys not yet destroyed, by id."""
    rows = connection.execute(
        select(sealing_keys.c.id, sealing_keys.c.private).where(sealing_keys.c.private.is_not(None))
    )
    return {row.id: X25519PrivateKey.from_private_bytes(row.private) for row in rows}


def any_expired(connection: Connection, before: UnixSeconds) -> bool:
    """Whether there is a private key left that expired before this Unix time, in seconds."""
    return connection.execute(select(sealing_keys.c.id).where(_expired(before))).first() is not None


def destroy_expired(connection: Connection, before: UnixSeconds) -> int:
    """Destroy the private keys that expired before this Unix time, in seconds; returns how many."""
    return connection.execute(update(sealing_keys).where(_expired(before)).values(private=None)).rowcount


def _expired(before: UnixSeconds) -> ColumnElement[bool]:
    return and_(sealing_keys.c.private.is_not(None), sealing_keys.c.expires < before)
