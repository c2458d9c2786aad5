"""(ε, δ) and shuffled figures against exact computation, group and drawn nodes known.

Small surveys of every kind, drawn at random: one or two groups of one or two tracks, some joint, with nodes drawn or
not. For each the chance is enumerated that a transcript tells more than the stated ε.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any, cast

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    Joint,
    Odds,
    Randomizer,
    ReleasePlan,
    Survey,
    TimeBounded,
    Track,
    most_telling,
)
from changeling_statistics import delta_at, epsilon_at, shuffled_loss
from changeling_statistics.shuffled import linked_epsilon, rounds_epsilon

from tests.protocol.loss_cases import PERIOD, change_randomizers, joint_changes, joint_states, state_randomizers

from .known_draws import TooLarge, group_deltas, worst_deltas

MOST_ENTRIES = 4
DELTAS = (0.001, 0.01, 0.05, 0.15, 0.3)
MOST_SYMBOLS = 16
SIZES = tuple((z, T) for z in (1, 1, 2, 3) for T in (2, 3, 4))
RELAY = "https://relay.example.org"


@dataclass(frozen=True, slots=True)
class FieldCase:
    """A survey in small. entries: how many are shuffled together. delta: the one asked for."""

    survey: Survey
    entries: int
    delta: float


@dataclass(frozen=True, slots=True)
class Ratios:
    """Exact δ over stated δ: a figure holds if its ratio is at most 1.

    approximate: of the (ε, δ) figure at the δ asked for. at_half: of δ at half of the pure epsilon.
    shuffled: of the shuffled figure. bounds: of each bound that it is made of, by itself, at the worst.
    helps: whether the shuffled figure is below the (ε, δ) one.
    """

    approximate: float
    at_half: float
    shuffled: float
    bounds: float
    helps: bool

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max(self.approximate, self.at_half, self.shuffled, self.bounds)


def checked_cases(seed: int, count: int) -> Iterator[tuple[FieldCase, Ratios]]:
    """So many random cases that are small enough to be enumerated, with what was found."""
    random = Random(seed)
    while count:
        case = random_case(random, entries=1 + count % MOST_ENTRIES)
        try:
            found = ratios_of(case)
        except TooLarge:
            continue
        yield case, found
        count -= 1


def ratios_of(case: FieldCase) -> Ratios:
    """What is exactly told beyond the stated figures. Raises TooLarge."""
    survey, delta, entries = case.survey, case.delta, case.entries
    half = float(survey.cost) / 2
    approximate = epsilon_at(survey, delta)
    alone, at_half = worst_deltas(survey, 1, (approximate, half))
    stated = shuffled_loss(survey, delta, entries).epsilon
    shuffled, bounds = [], []
    for number, group in enumerate(survey.plan.groups):
        epsilons = [stated, linked_epsilon(survey, group, delta, entries)]
        if group.joint is None:
            epsilons.append(rounds_epsilon(survey, group, delta, entries)[0])
        together, *each = group_deltas(survey, number, entries, epsilons)
        shuffled.append(together)
        bounds += each
    return Ratios(
        _ratio(alone, delta),
        _ratio(at_half, delta_at(survey, half)),
        _ratio(max(shuffled), delta),
        _ratio(max(bounds), delta),
        stated < approximate,
    )


def _ratio(exact: float, stated: float) -> float:
    """Exact over stated; 0 where both are 0."""
    return float(exact) / stated if stated else inf if exact else 0.0


def random_case(random: Random, entries: int) -> FieldCase:
    """A random survey of z = 1 to 3 answers over 2 to 4 periods; of the smaller ones, where entries are many."""
    z, T = random.choice(((1, 2), (1, 3), (2, 2)) if entries > 2 else SIZES)
    closed = z > 1 and random.random() < 0.3
    calendar = Calendar(0, PERIOD, T)
    constraint: Constraint = TimeBounded(15) if random.random() < 0.2 else AtMost(random.randint(1, min(3, T)))
    groups = tuple(_group(random, z, calendar, constraint, closed) for _ in range(random.choice((1, 2))))
    survey = Survey.at_cost(
        question="Which?",
        answers=tuple("abc"[:z]),
        calendar=calendar,
        constraint=constraint,
        plan=ReleasePlan(groups),
        closed=closed,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
        relay=RELAY,
    )
    return FieldCase(survey, entries, random.choice(DELTAS))


def _group(random: Random, z: int, calendar: Calendar, constraint: Constraint, closed: bool) -> Group:
    joint, share, T = random.random() < 0.4, random.randint(1, 3), calendar.periods
    tracks = [_track(random, z, T, joint, closed) for _ in range(random.choice((1, 1, 2)))]
    slots = tuple(most_telling(track, calendar, constraint, closed) for track in tracks)
    if not joint or not all(slots):
        separate = [track if not joint else _track(random, z, T, False, closed) for track in tracks]
        return Group(tuple(separate), share)
    weights = tuple(random.randint(1, 2) for _ in tracks)
    heaviest = sum(weight * each for weight, each in zip(weights, slots, strict=True))
    odds = Odds(random.randint(2, 20), 1)
    for threshold in random.sample(range(1, heaviest + 1), heaviest):
        try:
            return Group.jointly(tracks, Joint(odds, threshold, weights, slots), share)
        except ValueError:  # a track whose weight never decides
            continue
    raise AssertionError("some threshold is decided by every track")


def _track(random: Random, z: int, T: int, joint: bool, closed: bool) -> Track:
    width = 1 if T == 2 else random.choice((1, 1, 2))
    changes = random.random() < 0.6
    null = not closed or random.random() < 0.5
    first = 0 if null or not changes else 1
    if (T - first) // width < 1:
        width = 1
    kinds = _kinds(z, changes, joint, null)
    count = (T - first) // width
    reported = random.randint(1, count - 1) if count > 1 and random.random() < 0.4 else None
    odds = Odds(random.randint(2, 20), 1)
    return Track(width, _with_odds(random.choice(kinds), odds), first, T, reported)


def _kinds(z: int, changes: bool, joint: bool, null: bool) -> list[Randomizer]:
    """The randomizers of a track whose transcripts can be enumerated; null: whether NULL is one of the states."""
    if changes:
        made = joint_changes(z, null) if joint or not null else change_randomizers(z)
    else:
        made = joint_states(z, null) if joint else state_randomizers(z, null)
    return [randomizer for randomizer in made.values() if randomizer.symbols <= MOST_SYMBOLS]


def _with_odds(randomizer: Randomizer, odds: Odds) -> Randomizer:
    """A randomizer with other odds, where it has any."""
    return replace(cast(Any, randomizer), odds=odds) if hasattr(randomizer, "odds") else randomizer
