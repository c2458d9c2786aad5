"""Words on command lines and in files: counts, epsilons, constraints, surveys."""

import json
from decimal import Decimal, InvalidOperation
from pathlib import Path

from changeling_protocol import (
    MOST_MUTATIONS,
    AtMost,
    AtMostWithin,
    Constraint,
    Hybrid,
    MalformedBytes,
    Survey,
    TimeBounded,
    UnderstatedEpsilon,
    format_duration,
    group_cost,
)


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
