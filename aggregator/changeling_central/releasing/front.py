"""`release`: a changelog in, a count published period after period, in one call; the command is a skin over it.

Everything that can be refused is refused before anything is drawn or written. Run again with the same words, a release
goes on where it stopped.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.util import find_spec
from math import isnan
from pathlib import Path

from changeling_protocol import Constraint, UnixSeconds
from changeling_statistics import (
    MICROSECONDS,
    Changelog,
    Columns,
    constraint_of,
    format_duration,
    parse_duration,
    parse_instant,
)

from ..changes.answer_query import answer_query, column_of, mean_of
from ..changes.mean_query import best_weight
from ..guard import frozen
from ..node_noise import Law
from ..persons import beyond
from ..whole import whole
from .account import Account
from .afterwards import check_windows, save_afterwards
from .best import BEST, compared, in_words
from .calendar import calendar_for
from .candour import expected_error, of_freezing, of_names, of_purpose, stated_error
from .choice import MechanismChoice
from .header import about_release
from .ledger import Charge, read_ledger
from .limits import check_output
from .offers import offered
from .output import Output
from .released import Released
from .run import Release, run
from .source import Source, changelog_of, ledger_beside
from .spending import Budget, Number, Spending, spending, total_of
from .terms import begun, terms_of
from .unit import Unit

TOGETHER = 128
"""Periods saved and published at a time: a flush of the disk takes as long as drawing for many."""
NEEDED = ("opendp", "dp_accounting", "msgspec", "filelock")


def release(
    changelog: Source,
    query: str,
    *,
    every: str,
    output: Path | str,
    epsilon: Number | None = None,
    at_most: int | None = None,
    within: str | None = None,
    delta: Number = 0,
    rho: Number | None = None,
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
    window: str | None = None,
    person: str | None = None,
    per_person: int = 1,
    nodes: bool = False,
    afterwards: Path | str | None = None,
    ledger: Path | str | None = None,
    changelog_id: str | None = None,
    total: Budget | None = None,
    told: Callable[[str], None] = lambda sentence: None,  # noqa: ARG005
    reached: Callable[[int, int], None] = lambda period, last: None,  # noqa: ARG005
) -> Released:
    """Publish a count of a changelog continually, with standard errors; called again, it goes on where it stopped.

    changelog: a `Changelog`, a frame of pandas or polars, or a .csv, .csv.gz or .parquet file, of entry, time, answer;
    other columns are left alone.
    query: what is counted, such as "any answer" or "answer == 'A'"; `changes.answer_query` lists the forms. Any column
    may stand in place of `answer`.
    every: the length of a period: "15m", "1h", "1d".
    epsilon: what an entry, or a person, may lose over the whole release, in nats; a float is taken as it is written.
    output: a .csv or .jsonl file. The state beside it, OUTPUT.state, holds true sums: keep it where the changelog is.
    at_most: an entry mutates at most so often, its insertion included. within: its mutations lie within so long of the
    first, such as "12h". One of the two is needed; with both, an entry keeps to both.
    delta: above 0, less noise, at an (epsilon, delta) guarantee. rho: in place of both, of concentrated privacy.
    fixed: no entry ever holds two different answers; checked, and less noise.
    freeze: freeze an entry that breaks its promise, instead of stopping before its period.
    answers: the answers there are; "each answer" shows them.
    start, until: when the first period begins and the last one ends; left out, they are read from the data and are not
    protected. through: until when the changelog is whole, now if left out: periods that end later wait.
    mechanism: the name of an offer, see `all_offers`; the one of the least predicted error if left out. law: "laplace"
    or "gaussian". branching, layers: of hdcr's hierarchy. What is left out is chosen. adaptive: the guarantee holds
    where people react to what is published, too. window: of swcr, or of `afterwards`, such as "24h".
    person: the column that says whose an entry is: the promise is then made to persons, with all of at most
    `per_person` entries. nodes: publish the noisy nodes as well, of hdcr. afterwards: a file for the best estimates
    from all nodes, made anew with each call, or for the changes over windows that the levels of the square root tell.
    ledger: where the releases of this changelog are added up; beside the file if left out, nowhere for a frame.
    changelog_id: what the changelog is called in it, drawn if left out. total: what all releases may cost together,
    epsilon, (epsilon, delta) or "rho=1/2"; set once, lowered at most.
    told: called with each note and aside as it arises. reached: called with (period, last period) as these are
    published.

    Returns what is published. Raises ValueError for what cannot be asked, UnusableChangelog for rows that contradict
    themselves, ConstraintBroken before the period of an entry's breach, TimeReversed and BadState where changelog,
    output, state or ledger are not those that the release began with, BudgetExhausted for more than `total`.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ValueError(f"a central release needs {missing[0]}: pip install 'changeling[central]'")
    constraint = constraint_of(_whole("at_most", at_most), None if within is None else parse_duration(within))
    period = parse_duration(every)
    spans = None if window is None else _periods(window, period)
    direct = spans if afterwards is None or mechanism == "swcr" else None
    shape = _whole("branching", branching), _whole("layers", layers)
    choice = MechanismChoice(mechanism or ("hdcr" if nodes else None), law, *shape, adaptive, direct)
    if nodes and choice.name not in ("hdcr", "dcr"):
        raise ValueError(f"--nodes: {choice.name} has no nodes that are published; hdcr and dcr have, --mechanism")
    if afterwards is not None and not nodes and spans is None:
        raise ValueError("what is known afterwards is made from all --nodes of hdcr or dcr, or is windows: --window")
    unit = Unit(person, _whole("per_person", per_person) or 0)
    spent = spending(unit, epsilon, delta, rho)
    output = Path(output)
    check_output(output)
    log = changelog_of(changelog, Columns(column_of(query), person))
    state = output.with_name(output.name + ".state")
    before = begun(state)
    declared = _named(answers)
    law = choice.law if spent.rho is None else Law.GAUSSIAN
    weight = best_weight(constraint, fixed, law, spent.delta)
    counted, mean = answer_query(query, log.answers, declared, fixed, weight), mean_of(query, weight)
    if mean is not None and choice.name == "swcr":
        raise ValueError("a mean is of what is there, and swcr publishes changes: take a sum")
    dates = calendar_for(log, period, _iso(start), _iso(until), before)
    calendar = dates.calendar
    notes: list[str] = []
    asides: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        told(sentence)

    def aside(sentence: str) -> None:
        asides.append(sentence)
        told(f"not private, for the curator alone: {sentence}")

    if before is not None:
        before.refuse_others(terms_of(query, counted, calendar, constraint, *spent.each, unit, freeze, spent.rho))
    elif dates.from_data:
        note(
            "the calendar is read from the data, whole days around its first and last mutation; where one entry could "
            "be seen in that, give --start and --until"
        )
    if dates.left:
        note(f"the last {format_duration(dates.left)} before --until are no whole period, and are not released")
    for sentence in of_names(query, log, declared, counted):
        aside(sentence)
    if freeze:
        kept = _frozen(log, constraint, fixed, unit)
        aside(of_freezing(log, kept, counted, calendar))
        log = kept
    asked_for = counted, calendar, constraint, *spent.each, None, spent.rho
    if before is None and choice.name == BEST.name:
        wish = choice.asked(*asked_for)
        predicted = compared(wish)
        made = predicted[0].made
        note(in_words(wish, predicted))
    else:
        begun_with = None if before is None else before.saved.terms.mechanism
        made = choice.made(counted, calendar, constraint, *spent.each, begun_with, spent.rho)
        if before is None and (good_for := offered(choice.name).good_for):
            usual = compared(MechanismChoice(adaptive=adaptive).asked(*asked_for))[0]
            expected = expected_error(made, counted, calendar.periods)
            note(of_purpose(choice.name, good_for, expected, usual.name, usual.error))
    if afterwards is not None and not nodes:
        check_windows(choice.name, made, mean is None, spans or 0)
    error = stated_error(made, counted, calendar.periods) if mean is None else None
    guarantee = spent.guarantee(made.guarantee)
    about = about_release(query, calendar, dates.from_data, constraint, freeze, unit, guarantee, made, error)
    instant = time.time() if through is None else parse_instant(_iso(through) or "") + 1e-6
    last = calendar.closed(UnixSeconds(instant))
    names = tuple(name + made.shows for name in counted.names)
    written = Output(output, names, float(counted.unit), about, mean, nodes)
    account = _account(changelog, ledger, output, query, spent, changelog_id, total)
    promised = constraint, made, written, state, dates.from_data, unit, account, freeze, spent.rho
    asked = Release(log, counted, query, calendar, *promised)
    published, unknown = _follow(asked, last, reached)
    if unknown:
        note("no standard error of this mechanism is known, so that column is empty")
    if len(log) and int(log.time.max()) > calendar.time(calendar.periods) * MICROSECONDS:
        aside("the changelog goes on after the calendar's end: what lies beyond is not part of this release")
    if afterwards is not None and last:
        head = Output(Path(afterwards), names, float(counted.unit), about)
        save_afterwards(output, calendar, spans, head, None if nodes else made)
    return Released(
        output,
        query,
        calendar,
        last,
        published,
        guarantee,
        dates.from_data,
        tuple(notes),
        tuple(asides),
        about,
        None if account is None else read_ledger(account.path),
    )


def _frozen(log: Changelog, constraint: Constraint, fixed: bool, unit: Unit) -> Changelog:
    """What is left once entries, and persons, are held to their promise."""
    within = log if unit.column is None else log.take(~beyond(log, unit.most))
    return frozen(within, constraint, fixed)


def _account(
    source: Source,
    ledger: Path | str | None,
    output: Path,
    query: str,
    spent: Spending,
    changelog_id: str | None,
    total: Budget | None,
) -> Account | None:
    """What the release is charged to: the ledger that is named, else the one beside the file."""
    path = ledger_beside(source) if ledger is None else Path(ledger)
    if path is None:
        if total is not None or changelog_id is not None:
            raise ValueError("a frame has no ledger beside it: name one, ledger=")
        return None
    check_output(path)
    charge = Charge.of(str(output), query, spent.cost)
    return Account(path, spent.unit, charge, changelog_id, total_of(total))


def _whole(name: str, value: int | None) -> int | None:
    """A number as Python's own, be it NumPy's. ValueError for what is none."""
    number = whole(value)
    if value is not None and number is None:
        raise ValueError(f"{name} is a whole number, got {value!r}")
    return number


def _periods(window: str, period: int) -> int:
    """How many periods a window has. ValueError where it is no whole number of them."""
    seconds = parse_duration(window)
    if seconds % period:
        raise ValueError(f"a window is a whole number of periods of {format_duration(period)}, got {window}")
    return seconds // period


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


def _named(answers: Sequence[str] | None) -> list[str] | None:
    if answers is None:
        return None
    if isinstance(answers, str) or not all(answers):
        raise ValueError(f"the answers are names, none of them empty, got {answers!r}")
    return list(answers)


def _iso(instant: str | datetime | None) -> str | None:
    return instant.isoformat() if isinstance(instant, datetime) else instant
