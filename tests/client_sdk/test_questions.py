"""Several questions on one device: recorded by name, bounded each by its own constraint, and silent about which."""

from math import inf, nan

import pytest
from changeling_client import Recorded
from changeling_client.testing import FakeServer as Published
from changeling_client.testing import ManualClock, make_client, stored
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    Survey,
    Track,
)

from .device import LATE, START, Clock, FakeServer, client

DRINK = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(2))
MINUTES = Question.of_number("minutes", "How long?", ["0", "10", "30"], AtMost(3), "min")


def asked(*, joint: bool = False) -> Survey:
    questions = (DRINK, MINUTES)
    tracks = tuple(
        Track(1, KaryChange(MutationSpace(len(each.answers)), Odds(10**9, 1)), 0, 4, question=place)
        for place, each in enumerate(questions)
    )
    group = Group.jointly(tracks, Joint(Odds(99, 1), 2, (1, 1), (2, 3))) if joint else Group(tracks)
    others = {"skew": 5, "spread": 10, "grace": 600, "minimum": 1}
    return Survey.at_cost(questions=questions, plan=ReleasePlan((group,)), calendar=Calendar(START, 60, 4), **others)


def test_two_hundred_questions_are_answered_in_one_report_each(tmp_path):
    """Every entry is asked all of them, at two widths: the tracks are more than a byte can number."""
    space, asked = MutationSpace(2), [Question(f"q{place}", "Which?", ("a", "b"), AtMost(2)) for place in range(200)]
    tracks = [Track(w, KaryChange(space, Odds(3, 2)), 0, 2, question=q) for q in range(200) for w in (1, 2)]
    others = {"skew": 5, "spread": 10, "grace": 600, "minimum": 1}
    plan, calendar = ReleasePlan((Group(tuple(tracks)),)), Calendar(START, 60, 2)
    survey = Survey.at_cost(questions=tuple(asked), plan=plan, calendar=calendar, **others)
    clock = ManualClock(START + 1.0)
    server = Published(clock)
    with make_client(tmp_path, server) as device:
        handle = device.join(server.publish(survey), signed=server.signed(survey))
        assert {handle.question(each.name).record("b") for each in asked} == {Recorded.COUNTED}
        clock.advance(seconds=150)
        assert device.flush().sent == 2
    assert sorted(report.track for report in server.reports if report.node.end == 2) == list(range(400))


def test_each_question_is_recorded_by_its_name_and_bounded_by_its_own_constraint(tmp_path):
    """What is used up of one is not of another; reports are of the question's answers."""
    made, clock = asked(), Clock()
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        drink, minutes = handle.question("drink"), handle.question("minutes")
        assert [drink.record(each) for each in ("tea", "coffee", "tea")] == [
            *[Recorded.COUNTED] * 2,
            Recorded.FROZEN,
        ]
        assert [minutes.record(each) for each in (0.1, 29.9, 0.1, 29.9)] == [*[Recorded.COUNTED] * 3, Recorded.FROZEN]
        assert (drink.answer(), minutes.answer()) == ("coffee", "0 min")
        clock.now = LATE
        device.flush()
    spaces = [track.randomizer.space for track in made.plan.tracks]
    told = {(report.track, true) for report, node, true in server.reports() if node.start == 0}
    assert told == {(0, spaces[0].index(0, 2)), (1, spaces[1].index(0, 1))}


@pytest.mark.parametrize("known", [True, False], ids=["joined", "not known yet"])
def test_a_number_is_a_finite_number_and_an_answer_is_of_its_question(tmp_path, known):
    """Anything else is a plain error where the app is strict, and is not kept; so is a question that is not named."""
    made = asked()
    with client(tmp_path, FakeServer(made), Clock(), strict=True) as device:
        handle = device.join(made.id, **({} if known else {"signed": None}))
        minutes = handle.question("minutes")
        for wrong in (nan, inf, -inf, True, [], 10**400):
            with pytest.raises(ValueError, match=r"finite number|takes a number|an answer is"):
                minutes.record(wrong)
        if known:
            for name, wrong in (("minutes", "10"), ("drink", "milk"), ("drink", 1.0), ("", "tea"), ("food", "tea")):
                with pytest.raises(ValueError, match=r"question|answer|number"):
                    handle.question(name).record(wrong)
        assert minutes.answer() is None


def test_what_is_beyond_the_levels_is_clipped_and_counted(tmp_path):
    """The ledger says how often, and which offset is public."""
    made = asked()
    with client(tmp_path, FakeServer(made), Clock()) as device:
        handle = device.join(made.id)
        minutes = handle.question("minutes")
        for number in (-5, 400, 12):
            minutes.record(number)
        ledger = handle.ledger()
        assert ledger is not None
        assert ledger.clipped == 2
        assert "beyond the levels, taken for the first or the last one: 2" in str(ledger)
        assert ledger.public["offset"] in {f"{2 * at + 1}/{2 * OFFSETS}" for at in range(OFFSETS)}


def test_the_offset_is_drawn_once_and_a_store_that_was_put_back_has_the_same(tmp_path):
    """Of 64 entries not all have one offset; each has the one it drew when the store is opened again."""
    made = asked()
    with client(tmp_path, FakeServer(made), Clock()) as device:
        device.join(made.id, entries=64)
        before = [entry.stratum for entry, _ in stored(device, made.id)]
    assert len(set(before)) > 1
    assert set(before) <= set(range(OFFSETS))
    with client(tmp_path, FakeServer(made), Clock()) as device:
        device.join(made.id, entries=64).question("minutes").record(12)
        assert [entry.stratum for entry, _ in stored(device, made.id)] == before


@pytest.mark.parametrize("key", [None, b"K" * 32], ids=["plain", "key"])
def test_whichever_question_is_answered_and_whether_a_number_moved_the_same_is_written(tmp_path, key):
    """The same statements in the same order, and as many bytes of the log."""
    made, done = asked(joint=True), []
    with client(tmp_path, FakeServer(made), Clock(), key=key) as device:
        handle = device.join(made.id)
        handle.question("drink").record("coffee")
        connection, log = device.store._connection, tmp_path / "store.db-wal"
        for name, answer in (("drink", "tea"), ("minutes", 0), ("minutes", 30), ("drink", "tea"), ("minutes", 30)):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            statements: list[str] = []
            connection.set_trace_callback(statements.append)
            handle.question(name).record(answer)
            connection.set_trace_callback(None)
            done.append(([each.split("(")[0].split("=")[0] for each in statements], log.stat().st_size))
    assert done[0][1] > 0
    assert all(each == done[0] for each in done)
