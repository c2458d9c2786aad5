"""A hand-over: all that a store knows of its surveys moves to another store, and the old one is retired.

The old store shows its public key, the new one answers with an invitation for that key alone, and the old one seals a
parcel to the invitation and signs it. Moved, never copied: the transaction that packs a parcel forgets what is in it,
and the witness hears of that before anybody sees the parcel; the one that unpacks it destroys the only key that opens
it. So killed anywhere, at most one of the two stores answers. Chances, spent budget and what waits to be sent go along:
the two lives together are one. Knows no network: the app carries the bytes.
"""

from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgpack
from changeling_protocol import ID_BYTES, Standing, SurveyId, authority_key
from changeling_protocol.upload import hpke_seal, hpke_unseal
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from . import entries, witness
from .entries import Known, Status
from .store import VERSION, ClientStore, StoreConnection, Wrapping, reading

_CONTEXT = b"changeling hand-over"
_SIGNATURE_BYTES = 64
_GIVER, _TAKER = "giver", entries.TAKER
_TABLES = {"entries": 2, "drawn": 2, "closings": 3}
"""Tables whose last column is encrypted, for its place: by how many columns, the first of them the survey."""
_LIVED = (Status.JOINED, Status.ENDED)
"""These a parcel has once, as they are MOVED where it was packed."""
_LEFT = (Status.LEFT, Status.SILENCED)
"""These every parcel has, so that they are joined nowhere again."""
_SETTLED = (Status.ENDED, *_LEFT)
"""Surveys of these standings stay as they are, whatever is handed over to their store."""


def own_key(store: ClientStore) -> bytes:
    """The public key that a store signs its parcels with, 32 bytes; it is made when it is first asked for."""
    with store.transaction() as db:
        secret, peer, parcel = _kept(db, store.wrapping, _GIVER)
        if not secret:
            secret = Ed25519PrivateKey.generate().private_bytes_raw()
            _keep(db, store.wrapping, _GIVER, secret, peer, parcel)
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def invite(store: ClientStore, giver: bytes | None) -> bytes:
    """An invitation to the store with this key, the same as long as it is open; None withdraws it.

    Raises ValueError for a bad key, or in a store that has itself answered for an entry.
    """
    with store.transaction() as db:
        if giver is None:
            db.execute("DELETE FROM hand_over WHERE role = ?", (_TAKER,))
            return b""
        authority_key(giver)
        secret, peer, _ = _kept(db, store.wrapping, _TAKER)
        if not secret or peer != giver:
            for known in entries.find_surveys(db, Status.JOINED):
                if _has_answered(db, known.id):
                    raise ValueError(f"this store has itself answered for the survey {known.id.hex()}")
            secret = X25519PrivateKey.generate().private_bytes_raw()
            _keep(db, store.wrapping, _TAKER, secret, giver, b"")
    return _invitation(secret)


def pack(store: ClientStore, invitation: bytes) -> bytes:
    """Packs a parcel for this invitation and retires the store; once more for the same one, it is the same parcel.

    Called by who holds `store.reporting`, as nothing may be on its way; and none of it may leave the device before
    `witness.check` was called. Raises ValueError for an invitation that is none, or of another version of the SDK.
    """
    with store.transaction() as db:
        secret, peer, parcel = _kept(db, store.wrapping, _GIVER)
        if not secret:
            raise ValueError("nobody was shown the key of this store: there can be no invitation for it")
        if parcel and peer == invitation:
            return parcel
        if len(invitation) != 33 or invitation[0] != VERSION:
            raise ValueError("this is no invitation, or one of another version of the SDK")
        if entries.is_awaited(db):
            raise ValueError("this store waits itself for what another one hands over")
        moving = entries.find_surveys(db, Status.ASKED, Status.JOINED, Status.ENDED)
        if parcel and not moving:
            raise ValueError("all was handed over already, for another invitation: no other parcel has anything in it")
        private = Ed25519PrivateKey.from_private_bytes(secret)
        recipient = X25519PublicKey.from_public_bytes(invitation[1:])
        sealed = hpke_seal(_packed(db, store.wrapping), recipient, _CONTEXT, X25519PrivateKey.generate())
        parcel = private.sign(_CONTEXT + invitation + sealed) + sealed
        for known in moving:
            entries.end_survey(db, known, Status.MOVED)
        for known in entries.find_surveys(db, *_LEFT):
            entries.put_survey(db, known._replace(handed_over=True))
        witness.outdate(db)
        _keep(db, store.wrapping, _GIVER, secret, invitation, parcel)
    return parcel


def unpack(store: ClientStore, parcel: bytes, most: Decimal) -> tuple[SurveyId, ...]:
    """Takes over what is in a parcel, once; the same one once more changes nothing. Returns the surveys that go on.

    What this store has joined itself, and not answered, gives way to it; where the sum is then above `most`, all of it.
    What an entry of it may have answered before it left stays charged.
    Called by who holds `store.reporting`, after `witness.check`.
    Raises ValueError for a parcel that was not packed for this store's open invitation by the key it was made for.
    """
    with store.transaction() as db:
        secret, giver, taken = _kept(db, store.wrapping, _TAKER)
        digest = sha256(parcel).digest()
        if not taken or taken != digest:
            if not secret:
                raise ValueError("no invitation of this store is open")
            left = _with_departed(db)
            _unpack(db, store.wrapping, _opened(parcel, secret, giver))
            left |= _with_departed(db)
            _keep(db, store.wrapping, _TAKER, b"", giver, digest)
            for known in entries.find_surveys(db, Status.JOINED):
                spared = not known.charge_micro or known.id in left or _has_answered(db, known.id)
                if entries.spent(db) > most and not spared:
                    _give_way(db, known)
            witness.advance(db)
        return tuple(known.id for known in entries.find_surveys(db, Status.ASKED, Status.JOINED))


def _has_answered(db: StoreConnection, survey: SurveyId) -> bool:
    query = "SELECT 1 FROM entries WHERE survey = ? AND standing <> ? LIMIT 1"
    return db.execute(query, (survey, Standing.NEW)).fetchone() is not None


def _with_departed(db: StoreConnection) -> set[SurveyId]:
    """The surveys that an entry of this store has left: it may have answered before, nothing says whether it did."""
    return {SurveyId(survey) for (survey,) in db.execute("SELECT DISTINCT survey FROM departed")}


def _give_way(db: StoreConnection, known: Known) -> None:
    entries.delete_entries(db, known.id)
    reason = "TooCostly: with what was handed over, the sum would be above max_epsilon"
    entries.put_survey(db, known._replace(status=Status.REFUSED, charge_micro=0, payload=b"", reason=reason))


def _invitation(secret: bytes) -> bytes:
    return bytes([VERSION]) + X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _packed(db: StoreConnection, wrapping: Wrapping) -> bytes:
    surveys = [tuple(known) for known in entries.find_surveys(db) if known.status is not Status.REFUSED]
    tables = {
        name: [
            (*row[:-1], wrapping.unwrap(row[-1], *row[:keys]))
            for row in db.execute(f"SELECT * FROM {name}")  # noqa: S608
        ]
        for name, keys in _TABLES.items()
    }
    others = {known.id: len(read.questions) - 1 for known in entries.find_surveys(db) if (read := known.readable)}
    tables["entries"] = [(*row[:-1], entries.filled_up(row[-1], others.get(row[0], 0))) for row in tables["entries"]]
    departed = [tuple(row) for row in db.execute("SELECT survey, number FROM departed")]
    packed: bytes = msgpack.packb([surveys, tables, departed])
    return packed


def _opened(parcel: bytes, secret: bytes, giver: bytes) -> Any:
    signature, sealed = parcel[:_SIGNATURE_BYTES], parcel[_SIGNATURE_BYTES:]
    try:
        authority_key(giver).verify(signature, _CONTEXT + _invitation(secret) + sealed)
        return msgpack.unpackb(hpke_unseal(sealed, X25519PrivateKey.from_private_bytes(secret), _CONTEXT))
    except (InvalidSignature, InvalidTag, ValueError):
        raise ValueError(
            "this parcel was not packed for this store's invitation by the store it was made for"
        ) from None


def _unpack(db: StoreConnection, wrapping: Wrapping, content: Any) -> None:
    surveys, tables, departed = content
    settled, left = set(), _with_departed(db)
    for id_, *_, payload, _stratum, _reason, _handed_over in surveys:
        if payload and sha256(payload).digest()[:ID_BYTES] != id_:
            raise ValueError("a survey in this parcel is another one than it says")
    for id_, status, *fields in surveys:
        known, here = Known(SurveyId(id_), Status(status), *fields), entries.find_survey(db, id_)
        goes_on = here is not None and here.status is Status.JOINED and known.status is Status.MOVED
        if here is not None and (here.status in _SETTLED or goes_on):
            settled.add(id_)
            lived = here.charge_micro, known.charge_micro
            counted = here.handed_over or known.handed_over  # in another parcel
            both = known.status in (*_LIVED, *(() if counted else _LEFT))
            kept = here.handed_over and known.handed_over
            known = here._replace(charge_micro=sum(lived) if both else max(lived), handed_over=kept)
        else:
            if here is not None and id_ in left:
                known = known._replace(charge_micro=here.charge_micro + known.charge_micro)
            entries.delete_entries(db, known.id)
            db.execute("DELETE FROM departed WHERE survey = ?", (known.id,))
        entries.put_survey(db, known)
    gone = [(*row,) for row in departed if row[0] not in settled]
    db.executemany("INSERT INTO departed VALUES (?, ?)", gone)
    for name, keys in _TABLES.items():
        rows = [(*row[:-1], wrapping.wrap(row[-1], *row[:keys])) for row in tables[name] if row[0] not in settled]
        if rows:
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608


@reading
def _kept(db: StoreConnection, wrapping: Wrapping, role: str) -> tuple[bytes, bytes, bytes]:
    """A role's private key, the other side's public one, and the parcel; empty where there is none."""
    row = db.execute("SELECT secret, peer, parcel FROM hand_over WHERE role = ?", (role,)).fetchone()
    return (b"", b"", b"") if row is None else (wrapping.unwrap(row[0], _CONTEXT), row[1], row[2])


def _keep(db: StoreConnection, wrapping: Wrapping, role: str, secret: bytes, peer: bytes, parcel: bytes) -> None:
    db.execute("DELETE FROM hand_over WHERE role = ?", (role,))
    db.execute("INSERT INTO hand_over VALUES (?, ?, ?, ?)", (role, wrapping.wrap(secret, _CONTEXT), peer, parcel))
