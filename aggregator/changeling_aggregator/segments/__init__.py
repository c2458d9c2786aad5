"""Where files beside the store lie: a folder, or an object store. Knows no database and no HTTP.

A file is there whole or not at all, and is never changed. Nothing here is secret: a place's name may be shown.
Credentials and endpoints of an object store come from the environment, as the store's own tools read them.
"""

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from changeling_protocol import UnixMilliseconds

from ..durable_files import sync_folder, write_durably
from ..errors import SegmentLost, StoreError, Unwritable

LEAST_FREE_BYTES = 32 * 2**20
"""With less than that on its disk a folder is as good as full."""
SECONDS = 10
"""The time that a request to an object store may take, retries included."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKETS = ("s3", "gs", "az")
_EXTRA = 'segments need their libraries: pip install "changeling[segments]"'
_ADDRESS = re.compile(r"https?://\S+ ?")


class PlacedFile(NamedTuple):
    """A file at a place. written: Unix seconds. size: bytes."""

    name: str
    written: float
    size: int


class LoggedRequest(NamedTuple):
    """An upload request as it lies in the log, in rows or in a segment; compares in the order of the log.

    arrival: Unix milliseconds. position: its number in its stream, from 1 on. body: one or many envelopes of a survey,
    as `wire.encode_upload_request` makes it.
    """

    arrival: UnixMilliseconds
    stream: int
    position: int
    body: bytes


class Place(ABC):
    """Where files lie. name: as `--segments` names it, and as the catalogue keeps it."""

    name: str

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Keep a file, durable when this returns. Raises Unwritable: then the file may be there or not."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The bytes of a file. Raises SegmentLost where it is not there or cannot be read."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it is there; what a disk or a bucket's versioning keeps of it stays. Raises Unwritable."""

    @abstractmethod
    def list(self, *prefixes: str) -> Iterator[PlacedFile]:
        """The files whose names begin with one of these; the place is listed once. Raises Unwritable where it cannot be
        read."""

    def trouble(self) -> str | None:
        """Why nothing can be kept here, as far as can be told at once; None where all is well."""
        return None


class Folder(Place):
    """A folder of this machine, or one that several mount. Its owner alone can read what is in it.

    path: absolute. make: whether to make it where there is none, and to write to that one alone: never to an empty
    folder in its place, where a file system is not mounted. Raises OSError.
    """

    def __init__(self, path: Path, make: bool = False) -> None:
        self.name, self.path = str(path), path
        self._made: os.stat_result | None = None
        if make:
            new = [each for each in (path, *path.parents) if not each.exists()]
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in new:
                sync_folder(each.parent)
            self._made = path.stat()

    def put(self, name: str, content: bytes) -> None:
        """Written aside, brought to the disk, and only then given its name."""
        try:
            self._check_made()
            write_durably(self.path / name, content)
            self._check_made()  # which may have gone while the disk was slow
        except OSError as error:
            raise Unwritable(f"no segment can be written to {self.name}: {error.strerror}") from error

    def _check_made(self) -> None:
        if self._made is not None and not os.path.samestat(self._made, self.path.stat()):
            raise Unwritable(f"the folder {self.name} is not the one that this server began with")

    def get(self, name: str) -> bytes:
        """The bytes of a file."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise SegmentLost(f"segment {name} cannot be read from {self.name}: {error.strerror}") from error

    def delete(self, name: str) -> None:
        """Delete a file; its bytes stay on the disk until something else is written there."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise Unwritable(f"segment {name} cannot be deleted from {self.name}: {error.strerror}") from error

    def list(self, *prefixes: str) -> Iterator[PlacedFile]:
        """The files that are there, also what was written aside."""
        try:
            names = sorted(each for each in os.listdir(self.path) if each.startswith(prefixes))
        except OSError as error:
            raise Unwritable(f"{self.name} cannot be read: {error.strerror}") from error
        for name in names:
            with suppress(FileNotFoundError):
                status = (self.path / name).stat()
                yield PlacedFile(name, status.st_mtime, status.st_size)

    def trouble(self) -> str | None:
        """Ask the file system."""
        try:
            status = os.statvfs(self.path)
            if status.f_flag & os.ST_RDONLY or not os.access(self.path, os.W_OK | os.X_OK):
                return f"the folder of segments {self.name} cannot be written"
            if shutil.disk_usage(self.path).free < LEAST_FREE_BYTES:
                return f"the disk of segments is full: less than {LEAST_FREE_BYTES // 2**20} MiB are free"
        except OSError as error:
            return f"the folder of segments {self.name} is gone: {error.strerror}"
        return None


class Bucket(Place):
    """An object store, or what is in it under a prefix: S3 and what speaks as it does, Google Cloud Storage, Azure.

    url: s3://BUCKET/PREFIX, gs://… or az://…. Raises Unwritable, or StoreError where its library is missing.
    """

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            raise StoreError(_EXTRA) from error
        self.name, self._obstore = url, obstore
        limits: Any = {"timeout": f"{SECONDS}s", "connect_timeout": "3s", "allow_http": True}
        retry: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=SECONDS)}
        with _named(Unwritable, url):
            self._store = from_url(url, client_options=limits, retry_config=retry)

    def put(self, name: str, content: bytes) -> None:
        """One request, which the object store does whole or not at all."""
        with _named(Unwritable, self.name):
            self._obstore.put(self._store, name, content, use_multipart=False)

    def get(self, name: str) -> bytes:
        """The bytes of an object."""
        with _named(SegmentLost, f"segment {name} of {self.name}"):
            return bytes(self._obstore.get(self._store, name).bytes())

    def delete(self, name: str) -> None:
        """Delete an object; what versioning keeps of it is the bucket's matter."""
        try:
            with _named(Unwritable, self.name):
                self._obstore.delete(self._store, name)
        except Unwritable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def list(self, *prefixes: str) -> Iterator[PlacedFile]:
        """The objects that are there; all are listed, as obstore looks for prefixes that end with a slash alone."""
        with _named(Unwritable, self.name):
            for some in self._obstore.list(self._store):
                for each in some:
                    if each["path"].startswith(prefixes):
                        yield PlacedFile(each["path"], each["last_modified"].timestamp(), each["size"])


def checked_place(words: str) -> str:
    """A place as the catalogue keeps it: an absolute path, or an object store's URL. Raises ValueError, StoreError.

    words: of the option `--segments`.
    """
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise StoreError(_EXTRA) from error
    scheme = _SCHEME.match(words)
    if scheme is None:
        return str(Path(words).absolute())
    if scheme[1] not in _BUCKETS or "@" in words or "?" in words:
        known = ", ".join(f"{each}://…" for each in _BUCKETS)
        raise ValueError(
            f"segments lie in a folder, or at {known}, and credentials in the environment: not {scheme[0]}…"
        )
    return words.rstrip("/")


@lru_cache
def place_at(name: str) -> Place:
    """The place of this name, which `checked_place` gave. Raises StoreError where its library is missing."""
    return Folder(Path(name)) if _SCHEME.match(name) is None else Bucket(name)


@contextmanager
def _named(kind: type[Exception], what: str) -> Iterator[None]:
    """Tells what obstore raises in the first line of its words, which hold a status and no credentials."""
    from obstore.exceptions import BaseError

    began = monotonic()
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if monotonic() >= began + SECONDS:
            raise kind(f"{what} does not answer within {SECONDS} seconds") from error
        words = " ".join(_ADDRESS.sub("", str(error).split("Debug source:")[0]).split())[:300]
        raise kind(f"{what} does not do what it is asked: {type(error).__name__}: {words}") from error
