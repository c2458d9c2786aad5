"""Recording: durable, stamped forwards, silent about answers, and held to the constraint."""

import os
import re
import signal

import httpx
import pytest
from changeling_client import EnrolmentOver, Recorded
from changeling_client.testing import stored
from changeling_protocol import (
    AtMost,
    Group,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SlotState,
    StateSpace,
    TimeBounded,
    Track,
)

from ..protocol.examples import AUTHORITY, hierarchical, survey
from .device import LATE, PLAIN, START, Clock, FakeServer, by_node, client

ODDS = Odds(3, 1)


def test_a_record_survives_sigkill_right_after_it_returns(tmp_path):
    """Of 50 processes killed by SIGKILL as record() returns, none loses its answer."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=50)
    for entry in range(50):
        if (child := os.fork()) == 0:
            try:
                device = client(tmp_path, server, clock)
                device.join(PLAIN.id, entries=50).record("coffee", entry)
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id, entries=50)
        assert [handle.answer(entry) for entry in range(50)] == ["coffee"] * 50


def test_the_same_answer_again_is_no_mutation(tmp_path):
    """Repeats neither count against the constraint nor reach a report."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        handle = device.join(PLAIN.id)
        assert handle.retract() is Recorded.UNCHANGED
        assert handle.record("tea") is Recorded.COUNTED
        assert [handle.record("tea") for _ in range(5)] == [Recorded.UNCHANGED] * 5
        assert [handle.record("coffee"), handle.record("tea")] == [Recorded.COUNTED] * 2


@pytest.mark.parametrize("known", [True, False], ids=["joined", "not known yet"])
@pytest.mark.parametrize("key", [None, b"K" * 32], ids=["plain", "key"])
def test_a_change_and_none_do_the_same_to_the_disk(tmp_path, known, key):
    """The same statements in the same order, and as many bytes of the log: nobody who times a call, or looks at the
    files' sizes and times, sees whether the answer was another one."""
    server, done = FakeServer(PLAIN), []
    with client(tmp_path, server, Clock(), key=key) as device:
        handle = device.join(PLAIN.id, **({} if known else {"signed": None}))
        handle.record("tea")
        log = tmp_path / "store.db-wal"
        connection = device.store._connection
        for answer in ("tea", "coffee", "coffee", "tea", "tea", None, None, "tea"):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            statements = []
            connection.set_trace_callback(statements.append)
            handle.retract() if answer is None else handle.record(answer)
            connection.set_trace_callback(None)
            done.append(([each.split("(")[0].split("=")[0] for each in statements], log.stat().st_size))
    assert done[0][1] > 0
    assert all(each == done[0] for each in done)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_the_folder_of_the_store_is_its_owners_alone(tmp_path):
    """Where we make it: whoever may not look into it sees no times of its files."""
    client(tmp_path / "made", FakeServer(PLAIN), Clock()).close()
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_entries_are_apart(tmp_path):
    """Each entry has its own answer and its own count."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        handle = device.join(PLAIN.id, entries=3)
        handle.record("tea", entry=1)
        handle.record("coffee", entry=2)
        assert [handle.answer(entry) for entry in range(3)] == [None, "tea", "coffee"]


@pytest.mark.parametrize("entry", [-1, 2, 2**63, 2**70, -(2**70), True, 1.0, "1", None])
def test_an_unknown_entry_is_named(tmp_path, entry):
    """The error says which entry was asked for, and which there are; nobody is withdrawn who was not named."""
    named = re.escape(f"got {entry!r}")
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        handle = device.join(PLAIN.id, entries=2, signed=PLAIN.signed_by(AUTHORITY))
        with pytest.raises(ValueError, match=f"0 to 1, {named}"):
            handle.record("tea", entry)
        for ask in (handle.ledger, handle.answer, lambda entry: handle.stratum({}, entry)):
            with pytest.raises(ValueError, match=f"0 to 1, {named}"):
                ask(entry)
        if type(entry) is int:
            handle.leave(entry)
        else:
            with pytest.raises(ValueError, match=f"from 0, {named}"):
                handle.leave(entry)
        assert [handle.answer(each) for each in range(2)] == [None, None]


def test_an_unknown_answer_is_refused_and_not_repeated(tmp_path):
    """The error lists the survey's answers and holds nothing of what was passed; nothing is recorded."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        handle = device.join(PLAIN.id)
        with pytest.raises(ValueError, match=r"tea.*coffee.*neither") as error:
            handle.record("cocoa")
        assert "cocoa" not in repr(error.value)
        assert error.value.__cause__ is None
        assert handle.answer() is None


def frozen_after(tmp_path, constraint, moments):
    """What becomes of alternating answers at these seconds, which one stands once the server has told the time, and
    the inputs reported afterwards."""
    asked = PLAIN.asking(constraint=constraint, epsilon_micro=10**9)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        became = []
        for turn, moment in enumerate(moments):
            clock.now = START + moment
            became.append(handle.record(("tea", "coffee")[turn % 2]))
        clock.now += 20
        device.flush()
        stands = handle.answer()
        clock.now = LATE
        device.flush()
    return became, stands, by_node(server)


C, F, P = Recorded.COUNTED, Recorded.FROZEN, Recorded.PENDING


def test_at_most_k_freezes_after_the_kth_mutation(tmp_path):
    """The third mutation of at-most-2 changes nothing, on the device or in any report."""
    became, stands, inputs = frozen_after(tmp_path, AtMost(2), [10, 70, 130, 190, 250])
    assert became == [C, C, F, Recorded.UNCHANGED, F]
    assert stands == "coffee"
    assert {node for node, true in inputs.items() if true} == {(0, 1), (1, 2), (0, 2), (0, 4)}


def test_time_bounded_freezes_when_the_time_since_the_insertion_is_over(tmp_path):
    """Mutations count until B seconds after the first, that moment included, however many there are. Later ones wait
    until the time is certain, and are frozen then."""
    became, stands, inputs = frozen_after(tmp_path, TimeBounded(100), [10, 20, 30, 40, 110, 111, 400])
    assert became == [C, C, C, C, C, P, P]
    assert stands == "tea"
    assert {node for node, true in inputs.items() if true} == {(0, 1), (1, 2), (0, 2), (0, 4)}


def test_a_hybrid_constraint_freezes_when_no_class_admits_more(tmp_path):
    """An entry may mutate while one of the classes allows it."""
    constraint = Hybrid((AtMost(2), TimeBounded(100)))
    assert frozen_after(tmp_path, constraint, [10, 400, 401])[:2] == ([C, C, P], "coffee")
    assert frozen_after(tmp_path / "fast", constraint, [10, 20, 30, 110, 111])[:2] == ([C, C, C, C, P], "coffee")


def test_the_count_outlives_the_process(tmp_path):
    """Opening the store again does not renew what the constraint allows."""
    server, clock = FakeServer(PLAIN), Clock()
    became = []
    for turn in range(5):
        with client(tmp_path, server, clock) as device:
            became.append(device.join(PLAIN.id).record(("tea", "coffee")[turn % 2]))
    assert became == [C, C, C, F, Recorded.UNCHANGED]


def test_a_record_after_the_calendar_changes_nothing(tmp_path):
    """No node can hold it, so the entry stays in the state that was reported, once the time is certain."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        handle.record("tea")
        clock.now = PLAIN.calendar.time(8) + 1
        assert handle.record("coffee") is P
        device.flush()
        assert handle.answer() == "tea"
        clock.now = LATE
        device.flush()
    assert {node for node, true in by_node(server).items() if true} == {(0, 1), (0, 2), (0, 4)}


def test_a_record_after_the_last_node_changes_nothing(tmp_path):
    """Though the calendar goes on, and that node is not yet answered: the entry's answer is the one it will report."""
    asked = survey(hierarchical(3, 6, (2,), ODDS), grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        handle.record("tea")
        clock.now = START + 361
        assert handle.record("coffee") is P
        device.flush()
        assert handle.answer() == "tea"


@pytest.mark.parametrize("last", [8, 6])
def test_when_a_survey_has_ended_all_that_it_knew_of_the_entry_goes(tmp_path, last):
    """The answer, the mutations and when the first was, slots, delay and nodes drawn, with the last closing; what waits
    stays. Then nothing is kept, wherever the clock steps and whoever starts again, and what it cost still counts."""
    joint = Joint(Odds(9, 1), 2, (1, 1), (3, 3))
    states = Track(1, KaryResponse(StateSpace(3), ODDS), 0, last, reported=3)
    changes = Track(2, KaryChange(MutationSpace(3), ODDS), 0, last)
    asked = survey(ReleasePlan((Group.jointly((states, changes), joint),)), grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        handle.record("tea")
        clock.now = START + 60 * last - 30
        device.flush()
        handle.record("coffee")
        server.reply = lambda _: httpx.Response(503)
        clock.now = START + 60 * last + 20
        assert device.flush().waiting == 1
        assert handle.ledger().waiting == 1
        for moment in (0, 30, 60 * last + 30, 481, 10**6, 90):
            clock.now = START + moment
            assert handle.answer() is None
            assert handle.record("tea") is F
            assert handle.retract() is F
            device.flush()
            ((entry, drawn),) = stored(device, asked.id)
            assert drawn == frozenset()
            assert (entry.slots, entry.mutations, entry.first_s, entry.delay_ms) == (None, 0, None, 0)
            assert (entry.states, entry.pending) == ((), ())
        server.reply = lambda _: None
        assert device.flush().sent == 1
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        assert handle.record("tea") is F
        assert handle.answer() is None
        assert device.ledger().spent == asked.epsilon
        assert (handle.ledger().answered_period, handle.ledger().waiting) == (last, 0)
    assert len({(report.track, report.node) for report, _, _ in server.reports()}) == 3 + last // 2


def test_nobody_joins_when_nothing_is_left_to_answer(tmp_path):
    """Though the calendar goes on: an entry would be charged for nothing."""
    asked = survey(hierarchical(3, 6, (1,), ODDS), grace=10**6)
    with client(tmp_path, FakeServer(asked), Clock(START + 361)) as device:
        with pytest.raises(EnrolmentOver):
            device.join(asked.id)
        assert device.ledger().spent == 0


def test_a_clock_that_goes_back_writes_nothing_into_an_answered_node(tmp_path):
    """After period 3 was answered a record made 'in period 1' falls into period 4."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        clock.now = START + 3 * 60 + 20
        device.flush()
        clock.now = START + 30
        handle.record("tea")
        clock.now = LATE
        device.flush()
    assert {node for node, true in by_node(server).items() if true} == {(3, 4), (2, 4), (0, 4)}


def test_a_clock_that_goes_back_writes_nothing_before_what_a_flush_saw(tmp_path):
    """A closed node that is not yet answered is not written into either, nor the order of mutations turned."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        clock.now = START + 121
        device.flush()
        assert handle.ledger().answered_period == 1
        clock.now = START + 150
        handle.record("tea")
        clock.now = START + 30
        handle.record("coffee")
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        assert handle.answer() == "coffee"
        clock.now = LATE
        device.flush()
    assert {node for node, true in by_node(server).items() if true} == {(2, 3), (2, 4), (0, 4)}


def test_a_clock_that_goes_back_answers_nothing_again(tmp_path):
    """Flushing at every time of a wild clock answers every node once."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        for period in (3, 1, 5, 2, 0, 8, 4, 9):
            clock.now = START + 60 * period + 20
            device.flush()
    assert len(by_node(server)) == 8 + 4 + 2


def test_nothing_that_is_printed_or_logged_holds_an_answer_or_a_report(tmp_path, caplog):
    """Objects, results and log lines at every level hold no answer, no state, no count and no closing's id."""
    caplog.set_level(0)
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        handle.record("coffee")
        device.join(b"unknown survey..", signed=None).record("1")
        ((entry, _),), ((waiting, _),) = stored(device, PLAIN.id), stored(device, b"unknown survey..")
        clock.now = LATE
        printed = [repr(device), repr(handle), repr(handle.ledger()), repr(device.flush()), caplog.text]
    ids = [closing.id for closing in server.closings()]
    assert len(ids) == 8
    for text in printed:
        assert not [word for id_ in ids for word in ("coffee", repr(id_), id_.hex()) if word in text]
    for kept in (entry, SlotState((1, 2), 3), *waiting.pending):
        assert not any(digit in repr(kept).split("0x")[0] for digit in "0123456789")
