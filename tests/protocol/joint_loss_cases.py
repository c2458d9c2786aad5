"""Small surveys of joint groups, whose stated charge is compared with the enumerated loss."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    TimeBounded,
    Track,
    most_telling,
)

from .loss_cases import PERIOD, LossCase

ANY = Odds(2, 1)
"""The odds of randomizers before they are joint: `Group.jointly` sets their own."""


def joint_loss_cases() -> Iterator[LossCase]:
    """Every randomizer that can be joint, alone, layered and mixed, under every kind of constraint.

    A case is `reached` where there are nodes enough for two changelogs that differ on all slots of all tracks at once.
    It is not where one answer has no node more than slots, so that all changes are the same, and where a track has more
    slots than an entry may have changes.
    """
    for z in (1, 2, 3):
        for name, changes in joint_changes(z).items():
            yield from _flat(f"{name}_z{z}", changes)
            yield from _layered(f"{name}_z{z}", changes)
            yield from _beside_states(f"{name}_z{z}", changes)
        for name, states in joint_states(z).items():
            yield from _panels(f"{name}_z{z}", states)
    for z in (2, 3):
        for name, changes in joint_changes(z, null=False).items():
            yield from _closed(f"{name}_z{z}_closed", changes)
        for name, states in joint_states(z, null=False).items():
            yield from _anchored(f"{name}_z{z}_closed", states)
    yield from _several_groups()


def joint_changes(answers: int, null: bool = True) -> dict[str, Randomizer]:
    """Randomizers of changes that can be joint; null: whether NULL is one of the states."""
    space = MutationSpace(answers, null=null)
    made: dict[str, Randomizer] = {
        "signed": SignedSubset(space, ANY),
        "signed_quiet": SignedSubset(space, ANY, spoken=Fraction(2, 7)),
        "krr_change": KaryChange(space, ANY),
    }
    if space.states > 2:
        made["signed_one_plus"] = SignedSubset(space, ANY, 1, Fraction(3, 5))
    return made


def joint_states(answers: int, null: bool = True) -> dict[str, Randomizer]:
    """Randomizers of states that can be joint."""
    space = StateSpace(answers, null)
    made: dict[str, Randomizer] = {"krr_states": KaryResponse(space, ANY)}
    if space.size > 2:
        made["subset"] = SubsetSelection(space, ANY, space.size // 2)
    return made


def _flat(name: str, changes: Randomizer) -> Iterator[LossCase]:
    """One cadence: at-most-k, time-bounded, hybrid, random nodes, more slots than changes."""
    for T, k, threshold, odds in (
        (2, 1, 1, Odds(5, 2)),
        (3, 2, 1, Odds(3, 1)),
        (4, 2, 2, Odds(5, 2)),
        (4, 3, 2, Odds(20, 1)),
        (3, 3, 3, Odds(7, 4)),
    ):
        reached = k < T or changes.space.answers > 1
        yield _case(
            f"{name}_T{T}_k{k}_of{threshold}", [Track(1, changes, 0, T)], AtMost(k), odds, threshold, reached=reached
        )
    for r, threshold in ((1, 1), (2, 1), (2, 2)):
        track = Track(1, changes, 0, 4, reported=r)
        yield _case(f"{name}_T4_k2_random{r}_of{threshold}", [track], AtMost(2), Odds(4, 1), threshold)
    for bound, constraint in (("within10s", TimeBounded(10)), ("within4s", TimeBounded(4))):
        yield _case(f"{name}_T4_{bound}", [Track(1, changes, 0, 4)], constraint, Odds(5, 2), 2)
    hybrid = Hybrid((AtMost(1), TimeBounded(5)))
    yield _case(f"{name}_T4_hybrid", [Track(1, changes, 0, 4)], hybrid, Odds(5, 2), 1)
    for threshold in (1, 2, 3):
        more = [Track(1, changes, 0, 3)]
        yield _case(
            f"{name}_T3_k2_spare_slot_of{threshold}", more, AtMost(2), Odds(6, 1), threshold, spare=1, reached=False
        )


def _layered(name: str, changes: Randomizer) -> Iterator[LossCase]:
    """Two or three layers, weighted."""
    for T, widths, k, weights, threshold in (
        (4, (1, 2), 2, (1, 1), 2),
        (4, (1, 2), 2, (1, 2), 3),
        (4, (1, 2, 4), 1, (1, 1, 1), 2),
        (3, (1, 3), 2, (2, 1), 3),
    ):
        tracks = [Track(width, changes, 0, T) for width in widths]
        label = "".join(map(str, widths))
        yield _case(f"{name}_T{T}_k{k}_layers{label}_of{threshold}", tracks, AtMost(k), Odds(8, 1), threshold, weights)
    some = [Track(1, changes, 0, 4, reported=2), Track(2, changes, 0, 4, reported=1)]
    yield _case(f"{name}_T4_within12s_layers_random", some, TimeBounded(12), Odds(8, 1), 2)


def _beside_states(name: str, changes: Randomizer) -> Iterator[LossCase]:
    """Changes on all or some nodes, and states at some."""
    z = changes.space.answers
    for state, states in joint_states(z).items():
        for weights, threshold in (((1, 1), 1), ((1, 1), 2), ((2, 1), 2), ((1, 3), 4)):
            tracks = [Track(1, states, 0, 3, reported=1), Track(1, changes, 0, 3)]
            label = f"{name}_{state}_T3_k2_weights{weights[0]}{weights[1]}_of{threshold}"
            yield _case(label, tracks, AtMost(2), Odds(9, 2), threshold, weights)
    some = [Track(1, joint_states(z)["krr_states"], 0, 3, reported=2), Track(1, changes, 0, 3, reported=1)]
    yield _case(f"{name}_T3_hybrid_random", some, Hybrid((AtMost(1), TimeBounded(5))), Odds(9, 2), 2)


def _closed(name: str, changes: Randomizer) -> Iterator[LossCase]:
    """Changes among answers, after the first period, with a state before them or anywhere."""
    z = changes.space.answers
    for T, k, threshold in ((3, 2, 1), (4, 3, 2), (4, 4, 2), (4, 3, 1)):
        tracks = [Track(1, changes, 1, T)]
        label = f"{name}_T{T}_k{k}_of{threshold}"
        yield _case(label, tracks, AtMost(k), Odds(5, 2), threshold, closed=True)
    for state, states in joint_states(z, null=False).items():
        for where, track in (("first", Track(1, states, 0, 1)), ("any", Track(1, states, 0, 3, reported=1))):
            for weights, threshold in (((1, 1), 2), ((2, 1), 2), ((1, 2), 3)):
                tracks = [track, Track(1, changes, 1, 3)]
                label = f"{name}_{state}_{where}_T3_k3_weights{weights[0]}{weights[1]}_of{threshold}"
                yield _case(label, tracks, AtMost(3), Odds(12, 1), threshold, weights, closed=True)
    yield _case(f"{name}_T4_within25s", [Track(1, changes, 1, 4)], TimeBounded(25), Odds(5, 2), 1, closed=True)
    wide = [Track(1, changes, 1, 4, reported=2), Track(2, changes, 1, 4)]
    yield _case(f"{name}_T4_k3_layers_random", wide, AtMost(3), Odds(5, 2), 2, closed=True)


def _panels(name: str, states: Randomizer) -> Iterator[LossCase]:
    """States at all nodes or some."""
    for T, r, threshold in ((1, None, 1), (3, None, 1), (3, None, 2), (3, None, 3), (4, 1, 1), (4, 2, 2), (4, 3, 2)):
        label = f"{name}_T{T}_k1_of{threshold}" + (f"_random{r}" if r else "")
        tracks = [Track(1, states, 0, T, reported=r)]
        yield _case(label, tracks, AtMost(1), Odds(30, 7), threshold)
    wide = [Track(2, states, 0, 5, reported=1), Track(1, states, 0, 5, reported=1)]
    yield _case(f"{name}_T5_within12s_wide", wide, TimeBounded(12), Odds(30, 7), 3, (1, 2))


def _anchored(name: str, states: Randomizer) -> Iterator[LossCase]:
    """Panels of a closed cohort."""
    for T, r, threshold in ((3, None, 2), (4, 2, 1), (4, 2, 2)):
        tracks = [Track(1, states, 0, T, reported=r)]
        label = f"{name}_T{T}_k2_of{threshold}" + (f"_random{r}" if r else "")
        yield _case(label, tracks, AtMost(2), Odds(30, 7), threshold, closed=True)


def _several_groups() -> Iterator[LossCase]:
    """Joint groups beside plain ones, one of which is drawn."""
    calendar, constraint = Calendar(0, PERIOD, 4), AtMost(2)
    for z in (1, 2):
        panel = _group([Track(1, joint_states(z)["krr_states"], 0, 4, reported=2)], constraint, Odds(9, 1), 2)
        changes = _group([Track(1, joint_changes(z)["signed_quiet"], 0, 4)], constraint, Odds(8, 1), 1)
        plain = Group((Track(2, SignedSubset(MutationSpace(z), Odds(5, 2)), 0, 4),), 3)
        plan = ReleasePlan((panel, changes, plain))
        yield LossCase(f"groups_z{z}_T4_k2", plan, calendar, constraint, reached=True)


def _case(
    name: str,
    tracks: Sequence[Track],
    constraint: Constraint,
    odds: Odds,
    threshold: int,
    weights: tuple[int, ...] | None = None,
    *,
    spare: int = 0,
    closed: bool = False,
    reached: bool = True,
) -> LossCase:
    """A survey of one joint group, with a slot for every report that may tell something; spare: and so many more."""
    periods = max(track.last for track in tracks)
    group = _group(tracks, constraint, odds, threshold, weights, spare=spare, closed=closed)
    return LossCase(name, ReleasePlan((group,)), Calendar(0, PERIOD, periods), constraint, closed, reached)


def _group(
    tracks: Sequence[Track],
    constraint: Constraint,
    odds: Odds,
    threshold: int,
    weights: tuple[int, ...] | None = None,
    *,
    spare: int = 0,
    closed: bool = False,
) -> Group:
    calendar = Calendar(0, PERIOD, max(track.last for track in tracks))
    slots = tuple(most_telling(track, calendar, constraint, closed) + spare for track in tracks)
    return Group.jointly(tracks, Joint(odds, threshold, weights or (1,) * len(slots), slots))


def lived(case: LossCase) -> bool:
    """Whether two lives of the case are enumerated: it has three periods at most, one group, few changelogs."""
    answers = case.plan.tracks[0].randomizer.space.answers
    few = answers == 1 or (answers == 2 and (case.closed or len(case.plan.tracks) == 1))
    return few and len(case.plan.groups) == 1 and case.calendar.periods <= 3
