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
from .form import FORMS, Columns, Form, form_of
from .frames import encode
from .order import in_order
from .quotes import swallows_rows
from .rows import Row, changelog_of_rows
from .times import microseconds

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def changelog_of_csv(path: Path, answers: Sequence[str] | None, columns: Columns) -> Changelog:
    """The changelog in a .csv or .csv.gz file.

    answers: the only ones allowed, in their order; None to sort those that occur.
    Raises BadChangelog, which names the line.
    """
    plain = _plain_columns(path, columns)
    if plain is not None:
        try:
            form, series = plain
            number = np.arange(2, len(series[form.entry]) + 2, dtype=np.int64)
            return in_order(encode(series, form, number, "line", answers), "line", answers, columns)
        except BadChangelog:
            pass  # the row reader says it in its own words
    with _opened(path) as file:
        return changelog_of_rows(_rows(file, columns), "line", answers, columns)


def _plain_columns(path: Path, columns: Columns) -> tuple[Form, dict[int, pl.Series]] | None:
    """The columns of a plain file, as text, by their places; None for any other, and for what cannot be read."""
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
    if odd or b'"' in content or b"\0" in content:
        return None
    try:
        form = form_of(header, columns)
    except BadChangelog:
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
    return form, {place: frame[header[place]] for place in form.places}


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _rows(file: TextIO, columns: Columns) -> Iterator[Row]:
    """Every row, numbered by its first line. Raises BadChangelog for what is no row."""
    reader = csv.reader(file, strict=True)
    line = 1
    try:
        header = next(reader, [])
        if not header:
            raise BadChangelog(f"line 1: the file is empty; it must open with {FORMS}")
        try:
            form = form_of(header, columns)
        except BadChangelog as error:
            raise BadChangelog(f"line 1: {error}") from error
        line = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(header):
                    raise BadChangelog(f"line {line}: a row has {len(header)} columns, this one {len(row)}")
                if reader.line_num > line and swallows_rows(row, lambda fields: _has_a_time(fields[form.time])):
                    last = reader.line_num
                    raise BadChangelog(f"line {line}: a quote that opens here goes on over rows, until line {last}")
                if not all(map(_is_unicode, row)):
                    raise BadChangelog(f"line {line}: not UTF-8")
                old, owner = (None if place is None else row[place] for place in (form.old, form.owner))
                yield Row(line, row[form.entry], row[form.time], row[form.answer], old, owner)
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadChangelog(f"line {line}: not CSV: {error}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadChangelog(f"line {line}: the compressed file is cut or damaged here") from error


def _has_a_time(field: str) -> bool:
    try:
        microseconds(field)
    except ValueError:
        return False
    return True


def _is_unicode(field: str) -> bool:
    return field.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in field)
