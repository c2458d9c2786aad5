"""Small surveys of every kind, joint groups among them, whose stated charge is compared with the enumerated loss."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    CustomResponse,
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
    Space,
    StateSpace,
    SubsetSelection,
    TimeBounded,
    Track,
    UnaryEncoding,
    most_telling,
)

PERIOD = 10
"""Seconds in a period; the time bounds below are meant in them."""
KARY, CUSTOM = "krr", "custom"
"""How names begin: k-RR pays twice for a mutation, and a custom matrix is worst on one pair of inputs."""


@dataclass(frozen=True, slots=True)
class LossCase:
    """A survey in small. reached: whether the charge is known to be attained."""

    name: str
    plan: ReleasePlan
    calendar: Calendar
    constraint: Constraint
    closed: bool = False
    reached: bool = False


def loss_cases() -> Iterator[LossCase]:
    """Every randomizer and assignment, z <= 3, T <= 5, under every kind of constraint."""
    for z in (1, 2, 3):
        for name, randomizer in change_randomizers(z).items():
            yield from _flat(f"{name}_z{z}", randomizer)
            yield from _layered(f"{name}_z{z}", randomizer)
            yield from _closed(f"{name}_z{z}", randomizer)
        for name, randomizer in state_randomizers(z).items():
            yield from _panels(f"{name}_z{z}", randomizer)
    yield from _mixed()


def change_randomizers(answers: int) -> dict[str, Randomizer]:
    space, odds = MutationSpace(answers), Odds(5, 2)
    found: dict[str, Randomizer] = {
        KARY: KaryResponse(space, odds),
        f"{KARY}_pairs": KaryResponse(MutationSpace(answers, repeats=True), odds),
        "signed": SignedSubset(space, odds),
        "signed_quiet": SignedSubset(space, odds, spoken=Fraction(2, 7)),
        CUSTOM: _custom(space),
    }
    if answers > 1:
        found["signed_one_plus"] = SignedSubset(space, odds, 1, Fraction(3, 5))
    return found


def state_randomizers(answers: int, null: bool = True) -> dict[str, Randomizer]:
    space, odds = StateSpace(answers, null), Odds(5, 2)
    found: dict[str, Randomizer] = {f"{KARY}_states": KaryResponse(space, odds), f"{CUSTOM}_states": _custom(space)}
    if space.size > 1:
        found["subset"] = SubsetSelection(space, odds, space.size // 2)
        found["unary"] = UnaryEncoding(space, odds)
    return found


def _flat(name: str, randomizer: Randomizer) -> Iterator[LossCase]:
    """One cadence, all nodes or r at random: at-most-k, time-bounded, hybrid."""
    for T, k in ((1, 1), (2, 1), (4, 2), (5, 2), (4, 3)):
        plan = _one_group(Track(1, randomizer, 0, T))
        enough = (2 * k if name.startswith(KARY) else k + 1) <= T
        reached = enough and not name.startswith(CUSTOM)
        yield LossCase(f"{name}_T{T}_k{k}", plan, _calendar(T), AtMost(k), reached=reached)
    for r in (1, 2, 3):
        plan = _one_group(Track(1, randomizer, 0, 4, reported=r))
        yield LossCase(f"{name}_T4_k2_random{r}", plan, _calendar(4), AtMost(2))
    for bound in (4, 10, 15, 30):
        plan = _one_group(Track(1, randomizer, 0, 4))
        yield LossCase(f"{name}_T4_within{bound}s", plan, _calendar(4), TimeBounded(bound))
    plan = _one_group(Track(1, randomizer, 0, 4))
    yield LossCase(f"{name}_T4_hybrid", plan, _calendar(4), Hybrid((AtMost(1), TimeBounded(5))))


def _layered(name: str, randomizer: Randomizer) -> Iterator[LossCase]:
    """Hierarchies reported on every layer, layers drawn at random, and layers with random nodes."""
    for T, widths, k in ((4, (1, 2, 4), 1), (4, (1, 2), 2), (5, (1, 2), 2), (3, (1, 3), 2)):
        tracks = tuple(Track(width, randomizer, 0, T) for width in widths)
        label = "".join(map(str, widths))
        plan = ReleasePlan((Group(tracks),))
        yield LossCase(f"{name}_T{T}_k{k}_layers{label}", plan, _calendar(T), AtMost(k))
        yield LossCase(f"{name}_T{T}_within15s_layers{label}", plan, _calendar(T), TimeBounded(15))
        drawn = ReleasePlan(tuple(Group((track,), share) for share, track in enumerate(tracks, 1)))
        yield LossCase(f"{name}_T{T}_k{k}_drawn{label}", drawn, _calendar(T), AtMost(k))
    some = (Track(1, randomizer, 0, 4, reported=2), Track(2, randomizer, 0, 4, reported=1))
    yield LossCase(f"{name}_T4_k2_layers12_random", ReleasePlan((Group(some),)), _calendar(4), AtMost(2))


def _closed(name: str, randomizer: Randomizer) -> Iterator[LossCase]:
    """Closed cohorts: everybody's insertion in the first node, or told apart by a state report before changes."""
    z = randomizer.space.answers
    for T, k in ((1, 1), (4, 2), (4, 3), (5, 3)):
        plan = _one_group(Track(1, randomizer, 0, T))
        yield LossCase(f"{name}_T{T}_k{k}_closed", plan, _calendar(T), AtMost(k), closed=True)
        if T > 1:
            for first, state in state_randomizers(z, null=False).items():
                tracks = Track(1, state, 0, 1), Track(1, randomizer, 1, T)
                anchored = ReleasePlan((Group(tracks),))
                label = f"{name}_T{T}_k{k}_closed_after_{first}"
                yield LossCase(label, anchored, _calendar(T), AtMost(k), closed=True)
    for bound in (10, 25):
        plan = _one_group(Track(1, randomizer, 0, 4), Track(2, randomizer, 0, 4))
        yield LossCase(f"{name}_T4_within{bound}s_closed", plan, _calendar(4), TimeBounded(bound), closed=True)
    some = _one_group(Track(1, randomizer, 0, 4, reported=2))
    yield LossCase(f"{name}_T4_k2_random2_closed", some, _calendar(4), AtMost(2), closed=True)


def _panels(name: str, randomizer: Randomizer) -> Iterator[LossCase]:
    """State reports at all or some nodes."""
    everywhere = not name.startswith(CUSTOM)
    for T, r in ((1, None), (4, None), (4, 1), (4, 2)):
        plan = _one_group(Track(1, randomizer, 0, T, reported=r))
        label = f"{name}_T{T}_k1" + (f"_random{r}" if r else "")
        yield LossCase(label, plan, _calendar(T), AtMost(1), reached=everywhere)
    wide = _one_group(Track(2, randomizer, 0, 5, reported=1))
    yield LossCase(f"{name}_T5_within12s_wide_random1", wide, _calendar(5), TimeBounded(12))


def _mixed() -> Iterator[LossCase]:
    """Groups of different kinds, one of them drawn: a panel, a cadence, an anchored mix."""
    for z in (2, 3):
        changes, states = change_randomizers(z), state_randomizers(z)
        panel = Group((Track(1, states["subset"], 0, 4, reported=2),), 3)
        flat = Group((Track(2, changes["signed_quiet"], 0, 4), Track(1, changes[KARY], 0, 4)), 2)
        anchored = Group((Track(1, states["unary"], 0, 1), Track(1, changes["signed"], 1, 4)))
        plan = ReleasePlan((panel, flat, anchored))
        for closed in (False, True):
            yield LossCase(f"mixed_z{z}_k2" + "_closed" * closed, plan, _calendar(4), AtMost(2), closed)
            hybrid = Hybrid((AtMost(2), TimeBounded(20)))
            yield LossCase(f"mixed_z{z}_hybrid" + "_closed" * closed, plan, _calendar(4), hybrid, closed)


def _custom(space: Space) -> CustomResponse:
    """A matrix without symmetry: truth mostly kept, every other weight different, columns of unlike totals."""
    m = space.size
    return CustomResponse(
        space, tuple(tuple(9 + v if o == v else 1 + (3 * o + 5 * v + o * v) % 4 for v in range(m)) for o in range(m))
    )


def _one_group(*tracks: Track) -> ReleasePlan:
    return ReleasePlan((Group(tracks),))


def _calendar(periods: int) -> Calendar:
    return Calendar(0, PERIOD, periods)


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
            yield from _joint_flat(f"{name}_z{z}", changes)
            yield from _joint_layered(f"{name}_z{z}", changes)
            yield from _beside_states(f"{name}_z{z}", changes)
        for name, states in joint_states(z).items():
            yield from _joint_panels(f"{name}_z{z}", states)
    for z in (2, 3):
        for name, changes in joint_changes(z, null=False).items():
            yield from _joint_closed(f"{name}_z{z}_closed", changes)
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


def _joint_flat(name: str, changes: Randomizer) -> Iterator[LossCase]:
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


def _joint_layered(name: str, changes: Randomizer) -> Iterator[LossCase]:
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


def _joint_closed(name: str, changes: Randomizer) -> Iterator[LossCase]:
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


def _joint_panels(name: str, states: Randomizer) -> Iterator[LossCase]:
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
