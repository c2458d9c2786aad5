"""What a fully dynamic count is off by at least, before anything is known of the data.

After j segments the answer adds up one node for each binary one of j, each noisy as its first round is, and what it
was told of deletions since. Restarts add to it, and an answer is as old as its segment.
"""

from ..static import Data
from .fully_dynamic import FullyDynamic
from .interval_tree import left_path, level_of


def least_variance(mechanism: FullyDynamic[Data], segments: int) -> float | None:
    """Of every answer after so many segments in which no node restarted, in units squared; None where none is known."""
    total, tree = 0.0, mechanism.tree
    for node in left_path(segments):
        at = tree.at_level(level_of(node))
        begun = tree.static.under(*at.round_share(1)).variance
        since = at.stream(1).variance(segments - node) if node < segments else 0.0
        if begun is None or since is None:
            return None
        total += begun + since
    return total
