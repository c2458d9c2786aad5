"""Which counterpart each kind of randomizer has, and what it offers the planner, with the noise of one report.

Knows no kind: each registers itself under its class in the protocol.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import Agreeing, Losses, MutationSpace, Odds, Randomizer, Space, StateSpace

from ..estimate import Floats, without_sum
from .counterpart import Counterpart

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
class RandomizerOffer:
    """A randomizer that the planner may choose.

    make: makes the randomizer, once it is chosen; that can be slow.
    variances: of one report.
    conserved: of one report if changes are known to add up to zero over the answers, as in a closed cohort after the
    first period.
    """

    make: Callable[[], Randomizer]
    variances: Variances
    conserved: Variances


@dataclass(frozen=True, slots=True)
class ChangeOffers:
    """The offers of a kind of randomizer for changes, at any odds a:b.

    unit: the losses of a report in units of ln(a/b). From them follows what a track of such reports costs.
    offers: takes the mutations, the odds, the share of the entries that move on a node, and whether changes add up to
    zero over the answers; gives the randomizers that are worth comparing.
    """

    unit: Losses
    offers: Callable[[MutationSpace, Odds, float, bool], Iterable[RandomizerOffer]]


R = TypeVar("R", bound=Randomizer)
StateOffers: TypeAlias = Callable[[StateSpace, Odds], Iterable[RandomizerOffer]]
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


def state_offers(space: StateSpace, odds: Odds) -> Iterator[RandomizerOffer]:
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


@dataclass(frozen=True, slots=True)
class InputClasses:
    """The inputs of a space, classed by what the entry did: none, came, moved, as in `Variances`.

    Deletions, and the paper's pairs (r, r), which never occur, are in no class.
    """

    none: tuple[int, ...]
    came: tuple[int, ...]
    moved: tuple[int, ...]

    @classmethod
    def of(cls, space: Space, answers_alike: bool) -> "InputClasses":
        """The classes of a space.

        answers_alike: whether the randomizer treats all answers alike; if so, each class holds just one of its inputs.
        """
        none, came, moved = [], [], []
        for true in _representatives(space) if answers_alike else range(space.size):
            old, new = space.pair(true)
            if old == new == 0:
                none.append(true)
            elif old == 0 < new:
                came.append(true)
            elif 0 < old != new > 0:
                moved.append(true)
        most = 1 if answers_alike else None
        return cls(tuple(none[:most]), tuple(came[:most]), tuple(moved[:most]))


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
    classes = InputClasses.of(randomizer.space, counterpart_of(randomizer).answers_alike)
    none, came, moved = (
        _mean_variance(randomizer, inputs, conserved)
        for inputs in (classes.none, classes.came or classes.moved, classes.moved or classes.came)
    )
    return Variances(none, came, moved)


def _mean_variance(randomizer: Randomizer, inputs: tuple[int, ...], conserved: bool) -> float:
    """The mean over the answers and over some inputs, in entries squared; 0 for no inputs."""
    covariances = [counterpart_of(randomizer).report_covariance(true) for true in inputs]
    if conserved:
        covariances = [without_sum(np.zeros(len(each)), each)[1] for each in covariances]
    return sum(float(np.trace(each)) / len(each) for each in covariances) / max(1, len(covariances))


@lru_cache(maxsize=4096)
def offer_of(randomizer: Randomizer, conserved: bool = False) -> RandomizerOffer:
    """The offer of a randomizer that is made already.

    conserved: whether to work out its variances for changes that add up to zero; if not, both are the same.
    """
    return RandomizerOffer(
        lambda: randomizer, class_variances(randomizer, False), class_variances(randomizer, conserved)
    )
