"""A mechanism of a release: one period's true change in, the level of the query out.

It pairs a mechanism with the estimate made from what that published, which is post-processing and costs nothing.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import Calendar, Constraint, encode
from changeling_statistics import Changelog, Counts, Mutations, States
from numpy.typing import NDArray

from ..changes.linear_query import LinearQuery
from ..changes.release_graph import Level
from ..mechanism import Mechanism, State

Made: TypeAlias = dict[str, str | int | list[int]]
"""What a release's mechanism was made with, by name, noise included: kept in the state of the release."""


@dataclass(frozen=True, slots=True, eq=False)
class PeriodChange:
    """What one period does to a query. mutations: those of the period. query: whose columns are counted."""

    changelog: Changelog
    mutations: Mutations
    query: LinearQuery

    @property
    def gained(self) -> Counts:
        """What each column gains by the answers that began, shape (w,), in units."""
        return self._sum(self.mutations.new)

    @property
    def lost(self) -> Counts:
        """What each column loses by the answers that ended, shape (w,), in units."""
        return self._sum(self.mutations.old)

    @property
    def net(self) -> Counts:
        """The true change of each column, shape (w,), in units."""
        return self.gained - self.lost

    @property
    def moves(self) -> NDArray[np.int64]:
        """How far each mutation moves each column, shape (mutations, w), in units."""
        cells = self.query.cells
        moved: NDArray[np.int64] = cells[self.mutations.new] - cells[self.mutations.old]
        return moved

    def _sum(self, states: States) -> Counts:
        counted: Counts = self.query.cells[states].sum(0)
        return counted


class ReleaseMechanism(Mechanism[State, PeriodChange, Level]):
    """A mechanism that `changeling release` runs: a step is one period, and releases the query's level at its end.

    The level's variance is nan where none is known. Its values are in the query's units.
    """

    __slots__ = ()

    @property
    def shows(self) -> str:
        """What is added to the names of the query's columns, where it is not their levels that are published."""
        return ""

    def expected_variance(self, step: int) -> float | None:
        """Of each column after so many periods, in units squared, as far as it is known before the data are.

        Where no `variance` is stated it may be a lower bound. None where nothing is known.
        """
        return self.variance(step)

    def window_variance(self, step: int, window: int) -> float | None:  # noqa: ARG002
        """Of the difference of a column's levels after this period and `window` periods before, in units squared.

        The level before the first period is 0. None where the mechanism does not say.
        """
        return None

    @abstractmethod
    def made_with(self) -> Made:
        """What it is, noise included: a state of one mechanism is never used with another."""

    def identity(self) -> str:
        """What a saved state belongs to: the mechanism's name, its budget and what it was made with.

        The query is not in it, whose table may grow with the answers of a changelog: the terms of a release hold it.
        """
        stated = self.guarantee
        cost = f"{stated.epsilon} {stated.delta}" if stated.rho is None else f"rho {stated.rho}"
        return f"{type(self).__name__} {cost} {encode(self.made_with()).hex()}"

    @property
    def noise_in_words(self) -> str:
        """Its shape and the noise on its nodes; "" where what it was made with says that."""
        return ""

    @abstractmethod
    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """Whether the guarantee holds for this query on this calendar, for entries that keep to this constraint."""
