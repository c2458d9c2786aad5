"""How guarantees of several releases about the same entries add up; for the central mechanisms.

Basic, advanced and exact sequential composition, and parallel composition. Epsilons in nats.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from math import expm1, log, prod, sqrt

from .curve import PrivacyCurve, curve_of, float_above
from .distributions import composed, grid_interval

Guarantee = tuple[float, float]
"""(epsilon, delta)."""


def basic(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Σ ε_i and Σ δ_i (Dwork, Kenthapadi, McSherry, Mironov, Naor 2006)."""
    every = _checked(guarantees)
    return float_above(sum((Fraction(e) for e, _ in every), Fraction(0))), sum(delta for _, delta in every)


def parallel(guarantees: Iterable[Guarantee]) -> Guarantee:
    """The largest of each: every entry is in one of the releases only (McSherry 2009); for entries in several, take
    each entry's own composition first."""
    every = _checked(guarantees)
    return max((e for e, _ in every), default=0.0), max((delta for _, delta in every), default=0.0)


def advanced(epsilon: float, delta: float, times: int, slack: float) -> Guarantee:
    """k-fold: ε √(2k ln(1/δ')) + kε(e^ε - 1) at kδ + δ' (Dwork, Rothblum, Vadhan 2010, theorem III.3).

    slack: δ', above 0. Never more than basic composition gives. Raises ValueError for other arguments.
    """
    _checked([(epsilon, delta)])
    if times < 1 or not 0 < slack < 1:
        raise ValueError(f"a composition needs times >= 1 and a slack in (0, 1), got {times} and {slack}")
    drift = times * epsilon * expm1(epsilon) if epsilon < 700 else float("inf")
    return min(times * epsilon, epsilon * sqrt(2 * times * log(1 / slack)) + drift), times * delta + slack


def exact(guarantees: Sequence[Guarantee], delta: float) -> float:
    """The least ε at `delta` of everything together, whatever the (ε_i, δ_i)-private mechanisms are, rounded up.

    Randomized response is the worst of them, and composes by its privacy-loss distribution (Kairouz, Oh, Viswanath
    2017, theorem 3.3 and section 3.3). Raises ValueError if delta is not above 1 - Π(1 - δ_i) and 1e-12.
    """
    every = _checked(guarantees)
    failing = 1 - prod(1 - each for _, each in every)
    if not max(failing, 1e-12) < delta < 1:
        raise ValueError(f"delta must be above {max(failing, 1e-12):g} and below 1, got {delta}")
    total, _ = basic(every)
    left = 1 - (1 - delta) / (1 - failing)
    if left < 1e-12 or total == 0:
        return total
    parts = Counter(response_curve(epsilon) for epsilon, _ in every if epsilon)
    losses = composed(parts, grid_interval([parts]))
    return min(total, float(losses.get_epsilon_for_delta(left * (1 - 1e-9))) * (1 + 1e-9))


def response_curve(epsilon: float) -> PrivacyCurve:
    """Randomized response of loss ε, rounded up: p = e^ε / (1 + e^ε)."""
    with localcontext(prec=40, rounding=ROUND_CEILING):
        ratio = Fraction(Decimal(epsilon).exp())
    p = ratio / (1 + ratio)
    return curve_of([(p, 1 - p), (1 - p, p)])


def _checked(guarantees: Iterable[Guarantee]) -> list[Guarantee]:
    every = list(guarantees)
    for epsilon, delta in every:
        if not (0 <= epsilon < float("inf") and 0 <= delta < 1):
            raise ValueError(f"a guarantee has a finite epsilon >= 0 and 0 <= delta < 1, got ({epsilon}, {delta})")
    return every
