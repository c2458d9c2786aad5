"""Streaming composition: what t steps tell of a database of which a part is replaced at every step, oldest first.

X_t = (b_t, …, b_{t+k-1}) are the k = 1/c blocks held at step t, drawn independently from one law D. The observer knows
the newest k-1 of them, z, after the last step, and asks whether M ran on X_1, X_2, … or on altered databases alt(X_1),
alt(X_2), …; coins are fresh at each step. P⁰(y|z) = Σ_b D(b) Pr[M(b, z) = y], and P¹ the same of alt(b, z).

The theorem: G = (M(X_1), …, M(X_t)) is (ε_t, δ_t)-CW private,

    ε_t ≤ ε_max + (t-1) γ,        δ_t ≤ t·δ_max,
    e^ε_max = max over y, z of P⁰(y|z) / P¹(y|z)         e^γ = max over y, z, z' of P⁰(y|z) / P¹(y|z'),

each ratio in both directions. Assumption 1, without which nothing here is defined: an output has positive probability
under P⁰ and P¹ for every z, or for none. Then no ratio is infinite, δ at the largest slope is 0, and G is
(ε_max + (t-1)γ, 0)-private: t·δ_max, with δ_max the δ at the smallest slope, is true and says nothing more. Other pairs
(ε_i, δ_i) do not compose this way: neither t·ε_i at t·δ_i, nor ε_i + (t-1)γ_i at t·δ_i with γ_i that output's own
ratio, nor a pair that holds for one z alone; each is refuted by a test. And γ ≥ ε_max always (take z' = z).

`curve` is what does hold at every (ε, δ). Read the steps from the last to the first. Given z and the later outputs,
output s < t is drawn from a mixture of P⁰(·|z') in the one world, of P¹(·|z'') in the other, and mixtures are told
apart no better than the worst of their parts. So G is told apart no better than one report of the worst curve at equal
z together with t-1 of the worst over all z', z'' (adaptive composition of dominating pairs: Zhu, Dong, Wang 2022,
theorem 10). At δ = 0 it is the theorem; at any δ_i that holds for every z it allows ε_i + (t-1)γ.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import TypeVar

from changeling_protocol import log_ratio, rounded_up
from changeling_statistics import Corner, PrivacyCurve

from .regions import Exact, FiniteMechanism, Law, checked_law, exactly, region_of_laws

Outcome = TypeVar("Outcome")
Blocks = tuple[int, ...]
"""Values of blocks, numbered from 0, the oldest first."""


@dataclass(frozen=True, slots=True)
class StreamingMechanism:
    """A mechanism over a sliding database, by exact probabilities.

    law: D, a probability above 0 for each value of a block. blocks: k, how many steps a block stays.

    real: Pr[M(x) = y], a column per database x in lexicographic order of its k blocks. altered: Pr[M(alt(x)) = y],
    columns by x, the same outputs; of several, any may be in force at any step, as where one row is altered while
    it moves up. Raises ValueError for other shapes, and, naming output and z, where assumption 1 is broken.
    """

    law: Law
    blocks: int
    real: FiniteMechanism
    altered: tuple[FiniteMechanism, ...]

    def __post_init__(self) -> None:
        checked_law(self.law, "the law of a block")
        if not all(self.law):
            raise ValueError("every value of a block has a positive probability: leave the others out")
        if self.blocks < 1 or not self.altered:
            raise ValueError(
                f"a stream holds at least 1 block and has an alteration, got {self.blocks}, {self.altered}"
            )
        shape = self.real.outputs, len(self.law) ** self.blocks
        for each in (self.real, *self.altered):
            if (each.outputs, each.databases) != shape:
                raise ValueError(
                    f"a stream of {self.blocks} blocks of {len(self.law)} values needs matrices of "
                    f"{shape[0]} outputs by {shape[1]} databases, got {each.outputs} by {each.databases}"
                )
        self._check_assumption()

    @classmethod
    def of(
        cls,
        law: Sequence[Exact],
        blocks: int,
        respond: Callable[[Blocks], Mapping[Outcome, Exact]],
        *alterations: Callable[[Blocks], Blocks],
    ) -> "StreamingMechanism":
        """From functions: the law of what a database releases, and databases that take its place."""
        databases = list(product(range(len(law)), repeat=blocks))
        worlds = [databases, *([alter(x) for x in databases] for alter in alterations)]
        together = FiniteMechanism.tabled([x for world in worlds for x in world], respond, lambda *_: False)
        n = len(databases)
        real, *altered = (
            FiniteMechanism(tuple(row[i * n : (i + 1) * n] for row in together.rows), ()) for i in range(len(worlds))
        )
        return cls(tuple(map(exactly, law)), blocks, real, tuple(altered))

    def known(self) -> Iterator[Blocks]:
        """Every z: what the newest k-1 blocks may hold."""
        return product(range(len(self.law)), repeat=self.blocks - 1)

    def column(self, database: Blocks) -> int:
        """The column of a database."""
        place = 0
        for value in database:
            place = place * len(self.law) + value
        return place

    def given(self, mechanism: FiniteMechanism, z: Blocks) -> Law:
        """P(y|z) of one of its mechanisms, shape (outputs,)."""
        columns = [mechanism.column(self.column((value, *z))) for value in range(len(self.law))]
        return tuple(
            sum((weight * p for weight, p in zip(self.law, row, strict=True)), Fraction(0))
            for row in zip(*columns, strict=True)
        )

    def _check_assumption(self) -> None:
        laws = [(name, z, self.given(each, z)) for name, each in self._named() for z in self.known()]
        for y in range(self.real.outputs):
            never = [(name, z) for name, z, law in laws if not law[y]]
            if never and len(never) < len(laws):
                name, z = never[0]
                raise ValueError(
                    f"assumption 1 is broken: output {y} never comes from {name} where the known blocks are {z}, "
                    "and elsewhere it does; one such output tells the two apart for certain, and no loss is finite"
                )

    def _named(self) -> list[tuple[str, FiniteMechanism]]:
        return [("the database", self.real), *((f"alteration {i}", each) for i, each in enumerate(self.altered))]


@dataclass(frozen=True, slots=True)
class StreamBound:
    """Bounds on any number of steps. Made by `stream_bound`; steps are counted from 1, ValueError below.

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
    least = min(p / q for p, q in zip(above, below, strict=True) if q and p >= q)
    return max(
        Fraction(0), sum((max(Fraction(0), p - least * q) for p, q in zip(above, below, strict=True)), Fraction(0))
    )


def _checked(steps: int) -> int:
    if steps < 1:
        raise ValueError(f"steps are counted from 1, got {steps}")
    return steps
