"""The symbol that an entry sends for a node: drawn by itself or, in a joint group, by what its other reports did.

An entry of a joint group remembers how many of its reports told something, and how far they agreed with the truth; not
which of them did. Takes its chances from the coins it is given; knows no store, no time and no network.
"""

from dataclasses import dataclass, replace

from .coins import Coins
from .joint import agreeing
from .plan import Group
from .randomizers import Odds

_EVEN = Odds(1, 1)
"""Favours nothing: the symbol comes from the base."""


@dataclass(frozen=True, slots=True, repr=False)
class Slots:
    """What a joint group's entry remembers of its reports, as long as any slot is left; printing it shows nothing.

    used: how many slots of each of the group's tracks are used.
    score: the weights of those that agreed added up, up to the threshold.
    """

    used: tuple[int, ...]
    score: int

    @classmethod
    def unused(cls, group: Group) -> "Slots | None":
        """All slots of a group; None if the group is not joint."""
        return None if group.joint is None else cls((0,) * len(group.tracks), 0)

    def after(self, group: Group, place: int, agreed: bool) -> "Slots | None":
        """The slots after one more of the track at that place is used; None if it was the last of the group."""
        used = tuple(slots + (at == place) for at, slots in enumerate(self.used))
        if group.joint is None or used == group.joint.slots:
            return None
        return replace(self, used=used, score=group.kernel.scored(place, self.score, agreed))


def respond(group: Group, place: int, true: int, slots: Slots | None, coins: Coins) -> tuple[int, Slots | None]:
    """Draws the symbol for a node, and tells which slots are left after it.

    place: the track's place in the group. true: the input of its randomizer.
    slots: what is left of a joint group's; None if nothing is, or the group is not joint.

    In a joint group an input that tells nothing, or finds no slot left, is answered from the base, which says nothing.
    So the group costs no more than its odds, however often an answer changes.
    """
    randomizer = group.tracks[place].randomizer
    if group.joint is None:
        return randomizer.respond(true, coins), None
    joint = agreeing(randomizer)
    if slots is None or slots.used[place] == group.joint.slots[place] or not joint.tells(true):
        return joint.favoured_symbol_at(coins.below(joint.favoured_total(true, _EVEN)), true, _EVEN), slots
    odds = group.kernel.conditional_odds(place, slots.used, slots.score)
    symbol = joint.favoured_symbol_at(coins.below(joint.favoured_total(true, odds)), true, odds)
    return symbol, slots.after(group, place, joint.agrees(symbol, true))
