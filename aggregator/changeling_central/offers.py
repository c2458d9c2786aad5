"""What `changeling release` can be made with: the table of mechanisms, and the choice among them.

A `ReleaseMechanism` takes one period's true change and gives the level of the query. An `Offer` makes one for what is
`Asked`; a new mechanism is offered by one value, given to `register`. Mechanisms of other packages are found by the
entry point group `changeling.mechanisms`: each entry point is a function without arguments that registers its offers.

Where nobody names a mechanism, the one of the least predicted error is taken. Predicted errors are exact, from noise
alone; they read no data, so choosing costs nothing. A pure epsilon is as good a promise with a delta beside it, so a
delta never makes a release worse.
"""

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from importlib.metadata import entry_points
from math import isnan, sqrt
from typing import Generic, cast

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Changelog, Counts, Mutations, States
from numpy.typing import NDArray

from .linear_query import LinearQuery
from .mechanism import Level, Made, Mechanism, State
from .noise import Law


@dataclass(frozen=True, slots=True, eq=False)
class PeriodChange:
    """The changes of one period to a query. mutations: those of the period. query: whose columns are counted."""

    changelog: Changelog
    mutations: Mutations
    query: LinearQuery

    @property
    def gained(self) -> Counts:
        """The gain of each column by the answers that began, shape (w,), in units."""
        return self._sum(self.mutations.new)

    @property
    def lost(self) -> Counts:
        """The loss of each column by the answers that ended, shape (w,), in units."""
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
        """The ending of the columns' names, where it is not their levels that are published."""
        return ""

    def expected_variance(self, step: int, updates: float) -> float | None:  # noqa: ARG002
        """Of each column after so many periods, in units squared, for the curator: it may follow from the data.

        updates: how often the column was moved by then. None where nothing is known.
        """
        return self.variance(step)

    def window_variance(self, step: int, window: int) -> float | None:  # noqa: ARG002
        """Variance of a column's change from `window` periods before to the end of this one, in units squared.

        The level before the first period is 0. None where the mechanism does not say.
        """
        return None

    @property
    def law(self) -> Law:
        """The law whose tails the noise of its levels has."""
        return Law.LAPLACE

    @abstractmethod
    def made_with(self) -> Made:
        """All that it was made with, noise included: a state of one mechanism is never used with another."""

    def identity(self) -> str:
        """The key of a saved state: the mechanism's name, its budget and what it was made with.

        The query is not in it, whose table may grow with the answers of a changelog: the terms of a release hold it.
        """
        stated = self.guarantee
        cost = f"{stated.epsilon} {stated.delta}" if stated.rho is None else f"rho {stated.rho}"
        return f"{type(self).__name__} {cost} {json.dumps(self.made_with(), sort_keys=True)}"

    @property
    def covers_reactions(self) -> bool:
        """True where the guarantee is proved for entries and people that react to what is published, too.

        At a pure epsilon it always is (docs/mathematics.md, "Central releases"); with a delta a mechanism must say so.
        """
        return not self.guarantee.delta

    @property
    def noise_in_words(self) -> str:
        """Describes its shape and the noise on its nodes; "" where what it was made with says that."""
        return ""

    @abstractmethod
    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """True if the guarantee holds for this query on this calendar, for entries that keep to this constraint."""


def root_mean_square(variance: Callable[[int], float | None], query: LinearQuery, periods: int) -> float | None:
    """The standard error of a release, root mean square over the calendar, in what the query counts.

    variance: of the levels at the end of a period, as a `ReleaseMechanism` states or expects it; looked up at no more
    than MOST_STEPS periods, evenly over the calendar. Returns None where nothing is known.
    """
    steps = np.unique(np.linspace(1, periods, min(periods, MOST_STEPS)).round().astype(int)).tolist()
    known = [v for v in map(variance, steps) if v is not None and not isnan(v)]
    return sqrt(sum(known) / len(known)) * float(query.unit) if known else None


class MechanismOption(StrEnum):
    """Options of a mechanism, by the names that the command has for them."""

    LAW = "law"
    DELTA = "delta"
    RHO = "rho"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a release, and the most that an entry may lose by it.

    query: what is counted. calendar: the periods. constraint: what entries keep to. epsilon, delta: the budget of the
    whole release. law: of the noise, None to have it chosen. begun: what a release
    that has begun was made with, None for a new one. window: in periods, None where there is none. rho: the budget in
    concentrated privacy, of which epsilon is then the pure one that is worth as much; None where the budget is
    (epsilon, delta).
    """

    query: LinearQuery
    calendar: Calendar
    constraint: Constraint
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    law: Law | None = None
    begun: Made | None = None
    window: int | None = None
    rho: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Offer(Generic[State]):
    """A mechanism that a release can be made with.

    name: what a person writes behind --mechanism. summary: one line of help. make: the mechanism that costs an entry at
    most the budget; ValueError where it does not take the query, the calendar or the constraint. options: what may be
    chosen of it; without LAW and DELTA it is released at a pure epsilon, with Laplace noise, and without RHO, where the
    budget is in rho, at the pure epsilon that is worth it. good_for: what to take it for,
    said before anything is drawn with how far it is expected to err; "" for what is good for most.
    """

    name: str
    summary: str
    make: Callable[[Asked], ReleaseMechanism[State]]
    options: frozenset[MechanismOption] = frozenset()
    good_for: str = ""


MOST_STEPS = 1000
PLUGINS = "changeling.mechanisms"
"""The group of entry points by which mechanisms of other packages are found."""
_OFFERS: dict[str, Offer[object]] = {}
"""By name, in the order of the help."""


def register(offer: Offer[State]) -> None:
    """Offer one more mechanism to `changeling release`. ValueError for a name that is taken."""
    if offer.name in _OFFERS:
        raise ValueError(f"there is a mechanism {offer.name!r} already")
    # a state of any type will do: it goes back to where it came from
    _OFFERS[offer.name] = cast("Offer[object]", offer)


def all_offers() -> tuple[Offer[object], ...]:
    """Everything that is offered, in the order of the help, mechanisms of other packages included."""
    _load_plugins()
    return tuple(_OFFERS.values())


def offered(name: str) -> Offer[object]:
    """The offer of this name. ValueError for a name that is none."""
    _load_plugins()
    try:
        return _OFFERS[name]
    except KeyError:
        raise ValueError(f"there is no mechanism {name!r}: choose {', '.join(_OFFERS)}") from None


@cache
def _load_plugins() -> None:
    """Have other packages register their offers, once. What an extra that is not installed needs is left out."""
    for plugin in entry_points(group=PLUGINS):
        try:
            registers = plugin.load()
        except ModuleNotFoundError:
            continue
        registers()


@dataclass(frozen=True, slots=True)
class MechanismChoice:
    """mechanism: the name of an offer. law: of the noise. None has these chosen. window: in periods, of changes over
    windows; alone it chooses swcr.

    ValueError for a name that is not offered, and for what the mechanism does not let choose.
    """

    mechanism: str | None = None
    law: str | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.law is not None and self.law not in tuple(Law):
            raise ValueError(f"the noise is laplace or gaussian, got {self.law!r}")
        options = offered(self.name).options
        if self.window is not None and MechanismOption.WINDOW not in options:
            raise ValueError(
                f"--window: {self.name} has none; swcr releases windows directly, and --afterwards reads them off the "
                "levels of ahead, fresh, optimised or square-root"
            )

    @property
    def name(self) -> str:
        """The name of the offer that is taken."""
        return self.mechanism or ("best" if self.window is None else "swcr")

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
        """The request to the offer; arguments as of `made`. ValueError for a delta or a law that it does not take."""
        options = offered(self.name).options
        gaussian = self.law == Law.GAUSSIAN
        if (delta and MechanismOption.DELTA not in options) or (gaussian and MechanismOption.LAW not in options):
            raise ValueError(f"{self.name} is released at a pure epsilon, with laplace noise")
        if rho is not None and gaussian and MechanismOption.RHO not in options:
            raise ValueError(f"at rho {self.name} is released with laplace noise: for gaussian take square-root")
        law = None if self.law is None else Law(self.law)
        return Asked(query, calendar, constraint, epsilon, delta, law, begun, self.window, rho)
