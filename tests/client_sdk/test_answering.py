"""Which nodes are answered, when, and about what."""

import tempfile
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
from changeling_client import Client, Recorded
from changeling_client.testing import stored
from changeling_protocol import (
    AtMost,
    Closing,
    Group,
    Hybrid,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Report,
    Standing,
    StateSpace,
    SystemCoins,
    TimeBounded,
    Track,
    draw_nodes,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coins import ListedCoins, SeededCoins

from ..protocol.examples import hierarchical, mixed, survey
from .device import LATE, PLAIN, START, TRUTHFUL, Clock, FakeServer, all_nodes, by_node, client

CHANGES = MutationSpace(3)


def at(period: float) -> float:
    """Inside the calendar, `period` periods after its start."""
    return START + 60 * period


def test_an_entry_that_never_answers_reports_no_change_on_every_node(tmp_path):
    """From enrolment to the end every node is answered once, as NULL, though nothing was ever recorded."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id)
        for period in range(1, 10):
            clock.now = at(period) + 20
            device.flush()
    assert by_node(server) == dict.fromkeys(all_nodes(PLAIN), 0)


def test_nodes_are_answered_with_the_change_over_them(tmp_path):
    """An insertion, a change and a deletion appear in the nodes that hold them, at every width, once each."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        for period, answer in ((0.5, "tea"), (2.5, "coffee"), (5.5, None)):
            clock.now = at(period)
            device.flush()
            assert (handle.record(answer) if answer else handle.retract()) is Recorded.COUNTED
        clock.now = LATE
        assert device.flush().waiting == 0
    changed = {
        (0, 1): (0, 1), (2, 3): (1, 2), (5, 6): (2, 0),
        (0, 2): (0, 1), (2, 4): (1, 2), (4, 6): (2, 0),
        (0, 4): (0, 2), (4, 8): (2, 0),
    }  # fmt: skip
    expected = {node: CHANGES.index(*changed.get(node, (0, 0))) for node in all_nodes(PLAIN)}
    assert by_node(server) == expected


def test_an_offline_spell_is_made_up_for_in_one_flush(tmp_path):
    """A device that first flushes after the end answers every node of the calendar."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = LATE
        assert device.flush().sent == 8
    assert set(by_node(server)) == all_nodes(PLAIN)
    assert len(server.envelopes) == 1


def test_enrolment_in_mid_survey_answers_what_closes_after_it(tmp_path):
    """A node that began before enrolment and closes after it is answered with NULL as its old state."""
    server, clock = FakeServer(PLAIN), Clock(at(4.5))
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id).record("coffee")
        clock.now = LATE
        device.flush()
    inputs = by_node(server)
    assert set(inputs) == {node for node in all_nodes(PLAIN) if node[1] >= 5}
    inserted = {node for node, true in inputs.items() if true == CHANGES.index(0, 2)}
    assert inserted == {(4, 5), (4, 6), (4, 8)}
    server, clock = FakeServer(PLAIN), Clock(at(5.5))
    (tmp_path / "other").mkdir()
    with client(tmp_path / "other", server, clock) as device:
        device.join(PLAIN.id).record("coffee")
        clock.now = LATE
        device.flush()
    assert {node for node, true in by_node(server).items() if true} == {(5, 6), (4, 6), (4, 8)}


def test_a_record_before_the_calendar_falls_into_its_first_period(tmp_path):
    """The histogram is empty at the calendar's start, so an early insertion is reported over the first node."""
    server, clock = FakeServer(PLAIN), Clock(START - 1000)
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id).record("tea")
        clock.now = at(1) + 20
        device.flush()
    assert by_node(server) == {(0, 1): CHANGES.index(0, 1)}


def test_the_last_millisecond_of_a_period_belongs_to_it(tmp_path):
    """A period holds its end and not its start."""
    server, clock = FakeServer(PLAIN), Clock(at(1))
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        handle.record("tea")
        clock.now = at(2) + 0.001
        handle.record("coffee")
        clock.now = LATE
        device.flush()
    inputs = by_node(server)
    assert (inputs[0, 1], inputs[1, 2], inputs[2, 3]) == (CHANGES.index(0, 1), 0, CHANGES.index(1, 2))


def test_no_node_is_answered_before_its_delay_is_over(tmp_path):
    """Nothing is due until the skew is over, everything once skew and spread are; entries differ in between."""
    server, clock = FakeServer(PLAIN), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(PLAIN.id, entries=40)
        clock.now = at(1) + PLAIN.skew
        assert device.flush().sent == 0
        clock.now = at(1) + PLAIN.skew + PLAIN.spread / 2
        half = device.flush().sent
        # Each is due by now with probability 1/2: outside 4 to 36 once in 10^7 runs.
        assert 4 <= half <= 36
        clock.now = at(1) + PLAIN.skew + PLAIN.spread
        assert half + device.flush().sent == 40


def test_what_is_past_grace_is_dropped_and_counted(tmp_path):
    """Nodes past close + grace get no report; later ones are answered."""
    asked = replace(PLAIN, grace=90)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id)
        clock.now = at(4) + 29
        flushed = device.flush()
        assert (flushed.sent, flushed.dropped) == (2, 2)
        assert handle.ledger().answered_period == 4
        assert handle.ledger().dropped == 2
    assert set(by_node(server)) == {(2, 3), (3, 4), (2, 4), (0, 4)}


def test_a_panel_entry_reports_only_the_nodes_it_drew(tmp_path):
    """Of a track with `reported` = 2 exactly two nodes are answered; the others are padding of the same size."""
    plan = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 8, reported=2),)),))
    asked = survey(plan, grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(asked.id).record("neither")
        for period in range(1, 9):
            clock.now = at(period) + 20
            assert device.flush().sent == 1
    assert [true for _, _, true in server.reports()] == [3, 3]
    assert len({len(envelope) for envelope in server.envelopes}) == 1


def test_a_closed_cohort_reports_states_without_null(tmp_path):
    """A panel whose space has no NULL is answered from the first node on, as everybody has an answer."""
    plan = ReleasePlan((Group((Track(2, KaryResponse(StateSpace(3, null=False), TRUTHFUL), 0, 8),)),))
    asked = survey(plan, grace=10**6, closed=True)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        handle = device.join(asked.id, answers=["tea"])
        clock.now = at(4.5)
        handle.record("neither")
        clock.now = LATE
        device.flush()
    assert by_node(server) == {(0, 2): 0, (2, 4): 0, (4, 6): 2, (6, 8): 2}


def test_reports_are_what_the_coins_say(tmp_path):
    """Group and first delay on joining; at each closing the symbol of each track and the id of
    them all, then the next delay."""
    asked = survey(hierarchical(3, 8, (1, 2, 4), Odds(3, 2)), grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock, SeededCoins(5)) as device:
        device.join(asked.id).record("tea")
        for moment in (START + 200, LATE):
            clock.now = moment
            device.flush()
    coins, expected = SeededCoins(5), []
    standing = Standing.NEW
    assert coins.below(1) == 0
    coins.below(1000 * asked.spread)
    for period in range(1, 9):
        reports = []
        for number, track in enumerate(asked.plan.tracks):
            if (node := track.ending_at(period)) is not None:
                true = CHANGES.index(0, 1) if node == 1 else 0
                reports.append(Report(number, node, track.randomizer.respond(true, coins)))
        expected.append((Closing(period, coins.below(2**128).to_bytes(16), standing, 0), reports))
        standing = Standing.KNOWN
        coins.below(1000 * asked.spread)
    assert server.answers() == expected


def test_group_delay_and_nodes_are_what_the_coins_say(tmp_path):
    """All are drawn at enrolment, entry by entry, and stored."""
    asked = survey(mixed(3, 8), grace=10**6)
    with client(tmp_path, FakeServer(asked), Clock(at(2.5)), SeededCoins(6)) as device:
        device.join(asked.id, entries=20)
        drawn = dict(stored(device, asked.id))
    coins, expected = SeededCoins(6), {}
    for entry in drawn:
        assert entry.group == asked.plan.draw_group(coins)
        nodes = draw_nodes(asked.plan.tracks[0], coins) if entry.group == 0 else ()
        expected[entry] = {(0, node) for node in nodes}
        assert entry.delay_ms == coins.below(1000 * asked.spread)
        assert entry.answered == 2
    assert drawn == expected
    assert {entry.group for entry in drawn} == {0, 1, 2}


def test_a_delay_is_drawn_once_and_not_again_at_each_flush(tmp_path):
    """Whoever drew the longest waits it out, flush by flush and start by start; the shortest waits for nothing."""
    for number, drawn in enumerate((0, 1000 * PLAIN.spread - 1)):
        (tmp_path / str(number)).mkdir()
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


def test_what_an_app_embeds_has_the_operating_systems_coins(tmp_path):
    """It has no way to bring others: there is no such argument."""
    with client(tmp_path, FakeServer(PLAIN), Clock()) as device:
        assert type(device._device.coins) is SystemCoins
    assert not [name for name in signature(Client).parameters if "coin" in name]


def test_groups_are_drawn_by_their_shares(tmp_path):
    """Of 400 entries three in four draw the group with share 3: outside 240 to 360 less than once in 10^8 runs."""
    track = Track(8, KaryResponse(CHANGES, TRUTHFUL), 0, 8)
    asked = survey(ReleasePlan((Group((track,), share=3), Group((track,), share=1))), grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(asked.id, entries=400)
        clock.now = LATE
        assert device.flush().sent == 400
    assert 240 < sum(report.track == 0 for report, _, _ in server.reports()) < 360
    assert len({closing.id for closing in server.closings()}) == 400


EVERYTHING = ReleasePlan(
    (
        Group((Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 8, reported=5),)),
        Group((Track(2, KaryResponse(CHANGES, TRUTHFUL), 1, 8), Track(8, KaryResponse(CHANGES, TRUTHFUL), 0, 8))),
        Group((Track(1, KaryResponse(MutationSpace(3, repeats=True), TRUTHFUL), 0, 8),)),
    )
)
ADMITS = {
    AtMost(2): lambda count, _: count < 2,
    TimeBounded(130): lambda count, elapsed: count == 0 or elapsed <= 130_000,
    Hybrid((AtMost(1), TimeBounded(100))): lambda count, elapsed: count < 1 or elapsed <= 100_000,
}
STEPS = st.lists(
    st.tuples(st.integers(0, 90_000), st.sampled_from(["flush", None, "tea", "coffee", "neither"])), max_size=12
)


@settings(max_examples=50)
@given(st.sampled_from(list(ADMITS)), st.integers(-100_000, 300_000), STEPS)
def test_inputs_are_those_of_a_plain_replay_of_the_changelog(constraint, joined, steps):
    """Whenever it is recorded and flushed, every input is (state at start, state at end) of a dictionary's replay."""
    asked = survey(EVERYTHING, grace=10**6, constraint=constraint)
    server, clock = FakeServer(asked), Clock(START + joined / 1000)
    replay: dict[int, int] = {}
    state, count, first, now = 0, 0, 0, joined
    with tempfile.TemporaryDirectory() as path, client(Path(path), server, clock) as device:
        handle = device.join(asked.id)
        for wait, action in steps:
            now += wait
            clock.now = START + now / 1000
            if action == "flush":
                device.flush()
                continue
            handle.record(action) if action else handle.retract()
            new, stamp = (asked.answers.index(action) + 1 if action else 0), max(now, 1)
            if new != state and stamp <= 480_000 and ADMITS[constraint](count, stamp - first if count else 0):
                first = first if count else stamp // 1000 * 1000  # whole seconds are kept
                state, count, replay[stamp] = new, count + 1, new
        clock.now = LATE + 10_000
        assert device.flush().waiting == 0

    def state_at(period: int) -> int:
        return next((replay[stamp] for stamp in sorted(replay, reverse=True) if stamp <= period * 60_000), 0)

    reports = server.reports()
    for report, node, true in reports:
        space = asked.plan.tracks[report.track].randomizer.space
        assert true == space.index(state_at(node.start), state_at(node.end))
    tracks = {report.track for report, _, _ in reports}
    enrolled = max(0, -(-joined // 60_000) - 1)
    due = {(number, node) for number in tracks for node in asked.plan.tracks[number].nodes() if node.end > enrolled}
    answered = [(report.track, node) for report, node, _ in reports]
    assert len(answered) == len(set(answered))
    assert set(answered) <= due if 0 in tracks else set(answered) == due


@pytest.mark.parametrize("widths", [(3,), (1, 8)])
def test_only_periods_at_which_a_node_ends_are_reported(tmp_path, widths):
    """Of a track of width 3 in 8 periods, two closings are sent; every closing sends the same, NULL or not."""
    asked = survey(hierarchical(3, 8, widths, TRUTHFUL), grace=10**6)
    server, clock = FakeServer(asked), Clock()
    with client(tmp_path, server, clock) as device:
        device.join(asked.id)
        clock.now = LATE
        assert device.flush().sent == (2 if widths == (3,) else 8)
    assert set(by_node(server)) == all_nodes(asked)
