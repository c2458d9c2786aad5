"""A store that shows a survey of a simulated fleet, three quarters through: for whoever looks at it."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts, StratumKey
from changeling_protocol import MICRO, AtMost, Breakdown, Calendar, ExpectedChanges, Node, StratumNumber, Survey
from changeling_simulations import Field, Population, sample_field, synthetic_changelog
from changeling_statistics import Wish, optimal_plan

from ..protocol.examples import AUTHORITY

ANSWERS = ("school", "training", "employment", "elsewhere")
PLATFORMS = Breakdown("platform", ("Android", "iOS"))
WEEK = 604_800
PERIODS, SHOWN, FINAL = 52, 39, 37
LOST = Node(17, 19)
DEVICES = 15_000
"""On each platform."""
FIELD = Field(arrivals=0.004, offline=0.1, spell=3, outage=LOST)
SEED = 7


def fleet_store(path: Path, now: float) -> Survey:
    """Make a store with a survey whose results are open and one whose are not, of the same tallies; the open one."""
    calendar = Calendar(int(now) // WEEK * WEEK - SHOWN * WEEK, WEEK, PERIODS)
    generator = np.random.default_rng(SEED)
    constraint = AtMost(4)
    wish = Wish(
        len(ANSWERS),
        calendar,
        constraint,
        Decimal(8),
        devices=2 * DEVICES,
        expected=ExpectedChanges(first=MICRO, later=MICRO // 40),
        minimum=100,
    )
    planned = wish.survey(optimal_plan(wish).plan, ANSWERS, "What do you do?")
    opened = replace(planned, breakdowns=(PLATFORMS,), skew=300, spread=3600, grace=2 * WEEK, minimum=100)
    lots: dict[StratumKey, StratumCounts] = {}
    for stratum in range(len(PLATFORMS.values)):
        changelog = synthetic_changelog(len(ANSWERS), DEVICES, 1.2, calendar, generator)
        population = replace(Population.from_changelog(changelog, calendar, constraint), answers=ANSWERS)
        sampled = sample_field(population, opened, FIELD, generator).tallies
        for (group, period), here in sampled.attendance.items():
            lots[period, group, StratumNumber(stratum)] = StratumCounts(here)
        for (track, number), tally in sampled.nodes.items():
            end = opened.plan.tracks[track].node(number).end
            lots[end, opened.plan.group_of(track), StratumNumber(stratum)].nodes[track, number] = tally
    shown = {key: lot for key, lot in lots.items() if key[0] <= SHOWN and not LOST.start < key[0] <= LOST.end}
    store = Store.open(path)
    with store.transaction() as writing:
        for survey, public in ((opened, True), (opened.asking(question="What did you do before?"), False)):
            writing.add_survey(survey.id, survey.signed_by(AUTHORITY), public=public)
            writing.put_snapshots(survey.id, SnapshotProgress(1, FINAL, SHOWN, 0), shown)
    store.close()
    return opened
