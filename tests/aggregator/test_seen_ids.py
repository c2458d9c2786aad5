"""Which ids were counted before: found whatever is in memory, what is being written among them."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from changeling_aggregator.fold.halves import SortedIds
from changeling_aggregator.fold.ids import are_in, ids_in
from changeling_aggregator.fold.runs import add_ids
from changeling_aggregator.fold.seen import SeenIds
from changeling_aggregator.store import ClosingKey, Store

SURVEY = bytes(range(16))


@pytest.mark.parametrize("most_bytes", [0, 1000, 10**6])
def test_every_id_that_was_counted_is_found_and_no_other(store: Store, most_bytes: int) -> None:
    """However much of the runs is in memory, and though many ids have a high half in common."""
    random = Random(5)
    seen = SeenIds(most_bytes)
    known: dict[ClosingKey, set[bytes]] = {(SURVEY, period): set() for period in (1, 2, 3)}
    for batch in range(40):
        wanted = {key: _some(random, ids) for key, ids in known.items()}
        fresh = _looked_up(store, seen, {}, wanted)
        assert fresh == {key: ids - known[key] for key, ids in wanted.items()}, batch
        added = {key: b"".join(sorted(ids)) for key, ids in fresh.items() if ids}
        assert _looked_up(store, seen, added, wanted) == {key: set() for key in known}, "as it is being written"
        with store.writing() as connection:
            runs = add_ids(connection, added)
        for key, run in runs.items():
            if random.random() < 0.7:
                seen.remember(key, run, SortedIds.of(added[key]))
        for key, ids in fresh.items():
            known[key] |= ids


def test_a_run_that_a_lost_transaction_numbered_is_not_taken_for_another(store: Store) -> None:
    """What was not committed is not remembered, and the number is given again."""
    key, seen = (SURVEY, 1), SeenIds()
    with suppress(RuntimeError), store.writing() as connection:
        lost = add_ids(connection, {key: bytes(16)})
        raise RuntimeError
    seen.remember(key, lost[key], SortedIds.of(bytes(16)))  # which nobody does
    with store.writing() as connection:
        assert add_ids(connection, {key: b"\1" * 16})[key].run.number == lost[key].run.number
    assert _looked_up(store, seen, {}, {key: {bytes(16), b"\1" * 16}}) == {key: {bytes(16)}}


def test_what_is_read_before_it_is_remembered_takes_memory_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a batch is on disk before the next one looks: what was met last stays in memory."""
    seen, ids = SeenIds(200), b"".join(number.to_bytes(16) for number in range(10))
    for period in range(20):
        key = (SURVEY, period)
        with store.writing() as connection:
            runs = add_ids(connection, {key: ids})
        assert _looked_up(store, seen, {}, {key: {bytes(16)}}) == {key: set()}
        seen.remember(key, runs[key], SortedIds.of(ids))
    monkeypatch.setattr("changeling_aggregator.fold.seen.read_run", None)
    assert _looked_up(store, seen, {}, {key: {bytes(16)}}) == {key: set()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "server.db")


def _some(random: Random, known: set[bytes]) -> set[bytes]:
    """New ids, of which some share a high half with others, and some that are known."""
    drawn = {random.randrange(8).to_bytes(8) + random.randbytes(8) for _ in range(random.randrange(20))}
    return drawn | {random.randbytes(16) for _ in range(20)} | {*random.sample(sorted(known), min(len(known), 5))}


def _looked_up(
    store: Store, seen: SeenIds, written: dict[ClosingKey, bytes], wanted: dict[ClosingKey, set[bytes]]
) -> dict[ClosingKey, set[bytes]]:
    """Those of the ids that were not counted."""
    packed = {key: b"".join(sorted(ids)) for key, ids in wanted.items()}
    fresh = {key: set(ids) for key, ids in wanted.items()}
    with store.reading() as connection:
        sorted_ids = {key: SortedIds.of(ids) for key, ids in written.items()}
        for key, piece in seen.near(connection, sorted_ids, packed):
            ids = ids_in(packed[key])
            fresh[key] -= {id_.tobytes() for id_ in ids[are_in(ids, ids_in(piece))]}
    return fresh
