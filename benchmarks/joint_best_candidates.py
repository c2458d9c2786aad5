"""What entries of a tiny closed cohort of two answers may be asked at one charge: joint groups, and sliced budgets."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import combinations, product
from math import gcd

from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    SignedSubset,
    StateSpace,
    Track,
    group_cost,
    most_telling,
)

STATES, MOVES = StateSpace(2, null=False), MutationSpace(2, null=False)
ANY = Odds(2, 1)
"""The odds of randomizers before they are joint: `Group.jointly` sets their own."""
SPOKEN = (Fraction(1), Fraction(1, 4))
"""u of signed subsets; k-RR of changes is 2/3 of two answers."""
HEAVIEST = 3
"""The largest weight of a state."""
SHARES = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Of a budget in slices, what goes to states where there are changes as well."""


def joint_groups(T: int, k: int, epsilon: float) -> Iterator[Group]:
    """States at every choice of times, with every choice of weights and threshold, and with a cadence of changes.

    T: periods. k: changes after the first period.
    """
    odds = Odds.within(epsilon)
    for weights in _weights(T, HEAVIEST):
        yield from _thresholds(_states(weights), _positive(weights), odds, T, k)
    for weights, changes, cadence in product(_weights(T, 1, none=True), _changes(), cadences(T)):
        track = cadence(changes)
        for weight in (1, 2) if any(weights) else (1,):
            yield from _thresholds([*_states(weights), track], (*_positive(weights), weight), odds, T, k)


def plain_groups(T: int, k: int, epsilon: float) -> Iterator[Group]:
    """States at every choice of times, and changes on every cadence, each report at a slice of the budget."""
    for times in product((0, 1), repeat=T):
        if any(times):
            yield _sliced(_states(times), None, 1.0, epsilon, T, k)
        for cadence, kind in product(cadences(T), range(4)):
            for share in SHARES if any(times) else (0.0,):
                changes = cadence(SignedSubset(MOVES, ANY))
                left = (1 - share) * epsilon
                most = most_telling(changes, Calendar(0, 1, T), AtMost(k + 1), closed=True)
                one, twice = Odds.within(left / most), Odds.within(left / min(2 * most, changes.reports))
                randomizer: Randomizer = (
                    SignedSubset(MOVES, one),
                    SignedSubset(MOVES, one, spoken=_quietest(one)),
                    KaryChange(MOVES, one),
                    KaryResponse(MOVES, twice),
                )[kind]
                yield _sliced(_states(times), cadence(randomizer), share, epsilon, T, k)


def cadences(T: int) -> list[Callable[[Randomizer], Track]]:
    """Every row of nodes of one width after the first period, with all of its nodes or with some drawn.

    Each takes a randomizer and gives its track.
    """
    rows = [(w, first, first + w * n) for w in range(1, T) for first in range(1, T) for n in range(1, T)]
    return [
        partial(Track, width, first=first, last=last, reported=reported)
        for width, first, last in rows
        if last <= T
        for reported in (None, *range(1, (last - first) // width))
    ]


def _changes() -> list[Randomizer]:
    return [KaryChange(MOVES, ANY), *(SignedSubset(MOVES, ANY, spoken=spoken) for spoken in SPOKEN)]


def _quietest(odds: Odds) -> Fraction:
    """u = min(1, 1/K), K = (a/b - 1)/2, at which an entry without a change is least noisy."""
    return min(Fraction(1), Fraction(2 * odds.other, odds.favoured - odds.other).limit_denominator(10**6))


def _weights(T: int, heaviest: int, none: bool = False) -> Iterator[tuple[int, ...]]:
    """A weight for the state at every time, 0 where it is not reported; without a common factor."""
    for weights in product(range(heaviest + 1), repeat=T):
        if gcd(*weights) == 1 or (none and not any(weights)):
            yield weights


def _positive(weights: Sequence[int]) -> tuple[int, ...]:
    return tuple(weight for weight in weights if weight)


def _states(weights: Sequence[int]) -> list[Track]:
    return [Track(1, KaryResponse(STATES, ANY), t, t + 1) for t, weight in enumerate(weights) if weight]


def _thresholds(tracks: Sequence[Track], weights: tuple[int, ...], odds: Odds, T: int, k: int) -> Iterator[Group]:
    """The group at every threshold at which all of its tracks matter and which is a sum of weights."""
    slots = tuple(most_telling(track, Calendar(0, 1, T), AtMost(k + 1), closed=True) for track in tracks)
    every = [weight for weight, times in zip(weights, slots, strict=True) for _ in range(times)]
    sums = {sum(some) for n in range(1, len(every) + 1) for some in combinations(every, n)}
    for threshold in sorted(sums):
        try:
            yield Group.jointly(tracks, Joint(odds, threshold, weights, slots))
        except ValueError:  # a track that says nothing at this threshold
            continue


def _sliced(states: Sequence[Track], changes: Track | None, share: float, epsilon: float, T: int, k: int) -> Group:
    odds = Odds.within(share * epsilon / len(states)) if states else ANY
    tracks = [Track(1, KaryResponse(STATES, odds), track.first, track.last) for track in states]
    group = Group((*tracks, *([changes] if changes else [])))
    if group_cost(group, Calendar(0, 1, T), AtMost(k + 1), closed=True) > Decimal(epsilon) + Decimal("1e-12"):
        raise AssertionError("slices of the budget cost more than it")
    return group
