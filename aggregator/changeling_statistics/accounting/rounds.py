"""What is shuffled together at each closing of a group, and at how many closings two changelogs can differ.

At a closing an entry sends one envelope, which holds a report for each of its tracks whose node ends there, and the
relay permutes the envelopes of that closing. The group of an envelope and the nodes it reports can be seen, and those
of this entry are taken to be known. So an envelope hides only among those of the same group with reports on the same
nodes; what the others drew does not depend on data.

The reports of a joint group depend on each other from closing to closing, and what bounds independent rounds does not
hold for them. Only its whole transcript counts, as one report of one round.
"""

from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from math import comb, prod

from changeling_protocol import Calendar, Constraint, Group, Track, group_cost, rounded_up

from ..randomizers import Blanket, counterpart_of
from .compositions import most_differing


@dataclass(frozen=True, slots=True)
class Round:
    """The shuffling of one closing, or of whole transcripts.

    local: how much of an entry can be told before it is shuffled, in nats, rounded up.
    alike: the probability that another entry of the group reports on the same nodes.
    blanket: the envelope's report as a mixture of the truth and a uniform symbol; None if it is no such mixture, or
    the envelope holds several reports.
    """

    local: float
    alike: float
    blanket: Blanket | None


def linked_round(group: Group, calendar: Calendar, constraint: Constraint, closed: bool) -> Round:
    """The round in which every entry of a group sends its whole transcript at once, among those that drew alike."""
    alike = 1 / prod(comb(track.count, track.reports) for track in group.tracks)
    return Round(rounded_up(group_cost(group, calendar, constraint, closed)), alike, None)


def differing_rounds(group: Group, calendar: Calendar, constraint: Constraint, closed: bool) -> Counter[Round]:
    """The rounds at which two changelogs of an entry of the group can differ, with how many there are of each.

    If no two tracks end together, each track has as many rounds as its reports can differ. If some do, the rounds are
    an upper bound: each report that differs is taken to have a round of its own, and the rounds to be those with the
    largest losses, each with the smallest crowd and no blanket.
    Raises ValueError for a joint group, whose rounds depend on each other.
    """
    if group.joint is not None:
        raise ValueError("the rounds of a joint group depend on each other: only its whole transcript can be counted")
    differing = {track: most_differing(track, calendar, constraint, closed) for track in group.tracks}
    forms = _forms(group)
    if all(len(tracks) == 1 for tracks in forms):
        apart: Counter[Round] = Counter()
        for (track,) in forms:
            apart[_round((track,))] += differing[track]
        return +apart
    left = sum(differing[track] for track in group.tracks)
    alike = min(_round(tracks).alike for tracks in forms)
    chosen: Counter[Round] = Counter()
    for tracks in sorted(forms, key=lambda tracks: _round(tracks).local, reverse=True):
        taken = min(left, forms[tracks])
        left -= taken
        chosen[Round(_round(tracks).local, alike, None)] += taken
    return +chosen


def _forms(group: Group) -> Counter[tuple[Track, ...]]:
    """How many closings the group has with which tracks ending there."""
    if len(group.tracks) == 1:
        return Counter({group.tracks: group.tracks[0].count})
    ending: dict[int, list[Track]] = {}
    for track in group.tracks:
        for number in range(1, track.count + 1):
            ending.setdefault(track.first + number * track.width, []).append(track)
    return Counter(tuple(tracks) for tracks in ending.values())


def _round(tracks: tuple[Track, ...]) -> Round:
    losses = [track.randomizer.losses for track in tracks]
    with localcontext(prec=50, rounding=ROUND_CEILING):
        local = sum((max(each.mutations, each.appears, each.vanishes) for each in losses), Decimal(0))
    drawn = [track.reports / track.count for track in tracks if track.reports < track.count]
    # A single report hides among those that report the node. Of several, each is there or not.
    alike = prod(drawn) if len(tracks) == 1 else prod(min(share, 1 - share) for share in drawn)
    blanket = counterpart_of(tracks[0].randomizer).blanket if len(tracks) == 1 else None
    return Round(rounded_up(local), alike, blanket)
