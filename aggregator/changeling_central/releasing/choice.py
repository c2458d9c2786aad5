"""The mechanism that a person asks for by name, made for a query, or as a begun release has it."""

from dataclasses import dataclass
from fractions import Fraction

from changeling_protocol import Calendar, Constraint

from ..changes.linear_query import LinearQuery
from ..node_noise import Law
from .method import Made, ReleaseMechanism
from .offer import Asked, Option
from .offers import offered

_INSTEAD = {
    Option.WINDOW: "; swcr releases windows directly, and --afterwards reads them off hdcr's --nodes or square-root",
    Option.BRANCHING: "; hdcr has",
    Option.LAYERS: "; hdcr has",
}
"""What to take in place of a mechanism that lets something not be chosen."""


@dataclass(frozen=True, slots=True)
class MechanismChoice:
    """mechanism: the name of an offer. law: of the noise. branching, layers: of a hierarchy. None has these chosen; a
    branching or layers alone choose hdcr, which has them. adaptive: the guarantee must hold where people react to what
    is published.

    window: in periods, of changes over windows; alone it chooses swcr.

    ValueError for a name that is not offered, and for what the mechanism does not let choose.
    """

    mechanism: str | None = None
    law: str | None = None
    branching: int | None = None
    layers: int | None = None
    adaptive: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        if self.law is not None and self.law not in tuple(Law):
            raise ValueError(f"the noise is laplace or gaussian, got {self.law!r}")
        options = offered(self.name).options
        if self.adaptive and Option.ADAPTIVE not in options:
            raise ValueError(f"--adaptive: {self.name} promises nothing where people react to what is published")
        for option, value in (
            (Option.BRANCHING, self.branching),
            (Option.LAYERS, self.layers),
            (Option.WINDOW, self.window),
        ):
            if value is not None and option not in options:
                raise ValueError(f"--{option}: {self.name} has none{_INSTEAD.get(option, '')}")

    @property
    def name(self) -> str:
        """Of the offer that is taken."""
        if self.mechanism is not None:
            return self.mechanism
        if self.window is not None:
            return "swcr"
        return "best" if self.branching is None and self.layers is None else "hdcr"

    def made(
        self,
        query: LinearQuery,
        calendar: Calendar,
        constraint: Constraint,
        epsilon: Fraction,
        delta: Fraction = Fraction(0),
        begun: Made | None = None,
        rho: Fraction | None = None,
    ) -> ReleaseMechanism[object]:
        """The mechanism that costs an entry at most (epsilon, delta), or rho where that is given.

        begun: what a begun release was made with. If that is what is chosen here, its shape and its noise are taken, as
        choosing takes long, and a later version of a library might choose otherwise.
        """
        return offered(self.name).make(self.asked(query, calendar, constraint, epsilon, delta, begun, rho))

    def asked(
        self,
        query: LinearQuery,
        calendar: Calendar,
        constraint: Constraint,
        epsilon: Fraction,
        delta: Fraction = Fraction(0),
        begun: Made | None = None,
        rho: Fraction | None = None,
    ) -> Asked:
        """What is asked of the offer; arguments as of `made`. ValueError for a delta or a law that it does not take."""
        options = offered(self.name).options
        gaussian = self.law == Law.GAUSSIAN
        if (delta and Option.DELTA not in options) or (gaussian and Option.LAW not in options):
            raise ValueError(f"{self.name} is released at a pure epsilon, with laplace noise")
        if rho is not None and gaussian and Option.RHO not in options:
            raise ValueError(f"at rho {self.name} is released with laplace noise: for gaussian take square-root")
        law = None if self.law is None else Law(self.law)
        wished = self.branching, self.layers, self.adaptive
        return Asked(query, calendar, constraint, epsilon, delta, law, *wished, begun, self.window, rho)
