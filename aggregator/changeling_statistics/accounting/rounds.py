"""What is shuffled together at each closing of a group, and at how many closings two changelogs can differ.

At every closing an entry sends one envelope, with a report for each of its tracks whose node ends there; the relay
permutes the envelopes of a closing. What an envelope shows besides symbols, its group and which nodes it reports, is
drawn whatever the data, and public: it hides only among the entries that drew alike.
"""

from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from math import prod

from changeling_protocol import Calendar, Constraint, Group, Track
from changeling_protocol.randomizers import rounded_up

from ..randomizers import Blanket, counterpart_of
from .compositions import most_differing


@dataclass(frozen=True, slots=True)
class Round:
    """One closing.

    local: the loss of the whole envelope between any two inputs, in nats, rounded up. alike: the probability that
    another entry of the group sends an envelope of the same form. blanket: how a report splits into the truth and a
    uniform symbol, if the envelope holds a single report that does.
    """

    local: float
    alike: float
    blanket: Blanket | None


def differing_rounds(group: Group, calendar: Calendar, constraint: Constraint, closed: bool) -> Counter[Round]:
    """Rounds that hide no better than those at which two changelogs of the group can differ.

    Where tracks never end together: of each track as many rounds as its reports can differ, exactly. Else each report
    that differs takes a round for itself, and each round is charged like the dearest left: its whole envelope, the
    smallest crowd, and the bound that only counts the loss; an upper bound.
    """
    differing = {track: most_differing(track, calendar, constraint, closed) for track in group.tracks}
    forms = _forms(group)
    if all(len(tracks) == 1 for tracks in forms):
        apart: Counter[Round] = Counter()
        for (track,) in forms:
            apart[_round((track,))] += differing[track]
        return apart
    left = sum(differing[track] for track in group.tracks)
    alike = min(_round(tracks).alike for tracks in forms)
    chosen: Counter[Round] = Counter()
    for tracks in sorted(forms, key=lambda tracks: _round(tracks).local, reverse=True):
        taken = min(left, forms[tracks])
        left -= taken
        chosen[Round(_round(tracks).local, alike, None)] += taken
    return +chosen


def _forms(group: Group) -> Counter[tuple[Track, ...]]:
    """The closings of the group by the tracks whose nodes end there."""
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
    # A lone report hides among those that report the node; of several, some may be there and others not.
    alike = prod(drawn) if len(tracks) == 1 else prod(min(share, 1 - share) for share in drawn)
    blanket = counterpart_of(tracks[0].randomizer).blanket if len(tracks) == 1 else None
    return Round(rounded_up(local), alike, blanket)
