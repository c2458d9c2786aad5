"""How long estimates are missing after a lost period, against every lost period, every time and plain search."""

import pytest
from changeling_protocol import KaryResponse, MutationSpace, Odds, StateSpace, Track
from changeling_statistics.planning.outages import allowed_gap, longest_gap
from hypothesis import given
from hypothesis import strategies as st

CHANGES, STATES = KaryResponse(MutationSpace(2), Odds(3, 1)), KaryResponse(StateSpace(2), Odds(3, 1))
PERIODS = 9


@st.composite
def tracks(draw):
    """One to four tracks of changes or states anywhere in the horizon."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.integers(1, 4))
        first = draw(st.integers(0, PERIODS - width))
        last = draw(st.integers(first + width, PERIODS))
        made.append(Track(width, draw(st.sampled_from([CHANGES, STATES])), first, last))
    return made


def connected(tracks, lost, time, known):
    """Whether nodes that end by `known`, but not with the lost period, lead from time 0 to a time: by plain search."""
    edges = [(node.start if track.reports_changes else 0, node.end) for track in tracks for node in track.nodes()]
    edges = [(start, end) for start, end in edges if end <= known and end != lost]
    reached, more = {0}, True
    while more:
        more = {t for edge in edges for t in edge if reached & set(edge)} - reached
        reached |= more
    return time in reached


@given(tracks())
def test_the_online_gap_is_that_of_trying_every_loss_and_every_time(tracks):
    """From the lost period to the last one that nothing known by then connects, both counted."""
    missing = [
        time - lost + 1
        for lost in range(1, PERIODS + 1)
        for time in range(lost, PERIODS + 1)
        if not connected(tracks, lost, time, known=time)
    ]
    assert longest_gap(tracks, PERIODS) == max(missing)


@given(tracks())
def test_the_retrospective_gap_is_that_of_trying_every_loss_and_every_time(tracks):
    """To the farthest period that nothing connects in the end, before the lost one or after."""
    missing = [
        abs(time - lost) + 1
        for lost in range(1, PERIODS + 1)
        for time in range(1, PERIODS + 1)
        if not connected(tracks, lost, time, known=PERIODS)
    ]
    assert longest_gap(tracks, PERIODS, retrospective=True) == max(missing, default=0)


@pytest.mark.parametrize(
    ("tracks", "gap"),
    [
        ([Track(1, CHANGES, 0, 9)], 9),
        ([Track(1, STATES, 0, 9, reported=1)], 1),
        ([Track(1, CHANGES, 0, 9), Track(3, STATES, 0, 9)], 3),
        ([Track(1, CHANGES, 0, 9), Track(2, CHANGES, 0, 9), Track(2, CHANGES, 1, 9)], 1),
        ([Track(1, CHANGES, 1, 9), Track(2, CHANGES, 1, 9), Track(2, CHANGES, 2, 9), Track(1, STATES, 0, 1)], 9),
        ([Track(1, CHANGES, 1, 9), Track(2, CHANGES, 1, 9), Track(2, CHANGES, 2, 9), Track(1, STATES, 0, 2)], 1),
    ],
)
def test_states_bridge_where_they_are_and_wide_nodes_what_they_straddle(tracks, gap):
    """One cadence of changes is cut for good; two that straddle every loss are not, unless all begins with that."""
    assert longest_gap(tracks, PERIODS) == gap


@pytest.mark.parametrize(("periods", "allowed"), [(1, 1), (10, 1), (11, 2), (64, 7), (365, 37)])
def test_a_tenth_of_the_horizon_is_allowed_rounded_up(periods, allowed):
    """At least one period, which is the lost one itself."""
    assert allowed_gap(periods) == allowed
