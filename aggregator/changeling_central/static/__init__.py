"""Static mechanisms: linear queries over one dataset, behind one interface that every dynamic mechanism takes."""

from .counting import BasicCounting
from .interface import Data, Priced, Static, check_answers, check_data
from .linear import LinearQueries
from .metered import Metered
from .once import Once, OnceState
from .weights import MultiplicativeWeights

__all__ = [
    "BasicCounting",
    "Data",
    "LinearQueries",
    "Metered",
    "MultiplicativeWeights",
    "Once",
    "OnceState",
    "Priced",
    "Static",
    "check_answers",
    "check_data",
]
