"""From the words of `--segments` to the place."""

import re
from functools import lru_cache
from pathlib import Path

from ..errors import StoreError
from .folder import Folder
from .place import Place

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKETS = ("s3", "gs", "az")
_EXTRA = 'segments need their libraries: pip install "changeling[segments]"'


def checked_place(words: str) -> str:
    """A place as the catalogue keeps it: an absolute path, or an object store's URL. Raises ValueError, StoreError."""
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
    if _SCHEME.match(name) is None:
        return Folder(Path(name))
    try:
        from .bucket import Bucket
    except ModuleNotFoundError as error:
        raise StoreError(_EXTRA) from error
    return Bucket(name)
