"""What a release asks of a mechanism, and what an offer is that `changeling release` can take.

A new mechanism is offered by one value of `Offer`, given to `offers.register`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Generic

from changeling_protocol import Calendar, Constraint

from ..changes.linear_query import LinearQuery
from ..mechanism import State
from ..node_noise import Law
from .method import Made, ReleaseMechanism


class Option(StrEnum):
    """What may be chosen of a mechanism, by the names of the command's options."""

    LAW = "law"
    DELTA = "delta"
    RHO = "rho"
    ADAPTIVE = "adaptive"
    BRANCHING = "branching"
    LAYERS = "layers"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a mechanism is to release, and what an entry may lose by it.

    query: what is counted. calendar: the periods. constraint: what entries keep to. epsilon, delta: the budget of the
    whole release. law: of the noise. branching, layers: of a hierarchy. None has these chosen. adaptive: whether the
    guarantee must hold where people react to what is published. begun: what a release that has begun was made with,
    None for a new one. window: in periods, None where there is none. rho: the budget in concentrated privacy, of which
    epsilon is then the pure one that is worth as much; None where the budget is (epsilon, delta).
    """

    query: LinearQuery
    calendar: Calendar
    constraint: Constraint
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    law: Law | None = None
    branching: int | None = None
    layers: int | None = None
    adaptive: bool = False
    begun: Made | None = None
    window: int | None = None
    rho: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Offer(Generic[State]):
    """A mechanism that a release can be made with.

    name: what a person writes behind --mechanism. summary: one line of help. make: the mechanism that costs an entry at
    most the budget; ValueError where it does not take the query, the calendar or the constraint. options: what may be
    chosen of it; without LAW and DELTA it is released at a pure epsilon, with Laplace noise, and without RHO, where the
    budget is in rho, at the pure epsilon that is worth it. With ADAPTIVE its
    guarantee holds, or can be made to hold, where people react to what is published. good_for: what to take it for,
    said before anything is drawn with how far it is expected to err; "" for what is good for most.
    """

    name: str
    summary: str
    make: Callable[[Asked], ReleaseMechanism[State]]
    options: frozenset[Option] = frozenset()
    good_for: str = ""
