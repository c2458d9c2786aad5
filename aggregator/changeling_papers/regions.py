"""Privacy regions of finite mechanisms, exactly: how often a test of "x or x'?" must be wrong; streaming composition.

    R(M) = hull of {(Pr[M(x) ∈ S], Pr[M(x') ∉ S]) : all sets S of outputs, all neighbours x, x' in either order}

A point is (false alarm, missed detection) of some test. M is (ε, δ)-differentially private if and only if R(M) lies
within R(ε, δ): e^ε·f + m ≥ 1 - δ and f + e^ε·m ≥ 1 - δ. Every tangent line of R(M) is such a pair, and those at its
edges, a finite list (ε_i, δ_i), determine it. In fractions; an ε is the logarithm of a fraction, rounded up. Nothing is
released here: regions are read off a matrix.

Source: "Composition theorem for streaming CW-privacy", section 1; Kairouz, Oh, Viswanath 2017. The paper calls the
union over the pairs convex; it need not be, and nothing changes when its hull is taken.

    >>> third = region_of(FiniteMechanism.of([["3/4", "1/4"], ["1/4", "3/4"]]))
    >>> [(corner.ratio, corner.delta) for corner in third.corners()]
    [(Fraction(3, 1), Fraction(0, 1))]
    >>> third.delta_at_ratio(Fraction(2)), third.allows(Fraction(2), Fraction(1, 4))
    (Fraction(1, 4), True)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import combinations, product
from pathlib import Path
from typing import TypeAlias, TypeVar

from changeling_central import COLOURS
from changeling_protocol import log_ratio, rounded_up
from changeling_statistics import SILENT, Point, PrivacyCurve, curve_of, worst_curve

Exact: TypeAlias = Fraction | int | str | Decimal
"""A number that is a fraction without rounding: 1, "1/3", Decimal("0.1"). A float is not."""
Law: TypeAlias = tuple[Fraction, ...]
Database = TypeVar("Database")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class FiniteMechanism:
    """A mechanism over finitely many databases and outputs, by its exact probabilities.

    rows: P, a row for each output and a column for each database. neighbours: pairs of columns, in either order.
    ValueError unless each column is a distribution and each pair names two columns.
    """

    rows: tuple[Law, ...]
    neighbours: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.rows or not self.rows[0] or len({len(row) for row in self.rows}) > 1:
            raise ValueError(f"a mechanism's rows are of one length, got {[len(row) for row in self.rows]}")
        for x in range(self.databases):
            checked_law(self.column(x), f"column {x}")
        for pair in self.neighbours:
            if len(set(pair)) != 2 or not set(pair) <= set(range(self.databases)):
                raise ValueError(f"neighbours are two databases of 0 to {self.databases - 1}, got {pair}")

    @classmethod
    def of(
        cls, rows: Iterable[Iterable[Exact]], neighbours: Iterable[tuple[int, int]] | None = None
    ) -> "FiniteMechanism":
        """The mechanism of a matrix of exact numbers.

        rows: P, as strings or fractions. neighbours: pairs of columns; left out, any two databases are neighbours.

        >>> FiniteMechanism.of([["3/4", "1/4"], ["1/4", "3/4"]]).neighbours
        ((0, 1),)
        """
        exact = tuple(tuple(map(exactly, row)) for row in rows)
        every = combinations(range(len(exact[0]) if exact else 0), 2)
        return cls(exact, tuple(every if neighbours is None else neighbours))

    @classmethod
    def tabled(
        cls,
        databases: Sequence[Database],
        outputs: Callable[[Database], Mapping[Outcome, Exact]],
        neighbours: Callable[[Database, Database], bool] | None = None,
    ) -> "FiniteMechanism":
        """The mechanism of a function.

        databases: all there are. outputs: the law of what one of them releases. neighbours: whether two of them are;
        left out, any two are. Outputs are numbered in order of appearance.
        """
        laws = [outputs(database) for database in databases]
        known = {output: None for law in laws for output in law}
        pairs = [
            (i, j)
            for i, j in combinations(range(len(databases)), 2)
            if neighbours is None or neighbours(databases[i], databases[j])
        ]
        return cls.of([[law.get(output, 0) for law in laws] for output in known], pairs)

    @property
    def outputs(self) -> int:
        """The number of outputs: rows of P."""
        return len(self.rows)

    @property
    def databases(self) -> int:
        """The number of databases: columns of P."""
        return len(self.rows[0])

    def column(self, database: int) -> Law:
        """The law of what one database releases."""
        return tuple(row[database] for row in self.rows)

    def mixed(self, law: Sequence[Fraction]) -> Law:
        """P f: the law of what a database drawn from `law` = f releases."""
        if len(law) != self.databases:
            raise ValueError(f"a law over {self.databases} databases has as many probabilities, got {len(law)}")
        checked_law(law, "the law over databases")
        return tuple(sum((p * f for p, f in zip(row, law, strict=True)), Fraction(0)) for row in self.rows)


def exactly(number: Exact) -> Fraction:
    """The number as a fraction. ValueError for a float, as 0.1 is not a tenth."""
    if isinstance(number, (float, bool)):
        raise ValueError(f"probabilities are exact: write {number} as a string or a Fraction")
    return Fraction(number)


def checked_law(law: Sequence[Fraction], name: str) -> None:
    """Raises ValueError, with the name, unless these are probabilities that add up to 1 exactly."""
    if least := [p for p in law if p < 0]:
        raise ValueError(f"{name} holds a negative probability, {least[0]}")
    if sum(law) != 1:
        raise ValueError(f"{name} adds up to {sum(law)}, not to 1")


@dataclass(frozen=True, slots=True)
class PrivacyRegion(PrivacyCurve):
    """All pairs (false alarm, missed detection) that some test of the output can have.

    The curve is that of the worst pair of databases, in either order; so the region is its own mirror image in f = m.
    Its corners are the (ε_i, δ_i), ε falling: M is (ε_i, δ_i)-private, and the region is all that they allow.
    """

    @property
    def best_tests(self) -> tuple[Point, ...]:
        """(f, m) where the lower boundary bends, f rising, from the end of f = 0 on: the most that can be told."""
        certain = self.delta_at_ratio_infinite
        return tuple((wrong, 1 - power) for wrong, power in self.points if wrong or power == certain)

    @property
    def vertices(self) -> tuple[Point, ...]:
        """The convex polygon, counterclockwise from (0, 1): a test and its contrary are both tests."""
        below = ((Fraction(0), Fraction(1)), *self.best_tests)
        return tuple(dict.fromkeys([*below, *((1 - f, 1 - m) for f, m in below)]))

    def holds(self, false_alarm: Fraction, missed_detection: Fraction) -> bool:
        """True if some test, drawn at random perhaps, errs like this."""
        f, m = false_alarm, missed_detection
        if not (0 <= f <= 1 and 0 <= m <= 1):
            return False
        ways = ((f, m), (m, f), (1 - f, 1 - m), (1 - m, 1 - f))
        return all(corner.ratio * a + b >= 1 - corner.delta for corner in self.corners() for a, b in ways)

    def allows(self, ratio: Fraction, delta: Fraction) -> bool:
        """True if M is (ln ratio, delta)-differentially private, exactly. ValueError for a ratio below 1."""
        if ratio < 1:
            raise ValueError(f"e^epsilon is at least 1, got {ratio}")
        return self.delta_at_ratio(ratio) <= delta


def region_of(mechanism: FiniteMechanism) -> PrivacyRegion:
    """The region of a mechanism, over all its neighbours in either order."""
    return region_of_laws((mechanism.column(x), mechanism.column(y)) for x, y in mechanism.neighbours)


def region_of_laws(pairs: Iterable[tuple[Law, Law]]) -> PrivacyRegion:
    """The region of laws of outputs that are to be told apart, pair by pair, in either order."""
    ways = [way for one, other in pairs for way in ((one, other), (other, one))]
    known = ([(p, q) for p, q in zip(*way, strict=True) if p or q] for way in ways)
    return PrivacyRegion(worst_curve([SILENT, *map(curve_of, known)]).points)


def cw_region(
    mechanism: FiniteMechanism, laws: Iterable[tuple[Sequence[Fraction], Sequence[Fraction]]]
) -> PrivacyRegion:
    """The region of a mechanism whose database is drawn at random: coupled-worlds (CW) privacy.

    The observer knows the law of the database, f given a secret's one value and f' with the secret scrubbed, and
    nothing else of it. Then M(X) has law P f and M(alt(X)) has law P f': two rows of a mechanism over two databases. So
    the data's own randomness may protect, even where M draws nothing, while the law is right and the observer knows no
    more than it says. Section 1.2; Bassily, Groce, Katz, Smith 2013. The exact number of ones among three fair bits, an
    observer who asks for the first bit:

        >>> from itertools import product
        >>> databases = list(product((0, 1), repeat=3))
        >>> count = FiniteMechanism.tabled(databases, lambda bits: {sum(bits): 1})
        >>> one, zero = (tuple(Fraction(bits[0] == bit, 4) for bits in databases) for bit in (1, 0))
        >>> [(corner.ratio, corner.delta) for corner in cw_region(count, [(one, zero)]).corners()]
        [(Fraction(2, 1), Fraction(1, 4))]

    laws: pairs (f, f'), of which the worst counts; probabilities over the mechanism's databases. ValueError for none,
    or for what is no law. The mechanism's own neighbours are not looked at.
    """
    pairs = [(mechanism.mixed(secret), mechanism.mixed(scrubbed)) for secret, scrubbed in laws]
    if not pairs:
        raise ValueError("a region needs at least one pair of laws over databases")
    return region_of_laws(pairs)


def save_region_plot(regions: Mapping[str, PrivacyRegion], path: Path | str, title: str = "Privacy regions") -> None:
    """Draw regions, each filled under its name, to a file of the kind that the path's suffix names.

    ValueError for no regions; without matplotlib too, naming the extra that brings it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'changeling[papers]'") from error

    if not regions:
        raise ValueError("there are no regions to draw")
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    for number, (name, region) in enumerate(regions.items()):
        colour = COLOURS[number % len(COLOURS)]
        alarms, missed = zip(*((float(f), float(m)) for f, m in region.vertices), strict=True)
        axes.fill(alarms, missed, facecolor=colour, alpha=0.12, lw=0)
        axes.fill(alarms, missed, facecolor="none", edgecolor=colour, lw=1.5, label=name)
    axes.plot((0, 1), (1, 0), color="#999999", lw=0.8, ls=":")
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_xlabel("false alarms")
    axes.set_ylabel("missed detections")
    axes.grid(alpha=0.25, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    figure.savefig(path, dpi=150)


Blocks = tuple[int, ...]
"""Values of blocks, numbered from 0, the oldest first."""


@dataclass(frozen=True, slots=True)
class StreamingMechanism:
    """A mechanism over a sliding database, by exact probabilities: what t steps tell, as a part is replaced at each.

    X_t = (b_t, …, b_{t+k-1}) are the k = 1/c blocks held at step t, drawn independently from one law D. The observer
    knows the newest k-1 of them, z, after the last step, and asks whether M ran on X_1, X_2, … or on altered databases
    alt(X_1), alt(X_2), …; coins are fresh at each step. P⁰(y|z) = Σ_b D(b) Pr[M(b, z) = y], and P¹ the same of alt(b,
    z).

    The theorem: G = (M(X_1), …, M(X_t)) is (ε_t, δ_t)-CW private,

        ε_t ≤ ε_max + (t-1) γ,        δ_t ≤ t·δ_max,
        e^ε_max = max over y, z of P⁰(y|z) / P¹(y|z)         e^γ = max over y, z, z' of P⁰(y|z) / P¹(y|z'),

    each ratio in both directions. Assumption 1, without which nothing here is defined: an output has positive
    probability under P⁰ and P¹ for every z, or for none. Then no ratio is infinite, δ at the largest slope is 0, and G
    is (ε_max + (t-1)γ, 0)-private: t·δ_max, with δ_max the δ at the smallest slope, is true and says nothing more.
    Other pairs (ε_i, δ_i) do not compose this way: neither t·ε_i at t·δ_i, nor ε_i + (t-1)γ_i at t·δ_i with γ_i that
    output's own ratio, nor a pair that holds for one z alone; each is refuted by a test. And γ ≥ ε_max always (take z'
    = z).

    `curve` is what does hold at every (ε, δ). Read the steps from the last to the first. Given z and the later outputs,
    output s < t is drawn from a mixture of P⁰(·|z') in the one world, of P¹(·|z'') in the other, and mixtures are told
    apart no better than the worst of their parts. So G is told apart no better than one report of the worst curve at
    equal z together with t-1 of the worst over all z', z'' (adaptive composition of dominating pairs: Zhu, Dong, Wang
    2022, theorem 10). At δ = 0 it is the theorem; at any δ_i that holds for every z it allows ε_i + (t-1)γ.

    law: D, a probability above 0 for each value of a block. blocks: k, how many steps a block stays.

    real: Pr[M(x) = y], a column per database x in lexicographic order of its k blocks. altered: Pr[M(alt(x)) = y],
    columns by x, the same outputs; of several, any may be in force at any step, as where one row is altered while it
    moves up. Raises ValueError for other shapes, and, naming output and z, where assumption 1 is broken.

    Neighbours: the stream and its altered one, in either order. Source: "Composition theorem for streaming CW-privacy",
    section 2. Fair bits, two held, each reported truly three times in four; altered by turning the older one round. One
    step tells nothing of that; two do, as each bit is reported twice:

        >>> from itertools import product
        >>> def reported(bits):
        ...     outputs = product((0, 1), repeat=2)
        ...     return {out: Fraction(3 ** sum(o == b for o, b in zip(out, bits)), 16) for out in outputs}
        >>> stream = StreamingMechanism.of(["1/2", "1/2"], 2, reported, lambda bits: (1 - bits[0], bits[1]))
        >>> bound = stream_bound(stream)
        >>> bound.slope, bound.cross, bound.ratio(2)
        (Fraction(1, 1), Fraction(3, 1), Fraction(3, 1))
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

    def given(self, mechanism: FiniteMechanism, z: Blocks) -> Law:
        """P(y|z) of one of its mechanisms, shape (outputs,)."""
        databases = product(range(len(self.law)), repeat=self.blocks)
        return mechanism.mixed([self.law[x[0]] if x[1:] == z else Fraction(0) for x in databases])

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

    slope: e^ε_max. cross: e^γ. known, unknown: the worst curves of a step at equal z, and over all z.
    """

    slope: Fraction
    cross: Fraction
    known: PrivacyCurve
    unknown: PrivacyCurve

    def ratio(self, steps: int) -> Fraction:
        """e^ε_t of t = `steps` steps, e^(ε_max + (t-1)γ), exactly: at this ratio the transcript's δ is 0."""
        return self.slope * self.cross ** (_checked(steps) - 1)

    def epsilon(self, steps: int) -> float:
        """ε_t of t = `steps` steps, ε_max + (t-1)γ in nats, rounded up: a bound with δ = 0."""
        ratio = self.ratio(steps)
        return rounded_up(log_ratio(ratio.numerator, ratio.denominator))

    def curve(self, steps: int) -> PrivacyCurve:
        """A curve above that of t steps, exactly. Its size may grow as (outputs)^t: for few steps, or few ratios."""
        return reduce(PrivacyCurve.together, [self.unknown] * (_checked(steps) - 1), self.known)


def stream_bound(stream: StreamingMechanism) -> StreamBound:
    """ε_max and γ of a mechanism, each over both directions of the ratio and all alterations."""
    real = [stream.given(stream.real, z) for z in stream.known()]
    altered = [[stream.given(each, z) for z in stream.known()] for each in stream.altered]
    equal = [(p, q) for laws in altered for p, q in zip(real, laws, strict=True)]
    every = [(p, q) for laws in altered for p in set(real) for q in set(laws)]
    known, unknown = region_of_laws(equal), region_of_laws(every)
    slope, cross = (max(corner.ratio for corner in region.corners()) for region in (known, unknown))
    return StreamBound(slope, cross, known, unknown)


def _checked(steps: int) -> int:
    if steps < 1:
        raise ValueError(f"steps are counted from 1, got {steps}")
    return steps
