"""Segments in a folder: of this machine, or one that several mount. Its owner alone can read what is in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import SegmentLost, Unwritable
from .place import Kept, Place

LEAST_FREE_BYTES = 32 * 2**20
"""With less than that on its disk a folder is as good as full."""


class Folder(Place):
    """A folder. path: absolute. make: whether to make it where there is none. Raises OSError."""

    def __init__(self, path: Path, make: bool = False) -> None:
        self.name, self.path = str(path), path
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, name: str, content: bytes) -> None:
        """Written aside, brought to the disk, and only then given its name."""
        part = self.path / f"{name}.part"
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                with os.fdopen(file, "wb", closefd=False) as writing:
                    writing.write(content)
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(part, self.path / name)
            self.sync()
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise Unwritable(f"no segment can be written to {self.name}: {error.strerror}") from error

    def get(self, name: str) -> bytes:
        """A file's bytes."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise SegmentLost(f"segment {name} cannot be read from {self.name}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        """Delete a file; its bytes stay on the disk until something else is written there."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise Unwritable(f"segment {name} cannot be deleted from {self.name}: {error.strerror}") from error

    def kept(self, *prefixes: str) -> Iterator[Kept]:
        """What is there, also what was written aside."""
        try:
            names = sorted(each for each in os.listdir(self.path) if each.startswith(prefixes))
        except OSError as error:
            raise Unwritable(f"{self.name} cannot be read: {error.strerror}") from error
        for name in names:
            with suppress(FileNotFoundError):
                status = (self.path / name).stat()
                yield Kept(name, status.st_mtime, status.st_size)

    def trouble(self) -> str | None:
        """What the file system tells."""
        try:
            status = os.statvfs(self.path)
            if status.f_flag & os.ST_RDONLY or not os.access(self.path, os.W_OK | os.X_OK):
                return f"the folder of segments {self.name} cannot be written"
            if shutil.disk_usage(self.path).free < LEAST_FREE_BYTES:
                return f"the disk of segments is full: less than {LEAST_FREE_BYTES // 2**20} MiB are free"
        except OSError as error:
            return f"the folder of segments {self.name} is gone: {error.strerror}"
        return None

    def sync(self) -> None:
        """Bring the names in it to the disk. Raises OSError."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
