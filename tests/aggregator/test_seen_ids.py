"""Which ids were counted before: found whatever is in memory."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from changeling_aggregator.fold import SeenIds, add_ids, ids_in, merged_ids
from changeling_aggregator.fold.ids import are_in, first_of_each
from changeling_aggregator.store import ClosingKey, Store
from hypothesis import given, settings
from hypothesis import strategies as st

SURVEY = bytes(range(16))
KEY = (SURVEY, 1)
EDGES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "server.db")


@pytest.mark.parametrize("most_bytes", [0, 1000, 10**6])
def test_every_id_that_was_counted_is_found_and_no_other(store: Store, most_bytes: int) -> None:
    """However much of the runs is in memory, which takes no more than it may, and though many ids share a high half."""
    random, seen = Random(5), SeenIds(most_bytes)
    known: dict[ClosingKey, set[bytes]] = {(SURVEY, period): set() for period in (1, 2, 3)}
    for batch in range(12):
        wanted = {key: _some(random, ids) for key, ids in known.items()}
        fresh = _fresh(store, seen, wanted)
        assert fresh == {key: ids - known[key] for key, ids in wanted.items()}, batch
        assert 8 * seen.remembered <= most_bytes
        _add(store, fresh)
        for key, ids in fresh.items():
            known[key] |= ids
    assert seen.remembered or not most_bytes


def test_a_run_that_a_lost_transaction_numbered_is_not_taken_for_another(store: Store) -> None:
    """The number is given again, and what was not committed counts as fresh."""
    seen = SeenIds()
    with suppress(RuntimeError), store.transaction() as writing:
        add_ids(writing, {KEY: bytes(16)})
        raise RuntimeError
    assert _fresh(store, seen, {KEY: {bytes(16)}}) == {KEY: {bytes(16)}}
    _add(store, {KEY: {b"\1" * 16}})
    assert _fresh(store, seen, {KEY: {bytes(16), b"\1" * 16}}) == {KEY: {bytes(16)}}


def test_a_transaction_rewrites_no_more_than_some_times_what_it_adds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left over is merged by those after it, so that no closing has many more runs than it should."""
    monkeypatch.setattr("changeling_aggregator.fold.ids._LEAST_REWRITTEN_BYTES", 0)
    random, keys = Random(10), [(SURVEY, period) for period in range(20)]
    for _ in range(40):
        with store.transaction() as writing:
            rewritten = add_ids(writing, {key: _packed(random.randbytes(16) for _ in range(10)) for key in keys})
            longest = max(run.size for some in writing.runs(keys).values() for run in some)
        assert rewritten <= 4 * 10 * 16 * len(keys) + longest
    with store.view() as view:
        assert max(map(len, view.runs(keys).values())) <= 40


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


def _add(store: Store, ids: dict[ClosingKey, set[bytes]]) -> None:
    with store.transaction() as writing:
        add_ids(writing, {key: _packed(some) for key, some in ids.items() if some})


def _packed(ids: Iterable[bytes]) -> bytes:
    return b"".join(sorted(ids))


def _ids(packed: bytes) -> list[bytes]:
    return [packed[at : at + 16] for at in range(0, len(packed), 16)]


def _some(random: Random, known: set[bytes]) -> set[bytes]:
    """New ids, of which some share a high half with others, and some that are known."""
    drawn = {random.randrange(8).to_bytes(8) + random.randbytes(8) for _ in range(random.randrange(20))}
    return drawn | {random.randbytes(16) for _ in range(20)} | {*random.sample(sorted(known), min(len(known), 5))}


def _fresh(store: Store, seen: SeenIds, wanted: dict[ClosingKey, set[bytes]]) -> dict[ClosingKey, set[bytes]]:
    """Those of the ids that were not counted."""
    packed = {key: _packed(ids) for key, ids in wanted.items()}
    fresh = {key: set(ids) for key, ids in wanted.items()}
    with store.view() as view:
        for key, piece in seen.near(view, packed):
            ids = ids_in(packed[key])
            fresh[key] -= {id_.tobytes() for id_ in ids[are_in(ids, ids_in(piece))]}
    return fresh
