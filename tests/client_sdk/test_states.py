"""What is kept of an entry's states, against its whole changelog: what open nodes need, and nothing more."""

from changeling_client.entries import Entry
from changeling_client.recording import NULL, at_close, current, entered, needed_close, pruned
from changeling_protocol import Group, KaryResponse, MutationSpace, Odds, ReleasePlan, StateSpace, Track
from hypothesis import given, settings
from hypothesis import strategies as st

PERIODS = 12
CHANGES, STATES = MutationSpace(3), StateSpace(3)


@st.composite
def tracks(draw):
    width = draw(st.integers(1, 5))
    first = draw(st.integers(0, PERIODS - width))
    last = draw(st.integers(first + width, PERIODS))
    count = (last - first) // width
    space = draw(st.sampled_from([CHANGES, STATES]))
    reported = draw(st.none() | st.integers(1, count)) if space is STATES else None
    return Track(width, KaryResponse(space, Odds(3, 1)), first, last, reported=reported)


@st.composite
def entries(draw):
    """A plan, a group of it, and the nodes that an entry has drawn of tracks that are sampled."""
    groups = draw(st.lists(st.lists(tracks(), min_size=1, max_size=3), min_size=1, max_size=3))
    plan = ReleasePlan(tuple(Group(tuple(each)) for each in groups))
    group = draw(st.integers(0, len(groups) - 1))
    drawn = set()
    for number, track in plan.numbered(group):
        if track.reported is not None:
            nodes = st.permutations(range(1, track.count + 1))
            drawn |= {(number, node) for node in draw(nodes)[: track.reported]}
    return plan, group, frozenset(drawn)


def open_nodes(plan, group, drawn, answered):
    """Every node of the entry that ends after what is answered, with its track."""
    return [
        (track, node)
        for number, track in plan.numbered(group)
        for place, node in enumerate(track.nodes(), 1)
        if node.end > answered and (track.reported is None or (number, place) in drawn)
    ]


def needed_closes(plan, group, drawn, answered):
    """Where such a node ends or, if it tells changes, begins."""
    nodes = open_nodes(plan, group, drawn, answered)
    return sorted({node.end for _, node in nodes} | {node.start for track, node in nodes if track.reports_changes})


def state_at(changelog, close):
    """The state of the last mutation in a period up to this one."""
    return next((state for period, state in reversed(changelog) if period <= close), NULL)


def least(closes, changelog):
    """The states at these closes, written as shortly as can be: only where they differ from the one before."""
    kept, before = [], NULL
    for close in closes:
        if (state := state_at(changelog, close)) != before:
            kept.append((close, state))
            before = state
    return tuple(kept)


STEPS = st.lists(
    st.tuples(st.sampled_from(["mutate", "mutate", "answer", "back"]), st.integers(0, 5), st.integers(0, 3)),
    max_size=25,
)


@settings(max_examples=300)
@given(entries(), st.integers(0, 3), STEPS)
def test_what_is_kept_is_the_shortest_that_open_nodes_need(drawn_entry, enrolled, steps):
    """Over any plan and life: at every close that is needed the state is that of the whole changelog, also after the
    clock turned out to have been ahead; and no row is kept that the needed closes could do without."""
    plan, group, drawn = drawn_entry
    answered, present, changelog, kept = enrolled, enrolled + 1, [], ()
    for action, far, state in steps:
        entry = Entry(b"", 0, group, answered, states=kept)
        if action == "mutate":
            present = min(present + far, PERIODS)
            if present <= answered:
                continue
            if (
                needed_close(plan, entry, drawn, present) is not None
            ):  # else nothing can hold it, and the entry is frozen
                changelog.append((present, state))
                kept = entered(kept, needed_close(plan, entry, drawn, present), state)
        elif action == "answer":
            answered = min(answered + far, present - 1)
            drawn = frozenset(each for each in drawn if plan.tracks[each[0]].node(each[1]).end > answered)
            kept = pruned(plan, entry._replace(answered=answered), drawn)
        else:
            present = max(answered + 1, present - far)
            changelog = [(min(period, present), state) for period, state in changelog]
            close = needed_close(plan, entry, drawn, present)
            if close is not None and kept and kept[-1][0] > close:
                kept = entered(kept, close, current(kept))
        closes = needed_closes(plan, group, drawn, answered)
        for close in closes:
            assert at_close(kept, close) == state_at(changelog, close)
        assert kept == least(closes, changelog)
        if closes and closes[-1] >= present:
            assert current(kept) == state_at(changelog, PERIODS)


@settings(max_examples=300)
@given(entries(), st.integers(0, PERIODS), st.integers(0, PERIODS + 1))
def test_the_first_close_that_is_needed_is_the_least_of_all(entry, answered, period):
    """Found by arithmetic, it is the one that looking at every node finds."""
    plan, group, drawn = entry
    closes = [close for close in needed_closes(plan, group, drawn, answered) if close >= period]
    assert needed_close(plan, Entry(b"", 0, group, answered), drawn, period) == min(closes, default=None)


def test_six_mutations_of_one_open_node_leave_one_row():
    """However often an answer changes within what one node spans, its end is all that is kept."""
    plan = ReleasePlan((Group((Track(8, KaryResponse(CHANGES, Odds(3, 1)), 0, 8),)),))
    entry, kept = Entry(b"", 0, 0), ()
    for period, state in enumerate((1, 2, 3, 1, 2, 3), 1):
        kept = entered(kept, needed_close(plan, entry, (), period), state)
    assert kept == ((8, 3),)
    assert entered(kept, needed_close(plan, entry, (), 7), NULL) == ()
