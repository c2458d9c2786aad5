"""A journal: what a server has acknowledged and not yet made a segment of, in one file that only grows.

One write and one fdatasync keep all that is appended at once. What a kill or a full disk tore off at its end was never
acknowledged, and is not read.
"""

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from changeling_protocol import UnixMilliseconds

from ..errors import SegmentLost
from .folder import Folder
from .form import Row

SUFFIX = ".journal"
_HEAD = struct.Struct("<8sqq")  # the form, the first position, the time that no arrival in it is before
_FORM = b"chlgjrn1"
_RECORD = struct.Struct("<IIq")  # the body's length, a checksum of the rest, the arrival


class Read(NamedTuple):
    """What a journal holds. first: the first position. start: Unix milliseconds, which no arrival in it is before.

    torn: how many bytes at its end are no whole request.
    """

    first: int
    start: UnixMilliseconds
    rows: Sequence[Row]
    torn: int = 0


class Journal:
    """A new journal, open to be appended to. Raises OSError.

    first: the position of the first request. start: Unix milliseconds, which no arrival will be before.
    """

    def __init__(self, folder: Folder, prefix: str, first: int, start: UnixMilliseconds) -> None:
        self.path = folder.path / journal_name(prefix, first)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            self._status = os.fstat(self._file)
            _write(self._file, _HEAD.pack(_FORM, first, start))
            os.fdatasync(self._file)
            folder.sync()
        except BaseException:
            self.close()
            raise

    def append(self, arrival: UnixMilliseconds, bodies: Sequence[bytes]) -> None:
        """Keep requests, which are durable when this returns. Where it raises, append no more to this journal."""
        stamp = arrival.to_bytes(8, "little")
        pieces: list[bytes] = []
        for body in bodies:
            pieces += (_RECORD.pack(len(body), crc32(body, crc32(stamp)), arrival), body)
        _write(self._file, b"".join(pieces))
        os.fdatasync(self._file)

    def in_place(self) -> bool:
        """Whether the file still has its name: else what is written to it is lost with this process."""
        try:
            return os.path.samestat(os.stat(self.path), self._status)
        except OSError:
            return False

    def close(self) -> None:
        """Append no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Delete it, once a segment holds what is in it. Where it stays, who recovers it finds nothing new in it."""
        self.close()
        with suppress(OSError):
            self.path.unlink()


def journal_name(prefix: str, first: int) -> str:
    """prefix: of all files of its stream."""
    return f"{prefix}-{first:016d}{SUFFIX}"


def read_journal(path: Path) -> Read:
    """What was kept whole in a journal, in order. Raises OSError, or SegmentLost where its beginning is damaged."""
    content = path.read_bytes()
    form, first, start = _HEAD.unpack_from(content) if len(content) >= _HEAD.size else (b"", 0, 0)
    begun = form == _FORM and path.name.endswith(journal_name("", first))
    if not begun and len(content) <= _HEAD.size:
        return Read(2**62, UnixMilliseconds(0), [])  # killed before anything was appended
    records, end = _records(content)
    if not begun or (records and records[0][0] < start):  # which was on disk before anything was appended
        raise SegmentLost(f"journal {path} is damaged at its beginning")
    rows = [Row(first + at, *each) for at, each in enumerate(records)]
    return Read(first, start, rows, len(content) - end)


def _records(content: bytes) -> tuple[list[tuple[UnixMilliseconds, bytes]], int]:
    """The whole ones, and where the last of them ends."""
    records, at = [], _HEAD.size
    while at + _RECORD.size <= len(content):
        length, checksum, arrival = _RECORD.unpack_from(content, at)
        body = content[at + _RECORD.size : at + _RECORD.size + length]
        stamp = arrival.to_bytes(8, "little", signed=True)
        if len(body) < length or crc32(body, crc32(stamp)) != checksum:
            break
        records.append((arrival, body))
        at += _RECORD.size + length
    return records, at


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
