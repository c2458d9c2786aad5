"""The mechanisms that `changeling release` comes with, as a release runs them, and the choice of the best.

    ahead           a tree of noise drawn ahead                              `ahead`
    square-root     Gaussian noise most of which cancels                     `square_root`
    fresh           every level with noise of its own                        `levels`
    optimised       levels read off the best matrix that a search finds      `optimised`
    swcr            the change over each window that ends with a period      `windows`

Guarantees, neighbours and sources are those of the mechanisms. What a release has begun with is never chosen again, as
choosing takes long, and a later version of a library might choose otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import cast

from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats

from .ahead import AheadTree, drawn_ahead
from .budget import implied_by
from .errors import BadState
from .levels import FreshLevels, gaussian_levels, laplace_levels
from .linear_query import LinearQuery, counting
from .mechanism import Guarantee, Level, LevelMechanism, Made
from .noise import Law, Noise
from .offers import Asked, MechanismOption, Offer, PeriodChange, ReleaseMechanism, register, root_mean_square
from .optimised import Optimised, best_factorisation, optimised
from .square_root import SquareRoot, concentrated_length, square_root, square_root_concentrated, told_apart
from .windows import SWCR

KINDS: dict[str, type[LevelMechanism[object]]] = {
    kind.kind: cast("type[LevelMechanism[object]]", kind) for kind in (AheadTree, SquareRoot, FreshLevels, Optimised)
}
"""The mechanisms that publish levels, by what they are called in what a release keeps of them."""


def noise_covariance(made: Made, periods: int) -> Floats:
    """The covariance of the noise of a column's levels, shape (periods, periods), in the query's units squared.

    made: what the release's mechanism was made with. ValueError for one whose levels' covariance is not known.
    """
    kind = str(made.get("kind", "this mechanism"))
    if kind not in KINDS:
        raise ValueError(f"the levels of {kind} have no covariance that is known: smooth those of {', '.join(KINDS)}")
    anything = counting([], [], "any query: its covariance is that of the noise")
    return KINDS[kind].as_made(made, anything, Calendar(0, 1, periods), Fraction(1), Fraction(0)).covariance


@dataclass(frozen=True, slots=True)
class LevelRelease(ReleaseMechanism[object]):
    """A release by a mechanism that publishes levels.

    epsilon, delta: the budget that was asked for. rho: the same, where it is in that and the noise is Gaussian.
    """

    mechanism: LevelMechanism[object]
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None

    @classmethod
    def of(cls, asked: Asked, mechanism: object) -> "LevelRelease":
        """The release of what is asked by an instance of one of KINDS."""
        made = cast("LevelMechanism[object]", mechanism)
        return cls(made, asked.epsilon, asked.delta, asked.rho if made.law is Law.GAUSSIAN else None)

    @classmethod
    def as_begun(cls, asked: Asked, begun: Made) -> "LevelRelease":
        """The release with the mechanism that it has begun with. BadState for another than those of KINDS."""
        kind = str(begun["kind"])
        if kind not in KINDS:
            raise BadState(f"the release was begun with --mechanism {kind}")
        made = cls.of(asked, KINDS[kind].as_made(begun, asked.query, asked.calendar, asked.epsilon, asked.delta))
        if made.rho is None:
            return made
        epsilon, delta = implied_by(made.rho)
        return cls.of(asked, KINDS[kind].as_made(begun, asked.query, asked.calendar, epsilon, delta))

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's, stated at the budget that was asked for, which is no less."""
        budget = (self.epsilon, self.delta) if self.rho is None else implied_by(self.rho)
        return replace(self.mechanism.guarantee, epsilon=budget[0], delta=budget[1], rho=self.rho)

    @property
    def law(self) -> Law:
        """The noise of the draws."""
        return self.mechanism.law

    @property
    def covers_reactions(self) -> bool:
        """With Gaussian noise as well: a period adds a draw of its own to a number that is known by then."""
        return True

    @property
    def noise_in_words(self) -> str:
        """The mechanism's."""
        return self.mechanism.words

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """True if an entry that keeps to the constraint costs at most the budget under this noise."""
        length = length_of(self.epsilon, self.delta, self.rho) if self.law is Law.GAUSSIAN else 0.0
        of_this = (self.mechanism.query, self.mechanism.calendar) == (query, calendar)
        return of_this and self.mechanism.costs_at_most(length, constraint)

    def made_with(self) -> Made:
        """What the mechanism is made again from."""
        return self.mechanism.made_with()

    def start(self) -> object:
        """Before the first period."""
        return self.mechanism.start()

    def step(self, state: object, value: PeriodChange, noise: Noise) -> tuple[object, Level]:
        """value: one more period. Returns the level of the query at its end."""
        return self.mechanism.step(state, value.net, noise)

    def check(self, state: object) -> None:
        """Raises BadState for a state that is not the mechanism's."""
        self.mechanism.check(state)

    def variance(self, step: int) -> float:
        """Variance of the level at the end of this period, in units squared."""
        return self.mechanism.variance(step)

    def window_variance(self, step: int, window: int) -> float | None:
        """Variance of a window's change, read off the levels."""
        return self.mechanism.window_variance(step, window)


def length_of(epsilon: Fraction, delta: Fraction, rho: Fraction | None) -> float:
    """By how many scales of Gaussian noise an entry may move what is measured."""
    return told_apart(epsilon, delta) if rho is None else concentrated_length(rho)


def _new_or_begun(kind: str, new: Callable[[Asked], LevelRelease]) -> Callable[[Asked], LevelRelease]:
    """The release that is asked for; the one that has begun, where that is of this kind."""

    def made(asked: Asked) -> LevelRelease:
        if asked.begun is not None and asked.begun["kind"] == kind:
            return LevelRelease.as_begun(asked, asked.begun)
        return new(asked)

    return made


def _by_law(
    asked: Asked,
    laplace: Callable[[], object],
    gaussian: Callable[[Fraction, Fraction, float], object],
    alone: bool = False,
) -> LevelRelease:
    """The one of both laws that errs less, of those that are asked for and that the budget allows.

    gaussian: takes the (epsilon, delta) that it states, and by how many scales an entry may move what is measured.
    alone: Laplace noise is not tried where Gaussian noise is.
    """
    tried: list[Callable[[], object]] = []
    if asked.law is not Law.LAPLACE and (asked.delta or asked.rho is not None):
        stated = (asked.epsilon, asked.delta) if asked.rho is None else implied_by(asked.rho)
        tried.append(lambda: gaussian(*stated, length_of(asked.epsilon, asked.delta, asked.rho)))
    if asked.law is not Law.GAUSSIAN and not (tried and alone):
        tried.append(laplace)
    made, refusals = [], []
    for make in tried:
        try:
            made.append(LevelRelease.of(asked, make()))
        except ValueError as error:
            refusals.append(error)
    if not made:
        raise refusals[0] if refusals else ValueError("Gaussian noise needs a delta above 0: --delta 1e-6, or --rho")
    return min(made, key=lambda one: root_mean_square(one.variance, asked.query, asked.calendar.periods) or 0.0)


def _ahead(asked: Asked) -> LevelRelease:
    return LevelRelease.of(asked, drawn_ahead(asked.query, asked.calendar, asked.constraint, asked.epsilon))


def _square_root(asked: Asked) -> LevelRelease:
    wished = asked.query, asked.calendar, asked.constraint
    if asked.rho is not None:
        return LevelRelease.of(asked, square_root_concentrated(*wished, asked.rho))
    if not asked.delta:
        raise ValueError("square-root draws Gaussian noise, which needs a delta above 0: --delta 1e-6, or --rho")
    return LevelRelease.of(asked, square_root(*wished, asked.epsilon, asked.delta))


def _fresh(asked: Asked) -> LevelRelease:
    return _by_law(
        asked,
        lambda: laplace_levels(asked.query, asked.calendar, asked.epsilon),
        lambda epsilon, delta, length: gaussian_levels(asked.query, asked.calendar, length, epsilon, delta),
    )


def _optimised(asked: Asked) -> LevelRelease:
    wished = asked.query, asked.calendar, asked.constraint
    return _by_law(
        asked,
        lambda: optimised(*wished, asked.epsilon),
        lambda epsilon, delta, length: optimised(*wished, epsilon, delta, length),
        alone=asked.rho is not None,  # Laplace noise then has twice the variance, or more, by any matrix
    )


OF_BOTH_LAWS = frozenset({MechanismOption.DELTA, MechanismOption.RHO, MechanismOption.LAW})
AHEAD = Offer(
    "ahead",
    "Noise drawn ahead: at a pure epsilon the most accurate.",
    _new_or_begun("ahead", _ahead),
    frozenset({MechanismOption.DELTA}),
)
SQUARE_ROOT = Offer(
    "square-root",
    "Gaussian noise most of which cancels: with a delta or at rho.",
    _new_or_begun("square-root", _square_root),
    OF_BOTH_LAWS,
)
FRESH = Offer(
    "fresh",
    "Every level with noise of its own: short calendars, where entries mutate often.",
    _new_or_begun("fresh", _fresh),
    OF_BOTH_LAWS,
)
OPTIMISED = Offer(
    "optimised",
    "The best matrix that a search finds, with how near it is: short calendars.",
    _new_or_begun("optimised", _optimised),
    OF_BOTH_LAWS,
)


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
    new = replace(asked, begun=None)
    candidates: dict[str, Callable[[Asked], object]] = {FRESH.name: FRESH.make, OPTIMISED.name: OPTIMISED.make}
    if asked.law is not Law.GAUSSIAN:
        candidates[AHEAD.name] = AHEAD.make
    if (asked.delta or asked.rho is not None) and asked.law is not Law.LAPLACE:
        candidates[SQUARE_ROOT.name] = SQUARE_ROOT.make
    reasons: list[str] = []
    found: list[Predicted] = []
    for name, make in candidates.items():
        try:
            made = cast("ReleaseMechanism[object]", make(new))
        except ValueError as error:
            reasons.append(f"{name}: {error}")
            continue
        predicted = root_mean_square(made.variance, asked.query, asked.calendar.periods)
        found.append(Predicted(name, predicted or 0.0, made, _least(asked, made)))
    if not found:
        raise ValueError("; ".join(reasons) or "Gaussian noise needs a delta above 0, --delta, or --rho")
    return tuple(sorted(found, key=lambda one: one.error))


def _least(asked: Asked, made: ReleaseMechanism[object]) -> float | None:
    """The error that no matrix goes below with noise of this law, of a matrix that was searched."""
    if not isinstance(made, LevelRelease) or not isinstance(made.mechanism, Optimised):
        return None
    matrix = best_factorisation(asked.query, asked.calendar, asked.constraint, made.law)
    budget = float(asked.epsilon) if made.law is Law.LAPLACE else length_of(asked.epsilon, asked.delta, asked.rho)
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
    return compared(asked)[0].made if asked.begun is None else LevelRelease.as_begun(asked, asked.begun)


BEST = Offer(
    "best",
    "The one of the least predicted error; it says which, and what the others would have given.",
    _best,
    OF_BOTH_LAWS,
)

for _offer in (BEST, AHEAD, SQUARE_ROOT, FRESH, OPTIMISED):
    register(_offer)
register(SWCR)
