"""The mechanism that a person asks for by name, made for a query, or as a begun release has it."""

from dataclasses import dataclass
from fractions import Fraction

from changeling_protocol import Calendar, Constraint

from ..changes.linear_query import LinearQuery
from ..node_noise import Law
from .method import Made, ReleaseMechanism
from .offer import Asked, Option
from .offers import offered


@dataclass(frozen=True, slots=True)
class MechanismChoice:
    """mechanism: the name of an offer. law: of the noise. branching, layers: of a hierarchy, None to have them chosen.

    ValueError for a name that is not offered, and for what the mechanism does not let choose.
    """

    mechanism: str = "hdcr"
    law: str = Law.LAPLACE
    branching: int | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        if self.law not in tuple(Law):
            raise ValueError(f"the noise is laplace or gaussian, got {self.law!r}")
        options = offered(self.mechanism).options
        for option, value in ((Option.BRANCHING, self.branching), (Option.LAYERS, self.layers)):
            if value is not None and option not in options:
                raise ValueError(f"--{option}: {self.mechanism} has none")

    def made(
        self,
        query: LinearQuery,
        calendar: Calendar,
        constraint: Constraint,
        epsilon: Fraction,
        delta: Fraction = Fraction(0),
        begun: Made | None = None,
    ) -> ReleaseMechanism[object]:
        """The mechanism that costs an entry at most (epsilon, delta).

        begun: what a begun release was made with. If that is what is chosen here, its shape and its noise are taken, as
        choosing takes long, and a later version of a library might choose otherwise.
        """
        offer = offered(self.mechanism)
        if (delta and Option.DELTA not in offer.options) or (
            self.law != Law.LAPLACE and Option.LAW not in offer.options
        ):
            raise ValueError(f"{self.mechanism} is released at a pure epsilon, with laplace noise")
        shape = self.branching, self.layers
        return offer.make(Asked(query, calendar, constraint, epsilon, delta, Law(self.law), *shape, begun))
