"""Words on command lines and in files: durations, instants, counts, epsilons, constraints, surveys."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from changeling_protocol import (
    LAST_INSTANT,
    MOST_MUTATIONS,
    AtMost,
    AtMostWithin,
    Constraint,
    Hybrid,
    MalformedBytes,
    Survey,
    TimeBounded,
    UnderstatedEpsilon,
    group_cost,
)

SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
LONG = {"mo": 2_628_000, "y": 31_536_000}
"""A month as a twelfth of a year, and a year of 365 days: good for a length of time, not for a calendar."""

_FORM = re.compile(r"(\d{1,12})\s*(mo|[smhdwy])", re.ASCII)


def parse_duration(text: str, *, months: bool = False) -> int:
    """The seconds of a whole number and its unit: s, m (minutes), h, d or w.

    months: whether months (mo, 365/12 days) and years (y, 365 days) will do as well, as they do for how long something
    may take. The periods of a calendar have one length, which months and years have not.
    Raises ValueError for anything else, and for a duration of zero.

    >>> parse_duration("13w"), parse_duration("12mo", months=True)
    (7862400, 31536000)
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        units = "s, m (minutes), h, d, w" + ", mo (months), y" * months
        raise ValueError(f"a duration is a whole number and one of {units}, such as 90d or 13w: got {text!r}")
    if match[2] in LONG and not months:
        raise ValueError(
            f"months and years differ in length, so a duration is in d or w here, as 30d or 52w: got {text!r}"
        )
    seconds = int(match[1]) * (SECONDS | LONG)[match[2]]
    if seconds == 0:
        raise ValueError(f"a duration must be at least one second, got {text!r}")
    return seconds


def format_duration(seconds: int) -> str:
    """The duration in the widest unit that divides it.

    >>> format_duration(7862400)
    '13w'
    """
    unit = next(unit for unit, length in SECONDS.items() if seconds % length == 0)
    return f"{seconds // SECONDS[unit]}{unit}"


def parse_instant(text: str) -> float:
    """Unix seconds, to the end of the year 9999. Raises ValueError.

    >>> parse_instant("1993-07-01"), parse_instant("741484800")
    (741484800.0, 741484800.0)
    """
    try:
        if text.isascii() and text.isdigit() and len(text) != 8:  # eight digits are a date, 19930701
            time = float(text)
        else:
            instant = datetime.fromisoformat(text)
            time = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"a time is like 2026-01-31 or 2026-01-31T12:00:00Z, got {text!r}") from None
    if time > LAST_INSTANT:
        raise ValueError(f"there is no time after the year 9999, got {text!r}")
    return time


def format_instant(time: float) -> str:
    """ISO 8601 in UTC, to the second.

    >>> format_instant(741484800)
    '1993-07-01T00:00:00Z'
    """
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    circumstances = survey.calendar, survey.constraint, survey.closed
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
