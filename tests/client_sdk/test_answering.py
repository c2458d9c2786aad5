"""Which nodes are answered, when, and about what; a closing's standing and stratum; histories."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from changeling_client import BadEnrolment
from changeling_client.testing import stored
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Breakdown,
    Group,
    History,
    HistoryState,
    Hybrid,
    KaryResponse,
    MutationSpace,
    SignedSubset,
    Standing,
    StateSpace,
    TimeBounded,
    Track,
)
from changeling_protocol.wire import UPLOADS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.coins import ListedCoins

from .device import LATE, PLAIN, START, TRUTHFUL, Clock, FakeServer, answering, answers_in, asking, by_node, client

CHANGES = MutationSpace(3)


def at(period: float) -> float:
    """Inside the calendar, `period` periods after its start."""
    return START + 60 * period


def test_the_last_millisecond_of_a_period_belongs_to_it(joined):
    """A period holds its end and not its start."""
    handle, device, server, clock = joined(PLAIN, now=at(1))
    handle.record("tea")
    clock.now = at(2) + 0.001
    handle.record("coffee")
    device.at(LATE).flush()
    inputs = by_node(server)
    assert (inputs[0, 1], inputs[1, 2], inputs[2, 3]) == (CHANGES.index(0, 1), 0, CHANGES.index(1, 2))


def test_a_panel_entry_reports_only_the_nodes_it_drew(joined):
    """Of a track with `reported` = 2 exactly two nodes are answered; the others are padding of the same size."""
    handle, device, server, _ = joined(asking(Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 8, reported=2)))
    handle.record("neither")
    for period in range(1, 9):
        assert device.at(at(period) + 20).flush().sent == 1
    assert [true for _, _, true in server.reports()] == [3, 3]
    assert len({len(envelope) for envelope in server.envelopes}) == 1


class Ticking(Clock):
    """Goes on by a fraction of a millisecond whenever it is read."""

    def __call__(self) -> float:
        self.now += 0.0004
        return self.now


def test_who_joins_a_closed_cohort_in_its_last_instant_has_an_answer_in_the_first_period(tmp_path):
    """The clock is read once: an answer that fell behind the period's end would be a mutation too many for the cost, or
    a NULL that no report can tell, which would silence the whole store."""
    moves = Track(1, SignedSubset(MutationSpace(3, null=False), TRUTHFUL), 1, 8)
    asked = asking(moves, constraint=AtMost(2), closed=True)
    clock = Ticking(START + 60 - 0.0012)
    with client(tmp_path, FakeServer(asked), clock) as device:
        device.join(asked.id, entries=4, answers=["tea"] * 4)
        assert device.at(LATE).flush().sent == 4 * 7


def test_a_delay_is_drawn_once_and_not_again_at_each_flush(joined, begin):
    """Whoever drew the longest waits it out, flush by flush and start by start; the shortest waits for nothing."""
    for drawn in (0, 1000 * PLAIN.spread - 1):
        options = {"folder": f"{drawn}", "coins": ListedCoins([0, drawn, None, None, drawn, *[None] * 5])}
        _, device, *_ = joined(PLAIN, **options)
        for period in (1, 2):
            due = at(period) + PLAIN.skew + drawn / 1000
            for moment in (at(period) + PLAIN.skew, due - 3, due, due + 0.001):
                device = begin(after=device, **options).device
                assert device.at(moment).flush().sent == (moment > due)


def test_groups_are_drawn_by_their_shares(joined):
    """Of 400 entries three in four draw the group with share 3: outside 240 to 360 less than once in 10^8 runs."""
    track = Track(8, KaryResponse(CHANGES, TRUTHFUL), 0, 8)
    _, device, server, _ = joined(asking(Group((track,), share=3), Group((track,), share=1)), entries=400)
    assert device.at(LATE).flush().sent == 400
    assert 240 < sum(report.track == 0 for report, _, _ in server.reports()) < 360
    assert len({closing.id for closing in server.closings()}) == 400


EVERYTHING = (
    Group((Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 8, reported=5),)),
    Group((Track(2, KaryResponse(CHANGES, TRUTHFUL), 1, 8), Track(8, KaryResponse(CHANGES, TRUTHFUL), 0, 8))),
    Group((Track(1, KaryResponse(MutationSpace(3, repeats=True), TRUTHFUL), 0, 8),)),
    Group(
        (
            Track(3, KaryResponse(CHANGES, TRUTHFUL), 1, 7),
            Track(1, KaryResponse(CHANGES, TRUTHFUL), 2, 8, reported=3),
            Track(5, KaryResponse(StateSpace(3), TRUTHFUL), 3, 8),
        )
    ),
)
"""Tracks of every width, that begin in the middle, and of which some nodes are drawn at random."""
ADMITS = {
    AtMost(2): lambda count, _: count < 2,
    TimeBounded(130): lambda count, elapsed: count == 0 or elapsed <= 130_000,
    Hybrid((AtMost(1), TimeBounded(100))): lambda count, elapsed: count < 1 or elapsed <= 100_000,
}
STEPS = st.lists(
    st.tuples(st.integers(0, 90_000), st.sampled_from(["flush", "restart", None, "tea", "coffee", "neither"])),
    max_size=14,
)


def history(constraint=AtMost(3), closed=False, every=2):  # noqa: B008
    """A history group that reports at every so manieth time."""
    return Group.of_history(History.of(TRUTHFUL, range(1, 9, every), constraint, PLAIN.calendar, closed), 3)


@settings(max_examples=40)
@given(st.sampled_from(list(ADMITS)), st.integers(-100_000, 300_000), STEPS)
def test_inputs_are_those_of_a_plain_replay_of_the_changelog(constraint, joined, steps):
    """Whenever it is recorded, flushed and started again, every input is (state at start, state at end) of a
    dictionary's replay."""
    asked = asking(*EVERYTHING, history(constraint), constraint=constraint)
    server, clock = FakeServer(asked), Clock(START + joined / 1000)
    replay: dict[int, int] = {}
    state, count, first, now = 0, 0, 0, joined
    with tempfile.TemporaryDirectory() as path:
        device = client(Path(path), server, clock)
        handle = device.join(asked.id)
        for wait, action in steps:
            now += wait
            clock.now = START + now / 1000
            if action == "flush":
                device.flush()
            if action == "restart":
                device.close()
                device = client(Path(path), server, clock)
                handle = device.join(asked.id)
            if action in ("flush", "restart"):
                continue
            handle.record(action) if action else handle.retract()
            new, stamp = (asked.answers.index(action) + 1 if action else 0), max(now, 1)
            if new != state and stamp <= 480_000 and ADMITS[constraint](count, stamp - first if count else 0):
                first = first if count else stamp // 1000 * 1000  # whole seconds are kept
                state, count, replay[stamp] = new, count + 1, new
        assert device.at(LATE + 10_000).flush().waiting == 0
        device.close()

    def state_at(period: int) -> int:
        return next((replay[stamp] for stamp in sorted(replay, reverse=True) if stamp <= period * 60_000), 0)

    reports = server.reports()
    for report, node, true in reports:
        space = asked.plan.tracks[report.track].randomizer.space
        assert true == space.index(state_at(node.start), state_at(node.end))
    answered = [(report.track, node) for report, node, _ in reports]
    assert len(answered) == len(set(answered))
    enrolled = max(0, -(-joined // 60_000) - 1)
    for number in {track for track, _ in answered}:
        track = asked.plan.tracks[number]
        due = {node for node in track.nodes() if node.end > enrolled}
        told = {node for each, node in answered if each == number}
        assert told <= due if track.reported else told == due


KNOWN, NEW, MISSED = Standing
SHORT = replace(PLAIN, grace=85)
"""A closing may be answered and sent until 85 seconds after it: still when the next one is due."""
SPARSE = asking(Track(2, KaryResponse(CHANGES, TRUTHFUL), 0, 8), grace=85)
"""Its closings are those of the even periods."""
PUBLIC = (Breakdown("platform", ("linux", "mac")), Breakdown("channel", ("release", "beta")))
TOLD = replace(PLAIN, breakdowns=PUBLIC, stratum_changes=2)


def standings(server: FakeServer) -> dict[int, Standing]:
    return {closing.period: closing.standing for closing in server.closings()}


STANDINGS = {
    "the first is new, those answered with it are known": (
        PLAIN,
        130,
        [LATE - START],
        {3: NEW, **dict.fromkeys(range(4, 9), KNOWN)},
    ),
    "periods at which no node ends are no closings": (SPARSE, 130, [260], {4: NEW}),
    "who misses the first closings says so once": (SHORT, 0, [260, 320], {3: MISSED, 4: KNOWN, 5: KNOWN}),
    "who is offline for a while stays known": (SHORT, 0, [80, 320], {1: NEW, 4: KNOWN, 5: KNOWN}),
}


@pytest.mark.parametrize("name", STANDINGS)
def test_a_closing_says_whether_the_entry_is_known(joined, name):
    """Of an entry that enrols so many seconds after the start, and flushes at these, whatever it has to say."""
    asked, enrols, flushes, said = STANDINGS[name]
    _, device, server, _ = joined(asked, now=START + enrols)
    for moment in flushes:
        device.at(START + moment).flush()
    assert standings(server) == said


@pytest.mark.parametrize("first", [1, 2], ids=["new", "missed"])
def test_if_the_first_answer_never_left_the_next_one_is_missed(joined, first):
    """The closing that was to say that the entry takes part waited until its grace was over. Sent again before, it
    stays what it is."""
    _, device, server, clock = joined(SHORT)
    server.reply = answering(503, on=UPLOADS)
    clock.now = START + 60 + (80 if first == 2 else 0) + 20
    device.flush()
    device.flush()
    clock.now = START + (first + 4) * 60 + 20
    server.bodies.clear()
    server.reply = lambda _: None
    device.flush()
    device.at(LATE).flush()
    told = standings(server)
    assert min(told) == first + 3
    assert told[min(told)] is MISSED
    assert {told[period] for period in told if period > min(told)} == {KNOWN}


def test_a_retry_repeats_standing_stratum_and_id(joined):
    """Though the stratum has changed, and closings were answered since."""
    handle, device, server, _ = joined(TOLD, stratum={"platform": "mac", "channel": "release"})
    server.reply = answering(503, on=UPLOADS)
    device.at(START + 80).flush()
    handle.stratum({"platform": "mac", "channel": "beta"})
    device.at(START + 140).flush()
    server.reply = lambda _: None
    device.flush()
    sent = [answers_in(envelope, server.surveys, server.private) for envelope in server.envelopes]
    (first, *_), *later = ([closing for closing, _ in answers] for answers in sent)
    assert (first.period, first.standing, first.stratum) == (1, NEW, 2)
    assert [first, first] == [closings[0] for closings in later if closings[0].period == 1]
    assert [(each.period, each.standing, each.stratum) for each in later[-1]] == [(2, KNOWN, 3)]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 150), st.booleans()), min_size=1, max_size=8), st.integers(0, 200))
def test_over_any_life_a_server_that_hears_all_learns_of_an_entry_once(tmp_path_factory, steps, enrols):
    """Offline, late, with a server that is down at times: of the closings that arrive, the first alone says that the
    entry takes part, as long as nothing that said so was dropped after the server had it; and it is new only at the
    first closing after enrolment."""
    server, clock = FakeServer(SHORT), Clock(START + enrols)
    with client(tmp_path_factory.mktemp("device"), server, clock) as device:
        device.join(SHORT.id)
        arrived: dict[int, Standing] = {}
        for wait, up in steps:
            clock.now += wait
            server.reply = (lambda _: None) if up else answering(503)
            server.bodies.clear()
            device.flush()
            if up:
                for closing in server.closings():
                    assert arrived.setdefault(closing.period, closing.standing) == closing.standing
    said = [period for period in sorted(arrived) if arrived[period] is not KNOWN]
    first = max(-(-enrols // 60), 1)
    assert len(said) <= 1
    assert all(arrived[period] is (NEW if period == first else MISSED) for period in said)
    if said and said[0] != min(arrived):
        assert arrived[said[0]] is MISSED  # one that was known went before it, while the first was dropped


def test_a_survey_with_breakdowns_needs_a_stratum(tmp_path):
    """One value for each, declared; and a survey without takes none. Nothing is joined otherwise."""
    server = FakeServer(TOLD, PLAIN)
    with client(tmp_path, server, Clock()) as device:
        for wrong in (None, {}, {"platform": "linux"}, {"platform": "linux", "channel": "gamma"}):
            with pytest.raises(BadEnrolment, match="channel"):
                device.join(TOLD.id, stratum=wrong)
        with pytest.raises(BadEnrolment, match="colour"):
            device.join(TOLD.id, stratum={"platform": "linux", "channel": "beta", "colour": "red"})
        with pytest.raises(BadEnrolment, match="platform"):
            device.join(PLAIN.id, stratum={"platform": "linux"})
        assert device.ledger().spent == 0


def test_every_entry_is_in_the_stratum_that_is_told_until_it_changes(joined):
    """A change counts from the next closing on, for its entry alone; the ledger says what is public."""
    told = {"platform": "mac", "channel": "release"}
    handle, device, server, _ = joined(TOLD, entries=2, stratum=told)
    assert handle.ledger(1).public == told
    device.at(START + 80).flush()
    handle.stratum({"channel": "beta", "platform": "mac"}, entry=1)
    assert device.join(TOLD.id, entries=2).ledger(1).public == {"platform": "mac", "channel": "beta"}
    device.at(LATE).flush()
    strata = [closing.stratum for closing in server.closings()]
    assert strata == [2, 2] + [2] * 7 + [3] * 7


def test_a_stratum_changes_as_often_as_the_survey_allows(begin):
    """The same again is no change; one more change, an undeclared value or an unknown entry changes nothing."""
    device = begin(TOLD).device
    linux, mac = ({"platform": platform, "channel": "release"} for platform in ("linux", "mac"))
    handle = device.join(TOLD.id, stratum=linux)
    for told in (linux, mac, mac, linux, linux):
        handle.stratum(told)
    for wrong, words in (
        (mac, "2 times"),
        ({"platform": "linux", "channel": "gamma"}, "gamma"),
        ({}, "a value for each"),
    ):
        with pytest.raises(ValueError, match=words):
            handle.stratum(wrong)
    with pytest.raises(ValueError, match="numbered 0 to 0"):
        handle.stratum(linux, entry=1)
    assert handle.ledger().public == linux


@pytest.mark.parametrize("known", [False, True], ids=["before the survey is known", "while the time is in doubt"])
@pytest.mark.parametrize(
    "constraint", [TimeBounded(60), AtMostWithin(8, 60), Hybrid((AtMost(1), TimeBounded(60)))], ids=str
)
def test_answers_that_wait_out_of_order_keep_to_the_time_for_changes(begin, constraint, known):
    """The clock was ahead at the first of them and set back before the next: the time for changes begins with the
    earliest that stands. It began with the later one, and changes went on in more nodes than epsilon counts with."""
    made = asking(Track(1, KaryResponse(CHANGES, TRUTHFUL), 0, 8), constraint=constraint)
    device, server, clock = begin(made)
    handle = device.join(made.id, **({} if known else {"signed": None}))
    for time, answer in ((9.5 if known else 5.5, "tea"), (0.5, "coffee")):
        clock.now = at(time)
        handle.record(answer)
    device.at(START + 60 * 5.5).flush()
    for time, answer in ((5.6, "tea"), (6.2, "coffee")):
        clock.now = at(time)
        handle.record(answer)
    device.at(START + 60 * 9).flush()
    changed = [node for node, true in by_node(server).items() if true]
    assert len(changed) <= constraint.most_nodes(range(0, 540, 60)) == 2


def test_no_time_is_kept_where_the_constraint_counts_none(joined):
    """Of a hybrid constraint of numbers alone, nothing hangs on when the first change was: no time is kept."""
    made = asking(Track(1, KaryResponse(CHANGES, TRUTHFUL), 0, 8), constraint=Hybrid((AtMost(1), AtMost(2))))
    handle, device, *_ = joined(made, now=START + 30)
    handle.record("tea")
    ((entry, _),) = stored(device, made.id)
    assert entry.held[0][:2] == (1, None)


def due(period):
    """When a closing is due, whatever its delay."""
    return at(period) + 16


def remembered(device, made):
    """The memory of the device's entry."""
    ((entry, _),) = stored(device, made.id)
    return entry.slots


def test_a_history_is_told_time_by_time_through_restarts(joined, begin):
    """At odds that make it all but sure, what is sent at each time is the state then; the memory outlives the app, and
    goes with the last report."""
    made = asking(history(every=1))
    handle, device, server, clock = joined(made)
    clock.now = at(1.5)
    handle.record("tea")
    device.at(due(3)).flush()
    assert remembered(device, made) == HistoryState(drawn=3, last=1, first=2, changed=0, true=True)
    clock.now = at(4.5)
    device = begin(after=device).device
    device.join(made.id).record("coffee")
    device.at(due(6)).flush()
    assert remembered(device, made) == HistoryState(drawn=6, last=2, first=2, changed=1, true=True)
    device.join(made.id).retract()
    device.at(due(8)).flush()
    assert remembered(device, made) is None
    assert [true for _, true in sorted(by_node(server).items())] == [0, 1, 1, 1, 2, 2, 0, 0]


def test_a_closed_cohort_reports_every_other_time_from_the_first(joined):
    """Without NULL; the first answer is told at once."""
    handle, device, server, clock = joined(asking(history(closed=True), closed=True), answers=["coffee"])
    clock.now = at(3.5)
    handle.record("tea")
    device.at(due(8)).flush()
    assert {end: true for (_, end), true in by_node(server).items()} == {1: 1, 3: 1, 5: 0, 7: 0}


@pytest.mark.parametrize(
    ("records", "flushes", "grace", "sent", "left"),
    [
        ([(4.5, "tea")], 5, 10**6, {5: 1}, HistoryState(drawn=5, last=1, first=5, changed=0, true=True)),
        ([(0, "tea"), (3.5, "coffee")], 6, 85, {5: 2, 6: 2}, HistoryState(6, last=2, first=1, changed=1, true=True)),
    ],
    ids=["before it enrolled", "dropped as too late"],
)
def test_what_nobody_is_sent_of_a_history_is_drawn_with_the_state_of_then(joined, records, flushes, grace, sent, left):
    """An entry that enrols late, or sleeps past a grace, draws what it keeps to itself, goes on from what it would have
    said, and sends only what somebody counts."""
    made = asking(history(every=1), grace=grace)
    handle, device, server, clock = joined(made, now=at(records[0][0]))
    for moment, answer in records:
        clock.now = at(moment)
        handle.record(answer)
    device.at(due(flushes)).flush()
    assert {end: true for (_, end), true in by_node(server).items()} == sent
    assert remembered(device, made) == left
