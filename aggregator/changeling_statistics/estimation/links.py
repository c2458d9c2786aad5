"""The links of the chains of nodes that tell, or bound, who changed between two times."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .network import Indices
from .releases import Releases


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The change nodes that chains lead over.

    source: the edge whose tally says who changed, shape (links,). start, end: the times that it links.
    tells: whether that is exact.
    """

    source: Indices
    start: Indices
    end: Indices
    tells: NDArray[np.bool_]


def links(releases: Releases, changes: Indices, identified: NDArray[np.bool_]) -> Links:
    """The change nodes that chains are made of. For one that is lost the last before it on its track stands in.

    changes: the edges of change nodes that start after time 0. identified: of all nodes, those whose tally tells who
    changed, shape (nodes,).
    """
    network = releases.network
    ids = {(used.track, used.number): edge for edge, used in enumerate(releases.nodes)}
    later, last = set(changes.tolist()), int(network.end.max(initial=0))
    source, start, end = [], [], []
    for number in np.unique(releases.track[changes]).tolist():
        track, before = releases.survey.plan.tracks[number], None
        for at in track.node_numbers():
            edge, node = ids.get((number, at)), track.node(at)
            if edge is not None:
                before = edge if edge in later else None
            elif before is not None and node.end <= last:
                source.append(before)
                start.append(node.start)
                end.append(node.end)
    return Links(
        source=np.concatenate([changes, np.array(source, np.intp)]),
        start=np.concatenate([network.start[changes], np.array(start, np.intp)]),
        end=np.concatenate([network.end[changes], np.array(end, np.intp)]),
        tells=np.concatenate([identified[changes], np.zeros(len(source), np.bool_)]),
    )
