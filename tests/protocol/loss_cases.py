"""Small surveys of every kind whose stated charge is compared with the enumerated loss."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    CustomResponse,
    Group,
    Hybrid,
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
