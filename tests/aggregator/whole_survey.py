"""A store that shows the whole of a survey, made up at random: for whoever looks at many periods."""

from pathlib import Path

import numpy as np
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts, StratumKey
from changeling_protocol import (
    Calendar,
    Group,
    NodeNumber,
    Odds,
    ReleasePlan,
    StateSpace,
    StratumNumber,
    SubsetSelection,
    Survey,
    Track,
    TrackNumber,
)
from changeling_statistics import Attendance, counterpart_of

from ..protocol.examples import AUTHORITY, survey

ENTRIES, SEED = 500, 3


def whole_survey_store(path: Path, question: str, answers: tuple[str, ...], calendar: Calendar) -> Survey:
    """Make a store with a survey open to all, of which everybody reports their state in every period; the survey."""
    randomizer = SubsetSelection(StateSpace(len(answers)), Odds(9, 1), 1)
    plan = ReleasePlan((Group((Track(1, randomizer, 0, calendar.periods),)),))
    asked = survey(plan, answers=answers, calendar=calendar).asking(question=question)
    generator, lots = np.random.default_rng(SEED), dict[StratumKey, StratumCounts]()
    for period in range(1, calendar.periods + 1):
        lot = lots[period, 0, StratumNumber(0)] = StratumCounts(Attendance(ENTRIES, ENTRIES if period == 1 else 0, 0))
        symbols = generator.integers(0, randomizer.symbols, ENTRIES).astype(np.uint64)
        lot.nodes[TrackNumber(0), NodeNumber(period)] = counterpart_of(randomizer).tally(symbols)
    store = Store.open(path)
    with store.transaction() as writing:
        writing.add_survey(asked.id, asked.signed_by(AUTHORITY), public=True)
        writing.put_snapshots(asked.id, 1, lots, [])
        writing.put_looked(asked.id, SnapshotProgress(1, calendar.periods, calendar.periods, 0))
    store.close()
    return asked
