"""`release`: a changelog in, a count published period after period, in one call; the command is a skin over it.

Everything that can be refused is refused before anything is drawn or written. Run again with the same words, a release
goes on where it stopped.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from changeling_protocol import Calendar
from changeling_protocol.quantities import UnixSeconds
from changeling_statistics.changelog import MICROSECONDS, Changelog, read_csv, read_frame, read_parquet
from changeling_statistics.constraint_words import constraint_of
from changeling_statistics.durations import format_duration, parse_duration
from changeling_statistics.errors import BadChangelog
from changeling_statistics.instants import parse_instant

from ..changes.answer_query import answer_query
from ..errors import UnusableChangelog
from ..frames import Frame
from ..guard import frozen
from ..mechanism import Guarantee
from .best import BEST, compared, in_words
from .calendar import calendar_for
from .choice import MechanismChoice
from .limits import budget, check_budget, check_changelog, check_output
from .output import Output, Row, read_rows
from .run import Release, run
from .terms import begun, terms_of

if TYPE_CHECKING:
    from polars import DataFrame

TOGETHER = 128
"""Periods saved and published at a time: a flush of the disk takes as long as drawing for many."""
NEEDED = ("opendp", "dp_accounting", "msgspec", "filelock")

Number = int | float | str | Fraction


@dataclass(frozen=True, slots=True)
class Released:
    """What is published so far.

    output: the file. query: in words. calendar: all periods of the release, `last` of which have ended. published: how
    many periods this call added. guarantee: what the whole release costs an entry. calendar_from_data: an end of the
    calendar was read from the data, and is not protected. notes: what its reader should know, a sentence each.
    """

    output: Path
    query: str
    calendar: Calendar
    last: int
    published: int
    guarantee: Guarantee
    calendar_from_data: bool
    notes: tuple[str, ...]

    def rows(self) -> list[Row]:
        """All that was published by then, a row for each period and column."""
        every = read_rows(self.output) if self.output.exists() else []
        return [row for row in every if row.period <= self.last]

    def frame(self) -> "DataFrame":
        """The same as a polars frame, with times as datetimes in UTC."""
        import polars as pl

        schema = {"period": pl.Int64, "time": pl.String, "name": pl.String}
        numbers = {"estimate": pl.Float64, "standard_error": pl.Float64}
        frame = pl.DataFrame(self.rows(), schema={**schema, **numbers}, orient="row")
        return frame.with_columns(pl.col("time").str.to_datetime(time_zone="UTC"))


def release(
    changelog: Changelog | Frame | Path | str,
    query: str,
    *,
    every: str,
    epsilon: Number,
    output: Path | str,
    at_most: int | None = None,
    within: str | None = None,
    delta: Number = 0,
    fixed: bool = False,
    freeze: bool = False,
    answers: Sequence[str] | None = None,
    start: str | datetime | None = None,
    until: str | datetime | None = None,
    through: str | datetime | None = None,
    mechanism: str | None = None,
    law: str | None = None,
    branching: int | None = None,
    layers: int | None = None,
    adaptive: bool = False,
    told: Callable[[str], None] = lambda sentence: None,  # noqa: ARG005
    reached: Callable[[int, int], None] = lambda period, last: None,  # noqa: ARG005
) -> Released:
    """Publish a count of a changelog continually, with standard errors; called again, it goes on where it stopped.

    changelog: a `Changelog`, a frame of pandas or polars, or a .csv, .csv.gz or .parquet file, of entry, time, answer.
    query: what is counted, such as "any answer" or "answer == 'A'"; `changes.answer_query` lists the forms.
    every: the length of a period: "15m", "1h", "1d".
    epsilon: what an entry may lose over the whole release, in nats; a float is taken as it is written.
    output: a .csv or .jsonl file. The state beside it, OUTPUT.state, holds true sums: keep it where the changelog is.
    at_most: an entry mutates at most so often, its insertion included. within: its mutations lie within so long of the
    first, such as "12h". One of the two is needed; with both, an entry keeps to both.
    delta: above 0, less noise, at an (epsilon, delta) guarantee.
    fixed: no entry ever holds two different answers; checked, and less noise.
    freeze: freeze an entry that breaks its promise, instead of stopping before its period.
    answers: the answers there are; "each answer" shows them.
    start, until: when the first period begins and the last one ends; left out, they are read from the data and are not
    protected. through: until when the changelog is whole, now if left out: periods that end later wait.
    mechanism: the name of an offer, see `all_offers`; the one of the least predicted error if left out. law: "laplace"
    or "gaussian". branching, layers: of hdcr's hierarchy. What is left out is chosen. adaptive: the guarantee holds
    where people react to what is published, too.
    told: called with each note as it arises. reached: called with (period, last period) as periods are published.

    Returns what is published. Raises ValueError for what cannot be asked, UnusableChangelog for rows that contradict
    themselves, ConstraintBroken before the period of an entry's breach, TimeReversed and BadState where changelog,
    output or state are not those that the release began with.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(f"a central release needs {missing[0]}: pip install 'changeling[central]'")
    constraint = constraint_of(at_most, None if within is None else parse_duration(within))
    choice = MechanismChoice(mechanism, law, branching, layers, adaptive)
    spent = _exact(epsilon), _exact(delta)
    check_budget(*spent)
    output = Path(output)
    check_output(output)
    log = changelog_of(changelog)
    state = output.with_name(output.name + ".state")
    before = begun(state)
    counted = answer_query(query, log.answers, _named(answers), fixed)
    dates = calendar_for(log, parse_duration(every), _iso(start), _iso(until), before)
    calendar = dates.calendar
    notes: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        told(sentence)

    if before is not None:
        before.refuse_others(terms_of(query, counted, calendar, constraint, *spent))
    elif dates.from_data:
        note(
            "the calendar is read from the data, whole days around its first and last mutation; where one entry could "
            "be seen in that, give --start and --until"
        )
    if dates.left:
        note(f"the last {format_duration(dates.left)} before --until are no whole period, and are not released")
    if freeze:
        log = frozen(log, constraint, fixed)
    if before is None and choice.name == BEST.name:
        wish = choice.asked(counted, calendar, constraint, *spent)
        predicted = compared(wish)
        made = predicted[0].made
        note(in_words(wish, predicted))
    else:
        begun_with = None if before is None else before.saved.terms.mechanism
        made = choice.made(counted, calendar, constraint, *spent, begun_with)
    instant = time.time() if through is None else parse_instant(_iso(through) or "") + 1e-6
    last = calendar.closed(UnixSeconds(instant))
    written = Output(output, counted.names, float(counted.unit))
    asked = Release(log, counted, query, calendar, constraint, made, written, state, dates.from_data)
    published, unknown = _follow(asked, last, reached)
    if unknown:
        note("no standard error of this mechanism is known, so that column is empty")
    if len(log) and int(log.time.max()) > calendar.time(calendar.periods) * MICROSECONDS:
        note("the changelog goes on after the calendar's end: what lies beyond is not part of this release")
    return Released(output, query, calendar, last, published, made.guarantee, dates.from_data, tuple(notes))


def changelog_of(source: Changelog | Frame | Path | str) -> Changelog:
    """The changelog of a file, a frame or itself. Raises UnusableChangelog for rows that contradict themselves."""
    if isinstance(source, Changelog):
        return source
    try:
        if not isinstance(source, str | Path):
            return read_frame(source)
        path = Path(source)
        check_changelog(path)
        return read_parquet(path) if path.suffix == ".parquet" else read_csv(path)
    except BadChangelog as error:
        raise UnusableChangelog(str(error)) from error


def _follow(asked: Release, last: int, reached: Callable[[int, int], None]) -> tuple[int, bool]:
    """How many periods were published, and whether their standard error is unknown."""
    from ..noise import OpenDPNoise  # OpenDP loads slowly, so only now
    from ..pooled_noise import PooledNoise

    published, unknown = 0, False
    try:
        for period, level in run(asked, PooledNoise(OpenDPNoise()), last, together=TOGETHER):
            reached(period, last)
            published, unknown = published + 1, isnan(level.variance)
    except OSError as error:
        raise OSError(f"{error}; nothing is lost: once that is mended, the same command goes on") from error
    return published, unknown


def _exact(number: Number) -> Fraction:
    """A budget as it is written: 0.1 is a tenth."""
    return number if isinstance(number, Fraction) else budget(str(number))


def _named(answers: Sequence[str] | None) -> list[str] | None:
    if answers is None:
        return None
    if isinstance(answers, str) or not all(answers):
        raise ValueError(f"the answers are names, none of them empty, got {answers!r}")
    return list(answers)


def _iso(instant: str | datetime | None) -> str | None:
    return instant.isoformat() if isinstance(instant, datetime) else instant
