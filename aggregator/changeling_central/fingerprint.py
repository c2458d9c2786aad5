"""Fingerprints of changelogs: a hash of a file's first rows, by which a ledger knows the data that it was made for.

A changelog grows at its end, so its first rows stay. A file that begins as another does is most likely a copy of it, of
which a new ledger would forget what the first one cost. It is a warning, not a lock: who writes the rows anew, in
another order or form, is not recognised.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """rows: how many a file had when this was taken, MOST_ROWS at most; 0 for what is no file. digest: SHA-256 of its
    header and these rows, in hex."""

    rows: int = 0
    digest: str = ""

    def __post_init__(self) -> None:
        if type(self.rows) is not int or self.rows < 0 or not isinstance(self.digest, str):
            raise ValueError("a fingerprint is a number of rows, and their digest")

    def fits(self, path: Path) -> bool:
        """Whether the file begins with these rows."""
        return self.rows > 0 and fingerprint_of(path, self.rows) == self


def fingerprint_of(path: Path, rows: int = MOST_ROWS) -> Fingerprint:
    """The fingerprint of a .csv, .csv.gz or .parquet file's first rows. rows: as many, or fewer where the file ends.

    A last line that is not ended is left out, as it may go on.
    """
    lines = list(islice(_lines(path), rows + 1))
    if len(lines) < 2:  # a header alone
        return Fingerprint()
    return Fingerprint(len(lines) - 1, sha256(b"\n".join(lines)).hexdigest())


def _lines(path: Path) -> Iterator[bytes]:
    if path.suffix == ".parquet":
        import polars as pl

        yield from pl.read_parquet(path, n_rows=MOST_ROWS).write_csv().encode().splitlines()
        return
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line.rstrip(b"\r\n")
