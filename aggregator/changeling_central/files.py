"""The files of a release: its state, replaced in one piece, and its output, appended at a known place.

A state is its bytes and their SHA-256, readable by its owner alone, as it may hold true sums; it is on the disk before
anything is published, and held by one process. Whoever publishes only after `save` has returned never draws twice for a
node that somebody saw. The output is CSV or JSON lines by the file's suffix, and opens with what the release says of
itself. Where its next rows go is part of the state: after a crash the file is cut back to that place and the pending
rows are written again, byte for byte, so that no row is missing, doubled or torn.
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import dropwhile, takewhile
from math import ceil, floor, inf, log10, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .dates import UTC_NAME, local_instant
from .errors import BadState
from .mechanism import Level
from .noise import Law, interval
from .queries import Mean, ShownNumber

if TYPE_CHECKING:
    from _hashlib import HASH

ANY_VERSION = b"changeling release "
MAGIC = ANY_VERSION + b"4\n"


def save(path: Path, content: bytes) -> None:
    """Write the state and its hash in place of what is there. Arguments and errors: as of `replaced`."""
    replaced(path, MAGIC + sha256(content).digest() + content)


def replaced(path: Path, written: bytes) -> None:
    """Write, flush to disk, rename, flush the folder. A crash leaves the old file or the new one.

    OSError with the file's name where the disk is full.
    """
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)  # what a crash left may be readable by others
    with naming(beside), os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(written)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    flush_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError within says which file it is about: one of a write or a flush does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def load(path: Path) -> bytes | None:
    """Loads what was saved, None if nothing. Raises BadState for a file that is not whole, or of another version."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return None
    head = len(MAGIC)
    if written.startswith(ANY_VERSION) and len(written) > head and not written.startswith(MAGIC):
        raise BadState(f"{path} was written by another version of changeling: go on with that one")
    digest, content = written[head : head + 32], written[head + 32 :]
    if not written.startswith(MAGIC) or sha256(content).digest() != digest:
        raise BadState(f"{path} is not a whole state of a release; without it nothing more can be released safely")
    return content


def flush_folder(folder: Path) -> None:
    """Write the folder's entries to the disk, so that a file that was made or renamed in it stays."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(path: Path, wait: float = 0.0) -> Iterator[None]:
    """One process at a time: two would both draw for the same node. Raises BadState if another has it.

    wait: for the other to end, in seconds. The lock goes with the process, however that ends; its file stays.
    """
    from filelock import FileLock, Timeout  # of the extra `central`

    lock = FileLock(path.with_name(path.name + ".lock"), timeout=wait, mode=0o600, fallback_to_soft=False)
    try:
        acquired = lock.acquire()
    except Timeout:
        raise BadState(f"another process is releasing with {path}") from None
    with acquired:
        yield


COLUMNS = ("period", "time", "name", "estimate", "standard_error", "low", "high")


class PublishedRow(NamedTuple):
    """One published number: of one column, at the end of one period.

    period: from 1 on. time: its end, ISO 8601. name: of the column. estimate: not clipped; of no more digits than its
    noise allows, the second of its standard error being the last. standard_error: None where none is known. low, high:
    the ends of its 95% interval (`interval`), rounded outwards; None where no error is known.
    """

    period: int
    time: str
    name: str
    estimate: float
    standard_error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Output:
    """A file, .csv or .jsonl. names: of the query's columns. unit: what one of the query's units is worth.

    about: what is said of the release at its head. mean: what is shown in place of the columns, None for these. law:
    of the noise. zone: that times are written in.
    """

    path: Path
    names: tuple[str, ...]
    unit: float
    about: tuple[tuple[str, str], ...] = ()
    mean: Mean | None = None
    law: Law = Law.LAPLACE
    zone: str = UTC_NAME

    def __post_init__(self) -> None:
        if self.path.suffix not in (".csv", ".jsonl"):
            raise ValueError(f"the output is a .csv or a .jsonl file, got {self.path.name}")

    def header(self) -> bytes:
        """The head of the file: what is said of the release, in lines that begin with a # or in one object.

        Then, in CSV, the names of the columns.
        """
        if self.path.suffix == ".jsonl":
            return (json.dumps({"release": dict(self.about)}, ensure_ascii=False) + "\n").encode() * bool(self.about)
        said = "".join(f"# {key}: {' '.join(value.split())}\n" for key, value in self.about)
        return (said + ",".join(COLUMNS) + "\n").encode()

    def rows(self, period: int, time: float, level: Level) -> bytes:
        """The file's rows of one period, one a column. An unknown standard error is an empty field, or null.

        time: the end of the period, Unix seconds.
        """
        return self.shown(period, time, self._levels(level))

    def shown(self, period: int, time: float, numbers: Sequence[ShownNumber]) -> bytes:
        """The file's rows of these numbers. Arguments as of `rows`."""
        when = local_instant(time, self.zone)
        return b"".join(self.written(published_row(period, when, each, self.law)) for each in numbers)

    def written(self, row: PublishedRow) -> bytes:
        """The row as the file holds it."""
        if self.path.suffix == ".jsonl":
            return (json.dumps(row._asdict(), ensure_ascii=False) + "\n").encode()
        text, fields = io.StringIO(), ["" if field is None else field for field in row]
        if "#" in row.name:  # a reader that takes # for the beginning of a comment does not do so within quotes
            csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC).writerow(fields)
        else:
            csv.writer(text, lineterminator="\n").writerow(fields)
        return text.getvalue().encode()

    def _levels(self, level: Level) -> list[ShownNumber]:
        if not level.values.size:
            return []
        if self.mean is not None:
            return self.mean.shown(level)
        error = sqrt(level.variance) * self.unit
        return [
            ShownNumber(name, value * self.unit, error, self.unit)
            for name, value in zip(self.names, level.values.tolist(), strict=True)
        ]

    def size(self) -> int:
        """How many bytes there are; 0 where there is no file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def published(self, at: int) -> "HASH":
        """The running SHA-256 of the first `at` bytes. Raises BadState where the file is shorter."""
        if self.size() < at:
            raise BadState(
                f"{self.path} has lost rows that were published: put the file back, or choose another output and "
                "count what this one cost"
            )
        running = sha256()
        if at:
            with self.path.open("rb") as file:
                while at and (part := file.read(min(at, 2**20))):
                    running.update(part)
                    at -= len(part)
        return running

    def torn(self, at: int, rows: bytes) -> bool:
        """True if what follows byte `at` is what a crash leaves of these rows: as many bytes or fewer, some zero."""
        if not self.path.exists():
            return True
        with self.path.open("rb") as file:
            file.seek(at)
            tail = file.read(len(rows) + 1)
        return len(tail) <= len(rows) and all(byte in (0, row) for byte, row in zip(tail, rows, strict=False))

    def append(self, at: int, rows: bytes) -> int:
        """Write the rows at byte `at`, cutting whatever else follows, to the disk. Returns where the next ones go."""
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        with naming(self.path), os.fdopen(descriptor, "r+b") as file:
            file.seek(at)
            if file.read() != rows:
                file.truncate(at)
                file.seek(at)
                file.write(rows)
            file.flush()
            os.fsync(file.fileno())
        if new:
            flush_folder(self.path.parent)
        return at + len(rows)


def published_row(period: int, when: str, shown: ShownNumber, law: Law = Law.LAPLACE) -> PublishedRow:
    """The number as it is published, with its interval. when: the end of the period."""
    name, value, error, step = shown
    if not 0 < error < inf:
        return PublishedRow(period, when, name, float(value), 0.0 if error == 0 else None, None, None)
    digits = min(1 - floor(log10(error)), 15)
    low, high = interval(value, error, law, step)
    last = 10.0**digits
    ends = round(floor(low * last) / last, digits), round(ceil(high * last) / last, digits)
    return PublishedRow(period, when, name, round(float(value), digits), float(f"{error:.6g}"), *ends)


def over_window(periods: int) -> str:
    """The ending of a column's name where it is the column's change over a window of so many periods."""
    return f", change over the window of {periods} period{'s' * (periods > 1)}"


def read_about(path: Path) -> dict[str, str]:
    """Reads the statements at the head of a release's .csv or .jsonl file."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            said: dict[str, str] = json.loads(next(file, "{}")).get("release", {})
            return said
        heads = (line[2:].rstrip("\n").partition(": ") for line in takewhile(_is_about, file))
        return {key: value for key, _, value in heads}


def read_rows(path: Path) -> list[PublishedRow]:
    """Reads the published rows of a .csv or .jsonl file, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            rows: Sequence[dict[str, str]] = list(csv.DictReader(dropwhile(_is_about, file)))
        else:
            rows = [row for line in file if "release" not in (row := json.loads(line))]
    return [
        PublishedRow(
            int(row["period"]),
            row["time"],
            row["name"],
            float(row["estimate"]),
            *(None if row[column] in ("", None) else float(row[column]) for column in COLUMNS[4:]),
        )
        for row in rows
    ]


def _is_about(line: str) -> bool:
    return line.startswith("# ")
