"""The cost of a release plan to an entry: the charge, in nats, rounded up.

Two changelogs that keep to the constraint differ on a track by at most cost(κ, N); tracks of one group add up, unless
the group is joint, which costs its own odds, whole. Groups are drawn independently of the data, so a plan costs the
most expensive one. docs/mathematics.md, "What a plan costs an entry".
"""

from decimal import Decimal
from typing import TypeAlias

from .calendar import Calendar
from .histories import History, Limits
from .joint import Joint
from .plan import Group, ReleasePlan, Track
from .questions import AtMost, AtMostWithin, Constraint
from .randomizers.interface import Losses, upwards

Constraints: TypeAlias = Constraint | tuple[Constraint, ...]
"""The constraint of all questions of a plan, or one for each."""


def plan_cost(plan: ReleasePlan, calendar: Calendar, constraint: Constraints, closed: bool = False) -> Decimal:
    """The epsilon of a plan: how far all that an entry ever reports can tell two changelogs of it apart.

    The logarithm of the largest ratio of the probabilities of the same reports, rounded up.
    constraint: what both changelogs keep to, of all questions or one for each.
    closed: every entry has an answer from the first period to the last.
    """
    return max(group_cost(group, calendar, constraint, closed) for group in plan.groups)


def group_cost(group: Group, calendar: Calendar, constraint: Constraints, closed: bool = False) -> Decimal:
    """The cost of a group: at most the sum over its tracks, as one pair of changelogs need not be the worst on all.

    Tracks of one question and of several add up alike: the answers to each are bounded by its own constraint.

    A joint group costs the logarithm of its odds. Raises ValueError if it has fewer slots on a track than an entry
    may have reports that tell something, and for a history group that counts with other changes than the constraint.
    """
    if isinstance(group.joint, History):
        check_limits(group.joint, calendar, bound_of(constraint, group.tracks[0]), closed)
        return group.joint.odds.epsilon
    if group.joint is not None:
        for track, slots in zip(group.tracks, group.joint.slots, strict=not group.hidden):
            if slots < (needed := most_telling(track, calendar, constraint, closed)):
                raise ValueError(f"a joint track has {slots} slots, and up to {needed} of an entry's reports tell")
        return group.joint.odds.epsilon
    with upwards():
        return sum((track_cost(track, calendar, constraint, closed) for track in group.tracks), Decimal(0))


def bound_of(constraint: Constraints, track: Track) -> Constraint:
    """The constraint of the question that a track is about."""
    return constraint[track.question] if isinstance(constraint, tuple) else constraint


def check_limits(history: History, calendar: Calendar, constraint: Constraint, closed: bool) -> None:
    """Raises ValueError for a history group whose possible histories are not those that the constraint allows."""
    if closed == history.null:
        raise ValueError("histories are without NULL in a closed cohort, and have it in an open one")
    if (limits := Limits.of(constraint, calendar, closed, history.periods)) != history.limits:
        raise ValueError(f"the histories of this survey have the limits {limits}, the group has {history.limits}")


def track_cost(
    track: Track, calendar: Calendar, constraint: Constraints, closed: bool = False, losses: Losses | None = None
) -> Decimal:
    """The cost of one track, on which two changelogs may differ in the ways of `differing_nodes`.

    losses: of one report; None for those of the track's randomizer.
    """
    losses = losses or track.randomizer.losses
    with upwards():
        return max(
            node_cost(losses, most, reports) + (losses.insertions if inserted else 0)
            for inserted, most, reports in differing_nodes(track, calendar, constraint, closed)
        )


def differing_nodes(
    track: Track, calendar: Calendar, constraint: Constraints, closed: bool
) -> list[tuple[bool, int, int]]:
    """The ways in which two changelogs may differ on a track: (whether by their insertions, κ, N).

    Each has mutations, or another state, on κ at most of N reported nodes; in a closed cohort the first node of a
    track that begins with the calendar holds everybody's insertion, beside these, unless others are drawn.
    """
    reports = track.reports
    if not track.reports_changes:
        return [(False, reports, reports)]
    constraint = bound_of(constraint, track)
    most = constraint.most_nodes(track.bounds(calendar))
    if not closed:
        return [(False, most, reports)]
    most = _most_later(constraint, most)
    with_first, without = (True, most, reports - 1), (False, most, reports)
    if track.first > 0:
        return [without]
    return [with_first] if track.reported is None else [with_first, without]


def most_telling(track: Track, calendar: Calendar, constraint: Constraints, closed: bool = False) -> int:
    """How many of an entry's reports on a track tell something: every state, and of changes those that hold one."""
    if not track.reports_changes:
        return track.reports
    constraint = bound_of(constraint, track)
    most = constraint.most_nodes(track.bounds(calendar))
    if closed and track.first > 0:
        most = _most_later(constraint, most)
    return min(most, track.reports)


def _most_later(constraint: Constraint, most: int) -> int:
    """How many of `most` nodes with a mutation a closed cohort's entry may have after its insertion."""
    return min(constraint.k - 1, most) if isinstance(constraint, AtMost | AtMostWithin) else most


def lives_cost(
    plan: ReleasePlan, calendar: Calendar, constraint: Constraints, closed: bool = False, *, lives: int
) -> Decimal:
    """The cost of a plan for an entry that lives several lives, as when a backup of its store is put back and goes on.

    lives: how many there are, at least 1, the first included. A later one may begin wherever a backup was made, and
    goes on from there under the constraint.
    Each further life costs as much again where every report is drawn by itself, and of a history group. Of a group with
    slots it costs twice that: the agreements before the backup are shared, and what follows in each life has a density
    from 1 to a/b divided by its own mean, which lies there too. docs/joint.md and docs/histories.md, "A backup put
    back".
    """
    with upwards():
        return max(
            group_cost(group, calendar, constraint, closed)
            * (2 * lives - 1 if isinstance(group.joint, Joint) else lives)
            for group in plan.groups
        )


def node_cost(losses: Losses, most: int, reports: int) -> Decimal:
    """cost(κ, N) = max { s·L_mm + a·L_m0 + b·L_0m : s + a <= κ, s + b <= κ, s + a + b <= N }.

    Two changelogs with at most κ = `most` non-null nodes each, among N = `reports` nodes reported: s nodes
    where both mutate, a and b where only the one or the other does. With s given the best a is κ - s and the best b
    min(κ - s, N - κ), so that the sum is linear in s but for a bend at 2κ - N: one of three values of s is the best.
    """
    larger, smaller = max(losses.appears, losses.vanishes), min(losses.appears, losses.vanishes)
    most = min(most, reports)
    bend = max(2 * most - reports, 0)
    with upwards():
        return max(
            both * losses.mutations + (most - both) * larger + min(most - both, reports - most) * smaller
            for both in (0, bend, most)
        )
