"""Static mechanisms: linear queries over one dataset, once, behind one interface that every dynamic one takes."""

from .concentrated import concentrated_budget
from .counting import BasicCounting
from .interface import Data, Priced, Static, as_plain, from_plain
from .linear import LinearQueries
from .weights import MultiplicativeWeights

__all__ = [
    "BasicCounting",
    "Data",
    "LinearQueries",
    "MultiplicativeWeights",
    "Priced",
    "Static",
    "as_plain",
    "concentrated_budget",
    "from_plain",
]
