"""The mechanism of the least predicted error for what is asked, and what the others would have given.

Predicted errors are exact, from noise alone; they read no data, so choosing costs nothing. Chosen among are those whose
errors owe nothing to the data: the tree drawn ahead, the square root where there is a delta, and the hierarchy of
closed nodes. A pure epsilon is as good a promise with a delta beside it, so a delta never makes a release worse.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import cast

from ..errors import BadState
from ..node_noise import Law
from .hierarchies import HDCR, HierarchyRelease, at_pure_epsilon
from .levels import AHEAD, SQUARE_ROOT, AheadRelease, SquareRootRelease
from .method import Made, ReleaseMechanism
from .offer import Asked, Offer, Option

MOST_LOOKED_AT = 1000
"""Periods whose predicted variances are looked at, evenly spread over the calendar."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What an offer would give. error: root mean square over the calendar, in what the query counts.

    made: the mechanism, to release with.
    """

    name: str
    error: float
    made: ReleaseMechanism[object]


def compared(asked: Asked) -> tuple[Predicted, ...]:
    """Those that may be chosen for what is asked, the best first. ValueError where there is none."""
    new = replace(asked, law=None, begun=None)
    candidates: dict[str, Callable[[Asked], object]] = {}
    if asked.law is not Law.GAUSSIAN:
        candidates |= {AHEAD.name: AHEAD.make, HDCR.name: at_pure_epsilon}
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
        if not (asked.adaptive and draws_ahead(made)):
            found.append(Predicted(name, _error(asked, made), made))
    if not found:
        raise ValueError("; ".join(reasons) or "Gaussian noise needs a delta above 0, --delta, or --rho")
    return tuple(sorted(found, key=lambda one: one.error))


def in_words(asked: Asked, predicted: tuple[Predicted, ...]) -> str:
    """A sentence that says what is chosen, why, and what the others would have given."""
    chosen, *others = predicted
    every = [f"{one.name} by {one.error:.3g}" for one in others]
    beside = f"; instead would err {', '.join(every)}" if every else ""
    alone = not isinstance(chosen.made, SquareRootRelease) and (asked.delta or asked.rho is not None)
    pure = f" It promises epsilon {float(asked.epsilon):.6g} alone." * bool(alone)
    reacting = (
        " It holds for changes that do not depend on what was published; where people react to that: --adaptive."
        if draws_ahead(chosen.made)
        else ""
    )
    return f"chosen: {chosen.name}, whose levels err by {chosen.error:.3g} (root mean square){beside}.{pure}{reacting}"


def draws_ahead(made: ReleaseMechanism[object]) -> bool:
    """Whether its guarantee is for streams that do not react. A tree of one layer draws nothing ahead."""
    return isinstance(made, AheadRelease) and len(made.mechanism.widths) > 1


def _error(asked: Asked, made: ReleaseMechanism[object]) -> float:
    periods = asked.calendar.periods
    stride = max(1, periods // MOST_LOOKED_AT)
    steps = range(periods, 0, -stride)
    variances = [made.variance(step) or 0.0 for step in steps]
    return sqrt(sum(variances) / len(variances)) * float(asked.query.unit)


def _best(asked: Asked) -> ReleaseMechanism[object]:
    if asked.begun is not None:
        return _as_begun(asked, asked.begun)
    return compared(asked)[0].made


def _as_begun(asked: Asked, begun: Made) -> ReleaseMechanism[object]:
    kinds: dict[str, Callable[[Asked, Made], object]] = {
        "ahead": AheadRelease.as_begun,
        "square-root": SquareRootRelease.as_begun,
        "hierarchy": HierarchyRelease.as_begun,
    }
    kind = str(begun["kind"])
    if kind not in kinds:
        raise BadState(f"the release was begun with --mechanism {kind}")
    made = cast("ReleaseMechanism[object]", kinds[kind](asked, begun))
    if asked.adaptive and draws_ahead(made):
        raise BadState("the release was begun with a promise that does not hold where people react: without --adaptive")
    return made


BEST = Offer(
    "best",
    "The one of the least predicted error; it says which, and what the others would have given.",
    _best,
    frozenset({Option.LAW, Option.DELTA, Option.RHO, Option.ADAPTIVE}),
)
