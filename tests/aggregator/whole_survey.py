"""A store that shows a survey, made up at random: for whoever looks at many periods or questions."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from changeling_aggregator.store import SnapshotProgress, Store, StratumCounts, StratumKey
from changeling_protocol import (
    ONLY,
    AtMost,
    Breakdown,
    Calendar,
    Group,
    NodeNumber,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    StratumNumber,
    SubsetSelection,
    Survey,
    Track,
    TrackNumber,
)
from changeling_statistics import Attendance, counterpart_of

from ..protocol.examples import AUTHORITY

ENTRIES, SEED = 500, 3


def asked(text: str, answers: tuple[str, ...], name: str = ONLY) -> Question:
    return Question(name, text, answers, AtMost(3))


def whole_survey_store(
    path: Path,
    questions: Sequence[Question],
    calendar: Calendar,
    breakdowns: tuple[Breakdown, ...] = (),
    shown: Sequence[int] = (),
    final: int | None = None,
    grace: int = 60,
    heard: int = ENTRIES,
    public: bool = True,
) -> Survey:
    """Make a store with a survey, of which everybody reports every state in every period; the survey.

    shown: the periods of which anything is, by default all. final: up to which that is for good. heard: how many of the
    ENTRIES of each stratum are heard after the first period.
    """
    shown = shown or range(1, calendar.periods + 1)
    randomizers = [SubsetSelection(StateSpace(len(each.answers)), Odds(9, 1), 1) for each in questions]
    tracks = tuple(Track(1, each, 0, calendar.periods, question=place) for place, each in enumerate(randomizers))
    times = {"skew": 1, "spread": 1, "grace": grace, "minimum": 1}
    plan = ReleasePlan((Group(tracks),))
    survey = Survey.at_cost(questions=questions, calendar=calendar, plan=plan, breakdowns=breakdowns, **times)
    generator, lots = np.random.default_rng(SEED), dict[StratumKey, StratumCounts]()
    for period, stratum in product(shown, range(survey.strata)):
        here = Attendance(ENTRIES, ENTRIES, 0) if period == 1 else Attendance(heard, 0, 0)
        lot = lots[period, 0, StratumNumber(stratum)] = StratumCounts(here)
        for place, each in enumerate(randomizers):
            symbols = generator.integers(0, each.symbols, here.heard).astype(np.uint64)
            lot.nodes[TrackNumber(place), NodeNumber(period)] = counterpart_of(each).tally(symbols)
    store = Store.open(path)
    with store.transaction() as writing:
        writing.add_survey(survey.id, survey.signed_by(AUTHORITY), public=public)
        looked = SnapshotProgress(1, shown[-1] if final is None else final, shown[-1], 0)
        writing.put_snapshots(survey.id, looked, lots)
    store.close()
    return survey
