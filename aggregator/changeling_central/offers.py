"""What `changeling release` can be made with: the table of mechanisms, and the choice of the best.

    ahead           a tree of noise drawn ahead                              `ahead`
    square-root     Gaussian noise most of which cancels                     `square_root`
    fresh           every level with noise of its own                        `levels`
    optimised       levels read off the best matrix that a search finds      `optimised`
    swcr            the change over each window that ends with a period      `windows`

An `Offer` makes a `ReleaseMechanism` for what is `Asked`; a new one is given to `register`. Mechanisms of other
packages are found by the entry point group `changeling.mechanisms`: each entry point is a function without arguments
that registers its offers.

Where nobody names a mechanism, the one of the least predicted error is taken. Predicted errors are exact, from noise
alone; they read no data, so choosing costs nothing. A pure epsilon is as good a promise with a delta beside it, so a
delta never makes a release worse. What a release has begun with is never chosen again, as choosing takes long, and a
later version of a library might choose otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cache
from importlib.metadata import entry_points
from math import isnan, sqrt
from typing import Any, Generic, cast

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats

from .ahead import AheadTree, drawn_ahead
from .budget import implied_by
from .errors import BadState
from .levels import FreshLevels, WindowRelease, gaussian_levels, laplace_levels, sliding_windows, windows_of
from .linear_query import LinearQuery, counting
from .mechanism import LevelMechanism, Made, ReleaseMechanism, State
from .noise import Law, gaussian_length
from .optimised import Optimised, best_factorisation, optimised
from .square_root import SquareRoot, square_root, square_root_concentrated

AnyLevels = LevelMechanism[Any]
KINDS: dict[str, type[AnyLevels]] = {kind.kind: kind for kind in (AheadTree, SquareRoot, FreshLevels, Optimised)}
"""The mechanisms that publish levels, by what they are called in what a release keeps of them."""
MOST_STEPS = 1000


def noise_covariance(made: Made, periods: int) -> Floats:
    """The covariance of the noise of a column's levels, shape (periods, periods), in the query's units squared.

    made: what the release's mechanism was made with. ValueError for one whose levels' covariance is not known.
    """
    kind = str(made.get("kind", "this mechanism"))
    if kind not in KINDS:
        raise ValueError(f"the levels of {kind} have no covariance that is known: smooth those of {', '.join(KINDS)}")
    anything = counting([], [], "any query: its covariance is that of the noise")
    return KINDS[kind].as_made(made, anything, Calendar(0, 1, periods), Fraction(1), Fraction(0)).covariance


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
    whole release. law: of the noise, None to have it chosen. begun: what a release that has begun was made with, None
    for a new one. window: in periods, None where there is none. rho: the budget in concentrated privacy, of which
    epsilon is then the pure one that is worth as much; None where the budget is (epsilon, delta).
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

    @property
    def wished(self) -> tuple[LinearQuery, Calendar, Constraint]:
        """All but the budget."""
        return self.query, self.calendar, self.constraint

    @property
    def laws(self) -> list[Law]:
        """The laws that are asked for and that the budget allows, Gaussian noise first. ValueError where none is."""
        gaussian = self.law is not Law.LAPLACE and (self.delta > 0 or self.rho is not None)
        laws = [Law.GAUSSIAN] * gaussian + [Law.LAPLACE] * (self.law is not Law.GAUSSIAN)
        if not laws:
            raise ValueError("Gaussian noise needs a delta above 0: --delta 1e-6, or --rho")
        return laws

    @property
    def gaussian(self) -> tuple[Fraction, Fraction, float]:
        """The (epsilon, delta) of Gaussian noise, and by how many scales an entry may move what is measured."""
        stated = (self.epsilon, self.delta) if self.rho is None else implied_by(self.rho)
        return *stated, gaussian_length(self.epsilon, self.delta, self.rho)

    def error(self, made: ReleaseMechanism[Any]) -> float:
        """The predicted error of a mechanism, root mean square over the calendar; 0 where nothing is known."""
        return root_mean_square(made.variance, self.query, self.calendar.periods) or 0.0


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

    def made(self, asked: Asked) -> ReleaseMechanism[State]:
        """The mechanism for what is asked. ValueError for what may not be chosen of it, and as of `make`."""
        self.check(asked)
        return self.make(asked)

    def check(self, asked: Asked) -> None:
        """ValueError for what may not be chosen of it."""
        gaussian = asked.law is Law.GAUSSIAN
        if asked.window is not None and MechanismOption.WINDOW not in self.options:
            raise ValueError(
                f"--window: {self.name} has none; swcr releases windows directly, and --afterwards reads them off the "
                f"levels of {', '.join(sorted(KINDS))}"
            )
        if (asked.delta and MechanismOption.DELTA not in self.options) or (
            gaussian and MechanismOption.LAW not in self.options
        ):
            raise ValueError(f"{self.name} is released at a pure epsilon, with laplace noise")
        if asked.rho is not None and gaussian and MechanismOption.RHO not in self.options:
            raise ValueError(f"at rho {self.name} is released with laplace noise: for gaussian take square-root")


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


def offered(name: str | None, window: int | None = None) -> Offer[object]:
    """The offer of this name; None has swcr where there is a window, else the best. ValueError for no name of one."""
    _load_plugins()
    name = name or ("best" if window is None else "swcr")
    if name not in _OFFERS:
        raise ValueError(f"there is no mechanism {name!r}: choose {', '.join(_OFFERS)}")
    return _OFFERS[name]


@cache
def _load_plugins() -> None:
    """Have other packages register their offers, once. What an extra that is not installed needs is left out."""
    for plugin in entry_points(group=PLUGINS):
        try:
            registers = plugin.load()
        except ModuleNotFoundError:
            continue
        registers()


# The offers of this package


def _as_stated(asked: Asked, made: AnyLevels) -> AnyLevels:
    """The mechanism, stated at the budget that was asked for, which is no less than what it costs."""
    if made.law is Law.GAUSSIAN and asked.rho is not None:
        epsilon, delta = implied_by(asked.rho)
        return cast("AnyLevels", replace(cast("Any", made), epsilon=epsilon, delta=delta, rho=asked.rho))
    return cast("AnyLevels", replace(cast("Any", made), epsilon=asked.epsilon, delta=asked.delta))


def _as_begun(asked: Asked, begun: Made) -> AnyLevels:
    """The mechanism that a release has begun with. BadState for another than those of KINDS."""
    kind = str(begun["kind"])
    if kind not in KINDS:
        raise BadState(f"the release was begun with --mechanism {kind}")
    return _as_stated(asked, KINDS[kind].as_made(begun, asked.query, asked.calendar, asked.epsilon, asked.delta))


def _levels(kind: type[AnyLevels], new: Callable[[Asked], AnyLevels]) -> Callable[[Asked], AnyLevels]:
    """The mechanism that is asked for; the one that has begun, where that is of this kind."""

    def made(asked: Asked) -> AnyLevels:
        if asked.begun is not None and asked.begun["kind"] == kind.kind:
            return _as_begun(asked, asked.begun)
        return _as_stated(asked, new(asked))

    return made


def _best_law(asked: Asked, make: Callable[[Law], AnyLevels], laws: list[Law]) -> AnyLevels:
    """The one of these laws that errs less. ValueError where it cannot be had by any."""
    made, refusals = [], []
    for law in laws:
        try:
            made.append(make(law))
        except ValueError as error:
            refusals.append(error)
    if not made:
        raise refusals[0]
    return min(made, key=asked.error)


def _ahead(asked: Asked) -> AnyLevels:
    return drawn_ahead(*asked.wished, asked.epsilon)


def _square_root(asked: Asked) -> AnyLevels:
    if asked.rho is not None:
        return square_root_concentrated(*asked.wished, asked.rho)
    if not asked.delta:
        raise ValueError("square-root draws Gaussian noise, which needs a delta above 0: --delta 1e-6, or --rho")
    return square_root(*asked.wished, asked.epsilon, asked.delta)


def _fresh(asked: Asked) -> AnyLevels:
    def of(law: Law) -> AnyLevels:
        if law is Law.LAPLACE:
            return laplace_levels(asked.query, asked.calendar, asked.epsilon)
        epsilon, delta, length = asked.gaussian
        return gaussian_levels(asked.query, asked.calendar, length, epsilon, delta)

    return _best_law(asked, of, asked.laws)


def _optimised(asked: Asked) -> AnyLevels:
    def of(law: Law) -> AnyLevels:
        return optimised(*asked.wished, *((asked.epsilon,) if law is Law.LAPLACE else asked.gaussian))

    # at rho Laplace noise has twice the variance of Gaussian noise, or more, by any matrix
    return _best_law(asked, of, asked.laws if asked.rho is None else asked.laws[:1])


def _swcr(asked: Asked) -> WindowRelease:
    if asked.window is None:
        raise ValueError("swcr releases changes over windows: say how long, --window")
    windows = windows_of(asked.calendar, asked.window)
    budget, law = (asked.epsilon, asked.delta), asked.law or Law.LAPLACE
    return WindowRelease(sliding_windows(asked.query, windows, asked.constraint, *budget, law))


@dataclass(frozen=True, slots=True)
class Predicted:
    """The prediction for an offer. error: root mean square over the calendar, in what the query counts.

    made: the mechanism, to release with. least: an error that no matrix with noise of its law goes below, where that is
    known; else None.
    """

    name: str
    error: float
    made: ReleaseMechanism[object]
    least: float | None = None


def compared(asked: Asked) -> tuple[Predicted, ...]:
    """The offers that may be chosen for what is asked, the best first. ValueError where there is none."""
    new, laws = replace(asked, begun=None), asked.laws
    offers = [FRESH, OPTIMISED, *[AHEAD] * (Law.LAPLACE in laws), *[SQUARE_ROOT] * (Law.GAUSSIAN in laws)]
    reasons: list[str] = []
    found: list[Predicted] = []
    for offer in offers:
        try:
            made = offer.make(new)
        except ValueError as error:
            reasons.append(f"{offer.name}: {error}")
            continue
        found.append(Predicted(offer.name, asked.error(made), made, _least(asked, made)))
    if not found:
        raise ValueError("; ".join(reasons))
    return tuple(sorted(found, key=lambda one: one.error))


def _least(asked: Asked, made: ReleaseMechanism[object]) -> float | None:
    """The error that no matrix goes below with noise of this law, of a matrix that was searched."""
    if not isinstance(made, Optimised):
        return None
    matrix = best_factorisation(*asked.wished, made.law)
    budget = float(asked.epsilon) if made.law is Law.LAPLACE else asked.gaussian[2]
    return sqrt(matrix.least) / budget * float(asked.query.unit)


def in_words(asked: Asked, predicted: tuple[Predicted, ...]) -> str:
    """A sentence that says what is chosen, why, and what the others would have given."""
    chosen, *others = predicted
    every = [f"{one.name} by {one.error:.3g}" for one in others]
    beside = f"; instead would err {', '.join(every)}" if every else ""
    alone = chosen.made.law is not Law.GAUSSIAN and (asked.delta or asked.rho is not None)
    if chosen.least is not None:
        searched = "" if chosen.made.law is Law.GAUSSIAN else "its matrix was searched, a better one may exist, and "
        beside += f"; {searched}no matrix with {chosen.made.law} noise errs by less than {chosen.least:.3g}"
    pure = f" It promises epsilon {float(asked.epsilon):.6g} alone." * bool(alone)
    return f"chosen: {chosen.name}, whose levels err by {chosen.error:.3g} (root mean square){beside}.{pure}"


def _best(asked: Asked) -> ReleaseMechanism[object]:
    return compared(asked)[0].made if asked.begun is None else _as_begun(asked, asked.begun)


OF_BOTH_LAWS = frozenset({MechanismOption.DELTA, MechanismOption.RHO, MechanismOption.LAW})
BEST = Offer(
    "best",
    "The one of the least predicted error; it says which, and what the others would have given.",
    _best,
    OF_BOTH_LAWS,
)
AHEAD = Offer(
    "ahead",
    "Noise drawn ahead: at a pure epsilon the most accurate.",
    _levels(AheadTree, _ahead),
    frozenset({MechanismOption.DELTA}),
)
SQUARE_ROOT = Offer(
    "square-root",
    "Gaussian noise most of which cancels: with a delta or at rho.",
    _levels(SquareRoot, _square_root),
    OF_BOTH_LAWS,
)
FRESH = Offer(
    "fresh",
    "Every level with noise of its own: short calendars, where entries mutate often.",
    _levels(FreshLevels, _fresh),
    OF_BOTH_LAWS,
)
OPTIMISED = Offer(
    "optimised",
    "The best matrix that a search finds, with how near it is: short calendars.",
    _levels(Optimised, _optimised),
    OF_BOTH_LAWS,
)
SWCR = Offer(
    "swcr",
    "The change over a sliding window, released directly: --window.",
    _swcr,
    frozenset({MechanismOption.LAW, MechanismOption.DELTA, MechanismOption.WINDOW}),
)
for _offer in (BEST, AHEAD, SQUARE_ROOT, FRESH, OPTIMISED):
    register(_offer)
register(SWCR)
