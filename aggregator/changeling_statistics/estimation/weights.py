"""Which weights the nodes of a survey get: from its plan and what its designer expects, never from the answers.

Where entries say several things that hang together, because a joint response makes them, or because only some of the
entries are asked, the weights are those of `information`. Where every release is independent of the others, or the
calendar is long, they are those of the network of resistors.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from changeling_protocol import ExpectedChanges, Survey

from .entry_covariance import GroupEdges, entry_covariance
from .expected import expected_moments, expected_variances
from .information import BestWeights, Heard, Whitened
from .network import Indices, Network
from .releases import LEAST_VARIANCE

MOST_DENSE_PERIODS = 1200
"""With more periods than that, matrices over all times and nodes take too long, and releases are weighed one by one."""


def best_weights(
    survey: Survey, network: Network, group: Indices, track: Indices, entries: float
) -> BestWeights | None:
    """The weights of a survey's nodes; None where the network's own do.

    network: the nodes as edges, in order of their ends, and after them the edges of a drift.
    group, track: the numbers of each node's group and track in the plan, shape (nodes,).
    entries: how many entries there are. Without a drift the weights do not depend on it; nor on anything but the survey
    and which of its nodes are published, so they are worked out once for these.
    """
    if survey.calendar.periods > MOST_DENSE_PERIODS or not hangs_together(survey):
        return None
    if len(group) < len(network.start):
        return _best_weights(_Published(survey, network, group, track), entries)
    return _remembered(_Published(survey, network, group, track, (survey.id, track.tobytes(), network.end.tobytes())))


@dataclass(frozen=True)
class _Published:
    """Which nodes of a survey are published; equal if their keys are."""

    survey: Survey = field(compare=False)
    network: Network = field(compare=False)
    group: Indices = field(compare=False)
    track: Indices = field(compare=False)
    key: tuple[bytes, ...] = ()


@lru_cache(maxsize=4)
def _remembered(published: _Published) -> BestWeights:
    return _best_weights(published, 1.0)


def _best_weights(published: _Published, entries: float) -> BestWeights:
    survey, network, group, track = published.survey, published.network, published.group, published.track
    plan, heard = survey.plan, []
    for number, each in enumerate(plan.groups):
        at = np.flatnonzero(group == number).astype(np.intp)
        if len(at):
            first = next(index for index, _ in plan.numbered(number))
            edges = GroupEdges(each, track[at] - first, network.start[at], network.end[at])
            share = each.share / plan.total_share
            told = whitened(edges, len(survey.answers), survey.expected, survey.closed, survey.calendar.periods)
            heard.append(Heard(told, at, share / entries))
    return BestWeights(network, heard)


def hangs_together(survey: Survey) -> bool:
    """Whether what one entry says of two nodes is correlated: by a joint response, or as not all entries are asked."""
    return is_partial(survey) or any(group.joint is not None for group in survey.plan.groups)


def is_partial(survey: Survey) -> bool:
    """Whether some entries are not asked on some nodes."""
    return len(survey.plan.groups) > 1 or any(track.reports < track.count for track in survey.plan.tracks)


def whitened(edges: GroupEdges, answers: int, expected: ExpectedChanges, closed: bool, periods: int) -> Whitened:
    """What one entry is expected to tell on these edges, in a survey of so many answers and periods."""
    variances = np.empty(len(edges.end))
    for place, track in enumerate(edges.group.tracks):
        at = edges.place == place
        variances[at] = expected_variances(track.randomizer, edges.start[at], edges.end[at], expected, closed)
    moments = expected_moments(answers, expected, periods)
    return Whitened(edges, entry_covariance(edges, np.maximum(variances, LEAST_VARIANCE), moments))
