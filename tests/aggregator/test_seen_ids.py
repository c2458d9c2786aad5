"""Which ids were counted before: found whatever is in memory."""

from random import Random

import pytest
from changeling_aggregator.fold import SeenIds, add_ids, ids_in, merged_ids
from changeling_aggregator.fold.ids import are_in, first_of_each
from changeling_aggregator.store import ClosingKey, Store
from hypothesis import given, settings
from hypothesis import strategies as st

SURVEY = bytes(range(16))
EDGES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
SomeIds = dict[ClosingKey, set[bytes]]


def add(store: Store, ids: SomeIds) -> int:
    with store.transaction() as writing:
        return add_ids(writing, {key: b"".join(sorted(some)) for key, some in ids.items() if some})


def fresh(store: Store, seen: SeenIds, wanted: SomeIds) -> SomeIds:
    """Those of the ids that were not counted."""
    with store.view() as view:
        known: SomeIds = {key: set() for key in wanted}
        for key, piece in seen.near(view, {key: b"".join(sorted(ids)) for key, ids in wanted.items()}):
            known[key] |= {each.tobytes() for each in ids_in(piece)}
    return {key: ids - known[key] for key, ids in wanted.items()}


@pytest.mark.parametrize("most_bytes", [0, 1000, 10**6])
def test_every_id_that_was_counted_is_found_and_no_other(store: Store, most_bytes: int) -> None:
    """However much of the runs is in memory, which takes no more than it may, and though many ids share a high half."""
    random, seen = Random(5), SeenIds(most_bytes)

    def some(known: set[bytes]) -> set[bytes]:
        """New ids, of which some share a high half with others, and some that are known."""
        drawn = {random.randrange(8).to_bytes(8) + random.randbytes(8) for _ in range(random.randrange(20))}
        return drawn | {random.randbytes(16) for _ in range(20)} | {*random.sample(sorted(known), min(len(known), 5))}

    known: SomeIds = {(SURVEY, period): set() for period in (1, 2, 3)}
    for batch in range(12):
        wanted = {key: some(ids) for key, ids in known.items()}
        new = fresh(store, seen, wanted)
        assert new == {key: ids - known[key] for key, ids in wanted.items()}, batch
        assert 8 * seen.remembered <= most_bytes
        add(store, new)
        known = {key: ids | new[key] for key, ids in known.items()}
    assert seen.remembered or not most_bytes


def test_a_transaction_rewrites_no_more_than_some_times_what_it_adds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left over is merged by those after it, so that no closing has many more runs than it should."""
    monkeypatch.setattr("changeling_aggregator.fold.ids._LEAST_REWRITTEN_BYTES", 0)
    random, keys = Random(10), [(SURVEY, period) for period in range(20)]
    for _ in range(40):
        rewritten = add(store, {key: {random.randbytes(16) for _ in range(10)} for key in keys})
        with store.view() as view:
            runs = view.runs(keys)
        longest = max(run.size for some in runs.values() for run in some)
        assert rewritten <= 4 * 10 * 16 * len(keys) + longest
    assert max(map(len, runs.values())) <= 40


@settings(max_examples=200)
@given(
    high=st.lists(st.sampled_from([*EDGES, 4, 5, 6, 7, 2**63 + 1]), max_size=60),
    low=st.lists(st.integers(0, 2), min_size=60, max_size=60),
)
def test_ids_are_sorted_and_looked_up_whatever_bits_they_share(high: list[int], low: list[int]) -> None:
    """The first of each in the order of ids; and which of them are among others."""
    ids = [each.to_bytes(8) + low[at].to_bytes(8) for at, each in enumerate(high)]
    first = first_of_each(ids_in(b"".join(ids))).tolist()
    assert first == [ids.index(each) for each in sorted(set(ids))]
    some, others = sorted(set(ids[::2])), sorted(set(ids[1::3]))
    found = are_in(ids_in(b"".join(some)), ids_in(b"".join(others)))
    assert found.tolist() == [each in others for each in some]
    rest = sorted(set(ids) - set(some))
    assert merged_ids([b"".join(some), b"".join(rest)]) == b"".join(sorted(set(ids)))
