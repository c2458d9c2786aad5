"""Joint responses: one budget for everything an entry says, instead of a slice for each report.

Each track of a joint group has slots, one for every report that tells something: a change, or a state. Which of the
symbols sent in them agree with the truth is drawn for all slots together. Let x say which agree, w be the slots'
weights and τ a threshold: a pattern x is a:b times likelier, relative to independent agreements, where Σ w x >= τ.
So every transcript is between b and a times as likely as from an entry that tells nothing, but for one factor that is
the same for all, and any two changelogs differ by at most ln(a/b): for all tracks, all changes, all states.
docs/joint.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import comb, prod
from typing import TypeAlias

from .randomizers.interface import Agreeing, Odds, Randomizer
from .signing import Fields, as_terms, from_terms

MOST_SCORE = 2**10
"""The most that all slots of a group may weigh together: a device goes through all scores for each answer."""
MOST_JOINT_BITS = 2**11
"""The most bits that the denominators of p of all slots of a group may have together: a device multiplies them."""
MOST_STEPS = 2**18
"""The most steps, kinds of slots times slots times threshold, of all joint groups of a plan: a device that joins takes
them."""

Slot: TypeAlias = tuple[int, int, int]
"""A and B, where p = A/B, and the weight."""


@dataclass(frozen=True, slots=True)
class Joint:
    """How the reports of a joint group hang together.

    odds: a:b, favoured > other; what the whole group costs.
    threshold: τ, from 1 to the sum of all slots' weights.
    weights: w, a positive integer for each track, which is that of each of its slots.
    slots: how many reports of each track may tell something, at least 1.
    Raises ValueError for parameters out of range.
    """

    odds: Odds
    threshold: int
    weights: tuple[int, ...]
    slots: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.odds.favoured == self.odds.other:
            raise ValueError(f"joint odds of {self.odds.favoured}:{self.odds.other} say nothing: choose a > b")
        if not self.weights or len(self.weights) != len(self.slots):
            raise ValueError(f"a joint group has a weight and slots for each track, got {self.weights}, {self.slots}")
        if min(self.weights) < 1 or min(self.slots) < 1:
            raise ValueError(f"weights and slots are positive integers, got {self.weights} and {self.slots}")
        if self.heaviest > MOST_SCORE:
            raise ValueError(f"the slots of a joint group weigh at most {MOST_SCORE} together, got {self.heaviest}")
        if not 1 <= self.threshold <= self.heaviest:
            raise ValueError(
                f"the threshold is 1 to {self.heaviest}, which is what all slots weigh together, got {self.threshold}"
            )

    @property
    def heaviest(self) -> int:
        """The weight of all slots together."""
        return sum(weight * slots for weight, slots in zip(self.weights, self.slots, strict=True))

    def ordered(self, places: Sequence[int]) -> "Joint":
        """The same response of the tracks in another order. places: where each track is in this one."""
        weights, slots = (tuple(each[place] for place in places) for each in (self.weights, self.slots))
        return replace(self, weights=weights, slots=slots)

    def as_fields(self) -> Fields:
        """The parameters as they stand in a survey's signed bytes."""
        return as_terms(self)

    @classmethod
    def from_fields(cls, fields: Fields) -> "Joint":
        """The parameters that `as_fields` wrote. Raises ValueError for anything else."""
        if (told := from_terms(cls, fields)) is None:
            raise ValueError("a joint response is its odds, threshold, weights and slots")
        return cls(**told)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The distribution of a joint group's agreements, in exact integers.

    joint: the group's parameters.
    agreements: p of each track, how likely a symbol of its base agrees with an input that tells.

    >>> kernel = Kernel(Joint(Odds(9, 1), 1, (1,), (2,)), (Fraction(1, 3),))
    >>> kernel.conditional_odds(0, [0], 0), kernel.conditional_odds(0, [1], 0), kernel.conditional_odds(0, [1], 1)
    (Odds(favoured=27, other=11), Odds(favoured=9, other=1), Odds(favoured=1, other=1))
    """

    joint: Joint
    agreements: tuple[Fraction, ...]

    @property
    def kinds(self) -> list[Slot]:
        """The kind of each track's slots; slots of one kind are counted together, whatever their track."""
        kinds = zip(self.agreements, self.joint.weights, strict=True)
        return [(p.numerator, p.denominator, weight) for p, weight in kinds]

    @property
    def steps(self) -> int:
        """About how many steps it takes to work out the odds of every track."""
        return len(set(self.kinds)) * sum(self.joint.slots) * self.joint.threshold

    def conditional_odds(self, track: int, used: Sequence[int], score: int) -> Odds:
        """How the next slot of a track favours the symbols that agree, given what the slots before it did.

        track: its place in the group.
        used: how many slots of each track are used; of this one at least one is left.
        score: the weights of those that agreed, added up. From the threshold on it does not matter how many more did.
        Raises ValueError if the track has no slot left.
        """
        left = [slots - gone for slots, gone in zip(self.joint.slots, used, strict=True)]
        if left[track] < 1:
            raise ValueError("every slot of this track is used")
        left[track] -= 1
        agreed = _density(self, left, score + self.joint.weights[track])
        return Odds(agreed, _density(self, left, score)).in_lowest_terms()

    def scored(self, track: int, score: int, agreed: bool) -> int:
        """The score after a slot of a track, no more than the threshold."""
        return min(self.joint.threshold, score + agreed * self.joint.weights[track])

    def marginal(self, track: int) -> Odds:
        """The odds of one report of a track by itself: as an ordinary randomizer that knew of no other report."""
        return self.conditional_odds(track, [0] * len(self.joint.slots), 0)

    def density(self, used: Sequence[int], score: int) -> Fraction:
        """How likely what was sent is, relative to the base: from 1 to a/b, once all slots are used; else the mean.

        With no slot used it is G, by which the density of every transcript is divided.
        """
        left = [slots - gone for slots, gone in zip(self.joint.slots, used, strict=True)]
        every = prod(p.denominator**slots for p, slots in zip(self.agreements, left, strict=True))
        return Fraction(_density(self, left, score), self.joint.odds.other * every)


def _density(kernel: Kernel, left: Sequence[int], score: int) -> int:
    """Σ over the patterns of the slots that are left of their weight, times a where τ is reached, and else b."""
    alike: dict[Slot, int] = {}
    for kind, slots in zip(kernel.kinds, left, strict=True):
        alike[kind] = alike.get(kind, 0) + slots
    below, every = _patterns(tuple(sorted(alike.items())), kernel.joint.threshold - score)
    odds = kernel.joint.odds
    return odds.favoured * (every - below) + odds.other * below


@lru_cache(maxsize=2**14)
def _patterns(left: tuple[tuple[Slot, int], ...], need: int) -> tuple[int, int]:
    """The weight of the patterns with Σ w x < need, and of all. A slot agrees with weight A, and does not with B - A.

    left: how many slots there are of each kind.
    """
    by_score, every = [1] + [0] * (need - 1) if need > 0 else [], 1
    for (agree, either, weight), slots in left:
        every *= either**slots
        before, by_score = by_score, [0] * len(by_score)
        for agreed in range(slots + 1):
            ways = comb(slots, agreed) * agree**agreed * (either - agree) ** (slots - agreed)
            for score, patterns in enumerate(before[: max(0, len(before) - agreed * weight)]):
                if patterns:
                    by_score[score + agreed * weight] += ways * patterns
    return sum(by_score), every


def agreeing(randomizer: Randomizer) -> Agreeing:
    """A randomizer as one that can take part in a joint response. Raises ValueError if it cannot."""
    if not isinstance(randomizer, Agreeing):
        raise ValueError(f"{randomizer.kind!r} has no joint form: choose k-RR, subset selection or signed subsets")
    if randomizer.space.reports_changes and randomizer.tells(0):
        raise ValueError(f"{randomizer.kind!r} tells even that nothing changed: in a joint group choose 'k-rr-change'")
    return randomizer
