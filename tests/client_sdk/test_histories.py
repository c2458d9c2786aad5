"""Entries of history groups: what a device sends and remembers, through restarts, late enrolment and drops."""

from itertools import pairwise

import pytest
from changeling_client.testing import stored
from changeling_protocol import AtMost, Group, History, HistoryState, Odds, ReleasePlan

from ..protocol.examples import survey
from .device import PLAIN, START, TRUTHFUL, Clock, FakeServer, by_node, client

CALENDAR = PLAIN.calendar


def asked(closed=False, every=1, first=1, odds=TRUTHFUL, grace=10**6):
    """A survey of one history group over eight periods of a minute, with up to three mutations."""
    history = History.of(odds, range(first, 9, every), AtMost(3), CALENDAR, closed)
    plan = ReleasePlan((Group.of_history(history, 3),))
    return survey(plan, constraint=AtMost(3), closed=closed, grace=grace)


def at(period):
    return CALENDAR.start + period * CALENDAR.period


def due(made, period):
    """When a closing is due, whatever its delay."""
    return at(period) + made.skew + made.spread + 1


def remembered(device, made):
    """The memory of the device's entry."""
    ((entry, _),) = stored(device, made.id)
    return entry.slots


def test_a_history_is_told_time_by_time_through_restarts(tmp_path):
    """At odds that make it all but sure, what is sent at each time is the state then; the memory outlives the app, and
    goes with the last report."""
    made, clock = asked(), Clock(START)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        clock.now = at(1.5)
        handle.record("tea")
        clock.now = due(made, 3)
        device.flush()
        assert remembered(device, made) == HistoryState(drawn=3, last=1, first=2, changed=0, true=True)
    clock.now = at(4.5)
    with client(tmp_path, server, clock) as device:
        device.join(made.id).record("coffee")
        clock.now = due(made, 6)
        device.flush()
        assert remembered(device, made) == HistoryState(drawn=6, last=2, first=2, changed=1, true=True)
        device.join(made.id).retract()
        clock.now = due(made, 8)
        device.flush()
        assert remembered(device, made) is None
    assert [true for _, true in sorted(by_node(server).items())] == [0, 1, 1, 1, 2, 2, 0, 0]


def test_a_closed_cohort_reports_every_other_time_from_the_first(tmp_path):
    """Without NULL, on two tracks; the first answer is told at once."""
    made, clock = asked(closed=True, every=2), Clock(START)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id, answers=["coffee"])
        clock.now = at(3.5)
        handle.record("tea")
        clock.now = due(made, 8)
        device.flush()
    assert {end: true for (_, end), true in by_node(server).items()} == {1: 1, 3: 1, 5: 0, 7: 0}


def test_an_entry_that_enrols_late_draws_what_it_keeps_to_itself(tmp_path):
    """Joined in the fifth period: four times are drawn as NULL and not sent; what follows goes on from there."""
    made, clock = asked(), Clock(at(4.5))
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        device.join(made.id).record("tea")
        clock.now = due(made, 5)
        device.flush()
        assert remembered(device, made) == HistoryState(drawn=5, last=1, first=5, changed=0, true=True)
    assert by_node(server) == {(4, 5): 1}


def test_what_is_dropped_as_too_late_is_drawn_with_the_state_of_then(tmp_path):
    """An app that sleeps past a grace goes on from what it would have said, and sends only what somebody counts."""
    made, clock = asked(grace=85), Clock(START)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        handle.record("tea")
        clock.now = at(3.5)
        handle.record("coffee")
        clock.now = due(made, 6)
        device.flush()
        state = remembered(device, made)
    sent = {end: true for (_, end), true in by_node(server).items()}
    assert 0 < len(sent) < 6
    assert set(sent.values()) == {2}
    assert state == HistoryState(drawn=6, last=2, first=1, changed=1, true=True)


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_sent_is_always_a_possible_history(tmp_path, closed):
    """At odds of 2:1 most reports are untrue; even so nobody's reports show more changes than the constraint allows."""
    made = asked(closed, odds=Odds(2, 1))
    untrue = 0
    for entry in range(12):
        clock, server = Clock(START), FakeServer(made)
        folder = tmp_path / str(entry)
        folder.mkdir()
        with client(folder, server, clock) as device:
            handle = device.join(made.id, answers=["tea"] if closed else None)
            handle.record("tea")
            clock.now = due(made, 8)
            device.flush()
        sent = [0] * (not closed) + [true for _, true in sorted(by_node(server).items())]
        assert sum(old != new for old, new in pairwise(sent)) <= (2 if closed else 3)
        untrue += any(true != (not closed) for true in sent[1:])
    assert untrue > 0  # all true in twelve entries: below 1e-12
