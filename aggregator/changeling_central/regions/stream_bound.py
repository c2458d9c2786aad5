"""What t steps of a streaming mechanism tell: the paper's bound, and one that holds at every (ε, δ).

The theorem: G = (M(X_1), …, M(X_t)) is (ε_t, δ_t)-CW private,

    ε_t ≤ ε_max + (t-1) γ,        δ_t ≤ t·δ_max,
    e^ε_max = max over y, z of P⁰(y|z) / P¹(y|z)         e^γ = max over y, z, z' of P⁰(y|z) / P¹(y|z'),

each ratio in both directions. Under its own assumption 1 no ratio is infinite, so δ at the largest slope is 0, and G
is (ε_max + (t-1)γ, 0)-private: t·δ_max, with δ_max the δ at the smallest slope, is true and says nothing more. Other
pairs (ε_i, δ_i) do not compose this way: neither t·ε_i at t·δ_i, nor ε_i + (t-1)γ_i at t·δ_i with γ_i that output's
own ratio, nor a pair that holds for one z alone; each is refuted by a test. And γ ≥ ε_max always (take z' = z).

`curve` is what does hold at every (ε, δ). Read the steps from the last to the first. Given z and the later outputs,
output s < t is drawn from a mixture of P⁰(·|z') in the one world, of P¹(·|z'') in the other, and mixtures are told
apart no better than the worst of their parts. So G is told apart no better than one report of the worst curve at
equal z together with t-1 of the worst over all z', z'' (adaptive composition of dominating pairs: Zhu, Dong, Wang
2022, theorem 10). At δ = 0 it is the theorem; at any δ_i that holds for every z it allows ε_i + (t-1)γ.

Neighbours: the stream and its altered one, in either order. Source: "Composition theorem for streaming CW-privacy",
section 2. Fair bits, two held, each reported truly three times in four; altered by turning the older one round. One
step tells nothing of that; two do, as each bit is reported twice:

    >>> from itertools import product
    >>> def reported(bits):
    ...     return {out: Fraction(3 ** sum(o == b for o, b in zip(out, bits)), 16) for out in product((0, 1), repeat=2)}
    >>> stream = StreamingMechanism.of(["1/2", "1/2"], 2, reported, lambda bits: (1 - bits[0], bits[1]))
    >>> bound = stream_bound(stream)
    >>> bound.slope, bound.cross, bound.ratio(2)
    (Fraction(1, 1), Fraction(3, 1), Fraction(3, 1))
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from changeling_protocol import log_ratio, rounded_up
from changeling_statistics import Corner, PrivacyCurve, composed, grid_interval

from .finite import Law
from .region import region_of_laws
from .streaming import StreamingMechanism

ROUNDING = 1e-14
"""What floating-point sums of a long composition may lose."""


@dataclass(frozen=True, slots=True)
class StreamBound:
    """What any number of steps can tell. Made by `stream_bound`; steps are counted from 1, ValueError below.

    slope: e^ε_max. cross: e^γ. shift: δ_max. known, unknown: the worst curves of a step at equal z, and over all z.
    """

    slope: Fraction
    cross: Fraction
    shift: Fraction
    known: PrivacyCurve
    unknown: PrivacyCurve

    def ratio(self, steps: int) -> Fraction:
        """e^ε_t of t = `steps` steps, e^(ε_max + (t-1)γ), exactly: at this ratio the transcript's δ is 0."""
        return self.slope * self.cross ** (_checked(steps) - 1)

    def epsilon(self, steps: int) -> float:
        """ε_t of t = `steps` steps, ε_max + (t-1)γ in nats, rounded up: a bound with δ = 0."""
        ratio = self.ratio(steps)
        return rounded_up(log_ratio(ratio.numerator, ratio.denominator))

    def printed_delta(self, steps: int) -> Fraction:
        """t·δ_max, at most 1, as the theorem states it; 0 is as true."""
        return min(Fraction(1), _checked(steps) * self.shift)

    def curve(self, steps: int) -> PrivacyCurve:
        """A curve above that of t steps, exactly. Its size may grow as (outputs)^t: for few steps, or few ratios."""
        return reduce(PrivacyCurve.together, [self.unknown] * (_checked(steps) - 1), self.known)

    def delta_at(self, steps: int, epsilon: float) -> float:
        """δ(ε) of t steps by `curve`, for many steps: by its privacy-loss distribution, rounded up."""
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be 0 or more, got {epsilon}")
        if epsilon >= self.epsilon(steps):
            return 0.0
        parts = Counter([self.known]) + Counter({self.unknown: steps - 1})
        delta = float(composed(parts, grid_interval([parts])).get_delta_for_epsilon(epsilon * (1 - 1e-11)))
        return min(1.0, delta * (1 + 1e-9) + ROUNDING)


def stream_bound(stream: StreamingMechanism) -> StreamBound:
    """ε_max, γ and δ_max of a mechanism, each over both directions of the ratio and all alterations."""
    real = [stream.given(stream.real, z) for z in stream.known()]
    altered = [[stream.given(each, z) for z in stream.known()] for each in stream.altered]
    equal = [(p, q) for laws in altered for p, q in zip(real, laws, strict=True)]
    every = [(p, q) for laws in altered for p in set(real) for q in set(laws)]
    known, unknown = region_of_laws(equal), region_of_laws(every)
    ways = [way for p, q in equal for way in ((p, q), (q, p))]
    return StreamBound(
        slope=_steepest(known.corners),
        cross=_steepest(unknown.corners),
        shift=max(_shift(p, q) for p, q in ways),
        known=known.curve,
        unknown=unknown.curve,
    )


def _steepest(corners: tuple[Corner, ...]) -> Fraction:
    return max(corner.ratio for corner in corners)


def _shift(above: Law, below: Law) -> Fraction:
    """δ at the smallest slope of at least 1 among the outputs."""
    least = min(ratio for ratio in _ratios(above, below) if ratio >= 1)
    return max(
        Fraction(0), sum((max(Fraction(0), p - least * q) for p, q in zip(above, below, strict=True)), Fraction(0))
    )


def _ratios(above: Law, below: Law) -> Iterator[Fraction]:
    return (p / q for p, q in zip(above, below, strict=True) if q)


def _checked(steps: int) -> int:
    if steps < 1:
        raise ValueError(f"steps are counted from 1, got {steps}")
    return steps
