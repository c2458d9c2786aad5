"""What a release is made with: one period's true change in, the level of the query out, and a state that is saved.

A method pairs a mechanism with the estimate made from what it published; the estimate is post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics.changelog import Changelog, Mutations
from changeling_statistics.tallies import Counts

from ..changes.dcr import NEIGHBOURS
from ..changes.hdcr import Hdcr, HdcrState, hierarchy_shifts
from ..changes.linear_query import LinearQuery
from ..changes.release_graph import BestEstimates, Level, frontier_fields, frontier_from_fields
from ..errors import BadState
from ..mechanism import Guarantee
from ..node_noise import Law, NodeNoise
from ..noise import Noise


@dataclass(frozen=True, slots=True, eq=False)
class PeriodChange:
    """What one period does to a query: its mutations, and what each column gains and loses by them, shape (w,)."""

    changelog: Changelog
    mutations: Mutations
    query: LinearQuery

    @property
    def gained(self) -> Counts:
        return self._sum(self.mutations.new)

    @property
    def lost(self) -> Counts:
        return self._sum(self.mutations.old)

    def _sum(self, states: Any) -> Counts:
        d = len(self.query.table)
        counted: Counts = np.bincount(states, minlength=d) @ np.array(self.query.table, np.int64)
        return counted


class Method(Protocol):
    """A release's mechanism and estimator. States are plain fields for canonical MessagePack."""

    @property
    def guarantee(self) -> Guarantee: ...

    def named(self) -> dict[str, Any]:
        """What it is, noise included: a state of one method is never used with another."""
        ...

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether the guarantee holds for this query on this calendar, for entries that keep to this constraint."""
        ...

    def start(self) -> dict[str, Any]: ...

    def step(self, state: dict[str, Any], change: PeriodChange, noise: Noise) -> tuple[dict[str, Any], Level]:
        """The state after one more period, and the query's level at its end, in units; variance nan if not known."""
        ...


@dataclass(frozen=True, slots=True)
class HierarchyMethod:
    """DCR and HDCR, with the best online estimates on the release graph."""

    mechanism: Hdcr

    @classmethod
    def resumed(
        cls, named: Mapping[str, Any], query: LinearQuery, calendar: Calendar, epsilon: Fraction, delta: Fraction
    ) -> "HierarchyMethod":
        """The method that a begun release is made with, shape and noise as `named` says: neither is chosen again.

        Whether that noise keeps the promise of (epsilon, delta) is for `covers` to say.
        """
        match named:
            case {"kind": "hierarchy", "widths": list(widths), "law": str(law), "scale": str(scale), "source": source}:
                noise, stated = NodeNoise(Law(law), float.fromhex(scale)), Guarantee(epsilon, delta, NEIGHBOURS, source)
                return cls(Hdcr(query, calendar, tuple(widths), noise, stated))
        raise BadState(f"not a hierarchy: {sorted(named)}")

    @property
    def guarantee(self) -> Guarantee:
        return self.mechanism.guarantee

    @property
    def estimates(self) -> BestEstimates:
        m = self.mechanism
        return BestEstimates(m.calendar.periods, m.widths, m.query.width)

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        m, stated = self.mechanism, self.mechanism.guarantee
        if (m.query, m.calendar) != (query, calendar):
            return False
        shifts = hierarchy_shifts(query, calendar, constraint, m.widths)
        if m.noise.law is Law.LAPLACE and m.noise.epsilon(shifts) <= stated.epsilon:
            return True
        return stated.delta > 0 and m.noise.delta(shifts, float(stated.epsilon)) <= float(stated.delta)

    def named(self) -> dict[str, Any]:
        noise = self.mechanism.noise
        return {
            "kind": "hierarchy",
            "widths": list(self.mechanism.widths),
            "law": str(noise.law),
            "scale": noise.scale.hex(),
            "source": self.guarantee.source,
        }

    def start(self) -> dict[str, Any]:
        return self._fields(self.mechanism.start(), self.estimates.start())

    def step(self, state: dict[str, Any], change: PeriodChange, noise: Noise) -> tuple[dict[str, Any], Level]:
        nodes = HdcrState.from_fields(dict(state["nodes"]))
        frontier = frontier_from_fields(state["graph"], self.mechanism.query.width)
        nodes, released = self.mechanism.step(nodes, change.gained - change.lost, noise)
        frontier, level = self.estimates.step(frontier, released)
        return self._fields(nodes, frontier), level

    @staticmethod
    def _fields(nodes: HdcrState, frontier: Any) -> dict[str, Any]:
        return {"nodes": nodes.as_fields(), "graph": frontier_fields(frontier)}
