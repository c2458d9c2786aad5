"""Public strata: by what an operator wants to break results down, such as version, platform or country.

An entry's stratum is told by the app and sent in the open, beside its reports. It must not depend on any answer; so it
costs no epsilon, and whoever sees an envelope's inside learns it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from .quantities import StratumNumber

MOST_STRATA = 2**10
"""The most combinations of values that a survey may declare: tallies are kept for each."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One thing to break results down by.

    name: such as "platform".
    values: their names; at least one. Each entry has one of them.
    Raises ValueError for names that are empty or occur twice.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a breakdown must have a name")
        if not self.values or len(set(self.values)) < len(self.values) or "" in self.values:
            raise ValueError(f"the values of {self.name!r} must be distinct and not empty, got {list(self.values)}")


def check_breakdowns(breakdowns: Sequence[Breakdown]) -> None:
    """Raises ValueError for breakdowns with one name, or with more combinations than MOST_STRATA."""
    if len({each.name for each in breakdowns}) < len(breakdowns):
        raise ValueError(f"breakdowns must have distinct names, got {[each.name for each in breakdowns]}")
    if (count := count_strata(breakdowns)) > MOST_STRATA:
        raise ValueError(f"breakdowns have at most {MOST_STRATA} combinations of values, got {count}: leave some out")


def count_strata(breakdowns: Sequence[Breakdown]) -> int:
    """How many strata there are: one for each combination of values; 1 without breakdowns."""
    return prod(len(each.values) for each in breakdowns)


def stratum_of(breakdowns: Sequence[Breakdown], told: Mapping[str, str]) -> StratumNumber:
    """The number of a stratum, from 0; the last breakdown's values are next to each other.

    told: the value for the name of every breakdown. Raises ValueError for names and values that are not declared, or
    are missing.

    >>> system, channel = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))
    >>> stratum_of([system, channel], {"channel": "beta", "system": "linux"})
    1
    """
    if told and not breakdowns:
        raise ValueError(f"the survey breaks nothing down, so it takes no stratum; got one for {sorted(told)}")
    if told.keys() != {each.name for each in breakdowns}:
        raise ValueError(
            f"a stratum has a value for each of {[each.name for each in breakdowns]}, got one for {sorted(told)}"
        )
    number = 0
    for each in breakdowns:
        if told[each.name] not in each.values:
            raise ValueError(f"{each.name!r} is one of {list(each.values)}, got {told[each.name]!r}")
        number = number * len(each.values) + each.values.index(told[each.name])
    return StratumNumber(number)


def told_by(breakdowns: Sequence[Breakdown], stratum: StratumNumber) -> dict[str, str]:
    """The value of each breakdown in a stratum: what `stratum_of` was told."""
    told: dict[str, str] = {}
    rest = int(stratum)
    for each in reversed(breakdowns):
        rest, value = divmod(rest, len(each.values))
        told[each.name] = each.values[value]
    return dict(reversed(told.items()))
