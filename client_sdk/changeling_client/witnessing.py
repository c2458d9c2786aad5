"""How a store and its witness are held against each other, and what becomes of surveys if they do not agree.

Every time answers are drawn, or surveys left, the store counts one generation more in the same transaction; before any
answer leaves the device, the witness is told. All looking is done inside of a transaction, so that no other process
draws meanwhile.
"""

import os
import sqlite3
from dataclasses import replace

from changeling_protocol import SurveyId

from . import enrolment, surveys
from .errors import ClientError, Silenced, WitnessTrouble
from .surveys import Status
from .witness import MARK_BYTES, Seen, Witness


def check(db: sqlite3.Connection, witness: Witness | None) -> Silenced | None:
    """Looks whether the store is the one that the witness has seen, and as far. If it is not, its surveys are silenced.

    A store that is not witnessed yet is from now on; surveys that an earlier store of this witness had joined are never
    joined by this one. Returns what there is to tell the app. Raises WitnessTrouble.
    """
    identity, generation, witnessed = db.execute("SELECT identity, generation, witnessed FROM device").fetchone()
    if witness is None:
        db.execute("UPDATE device SET witnessed = 0 WHERE witnessed")
        return None
    kept = witness.read()
    seen = None if kept is None else Seen.decode(kept)
    if seen is not None and seen.admits(identity, generation):
        db.execute("UPDATE device SET witnessed = 1 WHERE NOT witnessed")
        if seen.generation != generation:
            tell(db, witness)
        return None
    doubted = {known.id for known in surveys.find_all(db, Status.ASKED, Status.JOINED)} if witnessed else set()
    if seen is not None:
        doubted = {known.id for known in surveys.find_all(db, Status.JOINED)} & doubted | seen.surveys
    silenced = set()
    for id_ in doubted:
        known = surveys.find(db, id_) or surveys.unknown(id_)
        if known.status in (Status.ASKED, Status.JOINED, Status.REFUSED):
            charge = max(known.charge_micro, 0 if seen is None else seen.charge(id_))
            enrolment.end(db, replace(known, charge_micro=charge), Status.SILENCED)
            silenced.add(id_)
    if witnessed or kept is not None:
        db.execute("UPDATE device SET identity = ?", (os.urandom(MARK_BYTES),))
    db.execute("UPDATE device SET witnessed = 1")
    tell(db, witness, seen)
    if not silenced:
        return None
    (_, _, store), *_ = db.execute("PRAGMA database_list")
    return Silenced(
        f"{store} is not the store that its witness, {witness}, saw; silent for good on this device: "
        f"{', '.join(sorted(map(bytes.hex, silenced)))}. Who deleted a store by hand while developing deletes the "
        "witness as well to start anew"
    )


def advance(db: sqlite3.Connection) -> None:
    """Counts that answers are drawn in this transaction, and marks the store anew."""
    (identity,) = db.execute("SELECT identity FROM device").fetchone()
    marks = os.urandom(MARK_BYTES) + identity[:MARK_BYTES]
    db.execute("UPDATE device SET generation = generation + 1, identity = ?", (marks,))


def outdate(db: sqlite3.Connection, witness: Witness | None) -> ClientError | None:
    """Counts that surveys are left in this transaction, so that a store of before is an old one.

    Not while the witness cannot be asked: whoever leaves does not wait for it. Returns what there is to tell the app.
    """
    try:
        silenced = check(db, witness)
    except WitnessTrouble as error:
        return error
    advance(db)
    return silenced


def disown(witness: Witness | None) -> None:
    """Tells the witness that its store is gone for good. Raises WitnessTrouble."""
    kept = None if witness is None else witness.read()
    if witness is not None and kept is not None and (seen := Seen.decode(kept)) is not None:
        witness.write(replace(seen, identity=b"").encode())


def tell(db: sqlite3.Connection, witness: Witness | None, before: Seen | None = None) -> None:
    """Tells the witness how far the store is: nothing that was drawn may leave before. Raises WitnessTrouble.

    before: what an earlier store had told it; the surveys of that one are not forgotten.
    """
    if witness is None:
        return
    identity, generation = db.execute("SELECT identity, generation FROM device").fetchone()
    never_asked = {Status.ASKED, Status.REFUSED}
    joined = {
        SurveyId(known.id): known.charge_micro for known in surveys.find_all(db) if known.status not in never_asked
    }
    if before is not None:
        joined = {**{id_: before.charge(id_) for id_ in before.surveys}, **joined}
    charges = tuple(joined[id_] for id_ in sorted(joined))
    witness.write(Seen(identity, generation, frozenset(joined), charges).encode())
