"""`release`: a changelog in, a count published period after period, in one call; the command is a skin over it.

Everything that can be refused is refused before anything is drawn or written. Called again with the same options, a
release goes on where it stopped. What the curator is told of the data (how many entries were frozen, and how far off
the count is for it; names that no row holds; values that nobody declared) is not private: it goes to whoever runs the
release, never into what is published.
"""

# ruff: noqa: RUF009  # options are fields with their help

import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import date
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol

import numpy as np
from changeling_protocol import AtMost, Calendar, Constraint, UnixSeconds, parse_duration, parse_instant
from changeling_statistics import (
    ANSWER,
    MICROSECONDS,
    BadChangelog,
    Changelog,
    Columns,
    Floats,
    constraint_of,
    read_csv,
    read_frame,
    read_parquet,
)

from .afterwards import check_windows, level_columns, save_windows, smoothed
from .budget import Budget, Number, Spending, Unit, check_output, spending, total_of, whole
from .dates import Dates, Every, calendar_for, local_instant, said_of_periods, zone_name, zone_of
from .errors import UnusableChangelog
from .files import Output, PublishedRow, read_rows, replaced
from .guard import (
    Arrivals,
    Late,
    Listener,
    SeenRows,
    arrived,
    beyond,
    frozen,
    frozen_in_words,
    late_of,
    said_of_freezing,
    true_levels,
    updates_by_period,
)
from .ledger import Charge, ReleaseAccount, ReleaseLedger, ledger_beside, read_ledger
from .linear_query import LinearQuery
from .mechanism import Guarantee, Level, Made, ReleaseMechanism
from .noise import Law, OpenDPNoise, PooledNoise
from .offers import BEST, FRESH, SWCR, Asked, Offer, compared, in_words, offered, root_mean_square
from .queries import Mean, answer_query, best_weight, column_of, mean_of
from .run import Release, run
from .statement import UNBOUNDED, About, SavedRelease, Statement, about_release, begun, state_beside

if TYPE_CHECKING:
    from polars import DataFrame

TOGETHER = 128
"""Periods saved and published at a time: a flush of the disk takes as long as drawing for many."""
NEEDED = ("opendp", "dp_accounting", "msgspec", "filelock")
P = ParamSpec("P")


class Frame(Protocol):
    """A frame of pandas or polars: columns by their names. Neither library is imported for it."""

    @property
    def columns(self) -> Iterable[str]:
        """The names of the columns."""
        ...

    def __getitem__(self, name: str, /) -> object:
        """The column of this name."""
        ...


Source = Changelog | Frame | Path | str
"""A changelog: read already, a frame, or a .csv, .csv.gz or .parquet file of entry, time, answer."""


WHAT, PROMISE, WHEN, HOW, FILES = "What is published", "What is promised", "When", "How", "Files"


def _ignored(*_: object) -> None:
    pass


def _now() -> float:
    return time.time()


def _help(panel: str, text: str) -> dict[str, str]:
    """The documentation of an option. panel: the heading that it stands under. text: its one line."""
    return {"panel": panel, "text": text}


def _option(panel: str, text: str, default: object = None) -> Any:
    return field(default=default, metadata=_help(panel, text))


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """The options of a release, for the function and for the command line, whose help they are.

    on_note: called with each note and each aside as it arises. on_period: called with (period, last period) as these
    are published. overwrite: write over an output that is no release's. clock: says what time it is, in Unix seconds.
    """

    query: str = field(
        metadata=_help(WHAT, "answer == 'A', answer in ('A', 'B'), any answer, each answer, sum of answer …")
    )
    _: KW_ONLY
    every: str = field(metadata=_help(WHEN, "One release per so long: 15m, 1h, 1d, 1w, 1mo, 1q, 1y."))
    epsilon: Number | None = _option(PROMISE, "What an entry may lose over the whole release: 1, 0.5, 1/3.")
    at_most: int | None = _option(PROMISE, "An entry mutates at most so often; insertion counts.")
    within: str | None = _option(PROMISE, "Its mutations lie within so long of its first. With --at-most: both hold.")
    delta: Number = _option(PROMISE, "Above 0: less noise, at an (epsilon, delta) guarantee.", 0)
    rho: Number | None = _option(PROMISE, "In place of both: of concentrated privacy (zCDP).")
    fixed: bool = _option(PROMISE, "No entry ever holds two different answers: checked; less noise.", False)
    freeze: bool = _option(PROMISE, "Freeze an entry that breaks its promise, instead of stopping there.", False)
    answers: Sequence[str] | None = _option(
        WHAT, "The answers there are, with commas between: `each answer` shows them."
    )
    start: str | date | None = _option(WHEN, "When the first period begins, in ISO 8601.")
    until: str | date | None = _option(WHEN, "When the last period ends, in ISO 8601.")
    zone: str | None = _option(
        WHEN, "The time zone of days and months, and of times that name none: Europe/Berlin. UTC."
    )
    through: str | date | None = _option(
        WHEN, "Until when the changelog is whole: later periods wait. Now if left out."
    )
    late: str | None = _option(WHEN, "Rows for periods that are published: drop, shift to the next one, or stop.")
    mechanism: str | None = _option(HOW, "One of those named below; the best if left out.")
    law: str | None = _option(HOW, "The noise: laplace or gaussian; chosen if left out.")
    plan: bool = _option(HOW, "Say what would be released or refused. Nothing is drawn or charged.", False)
    window: str | None = _option(HOW, "Of swcr, or of --afterwards: 24h.")
    person: str | None = _option(PROMISE, "The column that says whose an entry is: the promise is made to persons.")
    per_person: int = _option(PROMISE, "A person has at most so many entries.", 1)
    budget: Budget | None = _option(PROMISE, "What all releases of it may cost: 3, or 3,1e-6 with a delta, or rho=1/2.")
    ledger: Path | str | None = _option(
        FILES, "Where the releases of the changelog add up; CHANGELOG.ledger if left out."
    )
    changelog_id: str | None = _option(FILES, "What the changelog is called in its ledger; drawn if left out.")
    afterwards: Path | str | None = _option(
        FILES, "The changes over a --window, read off the levels: a .csv or .jsonl file."
    )
    output: Path | str | None = _option(FILES, "A .csv or .jsonl file; if left out, NAME.released.csv in this folder.")
    parquet: Path | str | None = _option(FILES, "All that is published so far as one .parquet file, written anew.")
    overwrite: bool = False
    clock: Callable[[], float] = field(default=_now, repr=False)
    on_note: Callable[[str], None] = field(default=_ignored, repr=False)
    on_period: Callable[[int, int], None] = field(default=_ignored, repr=False)


@dataclass(frozen=True, slots=True)
class Released:
    """The published part of a release.

    output: the file. query: in words. calendar: all periods of the release, `last` of which have ended. published: how
    many periods this call added. guarantee: what the whole release costs the unit of privacy. calendar_from_data: an
    end of the calendar was read from the data, and is not protected. notes: what its reader should know, a sentence
    each. asides: what the data say, for the curator alone: they are not private. about: what stands at the head of the
    output. ledger: of all releases of the changelog, None where there is none.
    """

    output: Path
    query: str
    calendar: Calendar
    last: int
    published: int
    guarantee: Guarantee
    calendar_from_data: bool
    notes: tuple[str, ...]
    asides: tuple[str, ...]
    about: About
    ledger: ReleaseLedger | None

    def rows(self) -> list[PublishedRow]:
        """All that was published by then, a row for each period and column."""
        every = read_rows(self.output) if self.output.exists() else []
        return [row for row in every if row.period <= self.last]

    def smoothed(self) -> list[PublishedRow]:
        """The best estimates of all levels from what is published alone: a drift and seasons are believed in.

        Their intervals hold noise and bias. ValueError for a mechanism whose levels' covariance is not known.
        """
        return smoothed(self.output)

    def covariance(self, column: str | None = None) -> Floats:
        """The covariance of the noise in a column's levels, shape (periods, periods), in what is counted, squared.

        What is read off several levels, as a change, a mean or a trend, has its exact error from it. column: its name
        in `rows()`; None for the only one. Order: of the periods that are published.
        ValueError for a name that is no column of levels, and for a mechanism whose covariance is not known.
        """
        columns = level_columns(self.output)
        name = next(iter(columns)) if column is None and len(columns) == 1 else column
        if name not in columns:
            raise ValueError(f"name a column of levels: {', '.join(columns)}")
        return columns[name][1]

    def frame(self) -> "DataFrame":
        """The same as a polars frame, with times as datetimes of the calendar's zone."""
        import polars as pl

        schema = {"period": pl.Int64, "time": pl.String, "name": pl.String}
        numbers = dict.fromkeys(("estimate", "standard_error", "low", "high"), pl.Float64)
        frame = pl.DataFrame(self.rows(), schema={**schema, **numbers}, orient="row")
        times = pl.col("time").str.to_datetime(time_unit="us", time_zone="UTC")
        return frame.with_columns(times.dt.convert_time_zone(zone_name(self.calendar)))


def _with_options(
    options: Callable[P, ReleaseOptions], call: Callable[[Source, ReleaseOptions], Released]
) -> Callable[Concatenate[Source, P], Released]:
    """The call, with the arguments of its options in place of them."""

    def called(changelog: Source, /, *args: P.args, **kwargs: P.kwargs) -> Released:
        return call(changelog, options(*args, **kwargs))

    called.__doc__ = call.__doc__
    return called


def release_with(changelog: Source, options: ReleaseOptions) -> Released:
    """Publish a count of a changelog continually, with standard errors; called again, it goes on where it stopped.

        release(frame, "any answer", every="1h", epsilon=1, at_most=2, output="out.csv")

    changelog: a `Changelog`, a frame of pandas or polars, or a .csv, .csv.gz or .parquet file, of entry, time, answer;
    other columns are left alone. The other arguments are `ReleaseOptions`: the query, the length of a period, a budget
    (`epsilon`, with a `delta` or without, or `rho`), and `at_most` or `within` are needed. A float counts as it is
    written. The state beside the output, OUTPUT.state, holds true sums: keep it where the changelog is.

    Returns what is published. Raises ValueError for what cannot be asked, UnusableChangelog for rows that contradict
    themselves, ConstraintBroken before the period of an entry's breach, TimeReversed and BadState where changelog,
    output, state or ledger are not those that the release began with, BudgetExhausted for more than `budget`.

    >>> from tempfile import TemporaryDirectory
    >>> from changeling_statistics import read_rows
    >>> log = read_rows([("ann", "2026-01-01T08:00:00Z", "in"), ("ann", "2026-01-03T18:00:00Z", "")])
    >>> with TemporaryDirectory() as folder:
    ...     wish = ReleaseOptions("any answer", every="1d", epsilon=1, at_most=2, output=Path(folder, "counts.csv"))
    ...     released = release_with(log, wish)
    ...     len(released.rows()), released.guarantee.epsilon
    (3, Fraction(1, 1))
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(f"a central release needs {missing[0]}: pip install 'changeling[central]'")
    wish = _wish(changelog, options)
    before = begun(state_beside(wish.output))
    listener = Listener(options.on_note)
    log, arrivals = _read(changelog, wish, before, listener)
    query, mean = _query(wish, log)
    dates = _dates(wish, log, before)
    spent = wish.spending
    counted = options.query, query, dates.calendar, wish.constraint
    statement = Statement(*counted, spent, options.freeze, wish.late)
    if before is not None:
        before.refuse_others(statement.terms(), state_beside(wish.output))
    for sentence in dates.said(begins=before is None):
        listener.note(sentence)
    listener.hear_of_data(options.query, wish.answers, log, query)
    listener.hear_of_rows_outside(log, dates.calendar)
    kept = _held_to_promise(log, statement) if options.freeze else log
    if options.freeze:
        listener.aside(said_of_freezing(log, kept, query, dates.calendar))
    mechanism = _mechanism(wish, statement, kept, before, listener)
    if options.afterwards is not None:
        check_windows(wish.offer.name, mechanism, mean is None, wish.window or 0)
    guarantee = spent.guarantee(mechanism.guarantee)
    error = root_mean_square(mechanism.variance, query, dates.calendar.periods) if mean is None else None
    about = about_release(statement, dates.from_data, guarantee, mechanism, error)
    names = tuple(name + mechanism.shows for name in query.names)
    zone = zone_name(dates.calendar)
    output = Output(wish.output, names, float(query.unit), about, mean, mechanism.law, zone)
    account = _account(changelog, wish, said_of_periods(dates.calendar), listener)
    last = _last_period(dates.calendar, options, wish.every.zone, listener)
    job = Release(kept, statement, mechanism, output, dates.from_data, account, options.overwrite, arrivals)
    published = 0
    if options.plan:
        _say_plan(job, last, before, log, wish, listener)
    elif last or before is not None:
        published, unknown = _follow(job, last, options.on_period)
        if unknown:
            listener.note("no standard error of this mechanism is known, so that column is empty")
    else:
        first = local_instant(dates.calendar.time(1), zone)
        listener.note(f"the first period ends at {first}: nothing is charged yet")
    if options.afterwards is not None and last and not options.plan:
        head = Output(Path(options.afterwards), names, float(query.unit), about, law=mechanism.law, zone=zone)
        save_windows(wish.output, dates.calendar, wish.window or 0, head, mechanism)
    released = Released(
        wish.output,
        options.query,
        dates.calendar,
        last,
        published,
        guarantee,
        dates.from_data,
        tuple(listener.notes),
        tuple(listener.asides),
        about,
        None if account is None else read_ledger(account.path),
    )
    _write_table(released, None if options.plan else wish.table)
    return released


release = _with_options(ReleaseOptions, release_with)


# Options, read and checked


@dataclass(frozen=True, slots=True)
class _Wish:
    """The options as they were read, before any data are. window: in periods. offer: of the mechanism."""

    options: ReleaseOptions
    constraint: Constraint
    every: Every
    window: int | None
    offer: Offer[object]
    law: Law | None
    spending: Spending
    answers: list[str] | None
    output: Path
    table: Path | None
    late: Late


def _wish(changelog: Source, options: ReleaseOptions) -> _Wish:
    within = None if options.within is None else parse_duration(options.within, months=True)
    every = Every.parsed(options.every, options.zone)
    window = None if options.window is None else every.periods_of(options.window)
    unit = Unit(options.person, _whole("per_person", options.per_person) or 0)
    offer = offered(options.mechanism, None if options.afterwards is not None else window)
    if options.afterwards is not None and window is None:
        raise ValueError("--afterwards: say over how long a --window the changes are")
    unbounded = offer.name in (BEST.name, FRESH.name) and options.at_most is None and within is None
    constraint = UNBOUNDED if unbounded else constraint_of(_whole("at_most", options.at_most), within)
    spent = spending(unit, options.epsilon, options.delta, options.rho)
    output, table = _output(changelog, options.output), None if options.parquet is None else Path(options.parquet)
    if table is not None and table.suffix != ".parquet":
        raise ValueError(f"the table is a .parquet file, got {table.name}")
    for written in [output] if table is None else [output, table]:
        check_output(written)
    if options.law not in (None, *Law):
        raise ValueError(f"the noise is laplace or gaussian, got {options.law!r}")
    law, answers, late = (
        None if options.law is None else Law(options.law),
        _named(options.answers),
        late_of(options.late),
    )
    return _Wish(options, constraint, every, window, offer, law, spent, answers, output, table, late)


def _write_table(released: Released, path: Path | None) -> None:
    if path is not None and released.last:
        written = io.BytesIO()
        released.frame().write_parquet(written, metadata=dict(released.about))
        replaced(path, written.getvalue())


def _output(changelog: Source, output: Path | str | None) -> Path:
    if output is not None:
        return Path(output)
    if not isinstance(changelog, str | Path):
        raise ValueError("a frame has no name that its output could have: say where to publish, output=")
    return default_output(Path(changelog))


def default_output(changelog: Path) -> Path:
    """The output of a changelog's release where none is named: NAME.released.csv in the current folder."""
    return Path(changelog.name.removesuffix(".gz")).with_suffix(".released.csv")


def _whole(name: str, value: int | None) -> int | None:
    """A number as Python's own, be it NumPy's. ValueError for what is none."""
    number = whole(value)
    if value is not None and number is None:
        raise ValueError(f"{name} is a whole number, got {value!r}")
    return number


def _named(answers: Sequence[str] | None) -> list[str] | None:
    """The names of the answers, given as a list or with commas between. ValueError for an empty name."""
    if answers is None:
        return None
    names = [name.strip() for name in answers.split(",")] if isinstance(answers, str) else list(answers)
    if not all(names):
        raise ValueError(f"one of the answers has no name: {answers!r}")
    return names


def _iso(instant: str | date | None) -> str | None:
    return instant.isoformat() if isinstance(instant, date) else instant  # a datetime is a date, too


# The changelog, its calendar and its query


def changelog_of(source: Source, columns: Columns = Columns()) -> Changelog:  # noqa: B008 frozen
    """The changelog of a file, a frame or itself.

    columns: which column holds the answers, and whose the entries are. Raises UnusableChangelog for rows that
    contradict themselves or columns that are missing.
    """
    if isinstance(source, Changelog):
        if columns.answer != ANSWER or (columns.owner is not None and source.owner is None):
            raise UnusableChangelog(
                f"a Changelog holds answers, and no column {columns.owner or columns.answer!a}: read it with that"
            )
        return source
    try:
        if not isinstance(source, str | Path):
            return read_frame(source, columns=columns)
        path = Path(source)
        if path.exists() and not path.is_file():  # it may be read twice, which a pipe cannot be
            raise ValueError(f"{path} is no file: a changelog is a .csv, .csv.gz or .parquet file")
        return read_parquet(path, columns=columns) if path.suffix == ".parquet" else read_csv(path, columns=columns)
    except BadChangelog as error:
        raise UnusableChangelog(str(error)) from error


def _read(
    source: Source, wish: _Wish, before: SavedRelease | None, listener: Listener
) -> tuple[Changelog, Arrivals | None]:
    """Reads the mutations to count; and all rows, where late ones do not stop the release."""
    column, options = column_of(wish.options.query), wish.options
    stops = wish.late == Late.STOP
    log = changelog_of(source, Columns(column, options.person, zone_of(wish.every.zone), late=not stops))
    if stops:
        return log, None
    if before is None or not before.period:
        arrivals = arrived(log, wish.late, None, SeenRows())
    else:
        end = before.calendar.time(before.period)
        arrivals = arrived(log, wish.late, end * MICROSECONDS, before.seen)
        if arrivals.late:
            listener.aside(arrivals.said(wish.late, local_instant(end, wish.every.zone)))
    return arrivals.counted, arrivals


def _dates(wish: _Wish, log: Changelog, before: SavedRelease | None) -> Dates:
    """The release's calendar; one that was once read from the data stays so."""
    start, until = _iso(wish.options.start), _iso(wish.options.until)
    dates = calendar_for(log, wish.every, start, until, None if before is None else before.calendar)
    return replace(dates, from_data=True) if before is not None and before.calendar_from_data else dates


def _last_period(calendar: Calendar, options: ReleaseOptions, zone: str, listener: Listener) -> int:
    """The last period that has ended by --through, and by the clock; the listener hears where these differ."""
    ended = calendar.closed(UnixSeconds(options.clock()))
    if options.through is None:
        return ended
    through = calendar.closed(UnixSeconds(parse_instant(_iso(options.through) or "", zone_of(zone)) + 1e-6))
    if through > ended:
        listener.note(
            f"--through names {through} periods, of which {ended} have ended: the others wait until they have"
        )
    return min(through, ended)


def _query(wish: _Wish, log: Changelog) -> tuple[LinearQuery, Mean | None]:
    options, spent = wish.options, wish.spending
    law = wish.law if spent.rho is None else Law.GAUSSIAN
    weight = best_weight(wish.constraint, options.fixed, law, spent.delta)
    query = answer_query(options.query, log.answers, wish.answers, options.fixed, weight)
    mean = mean_of(options.query, weight)
    if mean is not None and wish.offer.name == SWCR.name:
        raise ValueError("a mean is of what is there, and swcr publishes changes: take a sum")
    return query, mean


def _held_to_promise(log: Changelog, statement: Statement) -> Changelog:
    """The mutations that are left once entries, and persons, are held to their promise."""
    unit = statement.spending.unit
    within = log if unit.column is None else log.take(~beyond(log, unit.most))
    return frozen(within, statement.constraint, statement.query.fixed)


# Mechanism, account, and the run


def _mechanism(
    wish: _Wish, statement: Statement, log: Changelog, before: SavedRelease | None, listener: Listener
) -> ReleaseMechanism[object]:
    """The mechanism that is asked for, or with which the release has begun; the listener hears why."""
    direct = wish.offer.name == SWCR.name or wish.options.afterwards is None
    begun_with = None if before is None else before.terms.mechanism
    asked = _asked(statement, wish.law, begun_with, wish.window if direct else None)
    wish.offer.check(asked)
    if before is None and wish.offer.name == BEST.name:
        predicted = compared(asked)
        listener.note(in_words(asked, predicted))
        return predicted[0].made
    made = wish.offer.make(asked)
    if before is None and wish.offer.good_for:
        best = compared(_asked(statement))[0]
        expected = _expected_error(made, statement, log)
        own = "nobody can say how far it errs" if expected is None else f"expect it to err by about {expected:.4g}"
        tell = (
            listener.aside if made.variance(1) is None else listener.note
        )  # what is expected may follow from the data
        tell(
            f"{wish.offer.name} is good for {wish.offer.good_for}; here {own}, {best.name} by {best.error:.4g} "
            "(standard error, root mean square over the calendar)"
        )
    return made


def _expected_error(made: ReleaseMechanism[object], statement: Statement, log: Changelog) -> float | None:
    """How far a level of this changelog is expected to err, root mean square; None where nobody knows."""
    updates = updates_by_period(log, statement.query, statement.calendar)
    return root_mean_square(
        lambda step: made.expected_variance(step, float(updates[step - 1])), statement.query, statement.calendar.periods
    )


def _asked(statement: Statement, law: Law | None = None, begun: Made | None = None, window: int | None = None) -> Asked:
    s = statement
    return Asked(s.query, s.calendar, s.constraint, *s.spending.each, law, begun, window, s.spending.rho)


def _account(source: Source, wish: _Wish, periods: str, listener: Listener) -> ReleaseAccount | None:
    """The account that the release is charged to: in the ledger that is named, else in the one beside the file."""
    options = wish.options
    path = ledger_beside(source) if options.ledger is None else Path(options.ledger)
    if path is None:
        if options.budget is not None or options.changelog_id is not None:
            raise ValueError("a frame has no ledger beside it: name one, ledger=")
        return None
    check_output(path)
    charge = Charge.of(wish.output, options.query, wish.spending.cost, periods)
    data = Path(source) if isinstance(source, str | Path) else None
    account = ReleaseAccount(path, wish.spending.unit, charge, options.changelog_id, total_of(options.budget), data)
    for sentence in account.doubts():
        listener.aside(sentence)
    return account


def _follow(job: Release, last: int, on_period: Callable[[int, int], None]) -> tuple[int, bool]:
    """How many periods were published, and whether their standard error is unknown."""
    published, unknown = 0, False
    try:
        for period, level in run(job, PooledNoise(OpenDPNoise()), last, together=TOGETHER):
            on_period(period, last)
            published, unknown = published + 1, isnan(level.variance)
    except OSError as error:
        raise OSError(f"{error}; nothing is lost: once that is mended, the same command goes on") from error
    return published, unknown


SHOWN_CONSTRAINTS = (1, 2, 3, 4, 6, 8, 12)
"""Numbers of mutations whose cost in noise and in freezing a plan shows, as far as entries mutate so often."""


def _say_plan(
    job: Release, last: int, before: SavedRelease | None, log: Changelog, wish: _Wish, listener: Listener
) -> None:
    """Say what the release would do: its periods, its noise, other constraints, and all that would be refused.

    log: as it was read. Nothing is drawn, written or charged.
    """
    statement, calendar = job.statement, job.statement.calendar
    done = 0 if before is None else before.period
    listener.note(f"a plan: {last - done} of {calendar.periods} periods would be published now; nothing is charged")
    error, mean = _expected_error(job.mechanism, statement, job.changelog), job.output.mean
    if error is not None and mean is not None:
        listener.aside(_said_of_mean(mean, error, statement, job.changelog))
    elif error is not None:
        tell = listener.aside if job.mechanism.variance(1) is None else listener.note
        tell(f"expect every level to err by {error:.4g} (standard error, root mean square)")
    for sentence in _other_constraints(statement, log, wish):
        listener.aside(sentence)
    for refused in job.refused(before, last):
        listener.aside(f"would be refused: {refused}")


def _said_of_mean(mean: Mean, error: float, statement: Statement, log: Changelog) -> str:
    """How far count, sum and mean are expected to err, each in its own unit. error: of the columns they come from."""
    query = statement.query
    level = true_levels(log, query, statement.calendar)[-1]
    shown = mean.shown(Level(level.astype(np.float64), (error / float(query.unit)) ** 2))
    errors = ", ".join(f"the {each.name} to err by {each.error:.4g}" for each in shown)
    hidden = "; there is no mean in the end, as the count is not surely above 0" * (len(shown) < 3)
    return f"expect {errors} (standard error, root mean square){hidden}"


def _other_constraints(statement: Statement, log: Changelog, wish: _Wish) -> Iterator[str]:
    """How far levels err with other numbers of mutations, and whom those would freeze, a sentence each."""
    if not isinstance(statement.constraint, AtMost) or statement.constraint == UNBOUNDED or not len(log):
        return
    most = int(np.unique(log.entry, return_counts=True)[1].max())
    for k in sorted({*SHOWN_CONSTRAINTS, statement.constraint.k}):
        if k > max(most, statement.constraint.k):
            return
        other = replace(statement, constraint=AtMost(k))
        try:
            best = compared(_asked(other, wish.law))[0]
        except ValueError:
            continue
        kept = _held_to_promise(log, other)
        frozen_ = frozen_in_words(log, kept, "leave")
        yield f"--at-most {k}: {best.name} errs by {best.error:.4g}; --freeze would freeze {frozen_}"
