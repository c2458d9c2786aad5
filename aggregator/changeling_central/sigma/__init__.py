"""Sigma-counting: many counting queries of one table, nested ones never out of order.

>>> from fractions import Fraction
>>> from changeling_central.noise import OpenDPNoise
>>> domain = Domain.of(age=range(121), city=["Paris", "Rome", "elsewhere"])
>>> adults, romans = Query.of(domain, "age >= 18"), Query.of(domain, "18 <= age < 65 and city == 'Rome'")
>>> counting = SigmaCounting(Algebra.of([adults, romans]), Fraction(1))
>>> table = domain.table({"age": [12, 30, 44, 80], "city": ["Rome", "Rome", "Paris", "Rome"]})
>>> state, _ = counting.step(counting.start(), table, OpenDPNoise())
>>> counting.answer(state, romans).value <= counting.answer(state, adults).value
True
"""

from .algebra import Algebra
from .answer import Answer, under_replacement
from .benchmark import Benchmark
from .domain import Domain, Table
from .evolving import Assumed, Evolving
from .grouped import Grouped, grouped
from .online import OnlineCounting
from .query import Query
from .sigma_counting import SigmaCounting

__all__ = [
    "Algebra",
    "Answer",
    "Assumed",
    "Benchmark",
    "Domain",
    "Evolving",
    "Grouped",
    "OnlineCounting",
    "Query",
    "SigmaCounting",
    "Table",
    "grouped",
    "under_replacement",
]
