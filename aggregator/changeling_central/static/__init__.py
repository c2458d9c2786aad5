"""Static mechanisms: linear queries over one dataset, once, behind one interface that every dynamic one takes."""

from .counting import BasicCounting
from .interface import Data, Priced, Static, check_answers, check_data
from .linear import LinearQueries
from .once import Once, OnceState
from .weights import MultiplicativeWeights

__all__ = [
    "BasicCounting",
    "Data",
    "LinearQueries",
    "MultiplicativeWeights",
    "Once",
    "OnceState",
    "Priced",
    "Static",
    "check_answers",
    "check_data",
]
