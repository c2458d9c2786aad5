"""Surveys on command lines and in files, the words that make them up, and surveys that go on from one another.

An entry answers a successor afresh: it draws its group anew and every coin, and its answer is inserted in the first
period again. So the estimates of one survey are independent of those of another, given the true answers; each has a
budget of its own, and one series runs across all of them.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeAlias

from changeling_protocol import (
    MOST_MUTATIONS,
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Hybrid,
    MalformedBytes,
    Node,
    Survey,
    TimeBounded,
    UnderstatedEpsilon,
    format_duration,
    group_cost,
    per_week,
    upwards,
)

from .estimation.figures import Histogram
from .estimation.solution import Gap


def parse_count(text: str) -> int:
    """A whole number, at least 1. Raises ValueError for anything else.

    >>> parse_count("1.5e5")
    150000
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"write a number such as 20000 or 1e6, got {text!r}") from None
    if not (value.is_finite() and value == value.to_integral_value()):
        raise ValueError(f"write a whole number such as 20000 or 1e6, got {text}")
    if value < 1:
        raise ValueError(f"there must be at least one, got {text}")
    return int(value)


def parse_epsilon(text: str) -> Decimal:
    """The epsilon, exactly as written. Raises ValueError for what is no number above 0.

    >>> parse_epsilon("0.5")
    Decimal('0.5')
    """
    try:
        epsilon = Decimal(text)
    except InvalidOperation:
        epsilon = Decimal("nan")
    if not epsilon.is_finite():
        raise ValueError(f"epsilon is a number such as 8 or 0.5, got {text!r}")
    if epsilon <= 0:
        raise ValueError(f"epsilon must be above 0, got {text}")
    return epsilon


def constraint_of(at_most: int | None, within: int | None) -> Constraint:
    """The constraint that `--at-most` and `--within` ask for.

    at_most: how many mutations an entry may make, insertion and deletion included; None for no such bound.
    within: seconds from an entry's first mutation to its last; None for no such bound.
    With both, an entry keeps to both. Raises ValueError for neither, or a bound that is out of range.

    >>> constraint_of(2, None)
    AtMost(k=2)
    """
    if at_most is not None and at_most > MOST_MUTATIONS:
        raise ValueError(f"--at-most is at most {MOST_MUTATIONS:,}, got {at_most}")
    if at_most is not None and within is not None:
        return AtMostWithin(at_most, within)
    if at_most is not None:
        return AtMost(at_most)
    if within is not None:
        return TimeBounded(within)
    raise ValueError("say how an entry's answer may change: --at-most, --within, or both")


def constraint_in_words(constraint: Constraint) -> str:
    """The constraint as part of a sentence.

    >>> constraint_in_words(constraint_of(2, 3600))
    'at most 2 mutations, all within 1h of the first'
    """
    match constraint:
        case AtMost(k):
            return f"at most {k} mutation{'s' * (k > 1)}"
        case TimeBounded(seconds):
            return f"all mutations within {format_duration(seconds)} of the first"
        case AtMostWithin(k, seconds):
            return f"at most {k} mutation{'s' * (k > 1)}, all within {format_duration(seconds)} of the first"
        case Hybrid(classes):
            return ", or ".join(constraint_in_words(each) for each in classes)
    return str(constraint.as_fields())


def write_survey(path: Path, survey: Survey) -> None:
    """Writes an unsigned survey as JSON: all that will be signed, and what each group costs, for people to read.

    path: the file. Raises OSError if it cannot be written.
    """
    circumstances = survey.calendar, survey.constraints, survey.closed
    groups = [f"{group_cost(group, *circumstances):.6f}" for group in survey.plan.groups]
    content = {
        "survey": {**survey.as_fields(), "follows": survey.follows.hex()},
        "cost": {"epsilon": str(survey.epsilon), "groups": groups},
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_survey(path: Path) -> Survey:
    """The survey in a file, signed or not. Its cost is computed again; a signature is not checked.

    path: what `write_survey` wrote, or a signed survey.
    Raises MalformedBytes or UnderstatedEpsilon, which name the file, or OSError.
    """
    content = path.read_bytes()
    try:
        return _survey_in_json(content) if content.lstrip().startswith(b"{") else Survey.unverified(content)
    except MalformedBytes as error:
        raise MalformedBytes(f"{path} holds no survey: {error}; make one with `changeling survey new`") from error
    except UnderstatedEpsilon as error:
        raise UnderstatedEpsilon(f"{path}: {error}") from error


def _survey_in_json(content: bytes) -> Survey:
    try:
        fields = dict(json.loads(content)["survey"])
        fields["follows"] = bytes.fromhex(fields["follows"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedBytes("not the JSON of a survey") from error
    return Survey.from_fields(fields)


Series: TypeAlias = Sequence[Histogram | Gap]


def check_successor(first: Survey, second: Survey) -> None:
    """Raises ValueError, which names what does not fit, unless `second` goes on from `first`.

    It follows it by id, has its answers in their order, its breakdowns and the length of its periods, and its calendar
    starts where the first one's ends.
    """
    if second.follows != first.id:
        raise ValueError(f"survey {second.id.hex()} does not follow survey {first.id.hex()}")
    for name, before, after in (
        ("answers", list(first.answers), list(second.answers)),
        ("breakdowns", _named(first), _named(second)),
        ("period", first.calendar.period, second.calendar.period),
    ):
        if before != after:
            raise ValueError(f"a successor has the {name} of the survey that it follows, {before}, got {after}")
    if second.calendar.start != (end := first.calendar.time(first.calendar.periods)):
        raise ValueError(
            f"a successor's calendar starts where the one before ends, at Unix time {end}, got {second.calendar.start}"
        )


def offsets(surveys: Sequence[Survey]) -> list[int]:
    """How many periods lie before each survey's first, counted from the start of the first survey.

    surveys: at least one, in order. Raises ValueError where one does not follow the one before.
    """
    for first, second in pairwise(surveys):
        check_successor(first, second)
    return list(accumulate((survey.calendar.periods for survey in surveys[:-1]), initial=0))


def next_calendar(survey: Survey, periods: int) -> Calendar:
    """The calendar of so many periods that goes on from a survey's."""
    before = survey.calendar
    return Calendar(before.time(before.periods), before.period, periods)


def total_cost(surveys: Sequence[Survey]) -> tuple[Decimal, Decimal]:
    """The cost of successive surveys to a person who takes part in all of them with one entry.

    Returns the sum of their stated epsilons, and that for each week of their calendars, rounded up to millionths.
    """
    with upwards():
        epsilon = sum((survey.epsilon for survey in surveys), Decimal(0))
    return epsilon, per_week(epsilon, sum(survey.calendar.period * survey.calendar.periods for survey in surveys))


def joined_series(surveys: Sequence[Survey], results: Sequence[Series]) -> list[Histogram | Gap]:
    """One series across successive surveys, whose periods are counted from the start of the first survey.

    surveys: in order.
    results: of each survey what `series` returns, from its first period on; of one that was ended early, or still runs,
    as far as there is any.
    Returns one for each period up to the last that has a result; a gap also where a survey has none.
    Raises ValueError where one survey does not follow the one before, or has more results than periods.
    """
    joined: list[Histogram | Gap] = []
    for survey, before, own in zip(surveys, offsets(surveys), results, strict=True):
        if len(own) > survey.calendar.periods:
            raise ValueError(f"a survey of {survey.calendar.periods} periods has no {len(own)} results")
        joined += [Gap(Node(0, period), None) for period in range(len(joined) + 1, before + 1) if own]
        joined += [
            replace(result, period=before + result.period)
            if isinstance(result, Histogram)
            else Gap(Node(0, before + result.span.end), result.missing)
            for result in own
        ]
    return joined


def _named(survey: Survey) -> dict[str, list[str]]:
    return {each.name: list(each.values) for each in survey.breakdowns}
