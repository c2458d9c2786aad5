"""Measure 1 of several questions: the enumerated loss over the stated one, of what devices send about all of them.

Joint groups and groups of reports drawn each by itself, about two and three questions with unlike answers and
constraints. Every pair of lives that the constraints allow is enumerated, and every integer that a device may draw.
A number is among them as its levels: its offset is drawn before any answer, and any levels in turn may be answered.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    Joint,
    KaryResponse,
    Odds,
    ReleasePlan,
    StateSpace,
    SubsetSelection,
    Track,
    plan_cost,
)
from changeling_statistics.testing import lived_histories, transcripts, worst_of_laws

from .histories import loss_over

CALENDAR = Calendar(0, 10, 2)
CASES: dict[str, tuple[tuple[int, Constraint], ...]] = {
    "two": ((2, AtMost(1)), (3, AtMost(2))),
    "three": ((2, AtMost(1)), (2, AtMost(2)), (3, AtMost(1))),
}
"""Of each question how many answers it has, or levels, and its constraint."""
STRENGTHS = (Odds(3, 1), Odds(30, 1))


def groups(asked: tuple[tuple[int, Constraint], ...], odds: Odds) -> Iterator[Group]:
    """Groups about all questions: joint ones of every threshold, and one of reports drawn by themselves."""
    spaces = [StateSpace(answers, null=False) for answers, _ in asked]
    tracks = tuple(
        Track(1, KaryResponse(space, odds) if place else SubsetSelection(space, odds, 1), 0, 2, question=place)
        for place, space in enumerate(spaces)
    )
    yield Group(tracks)
    slots = (2,) * len(tracks)
    for threshold in range(1, sum(slots) + 1):
        yield Group.jointly(tracks, Joint(odds, threshold, (1,) * len(tracks), slots))


def sent(group: Group, lives: tuple[tuple[int, ...], ...]) -> dict[tuple[int, ...], Fraction]:
    """The exact law of all that an entry sends whose answers to the questions are these, by their places."""
    asked = [
        (place, track.randomizer.space.index(lives[track.question][period - 1], lives[track.question][period]))
        for period in (1, 2)
        for place, track in enumerate(group.tracks)
    ]
    return {symbols: chance for symbols, (chance, _) in transcripts(group, asked).items()}


def measure() -> dict[str, float]:
    """The largest enumerated loss over the stated one, over all cases, and how many there are; never above 1."""
    largest, cases = 0.0, 0
    for asked, odds in product(CASES.values(), STRENGTHS):
        constraints = tuple(constraint for _, constraint in asked)
        every = [lived_histories(answers, CALENDAR, constraint, True) for answers, constraint in asked]
        for group in groups(asked, odds):
            stated = plan_cost(ReleasePlan((group,)), CALENDAR, constraints, True)
            worst = worst_of_laws(sent(group, lives) for lives in product(*every))
            largest, cases = max(largest, loss_over(worst, stated)), cases + 1
    return {"1_loss_over_stated": largest, "1_cases": float(cases)}
