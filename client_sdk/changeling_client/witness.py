"""What is kept outside the store, so that a store that was put back, copied or lost is known for it.

Before anything leaves the device, the witness learns how often answers were drawn, and a random mark of the last time.
A store that has drawn less often than its witness saw, or as often but at another time, is another one: it would answer
nodes again that were answered. So it stays silent, for good.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgpack
from changeling_protocol import SurveyId

from .errors import WitnessTrouble

MARK_BYTES = 16
_FORMAT = 1
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# A witness of changeling. Backups must leave this folder out.\n"
"""The mark of folders that backups leave out: bford.info/cachedir."""


class Witness(Protocol):
    """Keeps a few hundred bytes for a store, somewhere a copy or a backup of the store does not take along."""

    def read(self) -> bytes | None:
        """What was written last; None if nothing was. Raises WitnessTrouble if that cannot be told now."""
        ...

    def write(self, seen: bytes) -> None:
        """Keeps this in place of what was written before, through a loss of power. Raises WitnessTrouble."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What a witness has seen of a store.

    identity: the store's mark, 16 bytes, which is another after each drawing, then the mark before it.
    generation: how often it had drawn answers. surveys: the ids of those joined. charges: what each of them, in the
    order of their ids, counts against the budget, in millionths.
    """

    identity: bytes
    generation: int
    surveys: frozenset[SurveyId]
    charges: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """As bytes for a witness."""
        packed: bytes = msgpack.packb([_FORMAT, self.identity, self.generation, sorted(self.surveys), self.charges])
        return packed

    @classmethod
    def decode(cls, seen: bytes) -> "Seen | None":
        """What `encode` wrote; None for anything else."""
        try:
            form, identity, generation, ids, *charges = msgpack.unpackb(seen)
            seen_of = cls(
                identity, generation, frozenset(map(SurveyId, ids)), tuple(map(int, *charges)) if charges else ()
            )
        except (ValueError, TypeError, msgpack.UnpackException):
            return None
        if form != _FORMAT or not isinstance(identity, bytes) or not isinstance(generation, int):
            return None
        return seen_of

    def admits(self, identity: bytes, generation: int) -> bool:
        """Whether a store may go on: it is the one that was seen, and as far, or one step further from there.

        One step, as it is killed perhaps between drawing answers and telling its witness; nothing of them was sent.
        """
        if generation == self.generation:
            return identity == self.identity
        follows = bool(self.identity) and identity[MARK_BYTES:] == self.identity[:MARK_BYTES]
        return follows and generation == self.generation + 1

    def charge(self, survey: SurveyId) -> int:
        """What a survey counts, in millionths; 0 if that is not known."""
        return dict(zip(sorted(self.surveys), self.charges, strict=False)).get(survey, 0)


class Callbacks:
    """A witness that the host app keeps, in a keychain or a registry that its backups leave out, say.

    read: gives what was written last, None if nothing was. write: keeps a few hundred bytes. What they raise counts as
    a witness that cannot be asked now.
    """

    def __init__(self, read: Callable[[], bytes | None], write: Callable[[bytes], None]) -> None:
        self._read, self._write = read, write

    def __str__(self) -> str:
        return "the app's own callbacks"

    def read(self) -> bytes | None:
        """What the host kept. Raises WitnessTrouble."""
        try:
            return self._read()
        except Exception as error:
            raise WitnessTrouble(f"the app's witness cannot be read: {type(error).__name__}") from error

    def write(self, seen: bytes) -> None:
        """Hands it to the host. Raises WitnessTrouble."""
        try:
            self._write(seen)
        except Exception as error:
            raise WitnessTrouble(f"the app's witness cannot be written: {type(error).__name__}") from error


class Sidecar:
    """A witness in a folder of its own, which says to backups that they leave it out.

    It knows that it was copied by the number that the file system gave its file, another one each time it is written: a
    file that is put back, or brought to another device, has another number, or has it at another turn where numbers are
    given again; one that is laid over the living file has that one's. A copy counts as what another store has written.
    folder: made when it is first written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).expanduser().absolute()
        self._tag, self._file = self._folder / "CACHEDIR.TAG", self._folder / "witness"

    def __str__(self) -> str:
        return str(self._folder)

    def read(self) -> bytes | None:
        """What was written last. If the folder was copied, it says so of a store that is no other's."""
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
                self._folder.mkdir(parents=True, exist_ok=True)
                _write_through(self._tag, _TAG.encode())
            draft = self._file.with_suffix(".new")
            draft.unlink(missing_ok=True)
            _write_through(draft, seen, numbered=True)
            os.replace(draft, self._file)
            _sync_folder(self._folder)
        except OSError as error:
            raise WitnessTrouble(f"the witness {self._folder} cannot be written: {error.strerror}") from error


def default_folder(app: str) -> Path:
    """Where the sidecar of an app's store is if the app names no place: beside what stays on a device.

    macOS leaves the caches out of its backups, not the folder for states.
    """
    import platformdirs

    place = platformdirs.user_cache_path if sys.platform == "darwin" else platformdirs.user_state_path
    return place(app, appauthor=False) / "changeling.witness"


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
        """Nothing: neither APFS nor NTFS gives a number twice."""
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


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
