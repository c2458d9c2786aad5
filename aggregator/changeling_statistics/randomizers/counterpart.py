"""The counterpart of a randomizer: what the statistics know of it, where its other half is what a device knows.

It tallies reports, decodes a tally with its covariance, says how well a report tells two inputs apart, and draws the
tally of many entries without drawing each report. Symbols of one likelihood ratio say the same of two inputs, so they
are added up to one class. Each kind registers its counterpart, and what it offers the planner, under its class in the
protocol. Knows nothing of surveys, of time or of any kind of randomizer.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from math import gcd
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import Agreeing, Losses, MutationSpace, Odds, Randomizer, Space, StateSpace, agreeing
from numpy.typing import NDArray

from ..estimate import Counts, Estimate, Floats, NodeTally, without_sum


@dataclass(frozen=True, slots=True, eq=False)
class DecodedNodes:
    """The estimated changes of the histogram over several nodes that were reported through one randomizer.

    values: shape (nodes, z), in entries.
    covariances: shape (nodes, z, z), in entries squared, each as in `Estimate`.
    upper_bound: whether one of the covariances is an upper bound.
    products: Q̂ = M_δv diag(ŝ) M_δv', unbiased for Σ_i δ_i δ_i' over the entries i that reported, shape
    (nodes, z, z); sampling errors are computed from it. None if the tallies do not tell it.
    changed: unbiased for how many of those entries changed, shape (nodes,); nan if the tallies do not tell it.
    """

    values: Floats
    covariances: Floats
    upper_bound: bool
    products: Floats | None
    changed: Floats


Likelihoods: TypeAlias = tuple[tuple[Fraction, Fraction], ...]
"""The classes of symbols of one likelihood ratio, each with its probabilities (p, q) under the two inputs."""

MOST_SYMBOLS = 2**14
"""An alphabet of more symbols is not listed."""


class PairKind(Enum):
    """The four ways in which two changelogs can differ on a node, as in `Losses`.

    For a report of a state, every pair of inputs is of every kind.
    """

    MUTATIONS = "two mutations"
    APPEARS = "a mutation against no change"
    VANISHES = "no change against a mutation"
    INSERTIONS = "two insertions"


def listed_likelihoods(randomizer: Randomizer, u: int, v: int) -> Likelihoods:
    """The likelihoods of the inputs u and v, from a look at every symbol.

    Raises ValueError for an alphabet of more than MOST_SYMBOLS symbols.
    """
    if randomizer.symbols > MOST_SYMBOLS:
        raise ValueError(
            f"{randomizer.symbols} symbols are too many to list (at most {MOST_SYMBOLS}): "
            f"register a closed form of likelihoods for {type(randomizer).__name__}"
        )
    pairs = ((randomizer.weight(o, u), randomizer.weight(o, v)) for o in range(randomizer.symbols))
    return merged(((w, x, 1) for w, x in pairs), randomizer.total(u), randomizer.total(v))


def merged(classes: Iterable[tuple[int, int, int]], total_u: int, total_v: int) -> Likelihoods:
    """The likelihoods that follow from how many symbols have which weights.

    classes: (weight under u, weight under v, how many symbols have these); classes of one ratio are added up, and
    those that are never sent are left out.
    total_u, total_v: the sum of the weights of each input.
    """
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for w, x, count in classes:
        if count and (w or x):
            divisor = gcd(w, x)
            ratio = w // divisor, x // divisor
            p, q = sums.get(ratio, (0, 0))
            sums[ratio] = p + w * count, q + x * count
    return tuple((Fraction(p, total_u), Fraction(q, total_v)) for p, q in sums.values())


def all_pairs(space: Space, kind: PairKind) -> list[tuple[int, int]]:
    """Every pair of inputs (u, v) of a kind."""
    if not space.reports_changes:
        return list(permutations(range(space.size), 2))
    mutations = [u for u in range(space.size) if space.pair(u)[0] != space.pair(u)[1]]
    match kind:
        case PairKind.MUTATIONS:
            return list(permutations(mutations, 2))
        case PairKind.APPEARS:
            return [(u, 0) for u in mutations]
        case PairKind.VANISHES:
            return [(0, u) for u in mutations]
        case PairKind.INSERTIONS:
            return list(permutations((u for u in mutations if space.pair(u)[0] == 0), 2))


def one_pair(space: Space, kind: PairKind) -> list[tuple[int, int]]:
    """One pair of inputs of a kind, or none if there is none: enough for a randomizer that treats all answers alike.

    For two mutations it is an insertion and the deletion that takes it back; without NULL a move, and back.
    """
    if not space.reports_changes:
        return [(0, 1)] if space.size > 1 else []
    one, other = (0, 1) if space.null else (1, 2)
    if other > space.answers:
        return []
    mutation = space.index(one, other)
    match kind:
        case PairKind.MUTATIONS:
            return [(mutation, space.index(other, one))]
        case PairKind.APPEARS:
            return [(mutation, 0)]
        case PairKind.VANISHES:
            return [(0, mutation)]
        case PairKind.INSERTIONS:
            return [(mutation, space.index(0, 2))] if space.null and space.answers > 1 else []


def agreement_chance(p: Fraction, odds: Odds) -> float:
    """How likely a report agrees: pa / (pa + (1-p)b), a ratio of integers that is rounded once to a float.

    p: how likely a symbol of the base agrees. odds: a:b, how symbols that agree are favoured over all others.
    """
    agreed = p.numerator * odds.favoured
    return agreed / (agreed + (p.denominator - p.numerator) * odds.other)


def sample_agreements(randomizer: Randomizer, counts: Counts, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Draws how many reports of each input agree at the randomizer's own odds, and how many do not.

    counts: how many entries have each input, shape (m,). Those with nothing to tell are counted as in `of_the_base`.
    Raises ValueError for a randomizer without a joint form.
    """
    joint_form = agreeing(randomizer)
    telling = np.array([joint_form.tells(true) for true in range(joint_form.space.size)])
    told = np.where(telling, counts, 0)
    agreed: Counts = generator.binomial(told, agreement_chance(joint_form.agreement, joint_form.odds))
    base_agreed, base_others = of_the_base(randomizer, int(counts.sum() - told.sum()), generator)
    return agreed + base_agreed, told - agreed + base_others


def of_the_base(randomizer: Randomizer, reports: int, generator: np.random.Generator) -> tuple[Counts, Counts]:
    """Reports of the base as reports of one input that tells: how many agree with it and how many do not, by input.

    Which input does not matter: each agrees with a symbol of the base with the same chance, and a symbol is drawn from
    the base, given whether it agrees. Returns shapes (m,) and (m,).
    """
    joint_form = agreeing(randomizer)
    told = next(true for true in range(joint_form.space.size) if joint_form.tells(true))
    one = np.eye(1, joint_form.space.size, told, dtype=np.int64)[0]
    agreed = int(generator.binomial(reports, float(joint_form.agreement)))
    return agreed * one, (reports - agreed) * one


def sample_inputs(agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:
    """Draws slots of reports whose symbols are the inputs: those that agree are the input, others are uniform.

    agreed, others: how many reports of each input agree, and how many do not, shape (m,).
    """
    slots, m = agreed.copy(), len(agreed)
    for true in np.flatnonzero(others).tolist():
        symbols = np.delete(np.arange(m), true)
        slots[symbols] += generator.multinomial(others[true], np.full(m - 1, 1 / (m - 1)))
    return slots


R_co = TypeVar("R_co", bound=Randomizer, covariant=True)


@dataclass(frozen=True, slots=True)
class Blanket:
    """A randomizer seen as a mixture: a report is either the truth, or a uniform symbol whatever the truth is.

    Once reports are shuffled, those that are uniform hide the others. A report is uniform with probability
    symbols · other.

    truth: the probability of the true symbol.
    other: of each other symbol.
    symbols: how many symbols there are.
    """

    truth: float
    other: float
    symbols: int


@dataclass(frozen=True)
class Counterpart(ABC, Generic[R_co]):
    """The statistics of one randomizer with m inputs over z answers.

    Every covariance is that of the randomizer's coins alone, given everybody's true inputs.

    randomizer: the device's half.
    answers_alike: whether the randomizer treats all answers alike. One insertion, one deletion, one move and one
    state then stand for all of them, and one pair of inputs for all that are told apart (`one_pair`).
    """

    answers_alike: ClassVar[bool] = False
    randomizer: R_co

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many slots a tally has."""

    @abstractmethod
    def tally(self, symbols: NDArray[np.uint64]) -> NodeTally:
        """The tally of some reports.

        symbols: what was reported, shape (n,), every one below `randomizer.symbols`.
        """

    def tallies(self, symbols: NDArray[np.uint64], of: NDArray[np.int64], count: int) -> list[NodeTally]:
        """The tallies of many nodes at once, each as `tally` gives it; of a node without reports, an empty one.

        symbols: as `tally` takes them, of all nodes. of: which node each is of, from 0 on, shape (n,). count: how many
        nodes there are.
        """
        order = np.argsort(of, kind="stable")
        ends = np.cumsum(np.bincount(of, minlength=count))
        return [self.tally(part) for part in np.split(symbols[order], ends)[:count]]

    @abstractmethod
    def estimate(self, tally: NodeTally) -> Estimate:
        """The unbiased change of the histogram over a node; for reports of states, the histogram at its end.

        tally: of at least one report.
        Returns values of shape (z,), in entries, with a covariance that is unbiased too, or labelled as an upper bound.
        Raises ValueError if the randomizer says nothing, or has no unbiased decoder.
        """

    @abstractmethod
    def report_covariance(self, true: int) -> Floats:
        """The exact covariance of what one report decodes to, shape (z, z), in entries squared.

        true: the input it is a report of. Raises ValueError outside the space, and as `estimate` does.
        """

    @abstractmethod
    def sample_slots(self, counts: Counts, generator: np.random.Generator) -> Counts:
        """Draws the slots of several nodes from the distribution that the sums of their reports have.

        counts: how many entries have each input on each node, shape (nodes, m).
        generator: for simulations; it draws no coin of a device.
        Returns shape (nodes, slots). The distribution is exact, up to the rounding of probabilities to floats.
        """

    def sample(self, counts: Counts, generator: np.random.Generator) -> NodeTally:
        """Draws the tally of one node, as `sample_slots` does.

        counts: how many entries have each input, shape (m,).
        """
        return NodeTally(int(counts.sum()), self.sample_slots(counts[None, :], generator)[0])

    def sample_joint(self, agreed: Counts, others: Counts, base: int, generator: np.random.Generator) -> NodeTally:
        """Draws the tally of one node of a joint group, of whose reports it is known how many agree.

        agreed, others: how many reports of each input agree with it, and how many do not, shape (m,).
        base: how many reports are drawn from the base, as they have nothing to tell.
        Raises ValueError for a randomizer without a joint form.
        """
        base_agreed, base_others = of_the_base(self.randomizer, base, generator)
        slots = self.sample_agreeing(agreed + base_agreed, others + base_others, generator)
        return NodeTally(int(agreed.sum() + others.sum()) + base, slots)

    def sample_agreeing(self, agreed: Counts, others: Counts, generator: np.random.Generator) -> Counts:  # noqa: ARG002
        """Draws slots, shape (slots,): each symbol from the base, given whether it agrees with the input it tells.

        agreed, others: as for `sample_joint`; none of an input that tells nothing.
        Raises ValueError for a randomizer without a joint form, as a counterpart that does not override this does.
        """
        raise ValueError(f"no joint sampler for {self.randomizer.kind!r}")

    def estimates(self, tallies: Sequence[NodeTally]) -> DecodedNodes:
        """The estimate of each tally, and how many entries changed, as far as the tallies tell.

        tallies: at least one.
        """
        decoded, squares = [self.estimate(tally) for tally in tallies], [self.squares(tally) for tally in tallies]
        bounded = any(estimate.upper_bound for estimate in decoded)
        covariances = np.array([estimate.covariance for estimate in decoded])
        told = self.randomizer.space.reports_changes and not bounded and squares[0] is not None
        return DecodedNodes(
            values=np.array([estimate.values for estimate in decoded]),
            covariances=covariances,
            upper_bound=bounded,
            products=np.array(squares) - covariances if told else None,  # an unbiased Ĉ is A diag(O) A' - Q̂
            changed=self.changed(tallies),
        )

    def changed(self, tallies: Sequence[NodeTally]) -> Floats:
        """Unbiased for how many of the reporting entries changed on each node, shape (nodes,); nan if tallies do not
        tell, which is what a counterpart that does not override this says."""
        return np.full(len(tallies), np.nan)

    def squares(self, tally: NodeTally) -> Floats | None:  # noqa: ARG002
        """A diag(O) A' = Σ a a' over the reports, a what each decodes to; shape (z, z), in entries squared.

        None if the tally does not count symbols but keeps sums, from which it is not known.
        """
        return None

    def likelihoods(self, u: int, v: int) -> Likelihoods:
        """The exact probabilities of symbols under the inputs u and v; symbols of one likelihood ratio are added up.

        Raises ValueError if the alphabet is too large to list, and there is no closed form.
        """
        return listed_likelihoods(self.randomizer, u, v)

    def telling_pairs(self, kind: PairKind) -> list[tuple[int, int]]:
        """Pairs of inputs of a kind. At every epsilon, one of them is told apart as well as any pair of that kind."""
        return (one_pair if self.answers_alike else all_pairs)(self.randomizer.space, kind)

    @property
    def blanket(self) -> Blanket | None:
        """The randomizer as a mixture of the truth and a uniform symbol; None if it is no such mixture."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ChangeMap:
    """M_δv: by how much each of m inputs changes the histogram of z answers, shape (z, m).

    Its column for the input (old, new) is +1 at `new` and -1 at `old`; NULL has no row. The matrix is never built:
    every product here is a sum over inputs, O(m).
    answers: z. old, new: the states of each input, shape (m,).
    """

    answers: int
    old: NDArray[np.intp]
    new: NDArray[np.intp]

    def apply(self, weights: Floats) -> Floats:
        """M_δv w: shape (m,) to shape (z,)."""
        d = self.answers + 1
        return (_sums(self.new, weights, d) - _sums(self.old, weights, d))[1:]

    def sandwich(self, weights: Floats) -> Floats:
        """M_δv diag(w) M_δv': shape (m,) to shape (z, z)."""
        d = self.answers + 1
        W = _sums(self.old * d + self.new, weights, d * d).reshape(d, d)
        return (np.diag(W.sum(0) + W.sum(1)) - W - W.T)[1:, 1:]


@lru_cache(maxsize=64)
def change_map(space: Space) -> ChangeMap:
    """The M_δv of a space."""
    old, new = np.array([space.pair(index) for index in range(space.size)], dtype=np.intp).T
    return ChangeMap(space.answers, old, new)


def _sums(index: NDArray[np.intp], weights: Floats, size: int) -> Floats:
    return np.bincount(index, weights, size).astype(np.float64, copy=False)


Share = TypeVar("Share", float, Floats)

ONE_CHANGE = Losses(mutations=Decimal(1), appears=Decimal("0.5"), vanishes=Decimal("0.5"), insertions=Decimal(1))
"""The losses, in units of ln(a/b), of a randomizer under which a mutation costs that once. How it divides between
appearing and vanishing does not change cost(κ, N)."""

ANY_ODDS = Odds(3, 1)
"""The odds of what is offered for joint responses, whose odds follow from their group."""


@dataclass(frozen=True, slots=True)
class Variances:
    """The variance of what one report decodes to, mean over the answers, in entries squared, by what the entry did.

    For reports of changes:
    none: the entry did not change.
    came: it had no answer and now has one.
    moved: it left one answer for another.
    For reports of states:
    none: the entry has no answer.
    came and moved: it has one.
    """

    none: float
    came: float
    moved: float

    def mixed(self, moved: Share, came: Share | float = 0.0) -> Share:
        """The mean over entries of which a share `moved` moved, a share `came` came, and the others did neither."""
        return (1 - came - moved) * self.none + came * self.came + moved * self.moved


@dataclass(frozen=True, slots=True)
class ChangeOffers:
    """The offers of a kind of randomizer for changes, at any odds a:b.

    unit: the losses of a report in units of ln(a/b). From them follows what a track of such reports costs.
    offers: takes the mutations, the odds, the share of the entries that move on a node, and whether changes add up to
    zero over the answers; gives the randomizers that are worth comparing.
    """

    unit: Losses
    offers: Callable[[MutationSpace, Odds, float, bool], Iterable[Randomizer]]


R = TypeVar("R", bound=Randomizer)
StateOffers: TypeAlias = Callable[[StateSpace, Odds], Iterable[Randomizer]]
"""Takes a space of states and odds; gives randomizers whose loss is at most that of the odds."""

AgreeingOffers: TypeAlias = Callable[[Space, float], Iterable[Agreeing]]
"""Takes a space and p; gives randomizers for joint responses, at any odds, of which a symbol of the base agrees with
an input that tells with a probability of about p."""


@dataclass(frozen=True, slots=True)
class _Room:
    counterpart: Callable[[Any], Counterpart[Randomizer]]
    states: StateOffers | None
    changes: ChangeOffers | None
    agreeing: AgreeingOffers | None


_ROOMS: dict[type[Randomizer], _Room] = {}


def register_counterpart(
    kind: type[R],
    counterpart: Callable[[R], Counterpart[R]],
    *,
    states: StateOffers | None = None,
    changes: ChangeOffers | None = None,
    agreeing: AgreeingOffers | None = None,
) -> None:
    """Makes the statistics of a kind of randomizer known.

    kind: its class, which is registered in the protocol too.
    counterpart: makes the counterpart of a randomizer of that kind.
    states: what the planner may choose for reports of a state; None if the kind reports no states.
    changes: what the planner may choose for reports of changes; None if the kind reports no changes.
    agreeing: what it may choose for joint responses; None if the kind has no joint form.
    Raises ValueError if the kind is registered already.
    """
    if kind in _ROOMS:
        raise ValueError(f"{kind.__name__} has a counterpart already")
    _ROOMS[kind] = _Room(counterpart, states, changes, agreeing)


@lru_cache(maxsize=256)
def counterpart_of(randomizer: Randomizer) -> Counterpart[Randomizer]:
    """The counterpart of a randomizer. It is kept, with whatever it has computed, for the next call.

    Raises TypeError for a kind that is not registered.
    """
    room = _ROOMS.get(type(randomizer))
    if room is None:
        raise TypeError(f"nothing is known of the randomizer {type(randomizer).__name__}: register its counterpart")
    return room.counterpart(randomizer)


def state_offers(space: StateSpace, odds: Odds) -> Iterator[Randomizer]:
    """Everything that the planner may choose for reports of a state.

    space: the states. odds: the loss of a report is at most their logarithm.
    """
    for room in _ROOMS.values():
        if room.states is not None:
            yield from room.states(space, odds)


def change_offers() -> Iterator[ChangeOffers]:
    """Everything that the planner may choose for reports of changes, kind by kind."""
    for room in _ROOMS.values():
        if room.changes is not None:
            yield room.changes


def agreeing_offers(space: Space, p: float) -> Iterator[Agreeing]:
    """Everything that the planner may choose for joint responses, at any odds.

    space: the inputs. p: about how likely a symbol of the base ought to agree with an input that tells.
    """
    for room in _ROOMS.values():
        if room.agreeing is not None:
            yield from room.agreeing(space, p)


def input_classes(space: Space, answers_alike: bool) -> tuple[list[int], list[int], list[int]]:
    """The inputs of a space by what the entry did: none, came, moved, as in `Variances`.

    Deletions, and the paper's pairs (r, r), which never occur, are in no class.
    answers_alike: whether the randomizer treats all answers alike; if so, each class holds just one of its inputs.
    """
    none, came, moved = list[int](), list[int](), list[int]()
    for true in _representatives(space) if answers_alike else range(space.size):
        old, new = space.pair(true)
        if old == new == 0:
            none.append(true)
        elif old == 0 < new:
            came.append(true)
        elif 0 < old != new > 0:
            moved.append(true)
    most = 1 if answers_alike else None
    return none[:most], came[:most], moved[:most]


def _representatives(space: Space) -> Iterator[int]:
    """No change, an insertion and a move, as far as the space has them; a space can have a million inputs."""
    yield 0
    if space.null or not space.reports_changes:
        yield space.index(0, 1)
    if space.answers > 1:
        yield space.index(1, 2)


@lru_cache(maxsize=4096)
def class_variances(randomizer: Randomizer, conserved: bool) -> Variances:
    """The variances of a randomizer's reports, each the mean over the inputs of its class.

    conserved: whether changes are known to add up to zero over the answers, which the estimator makes use of.
    """
    none, came, moved = input_classes(randomizer.space, counterpart_of(randomizer).answers_alike)
    classes = none, came or moved, moved or came
    return Variances(*(_mean_variance(randomizer, inputs, conserved) for inputs in classes))


def _mean_variance(randomizer: Randomizer, inputs: Sequence[int], conserved: bool) -> float:
    """The mean over the answers and over some inputs, in entries squared; 0 for no inputs."""
    covariances = [counterpart_of(randomizer).report_covariance(true) for true in inputs]
    if conserved:
        covariances = [without_sum(np.zeros(len(each)), each)[1] for each in covariances]
    return sum(float(np.trace(each)) / len(each) for each in covariances) / max(1, len(covariances))
