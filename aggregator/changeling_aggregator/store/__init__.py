"""The server's store: tables, transactions, and what is read and written in them.

What a store must do, whatever database holds it (tests/contracts/test_stores.py holds every store to it):

- A `Store.transaction` is kept whole, and on disk when it ends; or nothing of it is, when it raises. A `Store.view`
  sees one state.
- Any number of processes append at once, each to a stream of its own that has no gaps. (arrival, stream, position) is
  the order in which transactions were kept, so a reader that has seen an envelope has seen all before it.
- One process at a time has the turn to fold (`Store.turn_to_fold`), until it gives it back, ends, or loses its
  connection; from then on nothing more of that turn is kept. Should several fold all the same, one of them moves the
  cursors over an envelope; for the others the transaction raises Overtaken. Tallies, attendance, ids and what is held
  are written in that transaction, so each closing counts once.
- Surveys, sealing keys and refusals are written by any process at any time: what is published stays as it is, and
  counts add up.
- Where a database has levels of isolation, `view` is repeatable read and `transaction` read committed: a statement that
  waited for another transaction then sees what that one did.
- After `stop_appending` nothing is appended until the transaction ends. Arrivals that are held, and closings that are
  sealed, never go back.
- Of published keys one is valid at a time, and a key whose private half is destroyed is published no more.
- Private keys that are destroyed stand in no table's file once `forget_overwritten` had its turn while nobody was
  reading; in SQLite in no file at all, nor does what is pruned.
"""

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection

from ..segments import LoggedRequest
from .backups import back_up, opened_backup, restore
from .counts import (
    CHUNK_BYTES,
    ID_BYTES,
    AttendanceKey,
    ClosingKey,
    IdRun,
    StratumCounts,
    StratumKey,
    TallyKey,
    everybody,
)
from .database import IN_CLEAR, LEAST_FREE_BYTES, STORE_KEY_BYTES, AtRest, Database, Transactions, in_use
from .files import IdFile, Segment, segment_name, written_segment
from .log import LogRange, LogState, cursors_after, positions_after
from .registry import (
    KeptTime,
    KeyState,
    PublishedKey,
    SigningKey,
    SnapshotProgress,
    StoredSurvey,
    Token,
    TokenScope,
    hash_of,
    new_token,
    published,
    readable,
)
from .schema import VERSION
from .store import Store, Transaction, Turn, View, files_of, register_database, upgrade, version_at

NO_ANSWER = (DBAPIError, NoConnection, sqlite3.Error)
"""Raised by a store where its database fails, as with a full disk."""
STORE_FAILURES = (SQLAlchemyError, sqlite3.Error, OSError)
"""Raised by a store that cannot be read or written just now."""

__all__ = [
    "CHUNK_BYTES",
    "ID_BYTES",
    "IN_CLEAR",
    "LEAST_FREE_BYTES",
    "NO_ANSWER",
    "STORE_FAILURES",
    "STORE_KEY_BYTES",
    "VERSION",
    "AtRest",
    "AttendanceKey",
    "ClosingKey",
    "Database",
    "IdFile",
    "IdRun",
    "KeptTime",
    "KeyState",
    "LogRange",
    "LogState",
    "LoggedRequest",
    "PublishedKey",
    "Segment",
    "SigningKey",
    "SnapshotProgress",
    "Store",
    "StoredSurvey",
    "StratumCounts",
    "StratumKey",
    "TallyKey",
    "Token",
    "TokenScope",
    "Transaction",
    "Transactions",
    "Turn",
    "View",
    "back_up",
    "cursors_after",
    "everybody",
    "files_of",
    "hash_of",
    "in_use",
    "new_token",
    "opened_backup",
    "positions_after",
    "published",
    "readable",
    "register_database",
    "restore",
    "segment_name",
    "upgrade",
    "version_at",
    "written_segment",
]
