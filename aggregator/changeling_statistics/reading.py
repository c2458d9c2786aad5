"""Reads changelogs: from CSV, Parquet, frames of polars or pandas, and rows in memory.

A row is `entry,time,answer` (the entry gives this answer from that time on; an empty one deletes the entry) or
`entry,time,old,new`. Rows of several entries may be mixed; the times of one entry rise strictly, every row changes
the entry's answer, and `old` is the answer it held. Other columns may stand beside these. Whatever the source, the same
rows give the same changelog or the same refusal, which names the row and never repeats an answer.

polars is imported only when something is read: it takes long. It does not survive a fork, so a process that reads is
spawned.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .changelog import Changelog, Columns, Time
from .errors import BadChangelog


def read_csv(path: Path | str, answers: Sequence[str] | None = None, columns: Columns = Columns()) -> Changelog:  # noqa: B008
    """The changelog in a CSV file, .csv or .csv.gz, in UTF-8, which opens with the names of its columns.

    path: the file. Its times are Unix seconds or ISO 8601, UTC where they name no offset.
    answers: the only ones allowed, in their order; without them those of the file, sorted.
    columns: which column holds the answers, and whose the entries are. Other columns are left alone.
    Raises BadChangelog, which names the file and the line; OSError if the file cannot be read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "drinks.csv")
    ...     written = path.write_text("entry,time,answer\\nann,2026-01-01,tea\\nbob,2026-01-02,coffee\\n")
    ...     read_csv(path).answers
    ('coffee', 'tea')
    """
    from .changelog_columns import changelog_of_csv

    with _file_named(path):
        return changelog_of_csv(Path(path), answers, columns)


def read_parquet(path: Path | str, answers: Sequence[str] | None = None, columns: Columns = Columns()) -> Changelog:  # noqa: B008
    """The changelog in a Parquet file.

    path: the file. Its times are datetimes, dates, or as in a CSV file; answers and entries count as their text.
    answers: the only ones allowed, in their order; without them those of the file, sorted.
    columns: which column holds the answers, and whose the entries are. Other columns are left alone.
    Raises BadChangelog, which names the file and numbers its rows from 1; OSError if the file cannot be read.
    """
    from .changelog_columns import changelog_of_parquet

    with _file_named(path):
        return changelog_of_parquet(Path(path), answers, columns)


def read_frame(frame: Any, answers: Sequence[str] | None = None, columns: Columns = Columns()) -> Changelog:  # noqa: B008
    """The changelog in a frame of polars, eager or lazy, or of pandas.

    frame: its times are datetimes, dates, or as in a CSV file; answers and entries count as their text, null as NULL.
    answers: the only ones allowed, in their order; without them those of the frame, sorted.
    columns: which column holds the answers, and whose the entries are. Other columns are left alone.
    Raises BadChangelog, which numbers the rows from 1.
    """
    from .changelog_columns import changelog_of_frame

    return changelog_of_frame(frame, answers, columns)


def read_rows(rows: Iterable[tuple[str, Time, str | None]], answers: Sequence[str] | None = None) -> Changelog:
    """The changelog of rows (entry, time, answer); an answer of None or "" deletes the entry.

    answers: the only ones allowed, in their order; without them those of the rows, sorted.
    Raises BadChangelog, which numbers the rows from 1.

    >>> log = read_rows([("ada", "2026-01-31", "tea"), ("ada", "2026-03-01", "coffee")])
    >>> log.answers, log.state.tolist()
    (('coffee', 'tea'), [2, 1])
    """
    from .changelog_columns import changelog_of_rows

    return changelog_of_rows(rows, answers)


@contextmanager
def _file_named(path: Path | str) -> Iterator[None]:
    """Puts the file's name before what a BadChangelog says."""
    try:
        yield
    except BadChangelog as error:
        raise BadChangelog(f"{Path(path).name}, {error}") from error
