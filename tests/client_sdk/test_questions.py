"""Several questions and numbers on a device: what is recorded of each, what is sent, and what is left."""

from collections.abc import Sequence
from math import inf, nan

import pytest
from changeling_client import BadEnrolment, Recorded
from changeling_client.testing import stored
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)

from tests.coins import SeededCoins

from .device import LATE, START, URL, Clock, FakeServer, client

ANY = Odds(2, 1)
DRINK = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(2))
LEVELS = Question.of_number("minutes", "How long?", ["0", "10", "30"], AtMost(3), "min")


def asking(questions: Sequence[Question], *groups: Group, periods: int = 2, closed: bool = False, **times) -> Survey:
    return Survey.at_cost(
        questions=tuple(questions),
        plan=ReleasePlan(groups),
        calendar=Calendar(START, 60, periods),
        closed=closed,
        **{"skew": 5, "spread": 10, "grace": 600, "minimum": 1, **times},
    )


def asked(*, joint: bool = False) -> Survey:
    questions = (DRINK, LEVELS)
    tracks = tuple(
        Track(1, KaryChange(MutationSpace(len(each.answers)), Odds(10**9, 1)), 0, 4, question=place)
        for place, each in enumerate(questions)
    )
    group = Group.jointly(tracks, Joint(Odds(99, 1), 2, (1, 1), (2, 3))) if joint else Group(tracks)
    return asking(questions, group, periods=4)


def test_after_the_end_a_record_of_any_question_changes_nothing_and_no_count_of_numbers_is_left(joined):
    """Nor while the last answers wait to be sent: it is FROZEN, and no answer is known."""
    made = asked()
    handle, device, server, _ = joined(made)
    minutes = handle.question("minutes")
    minutes.record(500)
    assert handle.ledger().clipped == 1
    server.refused = [[at, "unknown-key"] for at in range(64)]
    assert device.at(LATE).flush().waiting
    for ended in (False, True):
        assert [minutes.record(600), minutes.retract(), handle.question("drink").record("tea")] == [
            *[Recorded.FROZEN] * 3
        ]
        assert (minutes.answer(), handle.question("drink").answer(), handle.ledger().clipped) == (None, None, 0)
        ((entry, _),) = stored(device, made.id)
        assert not any((entry.clipped, *(part for each in entry.held for part in each)))
        server.refused = []
        assert ended or device.flush().waiting == 0


def test_what_is_beyond_the_levels_is_clipped_and_counted_once(joined):
    """What stands: once, however long it waited to be judged, and not when it is frozen; the ledger says how often,
    and which offset is public."""
    handle, device, *_ = joined(asked(), signed=None)
    minutes = handle.question("minutes")
    minutes.record(500)
    device.flush()
    assert handle.ledger().clipped == 1
    assert [minutes.record(number) for number in (-1, 12)] == [Recorded.COUNTED] * 2
    assert handle.ledger().clipped == 2
    assert minutes.record(-1) is Recorded.FROZEN
    ledger = handle.ledger()
    assert ledger.clipped == 2
    assert "beyond the levels, taken for the first or the last one: 2" in str(ledger)
    assert ledger.public["offset"] in {f"{2 * at + 1}/{2 * OFFSETS}" for at in range(OFFSETS)}


def test_an_entry_with_more_than_255_changes_goes_on_to_report_as_any_other(tmp_path):
    """Also where each has a slot of a joint group; else the silence would tell how often an answer changed."""
    periods = 264
    group = Group.jointly(
        [Track(1, KaryChange(MutationSpace(2), ANY), 0, periods)], Joint(Odds(9, 1), 99, (1,), (periods,))
    )
    question = Question("q", "Which?", ("tea", "coffee"), AtMost(periods))
    made = asking([question], group, periods=periods, skew=1, spread=1, grace=10**6)
    clock, server = Clock(), FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        for period in range(1, periods + 1):
            clock.now = made.calendar.time(period) - 30
            handle.record(made.answers[period % 2])
            if period in (200, 258, 262):
                assert device.at(made.calendar.time(period) + 3).flush().waiting == 0
                ((entry, _),) = stored(device, made.id)
                assert entry.slots.used == (period,)
    assert len(server.closings()) == 262


@pytest.mark.parametrize("behind", [0, 10], ids=["a clock alike", "the server's is behind"])
def test_what_happens_between_two_requests_and_before_hanging_up_hangs_on_no_record(tmp_path, monkeypatch, behind):
    """A flush that answers nothing does the same on the disk while a server can see how long it takes, whether or not
    the app has recorded since the last one: the past is erased after the connection has ended."""
    made, seen = asked(), []
    for records in (False, True):
        (folder := tmp_path / str(records)).mkdir()
        clock, server, done = Clock(), FakeServer(made), []

        def hear(request, done=done):
            done.append(request.url.path)

        with client(folder, server, clock) as device:
            handle = device.join(made.id)
            handle.question("drink").record("tea")
            clock.now = START + 77 + behind
            server.reply, server.refused = hear, [[0, "unknown-survey"]]
            server.clock = lambda clock=clock: clock.now - behind
            assert device.flush().waiting == 1
            clock.now += 20
            if records:
                handle.question("drink").record("coffee")
            done.clear()
            device.store._connection.set_trace_callback(lambda each, done=done: done.append(each.split("(")[0][:20]))
            line = device._device._servers.at(URL)._exchanges
            monkeypatch.setattr(line, "hang_up", lambda done=done: done.append("hung up"))
            device.flush()
        assert "VACUUM" not in done[: done.index("hung up")]
        seen.append(done[: done.index("hung up")])
    assert seen[0] == seen[1]


def test_whether_a_closed_cohort_takes_an_entry_does_not_hang_on_the_group_that_it_draws(tmp_path):
    """Who has no answer to one of the questions is refused, also by chance of a group that does not ask it: who asks
    again would else be in that group more often than not."""
    first, second = (
        Group((Track(1, KaryResponse(StateSpace(2, null=False), ANY), 0, 2, question=place),)) for place in (0, 1)
    )
    questions = tuple(Question(name, "?", ("tea", "coffee"), AtMost(2)) for name in ("x", "y"))
    made = asking(questions, first, second, closed=True)
    groups = set()
    for seed in range(8):
        (folder := tmp_path / str(seed)).mkdir()
        with client(folder, FakeServer(made), Clock(START + 1), SeededCoins(seed)) as device:
            for few in ({"x": "tea"}, {"y": "coffee"}):
                with pytest.raises(BadEnrolment):
                    device.join(made.id, answers=[few])
            device.join(made.id, answers=[{"x": "tea", "y": "coffee"}])
            groups.add(stored(device, made.id)[0][0].group)
    assert groups == {0, 1}


def test_half_a_pair_of_surrogates_is_a_wrong_answer_before_the_survey_is_known_too(tmp_path):
    """It cannot be kept: an error of the store's would stop the app, and what Python raises holds the answer."""
    made = asked()
    for strict in (True, False):
        with client(tmp_path, FakeServer(made), Clock(), strict=strict) as device:
            drink = device.join(made.id, signed=None).question("drink")
            if strict:
                with pytest.raises(ValueError, match="an answer is a text") as raised:
                    drink.record("tea\ud800")
                assert raised.value.__context__ is None
            else:
                assert drink.record("tea\ud800") is Recorded.DROPPED


def test_two_hundred_questions_are_answered_in_one_report_each(joined):
    """Every entry is asked all of them, at two widths: the tracks are more than a byte can number."""
    space, asked = MutationSpace(2), [Question(f"q{place}", "Which?", ("a", "b"), AtMost(2)) for place in range(200)]
    tracks = [Track(w, KaryChange(space, Odds(3, 2)), 0, 2, question=q) for q in range(200) for w in (1, 2)]
    handle, device, server, _ = joined(asking(asked, Group(tuple(tracks))))
    assert {handle.question(each.name).record("b") for each in asked} == {Recorded.COUNTED}
    assert device.at(START + 150).flush().sent == 2
    assert sorted(report.track for report, node, _ in server.reports() if node.end == 2) == list(range(400))


def test_each_question_is_recorded_by_its_name_and_bounded_by_its_own_constraint(joined):
    """What is used up of one is not of another; reports are of the question's answers."""
    made = asked()
    handle, device, server, _ = joined(made)
    drink, minutes = handle.question("drink"), handle.question("minutes")
    assert [drink.record(each) for each in ("tea", "coffee", "tea")] == [
        *[Recorded.COUNTED] * 2,
        Recorded.FROZEN,
    ]
    assert [minutes.record(each) for each in (0.1, 29.9, 0.1, 29.9)] == [*[Recorded.COUNTED] * 3, Recorded.FROZEN]
    assert (drink.answer(), minutes.answer()) == ("coffee", "0 min")
    device.at(LATE).flush()
    spaces = [track.randomizer.space for track in made.plan.tracks]
    told = {(report.track, true) for report, node, true in server.reports() if node.start == 0}
    assert told == {(0, spaces[0].index(0, 2)), (1, spaces[1].index(0, 1))}


@pytest.mark.parametrize("known", [True, False], ids=["joined", "not known yet"])
def test_a_number_is_a_finite_number_and_an_answer_is_of_its_question(begin, known):
    """Anything else is a plain error where the app is strict, and is not kept; so is a question that is not named."""
    made = asked()
    device = begin(made, strict=True).device
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
