"""Measure 4 of the joint responses: how often nominal 95% intervals and regions hold the truth.

Forty thousand simulated surveys of one population for each plan, early, in the middle and at the end: online, with the
tallies that are known at that time, and retrospectively. What entries report hangs together as on real devices.
"""

from fractions import Fraction

from changeling_protocol import (
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    most_telling,
)

from .coverage import ANSWERS, CALENDAR, CONSTRAINT, PERIODS, coverages, figures, survey_of
from .replications import View

SEED, TIMES = 44, (8, 16, PERIODS)
ANY = Odds(9, 1)
"""Of a randomizer in a joint group, whose odds follow from the group's."""
MOVES, HELD = MutationSpace(ANSWERS, null=False), StateSpace(ANSWERS, null=False)
FIRST = Track(1, KaryResponse(HELD, ANY), 0, 1)
VIEWS = (*(View(time, time) for time in TIMES), *(View(time, PERIODS, retrospective=True) for time in TIMES[:2]))


def measure() -> dict[str, float]:
    """Least and largest coverage by plan, how many figures are labelled as bounds, and the tests against 95%.

    What tallies do not tell is bounded, and a bound may cover more than it says: beside the tests stands the most that
    such a figure covers, of the plan of these whose bound is the loosest, at the last time.
    """
    loosest = coverages({"loosest": loosest_bound()}, [View(PERIODS, PERIODS)], SEED)
    most = {"4_coverage_most_loosest_bound": max(max(one.shares) for one in loosest)}
    return {**most, **figures(list(coverages(surveys(), VIEWS, SEED)))}


def surveys() -> dict[str, Survey]:
    """One joint group; a panel and anchored changes, each joint, for shares of the entries; and an open cohort."""
    told = Track(1, KaryChange(MOVES, ANY), 1, PERIODS)
    panel = Track(8, KaryResponse(HELD, ANY), 0, PERIODS, reported=2)
    every = Track(1, SignedSubset(MutationSpace(ANSWERS), ANY, spoken=Fraction(1, 6)), 0, PERIODS)
    wide = Track(8, KaryResponse(StateSpace(ANSWERS), ANY), 0, PERIODS)
    return {
        "joint_anchored": _anchored(Fraction(1, 3)),
        "joint_shares": survey_of(
            ReleasePlan((_jointly((FIRST, told), 2, share=3), _jointly((panel,), 1, share=2))), closed=True
        ),
        "joint_open": survey_of(ReleasePlan((_jointly((every, wide), 3, closed=False),)), closed=False),
    }


def loosest_bound() -> Survey:
    """The first of them with signed subsets that speak half as often: less noise, more of it not told by tallies."""
    return _anchored(Fraction(1, 6))


def _anchored(spoken: Fraction) -> Survey:
    """One joint group of a state at first and changes after it, by signed subsets of one plus, which tell Q."""
    signed = Track(1, SignedSubset(MOVES, ANY, 1, spoken), 1, PERIODS)
    return survey_of(ReleasePlan((_jointly((FIRST, signed), 2),)), closed=True)


def _jointly(tracks: tuple[Track, ...], threshold: int, *, share: int = 1, closed: bool = True) -> Group:
    """A joint group at odds of 3,000:1, ε = 8, with as many slots as an entry can use."""
    slots = tuple(most_telling(track, CALENDAR, CONSTRAINT, closed) for track in tracks)
    return Group.jointly(tracks, Joint(Odds(3000, 1), threshold, (1,) * len(tracks), slots), share)
