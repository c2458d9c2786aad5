"""A saved snapshot that overwrites the one before, byte for byte in one place: what pan-privacy asks of a disk.

A file of fixed length, written in place and flushed; no copy beside it, no rename, no journal of ours. A crash in the
midst of writing leaves a file that is refused, so the release ends rather than draw twice. Below the file system we
promise nothing: copying file systems, snapshots and flash may keep old blocks; use a disk that does not, or none.
"""

import os
from hashlib import sha256
from pathlib import Path

from ..errors import BadState

_HEAD = 32 + 4


def overwrite(path: Path, content: bytes, length: int = 4096) -> None:
    """Write a saved state over the one before.

    content: what the mechanism's `saved` wrote. length: of the file, in bytes, the same every time.
    ValueError if the state takes more, or the file has another length: it then stays as it was. OSError for a write
    that was cut short.
    """
    if len(content) + _HEAD > length:
        raise ValueError(f"the state takes {len(content) + _HEAD} bytes, and the file has {length}")
    whole = sha256(content).digest() + len(content).to_bytes(4, "big") + content
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size not in (0, length):
            raise ValueError(f"{path} does not have {length} bytes: it holds something else")
        if (written := os.pwrite(descriptor, whole.ljust(length, b"\0"), 0)) < length:
            raise OSError(f"{path} holds {written} of {length} bytes: the disk is full, and the state there is lost")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_over(path: Path) -> bytes:
    """The saved state that was last written. Raises BadState for a file that is not whole."""
    written = path.read_bytes()
    content = written[_HEAD : _HEAD + int.from_bytes(written[32:_HEAD], "big")]
    if len(written) < _HEAD or sha256(content).digest() != written[:32]:
        raise BadState(f"{path} is not a whole state; without it nothing more can be released safely")
    return content
