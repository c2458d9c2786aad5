"""Segments in an object store, by obstore: S3 and what speaks as it does, Google Cloud Storage, Azure.

Credentials and endpoints come from the environment, as the store's own tools read them; none is in a name.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from ..errors import SegmentLost, Unwritable
from .place import Kept, Place

SECONDS = 10
"""So long a request may take, with what is tried again."""
_ADDRESS = re.compile(r"https?://\S+ ?")


class Bucket(Place):
    """A bucket, or what is in it under a prefix. url: s3://BUCKET/PREFIX, gs://… or az://…. Raises Unwritable."""

    def __init__(self, url: str) -> None:
        self.name = url
        patience: Any = {"timeout": f"{SECONDS}s", "connect_timeout": "3s", "allow_http": True}
        retry: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=SECONDS)}
        with _named(Unwritable, url):
            self._store = from_url(url, client_options=patience, retry_config=retry)

    def put(self, name: str, content: bytes) -> None:
        """One request, which the object store does whole or not at all."""
        with _named(Unwritable, self.name):
            obstore.put(self._store, name, content, use_multipart=False)

    def get(self, name: str) -> bytes:
        """An object's bytes."""
        with _named(SegmentLost, f"segment {name} of {self.name}"):
            return bytes(obstore.get(self._store, name).bytes())

    def remove(self, name: str) -> None:
        """Delete an object; what versioning keeps of it is the bucket's matter."""
        try:
            with _named(Unwritable, self.name):
                obstore.delete(self._store, name)
        except Unwritable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def kept(self, *prefixes: str) -> Iterator[Kept]:
        """All that is there is listed: obstore looks for prefixes that end with a slash alone."""
        with _named(Unwritable, self.name):
            for some in obstore.list(self._store):
                for each in some:
                    if each["path"].startswith(prefixes):
                        yield Kept(each["path"], each["last_modified"].timestamp(), each["size"])

    def trouble(self) -> str | None:
        """Nothing can be told without asking it, which each commit does."""
        return None


@contextmanager
def _named(kind: type[Exception], what: str) -> Iterator[None]:
    """Tells what obstore raises in the first line of its words, which hold a status and no credentials."""
    began = monotonic()
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if monotonic() >= began + SECONDS:
            raise kind(f"{what} does not answer within {SECONDS} seconds") from error
        words = " ".join(_ADDRESS.sub("", str(error).split("Debug source:")[0]).split())[:300]
        raise kind(f"{what} does not do what it is asked: {type(error).__name__}: {words}") from error
