"""Whether tallies are possible: the test against a dense one of its own, and how often it flags honest devices."""

import numpy as np
import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
)
from changeling_statistics import Attendance, NodeTally, Tallies, counterpart_of, diagnosed, releases, shown
from changeling_statistics.shown import FALSE_ALARMS
from changeling_statistics.testing import matrices
from scipy.stats import binom

from ..protocol.examples import joint_plan, mixed, survey

PERIODS, ENTRIES, SEED = 8, 400, 11
CHANGES, STATES = MutationSpace(3), StateSpace(3)


def _flat(*randomizers):
    """Everybody reports on every node of a track of each width, 1, 2, …"""
    tracks = (Track(2**at, each, 0, PERIODS) for at, each in enumerate(randomizers))
    return ReleasePlan((Group(tuple(tracks)),))


PLANS = {
    "k-ary changes": _flat(KaryResponse(CHANGES, Odds(5, 1)), KaryResponse(CHANGES, Odds(5, 1))),
    "signed subsets of two odds": _flat(
        SignedSubset(CHANGES, Odds(20, 1), spoken=1), SignedSubset(CHANGES, Odds(3, 1))
    ),
    "states by subsets": _flat(SubsetSelection(STATES, Odds(9, 1), 1)),
    "groups": mixed(3, PERIODS),
    "joint": joint_plan(3, PERIODS),
}
STUFFED = {"honest": 0, "a few made up": 40, "many made up": 600}


def published(plan, generator, stuffed=0):
    """Everybody says the same throughout; into one node so many reports of the likeliest symbol are put besides."""
    asked = survey(plan, calendar=Calendar(1_800_000_000, 60, PERIODS), constraint=AtMost(3), minimum=10)
    nodes = {}
    for number, track in enumerate(plan.tracks):
        counterpart = counterpart_of(track.randomizer)
        for at in track.node_numbers():
            counts = np.zeros(track.randomizer.space.size, np.int64)
            counts[int(generator.integers(len(counts)))] = ENTRIES
            nodes[number, at] = counterpart.sample(counts, generator)
    if stuffed:
        key = list(nodes)[3]
        slots = nodes[key].slots.copy()
        slots[int(slots.argmax())] += stuffed
        nodes[key] = NodeTally(nodes[key].reports + stuffed, slots)
    attendance = {
        (group, period): Attendance(ENTRIES, ENTRIES if period == 1 else 0, 0)
        for group in range(len(plan.groups))
        for period in range(1, PERIODS + 1)
    }
    return releases(asked, Tallies(nodes, attendance))


def dense(known):
    """By node the smallest tail, and how many tails there are in all; every count is asked both ways."""
    smallest, asked = {}, 0
    for used, tally in zip(known.nodes, known.tallies, strict=True):
        P, _ = matrices(known.survey.plan.tracks[used.track].randomizer)
        low = binom.cdf(tally.slots, tally.reports, P.min(1))
        high = binom.sf(tally.slots - 1, tally.reports, P.max(1))
        smallest[used] = min(low.min(), high.min())
        asked += 2 * len(P)
    return smallest, asked


@pytest.mark.parametrize("stuffed", STUFFED.values(), ids=STUFFED)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_test_is_that_of_all_tails_one_by_one(plan, stuffed):
    """The p-value to nine digits, the nodes that flag, the strangest first, and theirs."""
    flagged = 0
    for seed in range(2):
        known = published(plan, np.random.default_rng(seed), stuffed)
        smallest, asked = dense(known)
        told = diagnosed(known)
        least = min(smallest.values())
        assert (told["tested_nodes"], told["untested_nodes"]) == (len(known), 0)
        assert told["p_value"] == pytest.approx(min(1.0, least * asked) if least < FALSE_ALARMS else 1.0, rel=1e-9)
        strange = sorted((tail, used) for used, tail in smallest.items() if tail * asked < FALSE_ALARMS)
        for each, (tail, used) in zip(told["suspects"], strange[:10], strict=True):
            assert (each["track"], each["start"], each["end"]) == (used.track, used.node.start, used.node.end)
            assert each["p_value"] == pytest.approx(tail * asked, rel=1e-9)
        assert told["impossible"] == bool(strange)
        flagged += told["impossible"]
    assert flagged == (2 if stuffed == STUFFED["many made up"] else 0 if stuffed == 0 else flagged)


@pytest.mark.parametrize("expected", [7, 8.5, 8.8, 10])
def test_a_symbol_that_never_came_is_asked_for_however_little_is_asked(expected):
    """One node of three symbols has six tails. A symbol that was to come 8.8 times at least, and never did, is
    off by fewer than three standard deviations, and yet too strange."""
    randomizer = KaryResponse(StateSpace(2), Odds(900, 1))
    plan = ReleasePlan((Group((Track(PERIODS, randomizer, 0, PERIODS),)),))
    asked = survey(plan, answers=("yes", "no"), calendar=Calendar(1_800_000_000, 60, PERIODS), minimum=10)
    n, double = round(902 * expected), round(2 * expected)
    tally = NodeTally(n, np.array([n - double, double, 0], np.int64))
    known = releases(asked, Tallies({(0, 1): tally}, {(0, PERIODS): Attendance(n, n, 0)}))
    smallest, tails = dense(known)
    assert diagnosed(known)["impossible"] == (min(smallest.values()) * tails < FALSE_ALARMS) == (expected > 8.7)


def test_honest_devices_are_flagged_no_more_often_than_stated(monkeypatch):
    """At a level of 5%, which can be sampled: of 600 surveys whose devices all say the same, so that every bound is
    reached, at most 30 are expected to be flagged; 52 or more would come once in ten thousand runs. And some are."""
    level, surveys = 0.05, 600
    monkeypatch.setattr(shown, "FALSE_ALARMS", level)
    generator = np.random.default_rng(SEED)
    plan = _flat(KaryResponse(CHANGES, Odds(5, 1)))
    flagged = sum(diagnosed(published(plan, generator))["impossible"] for _ in range(surveys))
    assert surveys * level / 10 < flagged < 52
