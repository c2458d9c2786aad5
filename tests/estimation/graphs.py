"""Release graphs and tallies that the tests of estimation share, and their dense solution."""

import numpy as np
from changeling_protocol import Calendar, closings
from changeling_statistics import Attendance, Network, NodeTally, Tallies
from changeling_statistics.estimation.entries import GroupEdges, entry_covariance, expected_moments, expected_variances


def hierarchy(periods, widths, generator=None):
    """The network of a hierarchy; variances 1, or random in [1, 5)."""
    spans = sorted(
        ((s, s + w) for w in widths for s in range(0, periods - w + 1, w)), key=lambda span: (span[1], span[0])
    )
    start, end = np.array(spans, dtype=np.intp).T
    variance = np.ones(len(spans)) if generator is None else generator.uniform(1, 5, len(spans))
    return Network(periods, start, end, variance)


def scattered(periods, edges, generator):
    """A random network, in which some times may be connected with nothing."""
    start = generator.integers(0, periods, edges)
    end = start + 1 + np.array([generator.integers(0, periods - s) for s in start])
    order = np.argsort(end, kind="stable")
    return Network(periods, start[order], end[order], generator.uniform(0.5, 4, edges))


def dense_row(network, plus, minus=0, until=None):
    """K of v_plus - v_minus by dense weighted least squares on the releases closed by `until`; minimum norm."""
    used = network.end <= (network.periods if until is None else until)
    B = np.zeros((len(network.start), network.periods + 1))
    B[np.arange(len(B)), network.end] += 1
    B[np.arange(len(B)), network.start] -= 1
    root = np.where(used, 1 / np.sqrt(network.variance), 0)
    contrast = np.zeros(network.periods + 1)
    contrast[plus] += 1
    contrast[minus] -= 1
    return contrast @ np.linalg.pinv(B * root[:, None], rcond=1e-10) * root


def best_row(known, plus, minus=0, until=None):
    """K of v_plus - v_minus by dense generalized least squares: the inverse of the whole covariance of all releases.

    That covariance is put together group by group from what the designer expects of one entry.
    """
    survey, network = known.survey, known.network
    used = np.flatnonzero(network.end <= (network.periods if until is None else until))
    V = np.zeros((len(network.end),) * 2)
    moments = expected_moments(len(survey.answers), survey.expected, network.periods)
    first = 0
    for number, group in enumerate(survey.plan.groups):
        at = np.flatnonzero(known.group == number)
        edges = GroupEdges(group, known.track[at] - first, network.start[at], network.end[at])
        nodes = [known.nodes[e] for e in at]
        response = [
            expected_variances(
                survey.plan.tracks[node.track].randomizer,
                np.array([node.node.start]),
                np.array([node.node.end]),
                survey.expected,
                survey.closed,
            )[0]
            for node in nodes
        ]
        V[np.ix_(at, at)] = entry_covariance(edges, np.array(response), moments).whole / group.share
        first += len(group.tracks)
    B = np.zeros((len(used), network.periods + 1))
    B[np.arange(len(used)), network.end[used]] += 1
    B[np.arange(len(used)), network.start[used]] -= 1
    contrast = np.zeros(network.periods + 1)
    contrast[plus] += 1
    contrast[minus] -= 1
    inverse = np.linalg.inv(V[np.ix_(used, used)])
    row = np.zeros(len(network.end))
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
    space = randomizer.space
    P = np.array(
        [[randomizer.weight(o, u) / randomizer.total(u) for u in range(space.size)] for o in range(randomizer.symbols)]
    )
    return NodeTally(int(np.sum(inputs)), P @ np.asarray(inputs, dtype=float))


def inputs_of(track, node, states):
    """counts[u]: how many of the entries, states of shape (entries, T+1), have the input u on a node."""
    space = track.randomizer.space
    counts = np.zeros(space.size, dtype=np.int64)
    for row in states:
        counts[space.index(int(row[node.start]), int(row[node.end]))] += 1
    return counts


def noiseless(survey, states):
    """Tallies that are what everybody's reports are expected to be, each entry standing for `total` entries.

    states: shape (entries, T+1). For plans of k-RR in which every entry reports everything.
    """
    tallies = {}
    for number, track in enumerate(survey.plan.tracks):
        total = track.randomizer.total()
        for at, node in enumerate(track.nodes(), 1):
            full = expected_tally(track.randomizer, inputs_of(track, node, states) * total)
            tallies[number, at] = NodeTally(full.reports, full.slots)
    return attended(survey, tallies)


def calendar(periods):
    return Calendar(1_800_000_000, 60, periods)
