"""The fold: what counts, what is refused, and that it is a function of the log."""

import os
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import polars as pl
import pytest
from changeling_aggregator.fold import (
    MOST_RETENTION_SECONDS,
    SeenIds,
    add_ids,
    check,
    count,
    counting,
    fold,
    folding,
    merged_ids,
)
from changeling_aggregator.fold.folding import close_what_ended
from changeling_aggregator.ingest import Registry
from changeling_aggregator.opening import Opened, open_requests
from changeling_aggregator.store import CHUNK_BYTES, NO_ANSWER, LoggedRequest, Store
from changeling_aggregator.testing import fold_out_of_turn
from changeling_protocol import Breakdown, Calendar, EarlyEnd, SealingKey, Standing, Survey, seal, signed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..protocol.examples import AUTHORITY, survey
from .devices import Log, Said, body, envelope, report

START, PERIOD, GRACE, SKEW = 1_800_000_000, 60, 600, 5
SYMBOLS = 13  # z = 3
END = START + 8 * PERIOD
THREE = (Breakdown("platform", ("linux", "mac", "windows")),)


@pytest.fixture
def log(store: Store) -> Log:
    """Periods of a minute: tracks 0, 1, 2 with nodes of 1, 2, 4 of them; three strata."""
    return Log.of(store, replace(survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE, skew=SKEW), breakdowns=THREE))


def closes(node: int) -> int:
    """When a node of track 0 closes."""
    return START + node * PERIOD


def test_reports_of_one_upload_count_on_their_nodes(log: Log) -> None:
    """Each in the slot of its symbol, and each closing once, whatever it reports; rows of padding count nowhere."""
    log.append_reports(END, [report(1, 4), report(8, 0), report(2, 12, track=1)])
    log.append_reports(END, [report(1, 5)])
    done = fold(log.store, END)
    assert (done.envelopes, done.reports, done.refused) == (2, 4, {})
    slots = {key: [i for i, n in enumerate(of) for _ in range(n)] for key, (_, of) in log.tallies().items()}
    assert slots == {(0, 1): [4, 5], (0, 8): [0], (1, 2): [12]}
    assert log.attendance() == {(0, 1): (2, 2, 0), (0, 4): (1, 1, 0), (0, 8): (1, 1, 0)}


def test_the_first_closing_with_an_id_counts(log: Log) -> None:
    """In the log's order, between uploads, streams and batches, with all its reports; ids are told apart by period."""
    other = log.store.open_stream()
    same = bytes(15) + b"\1"
    log.append_reports(END, [report(1, 7, id_=same)], stream=other)
    log.append_reports(END - 30, [report(1, 8, id_=same), report(2, 8, id_=same)])
    log.append_reports(END, [report(1, 9, id_=same), report(2, 9, id_=same), report(2, 3, track=1, id_=same)])
    log.append_reports(END, [report(1, 7, id_=same), report(1, 3, track=2, id_=same)])
    fold(log.store, END, batch=2)
    slots = {key: [i for i, n in enumerate(of) if n] for key, (_, of) in log.tallies().items()}
    assert slots == {(0, 1): [7], (0, 2): [8], (1, 2): [3]}
    assert log.refused() == {"duplicate": 5}
    assert log.attendance() == {(0, period): (1, 1, 0) for period in (1, 2, 4)}


@pytest.mark.parametrize(
    ("at", "said", "reason"),
    [
        (closes(1) + GRACE, report(1), None),
        (closes(1) + GRACE + 0.001, report(1), "late"),
        (closes(2), report(4), "future"),
        (closes(2), report(1, track=2), "future"),
        (closes(2) - SKEW, report(3), None),
        (closes(2) - SKEW - 0.001, report(3), "future"),
        (closes(3), report(3, SYMBOLS - 1), None),
        (closes(3), report(3, standing=Standing.MISSED), None),
        (closes(3), report(3, standing=3), "malformed"),
        (closes(3), report(3, standing=254), "malformed"),
        (closes(3), report(3, stratum=2), None),
        (closes(3), report(3, stratum=3), "unknown-stratum"),
        (closes(3), report(3, stratum=2**16 - 1), "unknown-stratum"),
    ],
)
def test_a_closing_is_refused_for_its_reason_alone(log: Log, at: float, said: Said, reason: str | None) -> None:
    """With all that it reports. Its neighbour in the same upload counts; what is on the edge counts too."""
    end = log.survey.plan.tracks[said.report.track].node(said.report.node).end
    beside = next(other for other in (min(log.survey.calendar.period_of(at), 8), 2) if other != end)
    log.append_reports(at, [report(beside, 1), said])
    fold(log.store, at)
    assert log.refused() == ({} if reason is None else {reason: 1})
    assert sum(reports for reports, _ in log.tallies().values()) == (2 if reason is None else 1)
    assert sum(heard for heard, _, _ in log.attendance().values()) == (2 if reason is None else 1)


def test_a_symbol_that_cannot_be_is_refused_alone(log: Log) -> None:
    """The closing counts, and what else it reports."""
    for symbol in (SYMBOLS, 254):
        log.append_reports(END, [report(4, symbol), report(2, 1, track=1), report(1, 1)])
    fold(log.store, END)
    assert log.refused() == {"symbol-out-of-range": 2}
    assert set(log.tallies()) == {(1, 2), (0, 1)}
    assert log.attendance() == {(0, 1): (2, 2, 0), (0, 4): (2, 2, 0)}


def _of_another_survey(log: Log) -> bytes:
    other = log.survey.asking(question="Another?")
    moved = envelope(other, log.key, [report(1)])
    return moved[:1] + log.survey.id + moved[17:]


def _flipped(log: Log) -> bytes:
    sound = bytearray(envelope(log.survey, log.key, [report(1)]))
    sound[-20] ^= 1
    return bytes(sound)


def _plain(content: object) -> Callable[[Log], bytes]:
    plaintext = content if isinstance(content, bytes) else msgpack.packb(content)
    return lambda log: seal(plaintext, log.survey.id, log.key)


_CLOSINGS = bytes(16 * 8) + b"\1" + bytes(7) + bytes(2 * 8)
"""Of eight periods, the first is answered."""
_SYMBOLS = b"\1" + bytes(7), bytes(4), bytes(2)


def _without_a_closing(log: Log) -> bytes:
    """An upload that answers the first period's close, and reports on a node that ends with the third."""
    return _plain([0, 0, 8, _CLOSINGS, b"\1\0\1" + bytes(5), bytes(4), bytes(2)])(log)


@pytest.mark.parametrize(
    ("make", "reason", "counted"),
    [
        (_flipped, "unopenable", 0),
        (_of_another_survey, "unopenable", 0),
        (lambda log: envelope(log.survey, SealingKey(b"\x09" + bytes(31), 0, 1), [report(1)]), "unopenable", 0),
        (_plain(b"\0"), "malformed", 0),
        (_plain(b"\xc1 not MessagePack"), "malformed", 0),
        (_plain(msgpack.packb([0, 0, 8, _CLOSINGS, *_SYMBOLS]) + b"\0\0\1"), "malformed", 0),
        (_plain({"a": 1}), "malformed", 0),
        (_plain([0, 0, 8, _CLOSINGS, *_SYMBOLS]), None, 1),
        (_plain([0, 0, 8]), "malformed", 0),
        (_plain([0, 0, 8, _CLOSINGS, "text", *_SYMBOLS[1:]]), "malformed", 0),
        (_plain([0, 0, 8, _CLOSINGS[:-1], *_SYMBOLS]), "malformed", 0),
        (_plain([0, 0, 8, _CLOSINGS, *_SYMBOLS[:2]]), "malformed", 0),
        (_plain([0, 0, 8, _CLOSINGS, *_SYMBOLS, b""]), "malformed", 0),
        (_plain([0, 0, 8, _CLOSINGS, *_SYMBOLS[:2], bytes(3)]), "malformed", 0),
        (_plain([0, 0, 7, _CLOSINGS, *_SYMBOLS]), "malformed", 0),
        (_plain([0, 8, 8, b"", b"", b"", b""]), "malformed", 0),
        (_plain([0, 0, 65, _CLOSINGS, *_SYMBOLS]), "malformed", 0),
        (_plain([1, 0, 8, _CLOSINGS, *_SYMBOLS]), "malformed", 0),
        (_plain([-1, 0, 8, _CLOSINGS, *_SYMBOLS]), "malformed", 0),
        (_without_a_closing, "malformed", 1),
    ],
)
def test_what_does_not_open_or_parse_is_refused_alone(
    log: Log, make: Callable[[Log], bytes], reason: str | None, counted: int
) -> None:
    """An envelope, or a report at a closing that is not answered; its neighbours count."""
    log.append(END, make(log), envelope(log.survey, log.key, [report(5)]))
    fold(log.store, END)
    assert log.refused() == ({} if reason is None else {reason: 1})
    assert sum(reports for reports, _ in log.tallies().values()) == counted + 1


def test_nothing_counts_of_closings_after_an_early_end(log: Log) -> None:
    """Refused as closed, whenever they arrive; closings beside them in the same upload count."""
    with log.store.transaction() as writing:
        writing.add_early_end(EarlyEnd(log.survey.id, 3), b"signed")
    log.append_reports(closes(4), [report(2), report(3), report(4), report(1, track=1), report(2, track=1)])
    fold(log.store, closes(4))
    assert set(log.tallies()) == {(0, 2), (0, 3), (1, 1)}
    assert set(log.attendance()) == {(0, 2), (0, 3)}
    assert log.refused() == {"closed": 1}


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    plaintext=st.binary(min_size=1, max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=45) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner),
    ).map(msgpack.packb)
)
def test_no_plaintext_stops_the_fold(log: Log, plaintext: bytes) -> None:
    """Whatever a device seals is counted or refused; an envelope of nothing is refused at the door."""
    with log.store.view() as view:
        surveys, keys = view.surveys(), view.private_keys()
    entry = LoggedRequest(END * 1000, 1, 1, body(seal(plaintext, log.survey.id, log.key)))
    opened = open_requests([entry.body], {log.survey.id: log.survey}, keys)
    count([entry], opened, surveys, lambda _: ())


def test_a_closing_is_sealed_after_its_grace(log: Log) -> None:
    """Its ids go, its tallies stay, and whatever comes then is late, even with a clock that is behind."""
    same = os.urandom(16)
    log.append_reports(closes(1), [report(1, 1, id_=same)])
    key = (log.survey.id, 1)

    fold(log.store, closes(1) + GRACE)
    with log.store.view() as view:
        assert list(view.read_run(key, 0, same)) == [same]

    fold(log.store, closes(1) + GRACE + 0.25)
    log.append_reports(closes(1) + 1, [report(1, 2, id_=same), report(3, 2)])
    log.append_reports(closes(1) + 1, [report(1, 2)])
    fold(log.store, closes(1) + GRACE + 1)
    with log.store.view() as view:
        assert view.runs([key]) == {}
    assert log.refused() == {"late": 2}
    assert log.tallies()[0, 1][0] == 1
    assert log.tallies()[0, 3][0] == 1


def test_private_keys_are_destroyed_a_grace_after_they_expire(store: Store, tmp_path: Path) -> None:
    """Their bytes are in none of the store's files then; or, where somebody reads, after the next fold, though nothing
    else is due. What was counted stays."""
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE), expires=END)
    log.append_reports(END, [report(8)])

    def in_files() -> bool:
        return any(private in path.read_bytes() for path in tmp_path.iterdir())

    with store.view() as view:
        private = view.private_keys()[log.key.id].private_bytes_raw()
    fold(store, END + GRACE)
    with store.view() as view:
        assert view.private_keys()
        fold(store, END + GRACE + 1)
        assert in_files()
    fold(store, END + GRACE + 1)
    assert not in_files()
    assert log.tallies()[0, 8][0] == 1


def test_uploads_that_never_stop_do_not_keep_closings_and_keys_alive(store: Store) -> None:
    """Though something new waits whenever the fold looks, it ends, seals, and destroys what no waiter can need."""
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=GRACE), expires=closes(1))
    lasting = Log.of(store, log.survey, begins=closes(1))
    log.append_reports(closes(1), [report(1)])
    now = closes(1) + GRACE

    def always_more(*arguments: Any) -> Opened:
        lasting.append_reports(now, [report(8)])
        return open_requests(*arguments)

    for _ in range(3):
        now += 1
        fold(store, now, open_=always_more)
    with store.view() as view:
        assert view.surveys()[log.survey.id].sealed == 1
        assert set(view.private_keys()) == {lasting.key.id}


def test_a_closing_stays_open_for_an_upload_that_waits(log: Log) -> None:
    """Another folder may have read it before: what arrived within grace counts, however late it is folded."""
    log.append_reports(closes(1) + GRACE, [report(1)])
    close_what_ended(log.store, closes(1) + GRACE + 50)
    assert log.sealed() == 0
    fold(log.store, closes(1) + GRACE + 50)
    assert (log.tallies()[0, 1][0], log.sealed()) == (1, 1)


def test_an_answer_to_a_closing_with_a_million_ids_reads_few_of_them(log: Log) -> None:
    """Looking up one id reads one chunk of each run, whatever the others are; a repeated id is found among them."""
    key = (log.survey.id, 1)
    ids = Random(3).randbytes(16 * 10**6)
    ids = merged_ids([ids[:16], ids[16:]])  # which sorts
    with log.store.transaction() as writing:
        add_ids(writing, {key: ids})
    known = ids[16 * 777_777 :][:16]
    log.append_reports(closes(1), [report(1, id_=known)])
    log.append_reports(closes(1), [report(1)])
    tracemalloc.start()
    assert fold(log.store, closes(1)).reports == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert log.refused() == {"duplicate": 1}
    assert peak < len(ids) / 4
    with log.store.view() as view:
        assert len(b"".join(view.read_run(key, 0, known))) <= CHUNK_BYTES


@pytest.mark.parametrize("readable", [True, False])
def test_no_survey_keeps_the_log_and_expired_keys_longer_than_90_days(store: Store, readable: bool) -> None:
    """Neither one that takes reports for 7,000 years; nor one that cannot be read here, for which both are kept as long
    as that: a server of another version can read it, and may be taking uploads for it."""
    log = Log.of(
        store, survey(calendar=Calendar(START, PERIOD, 8), grace=7000 * 365 * 86_400 if readable else GRACE), END
    )
    if readable:
        log.append_reports(END, [report(8)])
    else:
        of_another_version = b"survey of 16 by."
        with store.transaction() as writing:
            writing.add_survey(of_another_version, b"a grace of ten to the eleventh weeks")
        log.append(END, bytes([1]) + of_another_version + log.key.id + bytes(200))
    fold(store, END + MOST_RETENTION_SECONDS)
    with store.view() as view:
        assert (len(arrivals(log)), len(view.private_keys())) == (1, 1)
    fold(store, END + MOST_RETENTION_SECONDS + 1)
    with store.view() as view:
        assert (arrivals(log), view.private_keys()) == ([], {})
    assert log.tallies().keys() == ({(0, 8)} if readable else set())


def test_a_survey_that_cannot_be_read_harms_no_other(log: Log) -> None:
    """A store may hold one of a version with other bounds; the others are folded, and sealed in their time."""
    bad = b"survey of 16 by."
    with log.store.transaction() as writing:
        writing.add_survey(bad, b"a grace of ten to the eleventh weeks")
    log.append_reports(closes(1), [report(1)])
    log.append(closes(1), bytes([1]) + bad + log.key.id + bytes(200))
    done = fold(log.store, closes(1) + GRACE + 1)
    assert (done.reports, done.refused, log.sealed()) == (1, {"unopenable": 1}, 1)
    registry = Registry(log.store)
    registry.refresh()
    assert (list(registry.surveys), list(registry.unreadable)) == ([log.survey.id], [bad])


def test_a_survey_that_understates_its_epsilon_by_now_harms_no_other(log: Log) -> None:
    """One that a version with a lower bound on the cost published: like any that cannot be read here."""
    fields = log.survey.as_fields() | {"epsilon_micro": 1}
    with log.store.transaction() as writing:
        writing.add_survey(b"survey of 16 by.", signed("survey", fields, AUTHORITY))
    log.append_reports(closes(1), [report(1)])
    assert fold(log.store, closes(1) + GRACE + 1).reports == 1
    registry = Registry(log.store)
    registry.refresh()
    assert list(registry.unreadable) == [b"survey of 16 by."]


def test_a_survey_that_cannot_be_counted_harms_no_other(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it added stays in the log and is told; a store that fails is no survey's trouble, and stops the fold."""
    other = log.survey.asking(question="Another?")
    with log.store.transaction() as writing:
        writing.add_survey(other.id, other.signed_by(AUTHORITY))
    log.append_reports(closes(1), [report(1)])
    log.append(closes(1), envelope(other, log.key, [report(1)]))

    judged = counting._judged

    def defective(closings: pl.DataFrame, of: Survey, last: int) -> pl.DataFrame:
        if of == other:
            raise error
        return judged(closings, of, last)

    monkeypatch.setattr(counting, "_judged", defective)
    error: Exception = NO_ANSWER[0]("", {}, Exception())
    with pytest.raises(NO_ANSWER):
        fold(log.store, closes(1))
    error = pl.exceptions.ComputeError("overflow")
    done = fold(log.store, closes(1))
    assert (done.envelopes, done.reports, done.uncounted) == (2, 1, {other.id: 1})
    assert log.tallies()[0, 1][0] == 1
    assert len(arrivals(log)) == 2


def test_what_is_not_sealed_can_always_be_folded_again(tmp_path: Path) -> None:
    """Whenever the log is pruned, what is left of it gives the stored tallies of every open node, those included
    that count reports from before they closed."""
    random = Random(2)
    store = Store.open(tmp_path / "pruned.db")
    log = Log.of(store, survey(calendar=Calendar(START, PERIOD, 8), grace=100, skew=SKEW))
    streams = [log.stream, store.open_stream()]
    ids = [random.randbytes(16) for _ in range(12)]
    pruned = False
    for step in range(40):
        at = START + 15 * step + random.random()
        track = random.randrange(3)
        widest = 8 >> track
        reports = [
            report(n, random.randrange(SYMBOLS), track=track, id_=random.choice(ids)) for n in range(1, widest + 1)
        ]
        log.append_reports(at, random.sample(reports, min(2, widest)), stream=random.choice(streams))
        if random.random() < 0.2:
            fold(store, at, batch=random.choice([1, 3, 100]))
            assert check(store) == []
            pruned = pruned or len(log.kept()) < step + 1
    fold(store, END + 10**5)
    assert arrivals(log) == []
    store.close()
    assert pruned


def arrivals(log: Log) -> list[float]:
    return [each.arrival / 1000 for each in log.kept()]


def test_each_closing_counts_once_though_writing_fails(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it or after, or as another folder comes first, while the next batch is opened."""
    random, write, seen = Random(1), folding._write, SeenIds(100)
    other = Store.open(log.store.place)
    ids = [random.randbytes(16) for _ in range(12)]
    sent = [random.choice(ids) for _ in range(40)]
    streams = [log.stream, log.store.open_stream()]
    for id_ in sent:
        log.append_reports(closes(1), [report(1, id_=id_)], stream=random.choice(streams))
    happened = set[str]()

    def fails(*arguments: Any) -> Any:
        what = random.choice(["well", "well", "before", "after", "overtaken"])
        happened.add(what)
        if what == "before":
            raise OSError(what)
        if what == "overtaken":
            with monkeypatch.context() as patched:
                patched.setattr(folding, "_write", write)
                fold_out_of_turn(other, random.randrange(1, 4))
        done = write(*arguments)
        if what == "after":
            raise OSError(what)
        return done

    monkeypatch.setattr(folding, "_write", fails)
    while unfolded_in(log.store):
        with suppress(OSError):
            fold(log.store, closes(1), random.randrange(1, 6), closing=False, seen=seen)
    monkeypatch.setattr(folding, "_write", write)
    assert happened >= {"before", "after", "overtaken"}
    assert log.tallies()[0, 1][0] == len({*sent})
    assert check(log.store) == []
    other.close()


def unfolded_in(store: Store) -> int:
    with store.view() as view:
        return view.log_state().unfolded
