"""The first launch without a network: answers are kept before the survey is known, and judged once it is."""

from dataclasses import replace

import httpx
import pytest
from changeling_client import BadSurvey, EnrolmentOver, Recorded, Status, TooCostly
from changeling_protocol import Group, MutationSpace, ReleasePlan, Survey, TimeBounded
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .device import LATE, PLAIN, START, Clock, FakeServer, all_nodes, by_node, client

CHANGES = MutationSpace(3)
YEAR = 365 * 86_400
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


def out_of_reach(_request):
    raise httpx.ConnectError("no network")


def on_disk(path):
    return b"".join(file.read_bytes() for file in path.iterdir())


def test_what_was_recorded_before_the_survey_was_known_is_what_is_reported(tmp_path):
    """No network for five periods, the app started anew in each: nothing raises, nothing is lost, no call asks anybody;
    and once the survey comes, in the middle of a period, each node holds the change that was made in it."""
    server, clock, told = FakeServer(PLAIN), Clock(), []
    server.reply = out_of_reach
    for period, answer in ((0.5, "tea"), (2.5, "coffee"), (4.2, None)):
        clock.now = START + 60 * period
        with client(tmp_path, server, clock, on_error=told.append) as device:
            handle = device.join(PLAIN.id, signed=None)
            before = len(server.requests)
            assert (handle.record(answer) if answer else handle.retract()) is Recorded.PENDING
            assert (handle.record(answer) if answer else handle.retract()) is Recorded.UNCHANGED
            assert handle.answer() == answer
            assert (handle.status, handle.survey, handle.ledger()) == (Status.ASKED, None, None)
            assert len(server.requests) == before
            assert "ConnectError" in device.flush().trouble
    with client(tmp_path, server, clock, on_error=told.append) as device:
        handle = device.join(PLAIN.id, signed=None)
        server.reply = lambda _: None
        assert device.at(START + 60 * 4.6).flush().trouble is None
        assert (handle.status, handle.answer()) == (Status.JOINED, None)
        assert [handle.record(answer) for answer in ("neither", "tea")] == [Recorded.FROZEN] * 2
        device.at(LATE).flush()
    moves = {(0, 1): (0, 1), (2, 3): (1, 2), (4, 5): (2, 0), (0, 2): (0, 1), (2, 4): (1, 2), (4, 6): (2, 0),
             (0, 4): (0, 2), (4, 8): (2, 0)}  # fmt: skip
    assert by_node(server) == {node: CHANGES.index(*moves.get(node, (0, 0))) for node in all_nodes(PLAIN)}
    assert told == []


def test_in_a_period_that_straddles_the_arrival_the_records_before_and_after_it_count_together(joined):
    """The first is a mutation too, and the last one is what the period's node holds."""
    handle, device, server, clock = joined(PLAIN, signed=None, now=START + 130)
    assert handle.record("tea") is Recorded.PENDING
    device.flush()
    clock.now = START + 150
    assert [handle.record("coffee"), handle.record("neither"), handle.record("tea")] == [
        Recorded.COUNTED,
        Recorded.COUNTED,
        Recorded.FROZEN,
    ]
    device.at(LATE).flush()
    inputs = by_node(server)
    assert set(inputs) == {node for node in all_nodes(PLAIN) if node[1] >= 3}
    assert {node: true for node, true in inputs.items() if true} == dict.fromkeys(
        [(2, 3), (2, 4), (0, 4)], CHANGES.index(0, 3)
    )


def test_an_entry_takes_part_from_when_the_app_asked(joined):
    """Not from when the survey came: what closed in between is answered as well, late."""
    _, device, server, clock = joined(PLAIN, signed=None, now=START + 70)
    server.reply = out_of_reach
    clock.now = START + 60 * 5 + 20
    server.reply = lambda _: None
    device.flush()
    assert {node for node in by_node(server) if node[1] - node[0] == 1} == {(1, 2), (2, 3), (3, 4), (4, 5)}


ENDED = START + 60 * 8 + 1
REFUSALS = {
    "too costly": (TooCostly, {"max_epsilon": 0.5}, START),
    "signed by a stranger": (BadSurvey, {}, START),
    "ended": (EnrolmentOver, {}, ENDED),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_of_a_survey_that_is_refused_no_answer_is_left(tmp_path, name):
    """The handle says that it is refused and why, `on_error` is told once, later records are dropped and counted, and
    no byte of the answers that waited is left in any file."""
    error, options, begins = REFUSALS[name]
    server, clock, told = FakeServer(PLAIN), Clock(begins), []
    if error is BadSurvey:
        server.signed[PLAIN.id.hex()] = PLAIN.signed_by(STRANGER)
    with client(tmp_path, server, clock, on_error=told.append, **options) as device:
        handle = device.join(PLAIN.id, signed=None)
        for answer in ("an answer of forty letters or thereabouts", "coffee", "tea"):
            assert handle.record(answer) is Recorded.PENDING
        assert b"an answer of forty letters" in on_disk(tmp_path)
        for _ in range(2):
            device.flush()
        assert [type(each) for each in told] == [error]
        assert handle.status is Status.REFUSED
        assert handle.reason == f"{error.__name__}: {told[0]}"
        assert (handle.answer(), handle.survey) == (None, None)
        assert handle.record("tea") is Recorded.DROPPED
        assert device.ledger().drops == {"not-taking-part": 1}
        content = on_disk(tmp_path)
        assert not [word for word in (b"forty letters", b"coffee", b"tea") if word in content]


def test_once_the_survey_is_known_the_words_and_times_of_what_waited_are_gone(tmp_path, joined):
    """What stays of them is what open nodes need."""
    handle, device, _, clock = joined(PLAIN, signed=None, now=START + 1)
    handle.record("no answer of the survey, so nowhere in it")
    clock.now = START + 17.123
    handle.record("tea")
    moment = int(1000 * clock.now).to_bytes(8)
    assert moment in on_disk(tmp_path)
    device.at(START + 18).flush()
    content = on_disk(tmp_path)
    assert moment not in content
    assert b"so nowhere in it" not in content
    assert handle.answer() == "tea"


@pytest.mark.parametrize("strict", [True, False])
def test_wrong_answers_that_waited_are_drops_that_are_counted(begin, strict):
    """Nobody could know them for wrong when they were recorded; the right ones around them count."""
    device = begin(PLAIN, strict=strict).device
    handle = device.join(PLAIN.id, entries=2, signed=None, answers=["cocoa", "tea"])
    for answer in ("tea", "milk", "coffee", "beer"):
        assert handle.record(answer) is Recorded.PENDING
    device.flush()
    assert device.ledger().drops == {"wrong-answer": 3}
    assert [handle.answer(0), handle.answer(1)] == ["coffee", "tea"]
    assert [handle.record("neither"), handle.record("tea")] == [Recorded.COUNTED, Recorded.FROZEN]


@pytest.mark.parametrize("wrong", [True, b"tea", "x" * 1_001], ids=["a truth", "bytes", "too long"])
def test_what_no_survey_could_have_as_an_answer_is_not_kept(tmp_path, wrong):
    """A ValueError that does not repeat it of a strict client, else a counted drop; so with an unknown entry."""
    for strict in (True, False):
        with client(tmp_path / str(strict), FakeServer(), Clock(), strict=strict) as device:
            handle = device.join(PLAIN.id, signed=None)
            if strict:
                with pytest.raises(ValueError, match="a text of the survey's"):
                    handle.record(wrong)
                with pytest.raises(ValueError, match="numbered 0 to 0, got 1"):
                    handle.record("tea", 1)
            else:
                assert [handle.record(wrong), handle.record("tea", 1)] == [Recorded.DROPPED] * 2
            assert device.ledger().drops == ({} if strict else {"wrong-answer": 2})
            assert handle.answer() is None


def test_before_the_survey_is_known_each_question_keeps_its_newest_answer_however_many_wait(tmp_path, begin):
    """One question's many records crowd out none of another, nor of one that is answered when no room is left; and they
    leave a small file."""
    questions = tuple(replace(PLAIN.questions[0], name=name) for name in ("drink", "meal", "snack"))
    plan = ReleasePlan(
        (Group(tuple(replace(PLAIN.plan.tracks[0], question=place) for place in range(len(questions)))),)
    )
    asked = Survey.at_cost(
        questions=questions, plan=plan, calendar=PLAIN.calendar, skew=5, spread=10, grace=10**6, minimum=1
    )
    device = begin(asked).device
    handle = device.join(asked.id, signed=None)
    handle.question("meal").record("coffee")
    for number in range(300):
        handle.question("drink").record(("tea", "coffee")[number % 2])
    for answer in ("tea", "neither"):
        handle.question("snack").record(answer)
    handle.question("drink").record("neither")
    newest = {"drink": "neither", "meal": "coffee", "snack": "neither"}
    assert {name: handle.question(name).answer() for name in newest} == newest
    assert device.flush().trouble is None
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 200_000
    del newest["drink"]  # its constraint froze it long before
    assert {name: handle.question(name).answer() for name in newest} == newest


@pytest.mark.parametrize("bundled", [False, True])
def test_a_clock_that_is_a_year_ahead_before_the_survey_is_known_loses_nothing(tmp_path, bundled):
    """Neither if the server gives the survey but tells no time: then it is asked again. What was recorded by the wrong
    clock counts as recorded now."""
    asked = PLAIN.asking(constraint=TimeBounded(100), epsilon_micro=10**9)
    server, clock, told = FakeServer(asked), Clock(START + 1), []
    server.reply = out_of_reach
    with client(tmp_path, server, clock, on_error=told.append) as device:
        handle = device.join(asked.id, signed=None)
        assert handle.record("tea") is Recorded.PENDING
        device.at(START + YEAR).flush()
        assert handle.record("coffee") is Recorded.PENDING
        server.reply, server.headers = lambda _: None, {}
        if bundled:
            device.join(asked.id)
        else:
            assert device.flush().trouble == "the server told no time"
            assert handle.status is Status.ASKED
        clock.now, server.headers = START + 80, None
        device.flush()
        assert (handle.status, handle.answer(), told) == (Status.JOINED, "coffee", [])
        device.at(LATE).flush()
    moved = {node: true for node, true in by_node(server).items() if true and node[1] - node[0] == 1}
    assert moved == {(0, 1): CHANGES.index(0, 1), (1, 2): CHANGES.index(1, 2)}


def test_a_flush_for_which_there_is_nothing_to_do_writes_little(tmp_path, joined):
    """However many entries a store has, it is rewritten only after something of answers was overwritten or sent."""
    handle, device, *_ = joined(PLAIN, entries=1000, now=START + 1)
    device.at(START + 80).flush()
    device.flush()

    def written():
        with device.store.transaction() as db:
            db.execute("PRAGMA wal_autocheckpoint = 0")
        before = file.stat().st_mtime_ns
        device.flush()
        return file.stat().st_mtime_ns != before, log.stat().st_size

    file, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    assert written() == (False, log.stat().st_size)
    assert log.stat().st_size < 65_536 < file.stat().st_size
    handle.record("coffee")
    assert written() == (True, 0), "what was recorded has overwritten the answer before"
