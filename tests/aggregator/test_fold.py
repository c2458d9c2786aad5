"""The fold: what counts, what is refused, and that it is a function of the log."""

import os
import tracemalloc
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import polars as pl
import pytest
from changeling_aggregator.fold import (
    MOST_RETENTION_SECONDS,
    Opened,
    SeenIds,
    add_ids,
    check,
    counting,
    fold,
    folding,
    merged_ids,
    open_requests,
)
from changeling_aggregator.ingest import Registry
from changeling_aggregator.store import CHUNK_BYTES, NO_ANSWER, Store
from changeling_aggregator.testing import counted_rows, fold_out_of_turn
from changeling_protocol import (
    HEAD_BYTES,
    SEAL_BYTES,
    Breakdown,
    Closing,
    EarlyEnd,
    Node,
    Report,
    SealingKey,
    Standing,
    Survey,
    encode_upload,
    seal,
    signed,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..protocol.examples import AUTHORITY, mixed, survey
from .devices import END, GRACE, SURVEYS, Log, Said, body, closes, envelope, report

SKEW, SYMBOLS = 5, 13  # of a node, as there are three answers
ANOTHER = SURVEYS[0]
UNREADABLE = b"a grace of ten to the eleventh weeks"


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


CLOSINGS = bytes(16 * 8) + b"\1" + bytes(7) + bytes(2 * 8)
"""Of eight periods, the first is answered."""
COLUMNS = b"\1" + bytes(7), bytes(4), bytes(2)
SOUND = [0, 0, 8, CLOSINGS, *COLUMNS]
UNANSWERED = [0, 0, 8, b"\1" + CLOSINGS[1:], b"\1\0\1" + bytes(5), *COLUMNS[1:]]
"""Answers the first period's close, and reports also on a node that ends with the third."""
MALFORMED = [
    b"\0",
    b"\xc1 not MessagePack",
    msgpack.packb(SOUND) + b"\0\0\1",
    *map(
        msgpack.packb,
        [
            {"a": 1},
            SOUND[:3],
            [0, 0, 8, CLOSINGS, "text", *COLUMNS[1:]],
            [0, 0, 8, CLOSINGS[:-1], *COLUMNS],
            [0, 0, 8, CLOSINGS, *COLUMNS[:2]],
            [*SOUND, b""],
            [0, 0, 8, CLOSINGS, *COLUMNS[:2], bytes(3)],
            [0, 0, 7, *SOUND[3:]],
            [0, 8, 8, b"", b"", b"", b""],
            [0, 0, 65, *SOUND[3:]],
            [1, *SOUND[1:]],
            [-1, *SOUND[1:]],
        ],
    ),
]


def test_what_does_not_open_or_parse_is_refused_alone(log: Log) -> None:
    """An envelope, or a report at a closing that is not answered; their neighbours count. One that is too short to be
    any is of nobody's survey: nothing stops the fold."""
    sound, another = (
        envelope(asked, log.key, [report(5)]) for asked in (log.survey, log.survey.asking(question="Another?"))
    )
    unopenable = [
        sound[:-20] + bytes([sound[-20] ^ 1]) + sound[-19:],
        another[:1] + log.survey.id + another[17:],
        envelope(log.survey, SealingKey(b"\x09" + bytes(31), 0, 1), [report(1)]),
    ]
    well = [seal(msgpack.packb(each), log.survey.id, log.key) for each in (SOUND, UNANSWERED)]
    short = [sound[: HEAD_BYTES + SEAL_BYTES], sound[:HEAD_BYTES], b"\1", b""]
    malformed = [seal(each, log.survey.id, log.key) for each in MALFORMED]
    log.append(END, *unopenable, *malformed, *well, *short, sound, stream=log.stream)
    fold(log.store, END)
    assert log.refused() == {"unopenable": 3, "malformed": len(malformed) + 1}
    with log.store.view() as view:
        assert sum(view.refusals().values()) == 3 + len(malformed) + 1 + len(short)
    assert {key: reports for key, (reports, _) in log.tallies().items()} == {(0, 1): 2, (0, 5): 1}


def test_rubbish_goes_when_it_is_folded(log: Log) -> None:
    """What does not open is deleted at once, but not from beside what counts; the refusals tell."""
    sound = envelope(log.survey, log.key, [report(1)])
    altered = sound[:-1] + bytes([sound[-1] ^ 1])
    log.store.append({log.stream: [body(altered), body(sound, altered), body(altered, altered)]}, END * 1000)
    fold(log.store, END)
    assert log.refused() == {"unopenable": 4}
    assert [each.body for each in log.kept()] == [body(sound, altered)]
    log.append_reports(END, [report(1)])
    fold(log.store, END)
    assert log.tallies()[0, 1][0] == 2


def test_nothing_counts_of_closings_after_an_early_end(log: Log) -> None:
    """Refused as closed, whenever they arrive; closings beside them in the same upload count. What was counted of a
    later one before the end, as of a fast clock, is no difference."""
    log.append_reports(closes(3), [report(4)])
    fold(log.store, closes(3))
    with log.store.transaction() as writing:
        writing.add_early_end(EarlyEnd(log.survey.id, 3), b"signed")
    log.append_reports(closes(4), [report(2), report(3), report(4), report(1, track=1), report(2, track=1)])
    fold(log.store, closes(4))
    assert set(log.tallies()) == {(0, 2), (0, 3), (0, 4), (1, 1)}
    assert log.attendance() == dict.fromkeys([(0, 2), (0, 3), (0, 4)], (1, 1, 0))
    assert log.refused() == {"closed": 1}
    assert check(log.store) == []


PLAINTEXT = st.binary(min_size=1, max_size=80) | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=45) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner),
).map(msgpack.packb)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plaintexts=st.lists(PLAINTEXT, min_size=1, max_size=10))
def test_no_plaintext_stops_the_fold(log: Log, plaintexts: list[bytes]) -> None:
    """Whatever a device seals is counted or refused; an envelope of nothing is refused at the door."""
    log.append(END, *(seal(each, log.survey.id, log.key) for each in plaintexts))
    done = fold(log.store, END, closing=False)
    assert (done.envelopes, done.uncounted) == (len(plaintexts), {})


def test_a_closing_is_sealed_after_its_grace(log: Log) -> None:
    """Its ids go, its tallies stay, and whatever comes then is late, even with a clock that is behind."""
    same = report(1)
    for said, now, sealed, ids in (([same], 0, 0, 1), ([same], 0.25, 1, 0), ([same, report(3)], 1, 1, 1)):
        log.append_reports(closes(1) + now, said)
        fold(log.store, closes(1) + GRACE + now)
        with log.store.view() as view:
            assert (log.sealed(), len(view.runs())) == (sealed, ids)
    assert log.refused() == {"duplicate": 1, "late": 1}
    assert [log.tallies()[0, node][0] for node in (1, 3)] == [1, 1]


def test_private_keys_are_destroyed_a_grace_after_they_expire(store: Store, tmp_path: Path) -> None:
    """Their bytes are in none of the store's files then; or, where somebody reads, after the next fold, though nothing
    else is due. What was counted stays."""
    log = Log.of(store, survey(), expires=END)
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
    log = Log.of(store, survey(), expires=closes(1))
    lasting = Log.of(store, log.survey, begins=closes(1))
    log.append_reports(closes(1), [report(1)])
    now = closes(1) + GRACE

    def always_more(*arguments: Any) -> Opened:
        lasting.append_reports(now, [report(8)])
        return open_requests(*arguments)

    for _ in range(3):
        now += 1
        fold(store, now, open_=always_more)
    assert (log.sealed(), log.private_keys()) == (1, {lasting.key.id})


def test_a_closing_stays_open_for_an_upload_that_waits(log: Log) -> None:
    """Another folder may have read it before: what arrived within grace counts, however late it is folded."""
    log.append_reports(closes(1) + GRACE, [report(1)])
    assert fold(log.store, closes(1) + GRACE + 50, stop=lambda: True).behind
    assert (log.tallies(), log.sealed()) == ({}, 0)
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
        assert len(b"".join(view.read_run(key, view.runs()[key][0].number, known))) <= CHUNK_BYTES


@pytest.mark.parametrize("readable", [True, False])
def test_no_survey_keeps_the_log_and_expired_keys_longer_than_90_days(store: Store, readable: bool) -> None:
    """Neither one that takes reports for 7,000 years; nor one that cannot be read here, for which both are kept as long
    as that: a server of another version can read it, and may be taking uploads for it."""
    log = Log.of(store, survey(grace=7000 * 365 * 86_400) if readable else survey(), END)
    if readable:
        log.append_reports(END, [report(8)])
    else:
        with store.transaction() as writing:
            writing.add_survey(ANOTHER, UNREADABLE)
        log.append(END, bytes([1]) + ANOTHER + log.key.id + bytes(200))
    fold(store, END + MOST_RETENTION_SECONDS)
    assert (len(log.kept()), len(log.private_keys())) == (1, 1)
    fold(store, END + MOST_RETENTION_SECONDS + 1)
    assert (log.kept(), log.private_keys()) == ([], set())
    assert log.tallies().keys() == ({(0, 8)} if readable else set())


UNDERSTATED = signed("survey", survey().as_fields() | {"epsilon_micro": 1}, AUTHORITY)
"""As a version with a lower bound on the cost published it."""


@pytest.mark.parametrize("written", [UNREADABLE, UNDERSTATED], ids=["cannot be read", "understates its epsilon"])
def test_a_survey_of_another_version_harms_no_other(log: Log, written: bytes) -> None:
    """A store may hold one with other bounds; the others are folded, and sealed in their time."""
    with log.store.transaction() as writing:
        writing.add_survey(ANOTHER, written)
    log.append_reports(closes(1), [report(1)])
    log.append(closes(1), bytes([1]) + ANOTHER + log.key.id + bytes(200))
    done = fold(log.store, closes(1) + GRACE + 1)
    assert (done.reports, done.refused, log.sealed()) == (1, {"unopenable": 1}, 1)
    registry = Registry(log.store)
    registry.refresh()
    assert (list(registry.surveys), list(registry.unreadable)) == ([log.survey.id], [ANOTHER])


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
    assert len(log.kept()) == 2


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
    while log.unfolded():
        with suppress(OSError):
            fold(log.store, closes(1), random.randrange(1, 6), closing=False, seen=seen)
    monkeypatch.setattr(folding, "_write", write)
    assert happened >= {"before", "after", "overtaken"}
    assert log.tallies()[0, 1][0] == len({*sent})
    assert check(log.store) == []
    other.close()


ASKED = replace(survey(mixed(3, 8), grace=10**6), breakdowns=(Breakdown("platform", ("linux", "mac", "windows")),))
"""Three groups, of which one reports two random nodes, and one only every other period."""


class Device:
    """One entry: what it answers at each closing that it is there for, of any standing and stratum."""

    def __init__(self, random: Random) -> None:
        self.group = random.randrange(3)
        self.answers: dict[int, tuple[Closing, list[Report]]] = {}
        for period in sorted(random.sample(range(1, 9), random.randint(1, 8))):
            reports = [
                Report(number, node, random.randrange(track.randomizer.symbols))
                for number, track in ASKED.plan.numbered(self.group)
                if (node := track.ending_at(period)) is not None and random.random() < 0.5
            ]
            closing = Closing(period, random.randbytes(16), random.choice([*Standing]), random.randrange(3))
            self.answers[period] = closing, reports

    def upload(self, log: Log, periods: Sequence[int]) -> bytes:
        """Some of its answers in one envelope, whose span may begin earlier and end later."""
        known = [self.answers[period] for period in periods]
        span = Node(max(periods[0] - 2, 0), min(periods[-1] + 1, 8))
        closings, reports = [closing for closing, _ in known], [report for _, told in known for report in told]
        return seal(encode_upload(ASKED.plan, self.group, span, closings, reports), ASKED.id, log.key)

    def packings(self, random: Random) -> list[list[int]]:
        """Runs of periods that cover each answer at least once: overlapping, repeated, in any order."""
        periods, runs = sorted(self.answers), []
        for _ in range(random.randint(1, 3)):
            left = periods
            while left:
                cut = random.randint(1, len(left))
                runs.append(left[:cut])
                left = left[max(cut - random.randrange(2), 1) :]
        random.shuffle(runs)
        return runs


@pytest.mark.heavy
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6))
def test_members_are_counted_once_however_their_answers_are_packed(tmp_path: Path, seed: int) -> None:
    """Sent again, cut otherwise, over overlapping spans, on several streams and in batches of any size: by group,
    closing and stratum each entry is heard once, with its own standing, and each of its reports counts once, as if it
    had sent each closing once and by itself."""
    random = Random(seed)
    devices = [Device(random) for _ in range(12)]
    with ExitStack() as stack:
        log, apart = (
            Log.of(stack.enter_context(closing(Store.open(tmp_path / os.urandom(8).hex()))), ASKED) for _ in range(2)
        )
        streams = [log.stream, log.store.open_stream()]
        sent = [each.upload(log, run) for each in devices for run in each.packings(random)]
        random.shuffle(sent)
        for upload in sent:
            log.append(END, upload, stream=random.choice(streams))
            if random.random() < 0.1:
                fold(log.store, END, batch=random.choice([1, 3, 100]))
        fold(log.store, END, batch=5)
        apart.append(END, *(each.upload(apart, [period]) for each in devices for period in each.answers))
        fold(apart.store, END)
        assert counted_rows(log.store)["tallies"] == counted_rows(apart.store)["tallies"]
        assert sum(heard for heard, _, _ in log.attendance().values()) == sum(len(each.answers) for each in devices)
        assert (apart.refused(), set(log.refused()) <= {"duplicate"}) == ({}, True)
