"""The witness: what is kept outside the store, so that a store that was put back, copied or lost is known for it.

Every time answers are drawn, or surveys left, the store counts one generation more and draws a random mark in the same
transaction; before any answer leaves the device, the witness learns both. A store that has drawn less often than its
witness saw, or as often but at another time, is another one: it would answer nodes again that were answered. So it
stays silent, for good.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgpack
from changeling_protocol import SurveyId

from . import entries
from .entries import Known, Status
from .errors import Silenced, StoreReadOnly, WitnessTrouble
from .store import ClientStore, StoreConnection, sync_folder

_MARK_BYTES = 16
_UNSEEN, _SEEN, _OUTDATED = range(3)
"""A witness has not seen the store, or has, or has to be told that surveys were left since."""
_MOST_SWAPS = 8
_DAMAGED = b"\0"
"""Stands for what was too short to be a witness: something was there, and says nothing of a store."""
_FORMAT = 1
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# A witness of changeling. Backups must leave this folder out.\n"
"""The mark of folders that backups leave out: bford.info/cachedir."""


class Witness(Protocol):
    """Keeps a few hundred bytes for a store, somewhere a copy or a backup of the store does not take along."""

    def read(self) -> bytes | None:
        """Returns what was written last; None if nothing was. Raises WitnessTrouble if that cannot be told now."""
        ...

    def write(self, seen: bytes) -> None:
        """Keeps this in place of what was written before, through a loss of power. Raises WitnessTrouble."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """A store as its witness has seen it.

    identity: the store's mark, 16 bytes, which is another after each drawing, then the mark before it.
    generation: how often it had drawn answers. charges: the ids of the surveys joined, with what each counts against
    the budget, in millionths.
    """

    identity: bytes
    generation: int
    charges: Mapping[SurveyId, int]

    def encode(self) -> bytes:
        """Encodes it as bytes for a witness."""
        packed: bytes = msgpack.packb([_FORMAT, self.identity, self.generation, dict(sorted(self.charges.items()))])
        return packed

    @classmethod
    def decode(cls, seen: bytes) -> "Seen | None":
        """Reads what `encode` wrote; None for anything else."""
        try:
            form, identity, generation, charges = msgpack.unpackb(seen)
        except (ValueError, TypeError, msgpack.UnpackException):
            return None
        types = bytes, int, dict
        if form != _FORMAT or not all(map(isinstance, (identity, generation, charges), types)):
            return None
        return cls(identity, generation, charges)

    def admits(self, identity: bytes, generation: int) -> bool:
        """True if a store may go on: it is the one that was seen, and as far, or one step further from there.

        One step, as it is killed perhaps between drawing answers and telling its witness; nothing of them was sent.
        """
        if generation == self.generation:
            return identity == self.identity
        follows = bool(self.identity) and identity[_MARK_BYTES:] == self.identity[:_MARK_BYTES]
        return follows and generation == self.generation + 1


@contextmanager
def _host(done: str) -> Iterator[None]:
    """Makes WitnessTrouble of whatever the host's callback raises; its words may hold a secret."""
    try:
        yield
    except Exception as error:
        raise WitnessTrouble(f"the app's witness cannot be {done}: {type(error).__name__}") from error


class Callbacks:
    """A witness that the host app keeps, in a keychain or a registry that its backups leave out, say.

    read: gives what was written last, None if nothing was. write: keeps a few hundred bytes. What they raise counts as
    a witness that cannot be asked now.
    """

    def __init__(self, read: Callable[[], bytes | None], write: Callable[[bytes], object]) -> None:
        self._read, self._write = read, write

    def __str__(self) -> str:
        return "the app's own callbacks"

    def read(self) -> bytes | None:
        """Returns what the host kept. Raises WitnessTrouble."""
        with _host("read"):
            return self._read()

    def write(self, seen: bytes) -> None:
        """Hands it to the host. Raises WitnessTrouble."""
        with _host("written"):
            self._write(seen)


class SharedCallbacks:
    """A witness that the host app keeps for pods which share a store, where no backup of their database reaches.

    A pod that is cut off from the database may tell its witness late, when others have gone on. So nothing is written
    but in place of what this pod has read; and reading puts a new mark beside it, after which all who read before are
    refused. Only then does a pod look at the store, of which it is still the one that reports, or is told that it lost
    it. Clients may be given the same object; each has a copy of its own.

    read: gives what was put there last, None if nothing was. swap(expected, new): puts a few hundred bytes there if it
    still holds what is expected, None for nothing, in one step whatever others do meanwhile. Returns True if it did,
    False if it holds something else. What they raise counts as a witness that cannot be asked now.

    >>> kept = [None]
    >>> def swap(expected, new):
    ...     held = kept[0] == expected  # here nobody comes between; for pods, the place they share compares and sets
    ...     kept[:] = [new] if held else kept
    ...     return held
    >>> one, other = (SharedCallbacks(lambda: kept[0], swap) for _ in range(2))
    >>> one.read(), other.read()
    (None, None)
    >>> one.write(b"behind")
    Traceback (most recent call last):
        ...
    changeling_client.errors.WitnessTrouble: another pod has asked the witness since; what it saw is read anew
    >>> other.write(b"seen")
    >>> one.read()
    b'seen'
    """

    def __init__(self, read: Callable[[], bytes | None], swap: Callable[[bytes | None, bytes], bool]) -> None:
        self._read, self._swap = read, swap
        self._held = b""

    def __str__(self) -> str:
        return "the app's own callbacks, which pods share"

    def read(self) -> bytes | None:
        """Returns what was written last, once nobody who read it before can write any more. Raises WitnessTrouble."""
        for _ in range(_MOST_SWAPS):
            with _host("read"):
                kept = self._read()
            seen = None if kept is None or len(kept) == _MARK_BYTES else kept[_MARK_BYTES:] or _DAMAGED
            if self._put(kept, os.urandom(_MARK_BYTES) + (seen or b"")):
                return seen
        raise WitnessTrouble("the app's witness is another at each reading: `swap` has to return True if it has put it")

    def write(self, seen: bytes) -> None:
        """Puts it in place of what `read` returned last. Raises WitnessTrouble, also if another has read since."""
        if not self._put(self._held, self._held[:_MARK_BYTES] + seen):
            raise WitnessTrouble("another pod has asked the witness since; what it saw is read anew")

    def _put(self, expected: bytes | None, new: bytes) -> bool:
        with _host("written"):
            done = self._swap(expected, new)
        if done:
            self._held = new
        return done


class Sidecar:
    """A witness in a folder of its own, which says to backups that they leave it out.

    It knows that it was copied by the number that the file system gave its file, another one each time it is written: a
    file that is put back, or brought to another device, has another number, or has it at another turn where numbers are
    given again; one that is laid over the living file has that one's. A copy counts as what another store has written.
    folder: made when it is first written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        with known_home():
            self._folder = Path(folder).expanduser().absolute()
        self._tag, self._file = self._folder / "CACHEDIR.TAG", self._folder / "witness"

    def __str__(self) -> str:
        return str(self._folder)

    def read(self) -> bytes | None:
        """Returns what was written last. If the folder was copied, it says so of a store that is no other's."""
        try:
            self._tag.stat()
            with open(self._file, "rb") as file:
                kept, number = file.read(), _number(file.fileno())
            if kept.startswith(number):
                return kept[len(number) :]
            seen = Seen.decode(kept[len(number) :])
            return b"" if seen is None else replace(seen, identity=b"").encode()
        except FileNotFoundError:
            return b"" if self._folder.exists() else None
        except OSError as error:
            raise WitnessTrouble(f"the witness {self._folder} cannot be read: {error.strerror}") from error

    def write(self, seen: bytes) -> None:
        """Writes it beside, then puts it in place at once."""
        try:
            if not self._tag.exists():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if sys.platform == "darwin":
                    leave_out_of_backups(self._folder)
                _write_through(self._tag, _TAG.encode())
            draft = self._file.with_suffix(".new")
            draft.unlink(missing_ok=True)
            _write_through(draft, seen, numbered=True)
            os.replace(draft, self._file)
            sync_folder(self._folder)
        except OSError as error:
            raise WitnessTrouble(f"the witness {self._folder} cannot be written: {error.strerror}") from error


def default_folder(app: str) -> Path:
    """Where the sidecar of an app's store is if the app names no place: among what stays on a device.

    On macOS that is Application Support, which nothing cleans, and which backups take along but for what is marked.
    """
    import platformdirs

    with known_home():
        return platformdirs.user_state_path(app, appauthor=False) / "changeling.witness"


_EXCLUDED = "com.apple.metadata:com_apple_backup_excludeItem"
"""The mark that `tmutil addexclusion` sets: Time Machine leaves out what bears it, wherever it is moved."""


def leave_out_of_backups(folder: Path, c_library: Any = None) -> None:
    """Marks a folder on macOS, so that backups leave it out. Where it cannot be marked, a copy is known all the same.

    c_library: has macOS's setxattr, which Python does not; None for the process's own.
    """
    import ctypes
    import plistlib

    mark = plistlib.dumps("com.apple.backupd", fmt=plistlib.FMT_BINARY)
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None) if c_library is None else c_library
        place, none = ctypes.c_uint32(0), ctypes.c_int(0)
        library.setxattr(os.fsencode(folder), _EXCLUDED.encode(), mark, ctypes.c_size_t(len(mark)), place, none)


@contextmanager
def known_home() -> Iterator[None]:
    """Makes StoreReadOnly of what is raised where nobody can tell the folder of the user, as of some services."""
    try:
        yield
    except (RuntimeError, KeyError, OSError) as error:
        raise StoreReadOnly(
            f"no folder for an app's data is known here ({error}): pass `path` and `witness`"
        ) from error


if sys.platform == "linux":
    import fcntl

    _GET_VERSION = 0x80087601
    """FS_IOC_GETVERSION of `linux/fs.h`, as most machines spell it."""

    def _turn(handle: int) -> bytes:
        """Tells files apart that had the same number one after the other: a few bytes, the same as long as it lives.

        ext4 and XFS give the number of a file that is gone to the next one. Where nobody can say, all are alike.
        """
        try:
            return fcntl.ioctl(handle, _GET_VERSION, bytes(8))
        except OSError:
            return bytes(8)

else:

    def _turn(_handle: int) -> bytes:
        """No bytes that tell files apart: neither APFS nor NTFS gives a number twice."""
        return bytes(8)


def _number(handle: int) -> bytes:
    return (os.fstat(handle).st_ino % 2**64).to_bytes(8) + _turn(handle)


def _write_through(file: Path, content: bytes, numbered: bool = False) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
    try:
        content = (_number(handle) if numbered else b"") + content
        while content:  # a disk that is nearly full takes a part, and says no only then
            content = content[os.write(handle, content) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def check(store: ClientStore, witness: Witness | None) -> Silenced | None:
    """Looks whether a store is the one that the witness has seen, and as far. If it is not, its surveys are silenced.

    A store that is not witnessed yet is from now on; surveys that an earlier store of this witness had joined are never
    joined by this one. The witness is asked and told outside of any transaction, as a host may have it wait for a
    thread that records just then. Called by who holds `store.reporting`, so that nobody draws meanwhile.
    Returns what there is to tell the app. Raises WitnessTrouble.
    """
    if witness is None:
        with store.transaction() as db:
            db.execute("UPDATE device SET witnessed = ? WHERE witnessed > 0", (_UNSEEN,))
        return None
    kept = witness.read()
    seen = None if kept is None else Seen.decode(kept)
    silenced: set[SurveyId] = set()
    with store.transaction() as db:
        identity, generation, witnessed = db.execute("SELECT identity, generation, witnessed FROM device").fetchone()
        admitted = seen is not None and seen.admits(identity, generation)
        if not admitted:
            silenced = _silence(db, seen, bool(witnessed))
            db.execute("UPDATE device SET identity = ?, witnessed = ?", (os.urandom(_MARK_BYTES), _UNSEEN))
            if witnessed or kept is not None:
                db.execute("DELETE FROM hand_over")  # a copy opens no parcel
        elif witnessed == _OUTDATED:
            advance(db)
            db.execute("UPDATE device SET witnessed = ?", (_SEEN,))
        now = _as_seen(db, None if admitted else seen)
    try:
        if seen is None or not admitted or seen.generation != now.generation:
            witness.write(now.encode())  # nothing that was drawn may leave before
        with store.transaction() as db:  # only now: no store counts as seen by a witness that has not heard of it
            db.execute("UPDATE device SET witnessed = ? WHERE witnessed = ?", (_SEEN, _UNSEEN))
    except WitnessTrouble:
        if not silenced:  # else the app hears of that first; the witness is told by the next check
            raise
    if not silenced:
        return None
    return Silenced(
        f"{store.place} is not the store that its witness, {witness}, saw: {_cause(kept, seen, generation)}. Silent "
        f"for good on this device: {', '.join(sorted(map(bytes.hex, silenced)))}. Who deleted a store by hand while "
        "developing deletes the witness as well to start anew",
        tuple(sorted(silenced)),
    )


def _silence(db: StoreConnection, seen: Seen | None, witnessed: bool) -> set[SurveyId]:
    """Silences what the store, or an earlier one of this witness, may have answered elsewhere. Returns the surveys.

    seen: what the witness knows; None if nothing. witnessed: whether any witness had seen the store before.
    """
    doubted = {known.id for known in entries.find_surveys(db, Status.ASKED, Status.JOINED)} if witnessed else set()
    if seen is not None:
        doubted = {known.id for known in entries.find_surveys(db, Status.JOINED)} & doubted | seen.charges.keys()
    silenced = set()
    for id_ in doubted:
        known = entries.find_survey(db, id_) or Known(id_)
        if known.status in (Status.ASKED, Status.JOINED, Status.REFUSED):
            charge = max(known.charge_micro, 0 if seen is None else seen.charges.get(id_, 0))
            entries.end_survey(db, known._replace(charge_micro=charge), Status.SILENCED)
            silenced.add(id_)
    return silenced


def _cause(kept: bytes | None, seen: Seen | None, generation: int) -> str:
    """The cause, as far as it can be told."""
    if kept is None:
        return "the witness is gone; its folder was cleaned, or this is another device or installation"
    if seen is None or not seen.identity:
        return "the witness was copied or damaged, or its store destroyed"
    if generation < seen.generation:
        return "the store was put back or made anew; the app was installed again, perhaps"
    return "it is a copy, or was put back"


def advance(db: StoreConnection) -> None:
    """Counts that answers are drawn in this transaction, and marks the store anew."""
    (identity,) = db.execute("SELECT identity FROM device").fetchone()
    marks = os.urandom(_MARK_BYTES) + identity[:_MARK_BYTES]
    db.execute("UPDATE device SET generation = generation + 1, identity = ?", (marks,))


def outdate(db: StoreConnection) -> None:
    """Notes that surveys are left in this transaction, so that from the next `check` on a store of before is old."""
    db.execute("UPDATE device SET witnessed = ? WHERE witnessed > 0", (_OUTDATED,))


def disown(witness: Witness | None) -> None:
    """Tells the witness that its store is gone for good. Raises WitnessTrouble."""
    kept = None if witness is None else witness.read()
    if witness is not None and kept is not None and (seen := Seen.decode(kept)) is not None:
        witness.write(replace(seen, identity=b"").encode())


def _as_seen(db: StoreConnection, before: Seen | None) -> Seen:
    """The store as a witness sees it now. before: an earlier store's; the surveys of that one are not forgotten."""
    identity, generation = db.execute("SELECT identity, generation FROM device").fetchone()
    never_joined = {Status.ASKED, Status.REFUSED}
    charges = {} if before is None else dict(before.charges)
    charges |= {known.id: known.charge_micro for known in entries.find_surveys(db) if known.status not in never_joined}
    return Seen(identity, generation, charges)
