"""The mechanism that a person asks for by name, made for a query, or as a begun release has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from changeling_protocol import Calendar, Constraint

from ..changes.hdcr import hierarchy
from ..changes.hierarchy_choice import best_hierarchy
from ..changes.linear_query import LinearQuery
from ..node_noise import Law
from .counters import COUNTERS, counter_method
from .methods import HierarchyMethod, Method

MECHANISMS = ("hdcr", "dcr", *COUNTERS)


@dataclass(frozen=True, slots=True)
class Wish:
    """mechanism: of MECHANISMS. branching, layers: of hdcr's hierarchy, None to have them chosen. ValueError for what
    no mechanism has."""

    mechanism: str = "hdcr"
    law: str = Law.LAPLACE
    branching: int | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        if self.law not in tuple(Law):
            raise ValueError(f"the noise is laplace or gaussian, got {self.law!r}")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"there is no mechanism {self.mechanism!r}: choose {', '.join(MECHANISMS)}")
        if self.mechanism != "hdcr" and (self.branching, self.layers) != (None, None):
            raise ValueError(f"--branching and --layers are of hdcr's hierarchy, and {self.mechanism} has none")

    def method(
        self,
        query: LinearQuery,
        calendar: Calendar,
        constraint: Constraint,
        epsilon: Fraction,
        delta: Fraction,
        begun: Mapping[str, Any] | None = None,
    ) -> Method:
        """The method that costs an entry at most (epsilon, delta).

        begun: what a begun release is made with. If that is what is wished for, its shape and its noise are taken, as
        choosing takes long, and a later version of a library might choose otherwise.
        """
        if self.mechanism in COUNTERS:
            if delta or self.law != Law.LAPLACE:
                raise ValueError(f"{self.mechanism} is released at a pure epsilon, with laplace noise")
            return counter_method(self.mechanism, query, calendar, constraint, epsilon)
        if begun is not None and self._is(begun):
            return HierarchyMethod.resumed(begun, query, calendar, epsilon, delta)
        c, h = 2, 1
        if self.mechanism == "hdcr":
            best = best_hierarchy(
                query, calendar, constraint, epsilon, delta, Law(self.law), self.branching, self.layers
            )
            c, h = best.branching, best.layers
        return HierarchyMethod(hierarchy(query, calendar, constraint, epsilon, delta, c, h, Law(self.law)))

    def _is(self, begun: Mapping[str, Any]) -> bool:
        match begun:
            case {"kind": "hierarchy", "law": self.law, "widths": [_, *wider]}:
                if self.mechanism == "dcr":
                    return not wider
                return self.layers in (None, 1 + len(wider)) and (not wider or self.branching in (None, wider[0]))
        return False
