"""Uploads of clients that write into every column what they like: what others said counts as if they were not there."""

import random
from fractions import Fraction
from pathlib import Path

import msgpack
import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_protocol import (
    CLOSING_BYTES,
    Closing,
    Group,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    Report,
    SignedSubset,
    Standing,
    StateSpace,
    StratumNumber,
    Track,
    closings,
    column_bytes,
    encode_upload,
    seal,
)

from ..protocol.examples import joint_plan, mixed, survey
from .devices import Log

_CHANGES, _STATES = KaryResponse(MutationSpace(3), Odds(9, 2)), KaryResponse(StateSpace(3), Odds(4, 1))
_SUBSETS = SignedSubset(MutationSpace(3), Odds(9, 2), spoken=Fraction(1, 2))
PLANS = {
    "mixed": mixed(3, 8),
    "joint": joint_plan(3, 8),
    "periods without a closing": ReleasePlan(
        (Group((Track(3, _CHANGES, 1, 8),)), Group((Track(2, _STATES, 5, 8), Track(4, _SUBSETS, 0, 8))))
    ),
}


def honest(plan: ReleasePlan, chance: random.Random) -> tuple[bytes, list[bytes]]:
    """An upload over some periods, and the ids in it."""
    group, start = chance.randrange(len(plan.groups)), chance.randrange(8)
    span = Node(start, chance.randrange(start + 1, 9))
    answered = [
        Closing(period, chance.randbytes(16), Standing(chance.randrange(3)), StratumNumber(0))
        for period in closings(plan, span.start, span.end)
    ]
    reports = [
        Report(number, at, chance.randrange(track.randomizer.symbols))
        for number, track in plan.numbered(group)
        for at in track.node_numbers()
        if span.start < track.node(at).end <= span.end
    ]
    return encode_upload(plan, group, span, answered, reports), [closing.id for closing in answered]


def hostile(plan: ReleasePlan, seen: list[bytes], chance: random.Random) -> bytes:
    """Columns of the right lengths with anything in them, ids that others have used before too; some of it cut off."""
    group, start = chance.randrange(len(plan.groups)), chance.choice([0, 0, 1, 7, 8, 100, 2**16])
    span = Node(start, start + chance.choice([1, 2, 8, 63, 64]))
    rows, *columns = column_bytes(plan, group, span)
    ids = [chance.choice([bytes(16), b"\xff" * 16, chance.randbytes(16), *seen]) for _ in range(rows // CLOSING_BYTES)]
    standings = bytes(chance.choice([0, 1, 2, 3, 4, 255]) for _ in ids)
    strata = b"".join(chance.choice([0, 0, 1, 65535]).to_bytes(2) for _ in ids)
    symbols = [chance.choice([bytes(n), b"\xff" * n, chance.randbytes(n)]) for n in columns]
    claimed = group if chance.random() < 0.8 else chance.choice([-1, len(plan.groups), 2**63, 2**64 - 1])
    raw: bytes = msgpack.packb([claimed, *_ends(span), b"".join([*ids, standings, strata]), *symbols])
    return raw[: chance.randrange(len(raw))] if chance.random() < 0.1 else raw + bytes(chance.randrange(3))


def _ends(span: Node) -> tuple[int, int]:
    return span.start, span.end


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
