"""Which nodes are answered, when, and about what."""

import tempfile
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
from changeling_client import Client, Recorded
from changeling_protocol import (
    AtMost,
    Group,
    Hybrid,
    KaryResponse,
    MutationSpace,
    ReleasePlan,
    StateSpace,
    SystemCoins,
    TimeBounded,
    Track,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coins import ListedCoins

from ..protocol.examples import hierarchical, survey
from .device import LATE, PLAIN, START, TRUTHFUL, Clock, FakeServer, all_nodes, by_node, client

CHANGES = MutationSpace(3)


def at(period: float) -> float:
    """Inside the calendar, `period` periods after its start."""
    return START + 60 * period


def test_an_entry_that_never_answers_reports_no_change_on_every_node(joined):
    """From enrolment to the end every node is answered once, as NULL, though nothing was ever recorded."""
    _, device, server, _ = joined(PLAIN)
    for period in range(1, 10):
        device.at(at(period) + 20).flush()
    assert by_node(server) == dict.fromkeys(all_nodes(PLAIN), 0)


def test_nodes_are_answered_with_the_change_over_them(joined):
    """An insertion, a change and a deletion appear in the nodes that hold them, at every width, once each."""
    handle, device, server, _ = joined(PLAIN)
    for period, answer in ((0.5, "tea"), (2.5, "coffee"), (5.5, None)):
        device.at(at(period)).flush()
        assert (handle.record(answer) if answer else handle.retract()) is Recorded.COUNTED
    assert device.at(LATE).flush().waiting == 0
    changed = {
        (0, 1): (0, 1), (2, 3): (1, 2), (5, 6): (2, 0),
        (0, 2): (0, 1), (2, 4): (1, 2), (4, 6): (2, 0),
        (0, 4): (0, 2), (4, 8): (2, 0),
    }  # fmt: skip
    expected = {node: CHANGES.index(*changed.get(node, (0, 0))) for node in all_nodes(PLAIN)}
    assert by_node(server) == expected


def test_enrolment_in_mid_survey_answers_what_closes_after_it(tmp_path):
    """A node that began before enrolment and closes after it is answered with NULL as its old state."""
    server, clock = FakeServer(PLAIN), Clock(at(4.5))
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id).record("coffee")
        device.at(LATE).flush()
    inputs = by_node(server)
    assert set(inputs) == {node for node in all_nodes(PLAIN) if node[1] >= 5}
    inserted = {node for node, true in inputs.items() if true == CHANGES.index(0, 2)}
    assert inserted == {(4, 5), (4, 6), (4, 8)}
    server, clock = FakeServer(PLAIN), Clock(at(5.5))
    with client(tmp_path / "other", server, clock) as device:
        device.join(PLAIN.id).record("coffee")
        device.at(LATE).flush()
    assert {node for node, true in by_node(server).items() if true} == {(5, 6), (4, 6), (4, 8)}


def test_the_last_millisecond_of_a_period_belongs_to_it(joined):
    """A period holds its end and not its start."""
    handle, device, server, clock = joined(PLAIN, now=at(1))
    handle.record("tea")
    clock.now = at(2) + 0.001
    handle.record("coffee")
    device.at(LATE).flush()
    inputs = by_node(server)
    assert (inputs[0, 1], inputs[1, 2], inputs[2, 3]) == (CHANGES.index(0, 1), 0, CHANGES.index(1, 2))


def test_no_node_is_answered_before_its_delay_is_over(joined):
    """Nothing is due until the skew is over, everything once skew and spread are; entries differ in between."""
    _, device, *_ = joined(PLAIN, entries=40)
    assert device.at(at(1) + PLAIN.skew).flush().sent == 0
    half = device.at(at(1) + PLAIN.skew + PLAIN.spread / 2).flush().sent
    # Each is due by now with probability 1/2: outside 4 to 36 once in 10^7 runs.
    assert 4 <= half <= 36
    assert half + device.at(at(1) + PLAIN.skew + PLAIN.spread).flush().sent == 40


def test_what_is_past_grace_is_dropped_and_counted(joined):
    """Nodes past close + grace get no report; later ones are answered."""
    asked = replace(PLAIN, grace=90)
    handle, device, server, _ = joined(asked)
    flushed = device.at(at(4) + 29).flush()
    assert (flushed.sent, flushed.dropped) == (2, 2)
    assert handle.ledger().answered_period == 4
    assert handle.ledger().dropped == 2
    assert set(by_node(server)) == {(2, 3), (3, 4), (2, 4), (0, 4)}


def test_a_panel_entry_reports_only_the_nodes_it_drew(begin):
    """Of a track with `reported` = 2 exactly two nodes are answered; the others are padding of the same size."""
    plan = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 8, reported=2),)),))
    asked = survey(plan, grace=10**6)
    device, server, _ = begin(asked)
    device.join(asked.id).record("neither")
    for period in range(1, 9):
        assert device.at(at(period) + 20).flush().sent == 1
    assert [true for _, _, true in server.reports()] == [3, 3]
    assert len({len(envelope) for envelope in server.envelopes}) == 1


def test_a_closed_cohort_reports_states_without_null(joined):
    """A panel whose space has no NULL is answered from the first node on, as everybody has an answer."""
    plan = ReleasePlan((Group((Track(2, KaryResponse(StateSpace(3, null=False), TRUTHFUL), 0, 8),)),))
    asked = survey(plan, grace=10**6, closed=True)
    handle, device, server, clock = joined(asked, answers=["tea"])
    clock.now = at(4.5)
    handle.record("neither")
    device.at(LATE).flush()
    assert by_node(server) == {(0, 2): 0, (2, 4): 0, (4, 6): 2, (6, 8): 2}


def test_a_delay_is_drawn_once_and_not_again_at_each_flush(tmp_path):
    """Whoever drew the longest waits it out, flush by flush and start by start; the shortest waits for nothing."""
    for number, drawn in enumerate((0, 1000 * PLAIN.spread - 1)):
        server, clock = FakeServer(PLAIN), Clock()
        coins = ListedCoins([0, drawn, None, None, drawn, None, None, None, None, None])
        with client(tmp_path / str(number), server, clock, coins) as device:
            device.join(PLAIN.id)
        for period in (1, 2):
            due = at(period) + PLAIN.skew + drawn / 1000
            for moment in (at(period) + PLAIN.skew, due - 3, due):
                clock.now = moment
                with client(tmp_path / str(number), server, clock, coins) as device:
                    assert device.flush().sent == 0
            clock.now = due + 0.001
            with client(tmp_path / str(number), server, clock, coins) as device:
                assert device.flush().sent == 1


def test_what_an_app_embeds_has_the_operating_systems_coins(begin):
    """It has no way to bring others: there is no such argument."""
    device = begin(PLAIN).device
    assert type(device._device.coins) is SystemCoins
    assert not [name for name in signature(Client).parameters if "coin" in name]


def test_groups_are_drawn_by_their_shares(joined):
    """Of 400 entries three in four draw the group with share 3: outside 240 to 360 less than once in 10^8 runs."""
    track = Track(8, KaryResponse(CHANGES, TRUTHFUL), 0, 8)
    asked = survey(ReleasePlan((Group((track,), share=3), Group((track,), share=1))), grace=10**6)
    _, device, server, _ = joined(asked, entries=400)
    assert device.at(LATE).flush().sent == 400
    assert 240 < sum(report.track == 0 for report, _, _ in server.reports()) < 360
    assert len({closing.id for closing in server.closings()}) == 400


EVERYTHING = ReleasePlan(
    (
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


@settings(max_examples=80)
@given(st.sampled_from(list(ADMITS)), st.integers(-100_000, 300_000), STEPS)
def test_inputs_are_those_of_a_plain_replay_of_the_changelog(constraint, joined, steps):
    """Whenever it is recorded, flushed and started again, every input is (state at start, state at end) of a
    dictionary's replay."""
    asked = survey(EVERYTHING, grace=10**6, constraint=constraint)
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


@pytest.mark.parametrize("widths", [(3,), (1, 8)])
def test_only_periods_at_which_a_node_ends_are_reported(joined, widths):
    """Of a track of width 3 in 8 periods, two closings are sent; every closing sends the same, NULL or not."""
    asked = survey(hierarchical(3, 8, widths, TRUTHFUL), grace=10**6)
    _, device, server, _ = joined(asked)
    assert device.at(LATE).flush().sent == (2 if widths == (3,) else 8)
    assert set(by_node(server)) == all_nodes(asked)
