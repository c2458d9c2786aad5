"""Histories on a device: what is told time by time, through restarts, late enrolment and an app that sleeps; and the
times of changes that its constraint counts."""

import pytest
from changeling_client.testing import stored
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Group,
    History,
    HistoryState,
    Hybrid,
    ReleasePlan,
    TimeBounded,
)

from ..protocol.examples import hierarchical, survey
from .device import PLAIN, START, TRUTHFUL, Clock, FakeServer, by_node, client


@pytest.mark.parametrize("known", [False, True], ids=["before the survey is known", "while the time is in doubt"])
@pytest.mark.parametrize(
    "constraint", [TimeBounded(60), AtMostWithin(8, 60), Hybrid((AtMost(1), TimeBounded(60)))], ids=str
)
def test_answers_that_wait_out_of_order_keep_to_the_time_for_changes(begin, constraint, known):
    """The clock was ahead at the first of them and set back before the next: the time for changes begins with the
    earliest that stands. It began with the later one, and changes went on in more nodes than epsilon counts with."""
    made = survey(hierarchical(3, 8, (1,), TRUTHFUL), constraint=constraint, grace=10**6)
    device, server, clock = begin(made, now=START)
    handle = device.join(made.id, **({} if known else {"signed": None}))
    for time, answer in ((9.5 if known else 5.5, "tea"), (0.5, "coffee")):
        clock.now = START + 60 * time
        handle.record(answer)
    device.at(START + 60 * 5.5).flush()
    for time, answer in ((5.6, "tea"), (6.2, "coffee")):
        clock.now = START + 60 * time
        handle.record(answer)
    device.at(START + 60 * 9).flush()
    changed = [node for node, true in by_node(server).items() if true]
    assert len(changed) <= constraint.most_nodes(range(0, 540, 60)) == 2


def test_no_time_is_kept_where_the_constraint_counts_none(begin):
    """Of a hybrid constraint of numbers alone, nothing hangs on when the first change was: no time is kept."""
    constraint = Hybrid((AtMost(1), AtMost(2)))
    made = survey(hierarchical(3, 8, (1,), TRUTHFUL), constraint=constraint, grace=10**6)
    device, *_ = begin(made, now=START + 30)
    device.join(made.id).record("tea")
    ((entry, _),) = stored(device, made.id)
    assert entry.held[0][:2] == (1, None)


CALENDAR = PLAIN.calendar


def history_of(closed=False, every=1, first=1, odds=TRUTHFUL, grace=10**6):
    """A survey of one history group over eight periods of a minute, with up to three mutations."""
    history = History.of(odds, range(first, 9, every), AtMost(3), CALENDAR, closed)
    plan = ReleasePlan((Group.of_history(history, 3),))
    return survey(plan, constraint=AtMost(3), closed=closed, grace=grace)


def moment(period):
    return CALENDAR.start + period * CALENDAR.period


def due(made, period):
    """When a closing is due, whatever its delay."""
    return moment(period) + made.skew + made.spread + 1


def remembered(device, made):
    """The memory of the device's entry."""
    ((entry, _),) = stored(device, made.id)
    return entry.slots


def test_a_history_is_told_time_by_time_through_restarts(tmp_path):
    """At odds that make it all but sure, what is sent at each time is the state then; the memory outlives the app, and
    goes with the last report."""
    made, clock = history_of(), Clock(START)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        clock.now = moment(1.5)
        handle.record("tea")
        device.at(due(made, 3)).flush()
        assert remembered(device, made) == HistoryState(drawn=3, last=1, first=2, changed=0, true=True)
    clock.now = moment(4.5)
    with client(tmp_path, server, clock) as device:
        device.join(made.id).record("coffee")
        device.at(due(made, 6)).flush()
        assert remembered(device, made) == HistoryState(drawn=6, last=2, first=2, changed=1, true=True)
        device.join(made.id).retract()
        device.at(due(made, 8)).flush()
        assert remembered(device, made) is None
    assert [true for _, true in sorted(by_node(server).items())] == [0, 1, 1, 1, 2, 2, 0, 0]


def test_a_closed_cohort_reports_every_other_time_from_the_first(joined):
    """Without NULL, on two tracks; the first answer is told at once."""
    made = history_of(closed=True, every=2)
    handle, device, server, clock = joined(made, answers=["coffee"], now=START)
    clock.now = moment(3.5)
    handle.record("tea")
    device.at(due(made, 8)).flush()
    assert {end: true for (_, end), true in by_node(server).items()} == {1: 1, 3: 1, 5: 0, 7: 0}


def test_an_entry_that_enrols_late_draws_what_it_keeps_to_itself(begin):
    """Joined in the fifth period: four times are drawn as NULL and not sent; what follows goes on from there."""
    made = history_of()
    device, server, _ = begin(made, now=moment(4.5))
    device.join(made.id).record("tea")
    device.at(due(made, 5)).flush()
    assert remembered(device, made) == HistoryState(drawn=5, last=1, first=5, changed=0, true=True)
    assert by_node(server) == {(4, 5): 1}


def test_what_is_dropped_as_too_late_is_drawn_with_the_state_of_then(joined):
    """An app that sleeps past a grace goes on from what it would have said, and sends only what somebody counts."""
    made = history_of(grace=85)
    handle, device, server, clock = joined(made, now=START)
    handle.record("tea")
    clock.now = moment(3.5)
    handle.record("coffee")
    device.at(due(made, 6)).flush()
    state = remembered(device, made)
    sent = {end: true for (_, end), true in by_node(server).items()}
    assert 0 < len(sent) < 6
    assert set(sent.values()) == {2}
    assert state == HistoryState(drawn=6, last=2, first=1, changed=1, true=True)
