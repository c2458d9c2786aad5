"""The fold: what counts, what is refused, and that it is a function of the log."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import msgpack
import pytest
from changeling_aggregator.errors import Overtaken
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.closing import close_what_ended
from changeling_aggregator.fold.counting import count, refold
from changeling_aggregator.fold.folding import fold_batch
from changeling_aggregator.fold.runs import with_run
from changeling_aggregator.store import LogEntry, Store
from changeling_aggregator.store.counted import runs_of, sealed_nodes
from changeling_aggregator.store.log import open_stream, unread, whole_log
from changeling_aggregator.store.sealing_keys import private_keys
from changeling_protocol import Calendar, SealingKey, seal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..protocol.examples import survey
from .devices import Log, envelope, report, row

START, PERIOD, GRACE, SKEW = 1_800_000_000, 60, 600, 5
SYMBOLS = 13  # z = 3
END = START + 8 * PERIOD


@pytest.fixture
def log(store: Store) -> Log:
    """Periods of a minute: tracks 0, 1, 2 with nodes of 1, 2, 4 of them."""
    return Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE, skew=SKEW))


def closes(node: int) -> int:
    """When a node of track 0 closes."""
    return START + node * PERIOD


def test_reports_of_one_upload_count_on_their_nodes(log: Log) -> None:
    """Each in the slot of its symbol; rows of padding count nowhere."""
    log.append_reports(END, [report(1, 4), report(8, 0), report(2, 12, track=1)])
    log.append_reports(END, [report(1, 5)])
    done = fold(log.store, END)
    assert (done.envelopes, done.reports, done.refused) == (2, 4, {})
    slots = {key: [i for i, n in enumerate(of) for _ in range(n)] for key, (_, of) in log.tallies().items()}
    assert slots == {(0, 1): [4, 5], (0, 8): [0], (1, 2): [12]}


def test_the_first_report_with_an_id_counts(log: Log) -> None:
    """In the log's order, within an upload, between uploads, streams and batches; ids are told apart by node."""
    with log.store.writing() as connection:
        other = open_stream(connection)
    same = bytes(15) + b"\1"
    log.append_reports(END, [report(1, 7, id_=same)], stream=other)
    log.append_reports(END - 30, [report(1, 8, id_=same), report(2, 8, id_=same)])
    log.append_reports(END, [report(1, 9, id_=same), report(2, 9, id_=same), report(2, 3, track=1, id_=same)])
    fold(log.store, END, batch=2)
    slots = {key: [i for i, n in enumerate(of) if n] for key, (_, of) in log.tallies().items()}
    assert slots == {(0, 1): [7], (0, 2): [8], (1, 2): [3]}
    assert log.refused() == {"duplicate": 3}


@pytest.mark.parametrize(
    ("at", "node", "symbol", "reason"),
    [
        (closes(1) + GRACE, 1, 0, None),
        (closes(1) + GRACE + 0.001, 1, 0, "late"),
        (closes(2), 4, 0, "future"),
        (closes(2) - SKEW, 3, 0, None),
        (closes(2) - SKEW - 0.001, 3, 0, "future"),
        (closes(3), 3, SYMBOLS - 1, None),
        (closes(3), 3, SYMBOLS, "symbol-out-of-range"),
        (closes(3), 3, 255, "symbol-out-of-range"),
        (closes(3), 9, 0, "unknown-node"),
        (closes(3), 2**32 - 1, 0, "unknown-node"),
    ],
)
def test_a_report_is_refused_for_its_reason_alone(
    log: Log, at: float, node: int, symbol: int, reason: str | None
) -> None:
    """Its neighbour in the same upload counts; what is on the edge counts too."""
    beside = min(log.survey.calendar.period_of(at), 8)
    rows = [row(beside, 1, os.urandom(16)), row(node, symbol, os.urandom(16))]
    columns = b"".join(part for i, j in ((0, 4), (4, 20), (20, 21)) for part in (r[i:j] for r in rows))
    log.append(at, seal(msgpack.packb([0, columns]), log.survey.id, log.key))
    fold(log.store, at)
    assert log.refused() == ({} if reason is None else {reason: 1})
    assert sum(reports for reports, _ in log.tallies().values()) == (2 if reason is None else 1)


def _of_another_survey(log: Log) -> bytes:
    other = replace(log.survey, question="Another?")
    moved = envelope(other, log.key, [report(1)])
    return moved[:1] + log.survey.id + moved[17:]


def _flipped(log: Log) -> bytes:
    sound = bytearray(envelope(log.survey, log.key, [report(1)]))
    sound[-20] ^= 1
    return bytes(sound)


def _plain(content: object) -> Callable[[Log], bytes]:
    plaintext = content if isinstance(content, bytes) else msgpack.packb(content)
    return lambda log: seal(plaintext, log.survey.id, log.key)


_ROW = row(1, 0, bytes(16))


@pytest.mark.parametrize(
    ("make", "reason", "counted"),
    [
        (_flipped, "unopenable", 0),
        (_of_another_survey, "unopenable", 0),
        (lambda log: envelope(log.survey, SealingKey(b"\x09" + bytes(31), 0, 1), [report(1)]), "unopenable", 0),
        (_plain(b"\0"), "malformed", 0),
        (_plain(b"\xc1 not MessagePack"), "malformed", 0),
        (_plain(msgpack.packb([0, _ROW]) + b"\0\0\1"), "malformed", 0),
        (_plain({"a": 1}), "malformed", 0),
        (_plain([0]), "malformed", 0),
        (_plain([0, "text"]), "malformed", 0),
        (_plain([0, _ROW[:-1], 1, _ROW]), "malformed", 1),
        (_plain([0, _ROW, 0, row(2, 0, bytes(16))]), "malformed", 1),
        (_plain([7, _ROW, 1, _ROW]), "unknown-node", 1),
        (_plain([-1, _ROW, 1, _ROW]), "unknown-node", 1),
    ],
)
def test_what_does_not_open_or_parse_is_refused_alone(
    log: Log, make: Callable[[Log], bytes], reason: str, counted: int
) -> None:
    """An envelope, or one track of it; its neighbours count."""
    log.append(END, make(log), envelope(log.survey, log.key, [report(5)]))
    fold(log.store, END)
    assert log.refused() == {reason: 1}
    assert sum(reports for reports, _ in log.tallies().values()) == counted + 1


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plaintext=st.binary(min_size=1, max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=45) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner),
    ).map(msgpack.packb)
)
def test_no_plaintext_stops_the_fold(log: Log, plaintext: bytes) -> None:
    """Whatever a device seals is counted or refused; an envelope of nothing is refused at the door."""
    with log.store.reading() as connection:
        keys = private_keys(connection)
    entry = LogEntry(END * 1000, 1, 1, seal(plaintext, log.survey.id, log.key))
    count([entry], {log.survey.id: log.survey}, keys, lambda _: ())


def fill(log: Log, seed: int, uploads: int) -> None:
    """Uploads on two streams, of which some repeat earlier ids and some are refused."""
    random = Random(seed)
    with log.store.writing() as connection:
        streams = [log.stream, open_stream(connection)]
    ids = [random.randbytes(16) for _ in range(uploads // 2)]
    for number in range(uploads):
        nodes = random.sample(range(1, 9), 3)
        reports = [report(node, random.randrange(SYMBOLS + 1), id_=random.choice(ids)) for node in nodes]
        at = START + (END - START) * number / uploads
        log.append_reports(at, reports, stream=random.choice(streams))


def test_tallies_are_a_function_of_the_log(log: Log) -> None:
    """Folding it all again from empty, at once or in any batches, gives the tallies that were stored."""
    fill(log, seed=1, uploads=60)
    for batch in (1, 7, 1000):
        fold_batch(log.store, batch)
    fold(log.store, END, batch=13)
    with log.store.reading() as connection:
        entries, keys = list(whole_log(connection)), private_keys(connection)
    surveys = {log.survey.id: log.survey}
    for size in (5, 60):
        batches = [entries[i : i + size] for i in range(0, len(entries), size)]
        again = {key[1:]: (t.reports, t.slots.tolist()) for key, t in refold(batches, surveys, keys).items()}
        assert again == log.tallies()
    assert log.refused()["duplicate"] > 10


def test_two_folders_at_once_count_once(log: Log, tmp_path: Path) -> None:
    """Each with a connection of its own, in small batches: together they count what one counts."""
    fill(log, seed=2, uploads=80)

    def fold_beside(_: int) -> int:
        beside = Store.open(tmp_path / "server.db")
        envelopes = fold(beside, END, batch=3).envelopes
        beside.close()
        return envelopes

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(fold_beside, range(2))) == 80
    with log.store.reading() as connection:
        whole = refold([whole_log(connection)], {log.survey.id: log.survey}, private_keys(connection))
    assert log.tallies() == {key[1:]: (t.reports, t.slots.tolist()) for key, t in whole.items()}


def test_a_folder_that_was_overtaken_changes_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the log, and commits after another has, has its work discarded."""
    log.append_reports(END, [report(1)])

    def overtaken(*arguments: int) -> list[LogEntry]:
        entries = unread(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        fold_batch(log.store)
        return entries

    monkeypatch.setattr("changeling_aggregator.fold.folding.unread", overtaken)
    with pytest.raises(Overtaken):
        fold_batch(log.store)
    assert log.tallies()[0, 1][0] == 1


def test_a_node_is_sealed_after_its_grace(log: Log) -> None:
    """Its ids go, its tally stays, and whatever comes then is late, even with a clock that is behind."""
    same = os.urandom(16)
    log.append_reports(closes(1), [report(1, 1, id_=same)])
    key = (log.survey.id, 0, 1)

    fold(log.store, closes(1) + GRACE)
    with log.store.reading() as connection:
        assert runs_of(connection, key) == [same]

    fold(log.store, closes(1) + GRACE + 0.25)
    log.append_reports(closes(1) + 1, [report(1, 2, id_=same), report(3, 2)])
    log.append_reports(closes(1) + 1, [report(1, 2)])
    fold(log.store, closes(1) + GRACE + 1)
    with log.store.reading() as connection:
        assert runs_of(connection, key) == []
    assert log.refused() == {"late": 2}
    assert log.tallies()[0, 1][0] == 1
    assert log.tallies()[0, 3][0] == 1


def test_private_keys_are_destroyed_a_grace_after_they_expire(store: Store, tmp_path: Path) -> None:
    """Their bytes are in none of the store's files; what was counted stays."""
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE), expires=END)
    with store.reading() as connection:
        private = private_keys(connection)[log.key.id].private_bytes_raw()
    log.append_reports(END, [report(8)])
    fold(store, END + GRACE)
    assert any(private in path.read_bytes() for path in tmp_path.iterdir())
    fold(store, END + GRACE + 1)
    assert not any(private in path.read_bytes() for path in tmp_path.iterdir())
    assert log.tallies()[0, 8][0] == 1


def test_bytes_of_a_destroyed_key_that_a_reader_kept_go_at_the_next_fold(store: Store, tmp_path: Path) -> None:
    """While somebody reads, the write-ahead log cannot be emptied; afterwards it is, though nothing else is due."""
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE), expires=END)
    with store.reading() as connection:
        private = private_keys(connection)[log.key.id].private_bytes_raw()
        fold(store, END + GRACE + 1)
        assert any(private in path.read_bytes() for path in tmp_path.iterdir())
    fold(store, END + GRACE + 1)
    assert not any(private in path.read_bytes() for path in tmp_path.iterdir())


def test_uploads_that_never_stop_do_not_keep_nodes_and_keys_alive(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though something new waits whenever the fold looks, it ends, seals, and destroys what no waiter can need."""
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE), expires=closes(1))
    lasting = Log.of(store, log.survey)
    log.append_reports(closes(1), [report(1)])
    now = closes(1) + GRACE

    def always_more(*arguments: int) -> list[LogEntry]:
        lasting.append_reports(now, [report(8)])
        return unread(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("changeling_aggregator.fold.folding.unread", always_more)
    for _ in range(3):
        now += 1
        fold(store, now)
    with store.reading() as connection:
        assert sealed_nodes(connection, log.survey.id)[0] == 1
        assert set(private_keys(connection)) == {lasting.key.id}


def test_a_node_stays_open_for_an_upload_that_waits(log: Log) -> None:
    """Another folder may have read it before: what arrived within grace counts, however late it is folded."""
    log.append_reports(closes(1) + GRACE, [report(1)])
    close_what_ended(log.store, closes(1) + GRACE + 50)
    with log.store.reading() as connection:
        assert sealed_nodes(connection, log.survey.id) == {}
    fold(log.store, closes(1) + GRACE + 50)
    assert log.tallies()[0, 1][0] == 1
    with log.store.reading() as connection:
        assert sealed_nodes(connection, log.survey.id) == {0: 1}


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_runs_hold_every_id_in_few_pieces(sizes: list[int]) -> None:
    """Each is sorted and at least twice as long as the next."""
    random, runs, ids = Random(1), [], set()
    for size in sizes:
        fresh = [random.randbytes(16) for _ in range(size)]
        ids.update(fresh)
        kept, run = with_run(runs, b"".join(sorted(fresh)))
        runs = [*runs[:kept], run]
    split = [[run[i : i + 16] for i in range(0, len(run), 16)] for run in runs]
    assert sorted(id_ for run in split for id_ in run) == sorted(ids)
    assert all(run == sorted(run) for run in split)
    assert all(len(wide) >= 2 * len(narrow) for wide, narrow in itertools.pairwise(runs))
