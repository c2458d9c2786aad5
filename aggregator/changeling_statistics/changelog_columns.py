"""The readers of whole columns: frames of polars and pandas, Parquet files, CSV files, and rows in memory.

In a frame, answers and entries of any kind count as their text. A CSV file is split into columns by polars if it is
plain: UTF-8 without quotes (an empty `""` may stand), and every line has as many commas as the header. All others, and
files where anything looks odd, are split row by row, which finds the line that is none. Both give the same columns.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from .changelog import (
    ANSWER,
    LATEST,
    MICROSECONDS,
    NO_YEAR,
    UNREADABLE,
    Changelog,
    Columns,
    States,
    Time,
    microseconds,
    swallows_rows,
)
from .errors import BadChangelog

Integers: TypeAlias = NDArray[np.int64]

FORMS = "entry,time,answer or entry,time,old,new"


@dataclass(frozen=True, slots=True)
class Form:
    """The places of the columns in a row. old: None where rows do not say it. owner: None where nobody asks."""

    entry: int
    time: int
    answer: int
    old: int | None = None
    owner: int | None = None

    @property
    def places(self) -> list[int]:
        """All of them."""
        return [place for place in (self.entry, self.time, self.answer, self.old, self.owner) if place is not None]


def form_of(names: Sequence[str], columns: Columns) -> Form:
    """The places of the columns that are asked for. names: the header of the table.

    Raises BadChangelog, which names the header's columns only if it is one: else they may be answers.
    """
    answer, old = columns.answer, None
    if answer == ANSWER and answer not in names and {"old", "new"} <= set(names):
        answer, old = "new", "old"
    wanted = ["entry", "time", answer, *([] if old is None else [old])]
    wanted += [] if columns.owner is None or columns.owner in wanted else [columns.owner]
    if any(names.count(name) != 1 for name in wanted):
        raise BadChangelog(_wrong(names, columns))
    place = names.index
    owner = None if columns.owner is None else place(columns.owner)
    return Form(place("entry"), place("time"), place(answer), None if old is None else place(old), owner)


def _wrong(names: Sequence[str], columns: Columns) -> str:
    expected = f"the columns must be {FORMS}"
    if columns.answer != ANSWER:
        expected = f"the columns must be entry,time,{columns.answer}"
    if not {"entry", "time"} & {name.strip() for name in names}:
        found = ", but one with semicolons" if any(";" in name for name in names) else ""
        return f"{expected}; there is no such header, separated by commas{found}"
    if columns.owner is not None and columns.owner not in names:
        expected = f"there must be a column {columns.owner!a}, and {expected}"
    return f"{expected}, got {','.join(names)!a}"


def changelog_of_parquet(path: Path, answers: Sequence[str] | None, columns: Columns) -> Changelog:
    """The changelog in a Parquet file. answers: the only ones allowed, in their order. Raises BadChangelog."""
    try:
        names = list(pl.read_parquet_schema(path))
        wanted = [names[place] for place in sorted(set(_form(names, columns).places))]
        return changelog_of_frame(pl.read_parquet(path, columns=wanted), answers, columns)
    except PolarsError as error:
        raise BadChangelog(f"row 1: not a Parquet file, or a damaged one: {error}") from error


def changelog_of_frame(frame: Any, answers: Sequence[str] | None, columns: Columns) -> Changelog:
    """The changelog in a polars or pandas frame, which may have other columns as well.

    answers: the only ones allowed, in their order; None to sort those that occur. Raises BadChangelog.
    """
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    names = [str(name) for name in frame.columns]
    form = _form(names, columns)
    series = {place: _series(names[place], frame[names[place]]) for place in form.places}
    return _changelog(_Table(form, series, np.arange(1, len(frame) + 1, dtype=np.int64)), "row", answers, columns)


def changelog_of_rows(rows: Iterable[tuple[str, Time, str | None]], answers: Sequence[str] | None) -> Changelog:
    """The changelog of rows (entry, time, answer). answers: the only ones allowed, in their order."""
    listed = list(rows)
    entry, answer = (
        pl.Series([None if row[at] is None else str(row[at]) for row in listed], dtype=pl.String) for at in (0, 2)
    )
    series = {0: entry, 1: [row[1] for row in listed], 2: answer}
    table = _Table(Form(0, 1, 2), series, np.arange(1, len(listed) + 1, dtype=np.int64))
    return _changelog(table, "row", answers, Columns())


def _form(names: Sequence[str], columns: Columns) -> Form:
    try:
        return form_of(names, columns)
    except BadChangelog as error:
        raise BadChangelog(f"row 1: {error}") from error


ABSENT = -1
"""Stands for the state of an answer that is none."""


class _Table(NamedTuple):
    """The columns of a changelog, as they came.

    series: of polars, by the places of the form; times may be a list. number: the number by which errors name each row.
    fault: why there are no more rows, if that is a fault.
    """

    form: Form
    series: dict[int, Any]
    number: Integers
    fault: BadChangelog | None = None


def _changelog(table: _Table, unit: str, answers: Sequence[str] | None, columns: Columns) -> Changelog:
    """The changelog that the rows make together, once each is checked by itself and with those before it.

    unit: what errors call a row. answers: the only ones allowed, in their order; None to sort those that occur.
    Raises BadChangelog, which names the first bad row.
    """
    form, series, number, fault = table
    entry, answer, time = _text(series[form.entry]), _text(series[form.answer]).fill_null(""), series[form.time]
    when, unreadable = _microseconds(time, columns.zone)
    names = list(answers) if answers is not None else sorted(set(answer.unique()) - {""})
    state = _states(answer, names)
    faults = [((entry.is_null() | (entry == "")).to_numpy(), "the entry has no name")]
    if unreadable.any():
        faults.append((unreadable, _why(time, int(np.argmax(unreadable)), columns.zone)))
    if form.owner is not None:
        owners = _text(series[form.owner])
        faults.append(((owners.is_null() | (owners == "")).to_numpy(), f"it has no {columns.owner}"))
    faults.append((state < 0, f"unknown answer; the answers are {', '.join(names)}"))
    _refuse(faults, number, unit)
    if fault is not None:
        raise fault
    if not len(number):
        raise BadChangelog(f"{unit} 1: there is not one mutation")
    entries, code = _codes(entry)
    owner = None
    if form.owner is not None:
        owner, contradicts = _of_entries(code, _codes(owners)[1])
        _refuse([(contradicts, f"an earlier row of its entry has another {columns.owner}")], number, unit)
    order = np.lexsort((when, code)) if columns.late else np.argsort(code, kind="stable")
    states: States = state[order].astype(np.uint16 if len(names) < 2**16 else np.uint32)
    changelog = Changelog(tuple(names), tuple(entries), code[order], when[order], states, number[order], unit, owner)
    stated = None
    if form.old is not None and not columns.late:
        stated = _states(_text(series[form.old]).fill_null(""), names)[order]
    lenient = columns.late or columns.answer != ANSWER
    _check(changelog, number[order], stated, lenient)
    return changelog.mutating() if lenient and not columns.late else changelog


def _of_entries(entry: Integers, owner: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Whose each entry is, as its first row says, and the rows that contradict that."""
    first = np.unique(entry, return_index=True)[1]
    return owner[first], owner != owner[first][entry]


def _check(changelog: Changelog, number: Integers, stated: Integers | None, lenient: bool) -> None:
    """Raises BadChangelog, which names the first row that contradicts an earlier one of its entry."""
    entry, state, before = changelog.entry, changelog.state, changelog.before()
    first = np.concatenate([[True], entry[1:] != entry[:-1]])
    passed = np.concatenate([[1], np.diff(changelog.time)])
    back = ~first & (passed < 0)
    in_order = ~np.isin(entry, entry[back])  # of an entry whose rows are out of order nothing else is worth a word
    faults = [
        (back, "its time is before the entry's previous row: rows are out of order, sort them by time"),
        (
            ~first & (passed == 0),
            "it has the same entry and time as an earlier row: leave one of them out, or give it a later time",
        ),
    ]
    if not lenient:
        faults += [
            (in_order & (state == 0) & (before == 0), "it deletes an entry that has no answer"),
            (
                in_order & (state != 0) & (state == before),
                "it repeats the entry's answer, so it is no mutation: leave out rows in which nothing changes",
            ),
        ]
    if stated is not None:
        faults.append((in_order & (stated != before), "its old answer is not what the entry holds"))
    _refuse(faults, number, changelog.unit)


def _refuse(faults: Iterable[tuple[NDArray[np.bool_], str]], number: Integers, unit: str) -> None:
    """Raises BadChangelog, which names the first row that has a fault; of several of one row the first listed."""
    first = min(
        ((int(number[bad].min()), fault) for bad, fault in faults if bad.any()), key=itemgetter(0), default=None
    )
    if first is not None:
        raise BadChangelog(f"{unit} {first[0]}: {first[1]}")


def _series(name: str, column: Any) -> pl.Series:
    """A column of a polars frame as it is; one of a pandas frame as polars would have it, even without pyarrow."""
    if isinstance(column, pl.Series):
        return column
    values = column.to_numpy()
    if values.dtype.kind == "M":
        return pl.Series(name, values.astype("datetime64[us]"))
    if values.dtype.kind in "iufb" and name == "time":
        return pl.Series(name, values)
    if name == "time":
        return pl.Series(name, [_object_time(value) for value in column], dtype=pl.String)
    texts = [None if missing else str(value) for value, missing in zip(values, column.isna(), strict=True)]
    return pl.Series(name, texts, dtype=pl.String)


def _object_time(value: Any) -> str | None:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _text(series: pl.Series) -> pl.Series:
    if series.dtype == pl.String:
        return series
    try:
        if not series.dtype.is_nested():
            return series.cast(pl.String)
    except PolarsError:
        pass  # its message may hold a field
    raise BadChangelog(f"row 1: the column {series.name!a} holds {series.dtype.base_type()}, which is no text")


def _codes(series: pl.Series) -> tuple[list[str], Integers]:
    """The texts in order of first appearance, and which each row holds."""
    texts = series.unique(maintain_order=True)
    names = texts.to_list()
    if not names:
        return names, np.zeros(0, np.int64)
    codes = series.replace_strict(texts, pl.Series(np.arange(len(names), dtype=np.int64)), return_dtype=pl.Int64)
    return names, codes.to_numpy()


def _states(answer: pl.Series, names: Sequence[str]) -> Integers:
    """The state of each row, by its answer: 0 for none, ABSENT where it is none of the names."""
    texts, codes = _codes(answer)
    known = {"": 0, **{name: state for state, name in enumerate(names, 1)}}
    return np.array([known.get(text, ABSENT) for text in texts], np.int64)[codes] if len(codes) else codes


def _microseconds(time: pl.Series | list[Time], zone: tzinfo) -> tuple[Integers, NDArray[np.bool_]]:
    """The times in Unix microseconds, and which rows have none that can be read; those are 0."""
    if isinstance(time, list):
        return _one_by_one(time, zone)
    if time.dtype == pl.Date:
        time = time.cast(pl.Datetime("us"))
    if isinstance(time.dtype, pl.Datetime):
        return _of_datetimes(time, zone)
    if time.dtype.is_integer() and not time.is_between(10**7, 10**8 - 1).any():  # eight digits are a date
        return _seconds(time.cast(pl.Float64).fill_null(float("nan")).to_numpy())
    if time.dtype.is_float():
        return _seconds(time.fill_null(float("nan")).to_numpy())
    texts = _text(time).fill_null("")
    seconds = texts.cast(pl.Float64, strict=False)
    if seconds.null_count() == 0 and not texts.str.contains(r"^[0-9]{8}$|[_\s]").any():
        return _seconds(seconds.to_numpy())
    distinct, codes = _codes(texts)
    when, bad = _one_by_one(distinct, zone)
    return when[codes], bad[codes]


def _one_by_one(times: Sequence[Time], zone: tzinfo) -> tuple[Integers, NDArray[np.bool_]]:
    when, bad = np.zeros(len(times), np.int64), np.zeros(len(times), np.bool_)
    for at, time in enumerate(times):
        try:
            when[at] = microseconds(time, zone)
        except ValueError:
            bad[at] = True
    return when, bad


def _of_datetimes(time: pl.Series, zone: tzinfo) -> tuple[Integers, NDArray[np.bool_]]:
    """The same as `_microseconds`, from datetimes."""
    bad, per = _beyond(time), _microseconds_of_ticks(time)
    when = np.where(bad, 0, time.to_physical().fill_null(0).to_numpy()) * per[0] // per[1]
    if zone is UTC or getattr(time.dtype, "time_zone", None) is not None:
        return when, bad
    bad |= when < _YEAR_ONE
    distinct, codes = np.unique(np.where(bad, 0, when), return_inverse=True)  # polars knows no zone after 2099
    named, none = _one_by_one([datetime(1970, 1, 1) + timedelta(microseconds=each) for each in distinct.tolist()], zone)
    return named[codes], bad | none[codes]


def _microseconds_of_ticks(time: pl.Series) -> tuple[int, int]:
    """How many microseconds so many ticks of these datetimes are."""
    unit = time.dtype.time_unit if isinstance(time.dtype, pl.Datetime) else "us"
    return {"ns": (1, 1000), "us": (1, 1), "ms": (1000, 1)}[unit]


_YEAR_ONE = (datetime(1, 1, 1) - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def _beyond(time: pl.Series) -> NDArray[np.bool_]:
    """A mask of the datetimes that are missing, or beyond the year 9999."""
    per, ticks = _microseconds_of_ticks(time), time.to_physical()
    latest = min(LATEST * MICROSECONDS * per[1] // per[0], 2**63 - 1)
    beyond: NDArray[np.bool_] = (ticks.is_null() | (ticks >= latest) | (ticks <= -latest)).fill_null(True).to_numpy()
    return beyond


def _seconds(seconds: NDArray[np.float64]) -> tuple[Integers, NDArray[np.bool_]]:
    bad = ~(np.abs(seconds) < LATEST)
    return np.rint(np.where(bad, 0.0, seconds) * MICROSECONDS).astype(np.int64), bad


def _why(times: pl.Series | list[Time], row: int, zone: tzinfo) -> str:
    """Why the time of a row cannot be read, in words that do not repeat it."""
    if (
        isinstance(times, pl.Series)
        and isinstance(times.dtype, pl.Datetime)
        and not times.is_null()[row]
        and (_beyond(times)[row] or times.dt.year()[row] < 1)
    ):
        return NO_YEAR  # polars panics where Python has none
    time = times[row]
    try:
        microseconds(time if isinstance(time, str | float | int) else "" if time is None else str(time), zone)
    except ValueError as error:
        return str(error)
    return UNREADABLE


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def changelog_of_csv(path: Path, answers: Sequence[str] | None, columns: Columns) -> Changelog:
    """The changelog in a .csv or .csv.gz file.

    answers: the only ones allowed, in their order; None to sort those that occur.
    Raises BadChangelog, which names the line.
    """
    table = _plain_columns(path, columns) or _columns_by_rows(path, columns)
    return _changelog(table, "line", answers, columns)


def _plain_columns(path: Path, columns: Columns) -> _Table | None:
    """The columns of a plain file; None for any other, and for what cannot be read."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = content.removeprefix(BYTE_ORDER_MARK)
        content.decode()
        end = b"\r\n" if b"\r\n" in content[:1000] else b"\n"
        for after in (b",", end):
            content = content.replace(b',""' + after, b"," + after)
        pairs, returns = content.count(b"\r\n"), content.count(b"\r")
        odd = returns != pairs or (end == b"\r\n" and pairs != content.count(b"\n"))
        header = content[: max(0, content.find(end))].decode().split(",")
        body = content if content.endswith(b"\n") else content + end
        lines = body.count(b"\n")
        odd = odd or b'"' in content or b"\0" in content or lines < 2 or end + end in body
        form = form_of(header, columns)
        if odd or body.count(b",") != lines * (len(header) - 1):
            return None
        frame = pl.read_csv(io.BytesIO(body), infer_schema=False, quote_char=None, eol_char="\n")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error, BadChangelog, PolarsError):
        return None
    if len(frame) != lines - 1 or frame.columns != header:
        return None
    series = {place: frame[header[place]] for place in form.places}
    return _Table(form, series, np.arange(2, len(frame) + 2, dtype=np.int64))


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _columns_by_rows(path: Path, columns: Columns) -> _Table:
    """The columns of any file, up to the first line that is no row. Raises BadChangelog for a header that is none."""
    rows, number, fault = list[tuple[str, ...]](), list[int](), None
    with _opened(path) as file:
        reading = _rows(file, columns)
        _, header = next(reading)
        form = form_of(header, columns)
        fields_of = itemgetter(*form.places)
        try:
            for line, row in reading:
                number.append(line)
                rows.append(fields_of(row))
        except BadChangelog as error:
            fault = error
    fields = zip(*rows, strict=True) if rows else [()] * len(form.places)
    named = zip(form.places, fields, strict=True)
    series = {place: pl.Series(header[place], texts, dtype=pl.String) for place, texts in named}
    return _Table(form, series, np.array(number, np.int64), fault)


def _rows(file: TextIO, columns: Columns) -> Iterator[tuple[int, list[str]]]:
    """The header, then every row, each with its first line. Raises BadChangelog for what is none."""
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
        yield line, header
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
                yield line, row
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
