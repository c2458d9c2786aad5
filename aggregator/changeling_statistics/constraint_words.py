"""The constraint on mutations: from the options of a command line, and in words."""

from changeling_protocol import MOST_MUTATIONS, AtMost, AtMostWithin, Constraint, Hybrid, TimeBounded

from .durations import format_duration


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
