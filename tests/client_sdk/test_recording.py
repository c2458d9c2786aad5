"""Recording: durable, stamped forwards, silent about answers, and held to the constraint; of several questions, and of
numbers."""

import os
import re
import signal
from functools import partial
from math import inf, nan
from traceback import format_exception

import pytest
from changeling_client import BadEnrolment, EnrolmentOver, Recorded, Status
from changeling_client.testing import make_survey, stored
from changeling_protocol import (
    OFFSETS,
    AtMost,
    AtMostWithin,
    Group,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    SlotState,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
)

from tests.coins import SeededCoins

from ..protocol.examples import hierarchical, survey
from .device import LATE, PLAIN, START, TRUTHFUL, all_nodes, answering, asking, by_node, client, ended, forked, written

ODDS = Odds(3, 1)
DRINK = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(2))
LEVELS = Question.of_number("minutes", "How long?", ["0", "10", "30"], AtMost(3), "min")


def asked(*, joint: bool = False) -> Survey:
    """Asks for a drink and for a number."""
    questions = (DRINK, LEVELS)
    tracks = tuple(
        Track(1, KaryChange(MutationSpace(len(each.answers)), Odds(10**9, 1)), 0, 4, question=place)
        for place, each in enumerate(questions)
    )
    group = Group.jointly(tracks, Joint(Odds(99, 1), 2, (1, 1), (2, 3))) if joint else Group(tracks)
    return asking(group, questions=questions, periods=4, grace=600)


def test_a_record_survives_sigkill_right_after_it_returns(tmp_path, joined):
    """Of 20 processes killed by SIGKILL as record() returns, none loses its answer."""
    handle, _, server, clock = joined(PLAIN, entries=20)

    def killed(entry):
        client(tmp_path, server, clock).join(PLAIN.id).record("coffee", entry)
        os.kill(os.getpid(), signal.SIGKILL)

    for entry in range(20):
        assert ended(forked(lambda: killed(entry))) == -signal.SIGKILL  # noqa: B023
    assert [handle.answer(entry) for entry in range(20)] == ["coffee"] * 20


SAME = ("tea", "coffee", "coffee", "tea", "tea", None, None, "tea")
CALLS = {
    "joined": (PLAIN, {}, [("", each) for each in SAME]),
    "not known yet": (PLAIN, {"signed": None}, [("", each) for each in SAME]),
    "questions": (asked(joint=True), {}, [("drink", "tea"), ("minutes", 0), ("minutes", 30), ("drink", "tea")]),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("key", [None, b"K" * 32], ids=["plain", "key"])
def test_a_change_and_none_do_the_same_to_the_disk(joined, name, key):
    """The same statements in the same order, and as many bytes of the log, whichever question is answered and whether a
    number moved: nobody who times a call, or looks at the files' sizes and times, sees whether it was another one."""
    made, options, calls = CALLS[name]
    handle, device, *_ = joined(made, key=key, **options)
    done = []
    for question, answer in (calls[0], *calls):
        asked = handle.question(question) if question else handle
        done.append(written(device, lambda: asked.retract() if answer is None else asked.record(answer)))  # noqa: B023
    assert done[1][1] > 0
    assert all(each == done[1] for each in done[1:])


def test_an_unknown_entry_is_named(joined):
    """The error says which entry was asked for, and which there are; nobody is withdrawn who was not named."""
    handle, device, *_ = joined(PLAIN, entries=2)
    with pytest.raises(ValueError, match="`retract`"):
        handle.record(None)
    unheard = device.join(b"unknown survey..", entries=2, signed=None)
    for entry in (-1, 2, 2**63, 2**70, -(2**70), True, 1.0, "1", None):
        named = re.escape(f"got {entry!r}")
        recording = (partial(each.record, "tea") for each in (handle, unheard))
        for ask in (*recording, handle.ledger, handle.answer, handle.leave):
            with pytest.raises(ValueError, match=f"0 to 1, {named}"):
                ask(entry)
        with pytest.raises(ValueError, match=f"0 to 1, {named}"):
            handle.stratum({}, entry)
    assert [handle.answer(each) for each in range(2)] == [None, None]


NEVER = (nan, inf, -inf, True, [], 10**400, b"tea", "an answer of".ljust(1_001), "an answer of \ud800")
"""No survey could have any of these as an answer."""
WRONG = {
    "an answer that it has not": ("drink", "an answer of forty letters"),
    "a number for an answer": ("drink", 1.0),
    "a text for a number": ("minutes", "an answer of no number"),
    "a question that it has not": ("food", "tea"),
    "no question": ("", "tea"),
    **{f"never {place}": ("minutes", wrong) for place, wrong in enumerate(NEVER)},
}


@pytest.mark.parametrize("known", [True, False], ids=["joined", "not known yet"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_and_not_repeated(begin, name, known):
    """A ValueError of a strict client, in which nothing is of what was passed, else a drop that is counted; as is an
    entry that there is not. Nothing is recorded. What may be an answer of a survey that is not known yet waits, and is
    judged then."""
    (question, wrong), made = WRONG[name], asked()
    waits = not (known or name.startswith("never"))
    for strict in (True, False):
        device = begin(made, folder=f"{strict}", strict=strict).device
        handle = device.join(made.id, **({} if known else {"signed": None})).question(question)
        if waits:
            assert handle.record(wrong) is Recorded.PENDING
            device.flush()
        elif strict:
            with pytest.raises(ValueError, match=r"question|answer|number") as raised:
                handle.record(wrong)
            assert "an answer of" not in "".join(format_exception(raised.value))
        else:
            assert [handle.record(wrong), handle.record("tea", 1)] == [Recorded.DROPPED] * 2
        assert device.ledger().drops.get("wrong-answer", 0) == (1 if waits else 2 * (not strict))
        ((entry, _),) = stored(device, made.id)
        assert entry.pending == ()
        assert {held.mutations for held in entry.held} == {0}


C, F, P = Recorded.COUNTED, Recorded.FROZEN, Recorded.PENDING
FREEZING = {
    "at most k": (AtMost(2), [10, 70, 130, 190, 250], [C, C, F, Recorded.UNCHANGED, F], 2),
    "in time, that moment included": (TimeBounded(100), [10, 20, 30, 40, 110, 111, 400], [C, C, C, C, C, P, P], 2),
    "either class": (Hybrid((AtMost(2), TimeBounded(100))), [10, 400, 401], [C, C, P], 2),
    "either class, fast": (Hybrid((AtMost(2), TimeBounded(100))), [10, 20, 30, 110, 111], [C, C, C, C, P], 2),
    "both, the number": (AtMostWithin(2, 300), [5, 70, 130], [C, C, F], 2),
    "both, the last second": (AtMostWithin(3, 100), [5, 105, 130], [C, C, P], 2),
    "both, a second late": (AtMostWithin(3, 100), [5, 106, 190], [C, P, P], 1),
}


@pytest.mark.parametrize("name", FREEZING)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_constraint_freezes_what_it_does_not_admit(begin, name, restarts):
    """Alternating answers at these seconds, what becomes of each, and in how many periods something changed: on the
    device, once the server has told the time, and in every report. Later ones than it admits wait until the time is
    certain, and are frozen then. Opening the store again does not renew what the constraint allows."""
    constraint, moments, expected, changed = FREEZING[name]
    asked = PLAIN.asking(constraint=constraint, epsilon_micro=10**9)
    (device, server, clock), became = begin(asked), []
    device.join(asked.id)
    for turn, moment in enumerate(moments):
        if restarts:
            device = begin(after=device).device
        clock.now = START + moment
        became.append(device.join(asked.id).record(("tea", "coffee")[turn % 2]))
    device.at(clock.now + 20).flush()
    counted = [("tea", "coffee")[turn % 2] for turn, each in enumerate(became) if each is C]
    stands = device.join(asked.id).answer()
    device.at(LATE).flush()
    assert (became, stands) == (expected, counted[-1])
    inputs = by_node(server)
    assert inputs.keys() == all_nodes(asked)
    assert sum(true != 0 for (start, end), true in inputs.items() if end == start + 1) == changed


@pytest.mark.parametrize("last", [8, 6], ids=["the calendar", "the last node"])
def test_a_record_after_the_end_changes_nothing(begin, last):
    """No node can hold it, though the calendar goes on perhaps and the last node is not yet answered: so the entry
    stays in the state that is reported, once the time is certain. Nobody joins then, to be charged for nothing."""
    asked = survey(hierarchical(3, last, (1, 2), TRUTHFUL), grace=10**6)
    other = asked.asking(question="And what else?")
    device, server, clock = begin(asked, other)
    handle = device.join(asked.id)
    handle.record("tea")
    clock.now = asked.calendar.time(last) + 1
    assert handle.record("coffee") is P
    with pytest.raises(EnrolmentOver):
        device.join(other.id)
    assert device.ledger().spent == asked.epsilon
    device.flush()
    assert handle.answer() == "tea"
    device.at(LATE).flush()
    assert {node for node, true in by_node(server).items() if true} == {(0, 1), (0, 2)}


def panel(last):
    """A joint group whose last node ends with this period: three states, and changes over two periods."""
    states = Track(1, KaryResponse(StateSpace(3), ODDS), 0, last, reported=3)
    changes = Track(2, KaryChange(MutationSpace(3), ODDS), 0, last)
    return asking(Group.jointly((states, changes), Joint(Odds(9, 1), 2, (1, 1), (3, 3))))


ENDS = {"the calendar": (panel(8), 8, 7), "the last node": (panel(6), 6, 6), "of two questions": (asked(), 4, 8)}
"""A survey, its last closing, and how many reports an entry sends."""


@pytest.mark.parametrize("name", ENDS)
def test_when_a_survey_has_ended_all_that_it_knew_of_the_entry_goes(begin, name):
    """The answers, the mutations and when the first was, slots, delay and nodes drawn, and how many numbers were
    clipped, with the last closing; what waits stays. Then nothing is kept of any question, wherever the clock steps and
    whoever starts again, and what it cost still counts."""
    asked, last, reports = ENDS[name]
    device, server, _ = begin(asked)
    handle = device.join(asked.id)
    answers = {handle.question(each.name): (500, 600) if each.is_number else ("tea", "coffee") for each in asked.asked}

    def record(turn):
        return {question.record(each[turn]) for question, each in answers.items()}

    record(0)
    device.at(START + 60 * last - 30).flush()
    record(1)
    assert handle.ledger().clipped == (2 if len(answers) > 1 else 0)
    server.reply = answering(503)
    assert device.at(START + 60 * last + 20).flush().waiting == 1
    for moment in (0, 30, 60 * last + 30, 481, 600, 90):
        device.at(START + moment)
        assert record(0) == {question.retract() for question in answers} == {F}
        device.flush()
        assert {question.answer() for question in answers} == {None}
        assert (handle.ledger().waiting, handle.ledger().clipped) == (1, 0)
        ((entry, drawn),) = stored(device, asked.id)
        assert (drawn, entry.slots, entry.delay_ms, entry.pending) == (frozenset(), None, 0, ())
        assert set(entry.held) == {(0, None, ())}
    server.reply = lambda _: None
    assert device.flush().sent == 1
    device = begin(after=device).device
    assert (device.join(asked.id).ledger().answered_period, device.ledger().spent) == (last, asked.epsilon)
    assert device.join(asked.id).question("drink").record("tea") is F
    assert len({(report.track, report.node) for report, _, _ in server.reports()}) == reports


def test_a_clock_that_goes_back_writes_nothing_into_an_answered_node_and_answers_nothing_again(joined):
    """After period 3 was answered a record made 'in period 1' falls into period 4. Flushing at every time of a wild
    clock then answers every node once."""
    handle, device, server, clock = joined(PLAIN)
    device.at(START + 3 * 60 + 20).flush()
    clock.now = START + 30
    handle.record("tea")
    for period in (3, 1, 5, 2, 0, 8, 4, 9):
        device.at(START + 60 * period + 20).flush()
    inputs = by_node(server)
    assert inputs.keys() == all_nodes(PLAIN)
    assert {node for node, true in inputs.items() if true} == {(3, 4), (2, 4), (0, 4)}


def test_a_clock_that_goes_back_writes_nothing_before_what_a_flush_saw(begin):
    """A closed node that is not yet answered is not written into either, nor the order of mutations turned."""
    device, server, clock = begin(PLAIN)
    handle = device.join(PLAIN.id)
    device.at(START + 121).flush()
    assert handle.ledger().answered_period == 1
    for moment, answer in ((150, "tea"), (30, "coffee")):
        clock.now = START + moment
        handle.record(answer)
    device = begin(after=device).device
    assert device.join(PLAIN.id).answer() == "coffee"
    device.at(LATE).flush()
    assert {node for node, true in by_node(server).items() if true} == {(2, 3), (2, 4), (0, 4)}


def test_nothing_that_is_printed_or_logged_holds_an_answer_or_a_report(joined, caplog):
    """Objects, results and log lines at every level hold no answer, no state, no count and no closing's id."""
    caplog.set_level(0)
    handle, device, server, _ = joined(PLAIN)
    handle.record("coffee")
    device.join(b"unknown survey..", signed=None).record("1")
    ((entry, _),), ((waiting, _),) = stored(device, PLAIN.id), stored(device, b"unknown survey..")
    printed = [repr(device), repr(handle), repr(handle.ledger()), repr(device.at(LATE).flush()), caplog.text]
    ids = [closing.id for closing in server.closings()]
    assert len(ids) == 8
    for text in printed:
        assert not [word for id_ in ids for word in ("coffee", repr(id_), id_.hex()) if word in text]
    for kept in (entry, SlotState((1, 2), 3), *waiting.pending):
        assert not any(digit in repr(kept).split("0x")[0] for digit in "0123456789")


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


def test_an_entry_with_more_than_255_changes_goes_on_to_report_as_any_other(joined):
    """Also where each has a slot of a joint group; else the silence would tell how often an answer changed."""
    periods = 264
    group = Group.jointly(
        [Track(1, KaryChange(MutationSpace(2), Odds(2, 1)), 0, periods)], Joint(Odds(9, 1), 99, (1,), (periods,))
    )
    question = Question("q", "Which?", ("tea", "coffee"), AtMost(periods))
    made = asking(group, questions=[question], periods=periods, skew=1, spread=1)
    handle, device, server, clock = joined(made)
    for period in range(1, periods + 1):
        clock.now = made.calendar.time(period) - 30
        handle.record(made.answers[period % 2])
        if period in (200, 258, 262):
            assert device.at(made.calendar.time(period) + 3).flush().waiting == 0
            ((entry, _),) = stored(device, made.id)
            assert entry.slots.used == (period,)
    assert len(server.closings()) == 262


@pytest.mark.parametrize("behind", [0, 10], ids=["a clock alike", "the server's is behind"])
def test_what_happens_between_two_requests_hangs_on_no_record(joined, behind):
    """A flush that answers nothing does the same on the disk while a server can see how long it takes, whether or not
    the app has recorded since the last one: the past is erased after the last connection has ended."""
    made, seen = asked(), []
    for records in (False, True):
        handle, device, server, clock = joined(made, folder=f"{records}")
        done = []
        handle.question("drink").record("tea")
        clock.now = START + 77 + behind
        server.reply = lambda request, done=done: done.append(request.url.path)
        server.refused = [[0, "unknown-survey"]]
        server.clock = lambda clock=clock: clock.now - behind
        assert device.flush().waiting == 1
        clock.now += 20
        if records:
            handle.question("drink").record("coffee")
        done.clear()
        device.store._connection.set_trace_callback(lambda each, done=done: done.append(each.split("(")[0][:20]))
        device.flush()
        last = max(place for place, each in enumerate(done) if each.startswith("/"))
        assert "VACUUM" not in done[:last]
        seen.append(done[:last])
    assert seen[0] == seen[1]


def test_whether_a_closed_cohort_takes_an_entry_does_not_hang_on_the_group_that_it_draws(begin):
    """Who has no answer to one of the questions is refused, also by chance of a group that does not ask it: who asks
    again would else be in that group more often than not."""
    first, second = (
        Group((Track(1, KaryResponse(StateSpace(2, null=False), Odds(2, 1)), 0, 2, question=place),))
        for place in (0, 1)
    )
    questions = tuple(Question(name, "?", ("tea", "coffee"), AtMost(2)) for name in ("x", "y"))
    made = asking(first, second, questions=questions, closed=True, periods=2)
    groups = set()
    for seed in range(8):
        device = begin(made, now=START + 1, folder=f"{seed}", coins=SeededCoins(seed)).device
        for few in ({"x": "tea"}, {"y": "coffee"}):
            with pytest.raises(BadEnrolment):
                device.join(made.id, answers=[few])
        device.join(made.id, answers=[{"x": "tea", "y": "coffee"}])
        groups.add(stored(device, made.id)[0][0].group)
    assert groups == {0, 1}


@pytest.mark.parametrize("null", [True, False])
def test_no_other_question_keeps_a_first_answer_out_of_the_first_period_of_a_closed_cohort(begin, null):
    """A change of one question waits for the server's time, and the first answer to another was given after it: it is
    of the first period all the same, as the cost counts with, before any closing is answered."""
    space = MutationSpace(2) if null else StateSpace(2, null=False)
    tracks = [
        Track(1, KaryResponse(StateSpace(2, null=False), TRUTHFUL), 0, 4),
        Track(1, KaryResponse(space, TRUTHFUL), 0, 4, question=1),
    ]
    drink = Question("drink", "?", ("tea", "coffee"), TimeBounded(5))
    food = Question("food", "?", ("rice", "bread"), AtMost(2))
    made = asking(*tracks, questions=(drink, food), closed=True, periods=4)
    device, server, _ = begin(made, now=START + 1)
    handle = device.join(made.id, signed=None)
    handle.question("drink").record("tea")
    device.at(START + 20)
    handle.question("drink").record("coffee")
    handle.question("food").record("rice")
    device.join(made.id)
    device.at(START + 80).flush()
    told = {(report.track, node.end): true for report, node, true in server.reports()}
    assert told[1, 1] == space.index(0, 1)


def test_however_much_is_recorded_before_a_survey_is_known_the_first_answers_are_those_of_the_first_period(begin):
    """Else whether a device takes part in a closed cohort, and sends anything, hung on how often answers change."""
    tracks = [Track(1, KaryResponse(StateSpace(2, null=False), TRUTHFUL), 0, 4, question=place) for place in (0, 1)]
    made = asking(
        *tracks, questions=[Question(name, "?", ("a", "b"), AtMost(2)) for name in "xy"], closed=True, periods=4
    )
    device, server, _ = begin(made, now=START + 1)
    handle = device.join(made.id, signed=None)
    handle.question("x").record("a")
    for number in range(300):
        handle.question("y").record("ab"[number % 2])
    device.at(START + 65)
    handle.question("x").record("b")
    device.at(START + 130).flush()
    assert handle.status is Status.JOINED
    assert server.reports()


def test_an_answer_is_the_last_one_whether_its_question_was_named_or_not(begin):
    """The only question may be named: before the survey is known, too, both ways record the one answer."""
    device, *_ = begin(PLAIN)
    handle = device.join(PLAIN.id, signed=None)
    for each, answer in ((handle, "tea"), (handle.question(PLAIN.only.name), "coffee"), (handle, "tea")):
        each.record(answer)
    device.flush()
    assert handle.answer() == "tea"


def test_two_hundred_questions_are_answered_in_one_report_each(joined):
    """Every entry is asked all of them, at two widths: the tracks are more than a byte can number."""
    space, asked = MutationSpace(2), [Question(f"q{place}", "Which?", ("a", "b"), AtMost(2)) for place in range(200)]
    tracks = [Track(w, KaryChange(space, Odds(3, 2)), 0, 2, question=q) for q in range(200) for w in (1, 2)]
    handle, device, server, _ = joined(asking(*tracks, questions=asked, periods=2))
    assert {handle.question(each.name).record("b") for each in asked} == {Recorded.COUNTED}
    assert device.at(START + 150).flush().sent == 2
    assert sorted(report.track for report, node, _ in server.reports() if node.end == 2) == list(range(400))


def test_each_question_is_recorded_by_its_name_and_bounded_by_its_own_constraint(joined):
    """What is used up of one is not of another; reports are of the question's answers."""
    made = asked()
    handle, device, server, _ = joined(made)
    drink, minutes = handle.question("drink"), handle.question("minutes")
    assert [drink.record(each) for each in ("tea", "coffee", "tea")] == [C, C, F]
    assert [minutes.record(each) for each in (0.1, 29.9, 0.1, 29.9)] == [C, C, C, F]
    assert (drink.answer(), minutes.answer()) == ("coffee", "0 min")
    device.at(LATE).flush()
    spaces = [track.randomizer.space for track in made.plan.tracks]
    told = {(report.track, true) for report, node, true in server.reports() if node.start == 0}
    assert told == {(0, spaces[0].index(0, 2)), (1, spaces[1].index(0, 1))}


def test_the_offset_is_drawn_once_and_a_store_that_was_put_back_has_the_same(joined, begin):
    """Of 64 entries not all have one offset; each has the one it drew when the store is opened again."""
    made = asked()
    _, device, *_ = joined(made, entries=64)
    before = [entry.stratum for entry, _ in stored(device, made.id)]
    assert len(set(before)) > 1
    assert set(before) <= set(range(OFFSETS))
    device = begin(after=device).device
    device.join(made.id).question("minutes").record(12)
    assert [entry.stratum for entry, _ in stored(device, made.id)] == before


@pytest.mark.parametrize("answer", ["tea", None], ids=["recorded", "taken back"])
def test_a_record_that_names_its_question_is_kept_after_one_that_did_not(kit, answer):
    """The one that names none, in a survey that turns out to ask two, answers nothing; so the other repeats nothing."""
    device, server = kit()
    made = make_survey(question=[Question(name, "?", ("tea", "coffee"), AtMost(3)) for name in ("drink", "other")])
    handle = device.join(made.id)
    drink = handle.question("drink")
    drink.record("coffee")
    for asked in (handle, drink):
        asked.retract() if answer is None else asked.record(answer)
    server.publish(made)
    device.flush()
    assert handle.status is Status.JOINED
    assert drink.answer() == answer
