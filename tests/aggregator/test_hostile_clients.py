"""Uploads of clients that write into every column what they like: what others said counts as if they were not there."""

import random
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import PLANS, honest, hostile
from changeling_protocol import ReleasePlan, seal

from ..protocol.examples import survey
from .devices import Log


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_others_said_counts_as_if_nobody_lied(tmp_path: Path, plan: ReleasePlan) -> None:
    """Nothing stops the fold; no honest closing or report is lost or counted twice; one upload adds at most one to a
    count; and it all comes to the same however the log is cut into batches."""
    chance, asked = random.Random(5), survey(plan)
    log: list[tuple[bool, bytes]] = []
    seen: list[bytes] = []
    for _ in range(20):
        plaintext, ids = honest(plan, chance)
        log.append((True, plaintext))
        seen += ids
        log += [(False, hostile(plan, seen, chance)) for _ in range(3)]
    ends = asked.calendar.time(asked.calendar.periods)

    def folded(name: str, batch: int, *, with_lies: bool = True) -> Log:
        kept = Log.of(Store.open(tmp_path / name), asked)
        kept.append(ends, *(seal(each, asked.id, kept.key) for truly, each in log if truly or with_lies))
        fold(kept.store, ends, batch=batch)
        return kept

    truth, whole, cut = folded("truth", 1000, with_lies=False), folded("whole", 1000), folded("cut", 7)
    assert (whole.tallies(), whole.attendance(), whole.refused()) == (cut.tallies(), cut.attendance(), cut.refused())
    lies = sum(not truly for truly, _ in log)
    for node, (reports, _) in truth.tallies().items():
        assert reports <= whole.tallies()[node][0] <= reports + lies
    for closing, counts in truth.attendance().items():
        assert all(a <= b <= a + lies for a, b in zip(counts, whole.attendance()[closing], strict=True))
    for each in (truth, whole, cut):
        each.store.close()
