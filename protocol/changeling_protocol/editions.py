"""Editions: what a server published of an open survey at one moment, signed, so that strangers can check it later.

An edition holds the tallies that its figures were made of, and the hashes of the files that show them. A server signs
with a results key; the authority certifies that key as it does sealing keys. An edition is named by its own hash, and
what is published under that name never changes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from .errors import MalformedBytes
from .signing import ID_BYTES, DatedKey, SignedObject, SurveyId, authority_key
from .upload import SealingKey

HASH_BYTES = 32
_FILE_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}\.(csv|json)")
"""Names of files that show figures. They are a server's words, become parts of URLs and are written to disk, so a name
is no path, means the same on every system, and is none of the signed files beside them."""


@dataclass(frozen=True)
class ResultsKey(DatedKey):
    """A server's public Ed25519 key, 32 bytes, for signing editions from `begins` until `expires`, in Unix seconds."""

    kind: ClassVar[str] = "results-key"

    def check_key(self) -> None:
        """Refuses one under which anybody can sign."""
        authority_key(self.public)


def signed_key(encoded: bytes, authority: Iterable[bytes]) -> SealingKey | ResultsKey:
    """The key in signed bytes, of either kind. authority: the pinned public keys. Raises what `from_signed` raises."""
    pinned = list(authority)
    try:
        return SealingKey.from_signed(encoded, pinned)
    except MalformedBytes:
        return ResultsKey.from_signed(encoded, pinned)


def unverified_key(encoded: bytes) -> SealingKey | ResultsKey:
    """The key in signed bytes, of either kind, whoever signed them. Raises MalformedBytes."""
    try:
        return SealingKey.unverified(encoded)
    except MalformedBytes:
        return ResultsKey.unverified(encoded)


@dataclass(frozen=True, slots=True)
class Edition(SignedObject):
    """The results shown of a survey at one moment.

    revision: how often what is shown had changed. made: Unix seconds.
    last: the last period that counts. final: the period up to which all is shown for good.
    tracks: of each track columns of its published nodes: their numbers, their reports, and the sums of their slots, one
    node after the other. groups: of each group columns of its closings: their periods, how many entries were heard, and
    how many of these were new, or had been missed. All columns are signed 64-bit integers, little-endian.
    files: the SHA-256 of each file that shows figures, by its name: of lower-case letters, digits and hyphens, ending
    in .csv or .json.
    """

    kind: ClassVar[str] = "edition"
    survey: SurveyId
    revision: int
    made: int
    last: int
    final: int
    tracks: tuple[tuple[bytes, ...], ...]
    groups: tuple[tuple[bytes, ...], ...]
    files: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if len(self.survey) != ID_BYTES:
            raise ValueError(f"a survey's id has {ID_BYTES} bytes, got {len(self.survey)}")
        whole = {"revision": self.revision, "made": self.made, "last": self.last, "final": self.final}
        if wrong := {name: number for name, number in whole.items() if not 0 <= number < 2**63}:
            raise ValueError(f"these are from 0 to 2^63 - 1, got {wrong}")
        for columns, width in [*((each, 3) for each in self.tracks), *((each, 4) for each in self.groups)]:
            if len(columns) != width or any(len(each) % 8 for each in columns):
                raise ValueError(f"a row is {width} columns of 64-bit integers")
        if strange := [name for name in self.files if not _FILE_NAME.fullmatch(name)]:
            raise ValueError(f"an edition has no file of the name {strange[0][:80]!r}")
        if any(len(each) != HASH_BYTES for each in self.files.values()):
            raise ValueError(f"the hash of a file has {HASH_BYTES} bytes")


def edition_id(signed: bytes) -> bytes:
    """The name of an edition: the first 16 bytes of the SHA-256 of its signed bytes."""
    return sha256(signed).digest()[:ID_BYTES]
