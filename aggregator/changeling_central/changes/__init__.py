"""Linear-query changes of a database, released node by node: DCR, HDCR, SWCR, their best estimates, the advisor."""

from .advisor import Advice, advise
from .answer_query import answer_query
from .dcr import Dcr, disjoint_release
from .hdcr import Hdcr, NodeRelease, hierarchy
from .hierarchy_choice import best_hierarchy
from .linear_query import LinearQuery, clipped_sum, counting, histogram_query
from .release_graph import BestEstimates, Level, cover_sum, retrospective
from .swcr import Swcr, Windows, sliding_windows

__all__ = [
    "Advice",
    "BestEstimates",
    "Dcr",
    "Hdcr",
    "Level",
    "LinearQuery",
    "NodeRelease",
    "Swcr",
    "Windows",
    "advise",
    "answer_query",
    "best_hierarchy",
    "clipped_sum",
    "counting",
    "cover_sum",
    "disjoint_release",
    "hierarchy",
    "histogram_query",
    "retrospective",
    "sliding_windows",
]
