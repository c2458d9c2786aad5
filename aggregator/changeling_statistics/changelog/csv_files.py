"""The reader of CSV files: plain files a column at a time, all others a row at a time.

A file is plain if it is UTF-8 without quotes (an empty `""` may stand), and every line has as many commas as the
header. Both ways give the same changelog; where anything looks odd the file is read again by rows, which names the
line.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from ..errors import BadChangelog
from .columns import Changelog
from .frames import CHANGES, CURRENT, FORMS, encode, wrong_columns
from .order import in_order
from .rows import Row, changelog_of_rows

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def changelog_of_csv(path: Path, answers: Sequence[str] | None) -> Changelog:
    """The changelog in a .csv or .csv.gz file.

    answers: the only ones allowed, in their order; None to sort those that occur.
    Raises BadChangelog, which names the line.
    """
    plain = _plain_columns(path)
    if plain is not None:
        try:
            number = np.arange(2, len(plain["entry"]) + 2, dtype=np.int64)
            return in_order(encode(plain, number, "line", answers), "line", answers)
        except BadChangelog:
            pass  # the row reader says it in its own words
    with _opened(path) as file:
        return changelog_of_rows(_rows(file), "line", answers)


def _plain_columns(path: Path) -> dict[str, pl.Series] | None:
    """The columns of a plain file, as text; None for any other, and for one that cannot be read at all."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = content.removeprefix(BYTE_ORDER_MARK)
        content.decode()
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error):
        return None
    end = b"\r\n" if b"\r\n" in content[:1000] else b"\n"
    for after in (b",", end):
        content = content.replace(b',""' + after, b"," + after)
    lines, odd = content.count(b"\n"), content.count(b"\r") - content.count(b"\r\n")
    if end == b"\r\n" and content.count(b"\r\n") != lines:
        odd += 1
    header = content[: max(0, content.find(end))].decode().split(",")
    body = content if content.endswith(b"\n") else content + end
    lines = body.count(b"\n")
    if sorted(header) not in (sorted(CURRENT), sorted(CHANGES)) or odd or b'"' in content or b"\0" in content:
        return None
    if lines < 2 or end + end in body or body.count(b",") != lines * (len(header) - 1):
        return None
    try:
        frame = pl.read_csv(
            io.BytesIO(body),
            infer_schema=False,
            quote_char=None,
            eol_char="\n",
            truncate_ragged_lines=False,
        )
    except PolarsError:
        return None
    if len(frame) != lines - 1 or frame.columns != header:
        return None
    return {name: frame[name] for name in header}


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _rows(file: TextIO) -> Iterator[Row]:
    """Every row, numbered by its first line. Raises BadChangelog for what is no row."""
    reader = csv.reader(file, strict=True)
    line = 1
    try:
        header = next(reader, [])
        if not header:
            raise BadChangelog(f"line 1: the file is empty; it must open with {FORMS}")
        if sorted(header) not in (sorted(CURRENT), sorted(CHANGES)):
            raise BadChangelog(f"line 1: {wrong_columns(header)}")
        entry, time = header.index("entry"), header.index("time")
        answer = header.index("answer" if "answer" in header else "new")
        old = header.index("old") if "old" in header else None
        line = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(header):
                    raise BadChangelog(f"line {line}: a row has {len(header)} columns, this one {len(row)}")
                if not all(map(_is_unicode, row)):
                    raise BadChangelog(f"line {line}: not UTF-8")
                yield Row(line, row[entry], row[time], row[answer], None if old is None else row[old])
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadChangelog(f"line {line}: not CSV: {error}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadChangelog(f"line {line}: the compressed file is cut or damaged here") from error


def _is_unicode(field: str) -> bool:
    return field.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in field)
