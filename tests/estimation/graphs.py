"""Tallies that the tests of estimation share, and the dense solution of a release graph."""

import numpy as np
from changeling_protocol import Calendar, NodeNumber, TrackNumber, closings
from changeling_statistics import Attendance, NodeTally, Tallies, counterpart_of, releases
from changeling_statistics.estimation.entries import GroupEdges, entry_covariance, expected_moments, expected_variances
from changeling_statistics.testing import matrices

SCALE = 1200
"""How many entries have each history, where tallies stand for what is expected."""


def dense_row(network, plus, minus=0, until=None):
    """K of v_plus - v_minus by dense weighted least squares on the releases closed by `until`; minimum norm."""
    return _best_row(network, np.diag(network.variance), plus, minus, until)


def best_row(known, plus, minus=0, until=None):
    """K of v_plus - v_minus by dense generalized least squares: the inverse of the whole covariance of all releases.

    That covariance is put together group by group from what the designer expects of one entry.
    """
    survey, network = known.survey, known.network
    V = np.zeros((len(network.end),) * 2)
    moments = expected_moments(len(survey.answers), survey.expected, network.periods)
    first = 0
    for number, group in enumerate(survey.plan.groups):
        at = np.flatnonzero(known.group == number)
        edges = GroupEdges(group, known.track[at] - first, network.start[at], network.end[at])
        response = [
            expected_variances(
                survey.plan.tracks[track].randomizer,
                np.array([node.start]),
                np.array([node.end]),
                survey.expected,
                survey.closed,
            )[0]
            for track, _, node, _ in (known.nodes[e] for e in at)
        ]
        V[np.ix_(at, at)] = entry_covariance(edges, np.array(response), moments).whole / group.share
        first += len(group.tracks)
    return _best_row(network, V, plus, minus, until)


def _best_row(network, V, plus, minus, until):
    used = np.flatnonzero(network.end <= (network.periods if until is None else until))
    B = np.zeros((len(used), network.periods + 1))
    B[np.arange(len(used)), network.end[used]] += 1
    B[np.arange(len(used)), network.start[used]] -= 1
    contrast, row = np.zeros(network.periods + 1), np.zeros(len(network.end))
    contrast[plus] += 1
    contrast[minus] -= 1
    inverse = np.linalg.inv(V[np.ix_(used, used)])
    row[used] = contrast @ np.linalg.pinv(B.T @ inverse @ B, rcond=1e-10) @ B.T @ inverse
    return row


def attended(survey, nodes):
    """Tallies of these nodes, as if the members of each group had been there from the first closing to the last.

    How many these are is told by the node that most report on, if all of the group do; else by the mean of its nodes.
    """
    attendance = {}
    periods = closings(survey.plan, 0, survey.calendar.periods)
    for group in range(len(survey.plan.groups)):
        whole, drawn = [0], [0]
        for number, track in survey.plan.numbered(group):
            reports = [tally.reports for (of, _), tally in nodes.items() if of == number]
            if reports and track.reports == track.count:
                whole.append(max(reports))
            elif reports:
                drawn.append(round(np.mean(reports) * track.count / track.reports))
        if size := max(whole) or max(drawn):
            attendance |= {(group, period): Attendance(size, size * (period == periods[0])) for period in periods}
    return Tallies(nodes, attendance)


def uniform(track, reports, generator):
    """The tally of so many symbols, each as likely as any other."""
    symbols = generator.integers(0, track.randomizer.symbols, reports).astype(np.uint64)
    return counterpart_of(track.randomizer).tally(symbols)


def answered(survey, attendance, generator, draw=uniform):
    """Tallies of all nodes, each of as many reports as are due of those who are heard as it closes."""
    nodes = {}
    for number, track in enumerate(survey.plan.tracks):
        for at in track.node_numbers():
            if there := attendance.get((survey.plan.group_of(number), track.node(at).end)):
                due = there.heard * track.reports // track.count
                nodes[TrackNumber(number), NodeNumber(at)] = draw(track, due, generator)
    return Tallies(nodes, attendance)


def random_tallies(survey, generator, reports=500):
    """Tallies of uniformly random symbols, for plans of k-RR."""
    tallies = {}
    for number, track in enumerate(survey.plan.tracks):
        m = track.randomizer.symbols
        for at in range(1, track.count + 1):
            tallies[number, at] = NodeTally(reports, generator.multinomial(reports, np.full(m, 1 / m)))
    return attended(survey, tallies)


def expected_tally(randomizer, inputs):
    """The expected tally of reports with these true inputs, counts[u] each: decoding it gives the truth."""
    return NodeTally(int(np.sum(inputs)), matrices(randomizer)[0] @ np.asarray(inputs, dtype=float))


def inputs_of(track, node, states):
    """counts[u]: how many of the entries, states of shape (entries, T+1), have the input u on a node."""
    space = track.randomizer.space
    counts = np.zeros(space.size, dtype=np.int64)
    for row in states:
        counts[space.index(int(row[node.start]), int(row[node.end]))] += 1
    return counts


def noiseless(survey, states, scale=SCALE):
    """Releases as if every report were what it is expected to be, of as many entries as the plan has report each node.

    states: shape (kinds, T+1), of `scale` entries each. For randomizers whose tallies count symbols.
    """
    nodes = {}
    for number, track in enumerate(survey.plan.tracks):
        share = survey.plan.groups[survey.plan.group_of(number)].share / survey.plan.total_share
        part = share * track.reports / track.count
        for at, node in enumerate(track.nodes(), 1):
            full = expected_tally(track.randomizer, inputs_of(track, node, states) * scale)
            nodes[number, at] = NodeTally(round(full.reports * part), full.slots * part)
    return releases(survey, attended(survey, nodes))


def calendar(periods):
    return Calendar(1_800_000_000, 60, periods)
