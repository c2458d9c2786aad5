"""Small surveys of every kind, joint groups among them, whose stated charge is compared with the enumerated loss.

Each is a shape (tracks of changes and states, a constraint, open or closed) filled with a randomizer of each kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Literal

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
    StateSpace,
    SubsetSelection,
    TimeBounded,
    Track,
    UnaryEncoding,
    most_telling,
)

from ..contracts.randomizers import steep

PERIOD = 10
"""Seconds in a period; the time bounds below are meant in them."""
ANY = Odds(2, 1)
"""The odds of randomizers before they are joint: `Group.jointly` sets their own."""


@dataclass(frozen=True, slots=True)
class LossCase:
    """A survey in small. reached: whether the charge is known to be attained."""

    plan: ReleasePlan
    constraint: Constraint
    closed: bool = False
    reached: bool = False

    @property
    def answers(self) -> int:
        return self.plan.tracks[0].randomizer.space.answers

    @property
    def calendar(self) -> Calendar:
        return calendar(self.plan.tracks)


def calendar(tracks: Sequence[Track]) -> Calendar:
    """That which ends with the last of these tracks."""
    return Calendar(0, PERIOD, max(track.last for track in tracks))


Laid = tuple[Literal["changes", "states"], int, int, int, int | None]
"""A track but for its randomizer: what it reports, width, first, last, and how many reports an entry sends of it."""


def changes(width: int, last: int, reported: int | None = None, first: int = 0) -> Laid:
    return "changes", width, first, last, reported


def states(last: int, reported: int | None = None, width: int = 1) -> Laid:
    return "states", width, 0, last, reported


EITHER = Hybrid((AtMost(1), TimeBounded(5)))
PLAIN: Sequence[tuple[Sequence[Laid], Constraint, bool]] = [
    *(([changes(1, T)], AtMost(k), False) for T, k in ((1, 1), (2, 1), (4, 2), (5, 2), (4, 3))),
    *(([changes(1, 4, r)], AtMost(2), False) for r in (1, 2, 3)),
    *(([changes(1, 4)], TimeBounded(bound), False) for bound in (4, 10, 15, 30)),
    ([changes(1, 4)], EITHER, False),
    *(
        ([changes(width, T) for width in widths], constraint, False)
        for T, widths, k in ((4, (1, 2, 4), 1), (4, (1, 2), 2), (5, (1, 2), 2), (3, (1, 3), 2))
        for constraint in (AtMost(k), TimeBounded(15))
    ),
    ([changes(1, 4, 2), changes(2, 4, 1)], AtMost(2), False),
    *(([states(T, r)], AtMost(1), False) for T, r in ((1, None), (4, None), (4, 1), (4, 2))),
    ([states(5, 1, width=2)], TimeBounded(12), False),
    *(([changes(1, T)], AtMost(k), True) for T, k in ((1, 1), (4, 2), (4, 3), (5, 3))),
    *(([states(1), changes(1, T, first=1)], AtMost(k), True) for T, k in ((4, 2), (4, 3), (5, 3))),
    *(([changes(1, 4), changes(2, 4)], TimeBounded(bound), True) for bound in (10, 25)),
    ([changes(1, 4, 2)], AtMost(2), True),
]
"""At all nodes or some at random, layers, panels, closed cohorts with and without a state report before the changes."""


def loss_cases() -> Iterator[LossCase]:
    """Every randomizer and assignment, z <= 3, T <= 5, under every kind of constraint, and groups that are drawn."""
    for z, (laid, constraint, closed) in product((1, 2, 3), PLAIN):
        if z == 3 and len({what for what, *_ in laid}) == 2:
            continue
        for tracks in _filled(laid, change_randomizers(z), state_randomizers(z, null=not closed)):
            reached = _attained(laid, constraint, closed, tracks[0].randomizer)
            yield LossCase(ReleasePlan((Group(tracks),)), constraint, closed, reached)
            if len(tracks) > 1 and not closed and isinstance(constraint, AtMost):
                drawn = ReleasePlan(tuple(Group((track,), share) for share, track in enumerate(tracks, 1)))
                reached = _attained(laid[:1], constraint, closed, tracks[0].randomizer)
                yield LossCase(drawn, constraint, reached=reached)
    yield from _mixed()


def _attained(laid: Sequence[Laid], constraint: Constraint, closed: bool, randomizer: Randomizer) -> bool:
    """Whether the charge is known to be attained: by states, by k-RR on nested layers, which pays twice for a mutation,
    and by signed subsets where there are more nodes than mutations. A custom matrix is worst on one pair of inputs."""
    if {what for what, *_ in laid} == {"states"}:
        return len(laid) == 1 and isinstance(constraint, AtMost) and not isinstance(randomizer, CustomResponse)
    if not isinstance(constraint, AtMost) or any(first or reported for *_, first, _, reported in laid):
        return False
    if isinstance(randomizer, KaryResponse):
        return randomizer.space.answers > 1 or (len(laid) == 1 and not closed)
    return isinstance(randomizer, SignedSubset) and len(laid) == 1 and not closed and constraint.k < laid[0][3]


def _mixed() -> Iterator[LossCase]:
    """Groups of different kinds, one of them drawn: a panel, a cadence, an anchored mix."""
    for z, closed in product((2, 3), (False, True)):
        changing, held = change_randomizers(z), state_randomizers(z)
        panel = Group((Track(1, held["subset"], 0, 4, reported=2),), 3)
        flat = Group((Track(2, changing["signed_quiet"], 0, 4), Track(1, changing["krr"], 0, 4)), 2)
        anchored = Group((Track(1, held["unary"], 0, 1), Track(1, changing["signed"], 1, 4)))
        for constraint in (AtMost(2), Hybrid((AtMost(2), TimeBounded(20)))):
            yield LossCase(ReleasePlan((panel, flat, anchored)), constraint, closed)


def change_randomizers(answers: int) -> dict[str, Randomizer]:
    space, odds = MutationSpace(answers), Odds(5, 2)
    made: dict[str, Randomizer] = {
        "krr": KaryResponse(space, odds),
        "krr_pairs": KaryResponse(MutationSpace(answers, repeats=True), odds),
        "signed": SignedSubset(space, odds),
        "signed_quiet": SignedSubset(space, odds, spoken=Fraction(2, 7)),
        "custom": steep(space),
    }
    return made | ({"signed_one_plus": SignedSubset(space, odds, 1, Fraction(3, 5))} if answers > 1 else {})


def state_randomizers(answers: int, null: bool = True) -> dict[str, Randomizer]:
    space, odds = StateSpace(answers, null), Odds(5, 2)
    made: dict[str, Randomizer] = {"krr_states": KaryResponse(space, odds), "custom_states": steep(space)}
    if space.size > 1:
        made |= {"subset": SubsetSelection(space, odds, space.size // 2), "unary": UnaryEncoding(space, odds)}
    return made


JOINT: Sequence[tuple[Sequence[Laid], Constraint, bool, Odds, Sequence[tuple[tuple[int, ...], int]]]] = [
    ([changes(1, 2)], AtMost(1), False, Odds(5, 2), [((1,), 1)]),
    ([changes(1, 3)], AtMost(2), False, Odds(3, 1), [((1,), 1)]),
    ([changes(1, 4)], AtMost(2), False, Odds(5, 2), [((1,), 2)]),
    ([changes(1, 4)], AtMost(3), False, Odds(20, 1), [((1,), 2)]),
    ([changes(1, 3)], AtMost(3), False, Odds(7, 4), [((1,), 3)]),
    ([changes(1, 4, 1)], AtMost(2), False, Odds(4, 1), [((1,), 1)]),
    ([changes(1, 4, 2)], AtMost(2), False, Odds(4, 1), [((1,), 1), ((1,), 2)]),
    ([changes(1, 4)], TimeBounded(10), False, Odds(5, 2), [((1,), 2)]),
    ([changes(1, 4)], TimeBounded(4), False, Odds(5, 2), [((1,), 2)]),
    ([changes(1, 4)], EITHER, False, Odds(5, 2), [((1,), 1)]),
    ([changes(1, 4), changes(2, 4)], AtMost(2), False, Odds(8, 1), [((1, 1), 2), ((1, 2), 3)]),
    ([changes(1, 4), changes(2, 4), changes(4, 4)], AtMost(1), False, Odds(8, 1), [((1, 1, 1), 2)]),
    ([changes(1, 3), changes(3, 3)], AtMost(2), False, Odds(8, 1), [((2, 1), 3)]),
    ([changes(1, 4, 2), changes(2, 4, 1)], TimeBounded(12), False, Odds(8, 1), [((1, 1), 2)]),
    ([states(3, 1), changes(1, 3)], AtMost(2), False, Odds(9, 2), [((1, 1), 1), ((1, 1), 2), ((2, 1), 2), ((1, 3), 4)]),
    ([states(3, 2), changes(1, 3, 1)], EITHER, False, Odds(9, 2), [((1, 1), 2)]),
    ([states(1)], AtMost(1), False, Odds(30, 7), [((1,), 1)]),
    ([states(3)], AtMost(1), False, Odds(30, 7), [((1,), 1), ((1,), 2), ((1,), 3)]),
    ([states(4, 1)], AtMost(1), False, Odds(30, 7), [((1,), 1)]),
    ([states(4, 2)], AtMost(1), False, Odds(30, 7), [((1,), 2)]),
    ([states(4, 3)], AtMost(1), False, Odds(30, 7), [((1,), 2)]),
    ([states(5, 1, width=2), states(5, 1)], TimeBounded(12), False, Odds(30, 7), [((1, 2), 3)]),
    ([changes(1, 3, first=1)], AtMost(2), True, Odds(5, 2), [((1,), 1)]),
    ([changes(1, 4, first=1)], AtMost(3), True, Odds(5, 2), [((1,), 1), ((1,), 2)]),
    ([changes(1, 4, first=1)], AtMost(4), True, Odds(5, 2), [((1,), 2)]),
    ([states(1), changes(1, 3, first=1)], AtMost(3), True, Odds(12, 1), [((1, 1), 2), ((2, 1), 2), ((1, 2), 3)]),
    ([states(3, 1), changes(1, 3, first=1)], AtMost(3), True, Odds(12, 1), [((1, 1), 2), ((2, 1), 2), ((1, 2), 3)]),
    ([changes(1, 4, first=1)], TimeBounded(25), True, Odds(5, 2), [((1,), 1)]),
    ([changes(1, 4, 2, first=1), changes(2, 4, first=1)], AtMost(3), True, Odds(5, 2), [((1, 1), 2)]),
    ([states(3)], AtMost(2), True, Odds(30, 7), [((1,), 2)]),
    ([states(4, 2)], AtMost(2), True, Odds(30, 7), [((1,), 1), ((1,), 2)]),
]
"""Shapes of joint groups: the odds, and weights of the tracks with the threshold."""
SPARE = ([changes(1, 3)], AtMost(2), False, Odds(6, 1), [((1,), 1), ((1,), 2), ((1,), 3)])
"""With a slot more than an entry may have changes, the odds are not attained."""


def joint_loss_cases() -> Iterator[LossCase]:
    """Every randomizer that can be joint, alone, layered and mixed, under every kind of constraint.

    A case is `reached` where there are nodes enough for two changelogs that differ on all slots of all tracks at once.
    It is not where one answer has no node more than slots, so that all changes are the same.
    """
    for z, spare, shape in [(z, 0, shape) for z in (1, 2, 3) for shape in JOINT] + [(z, 1, SPARE) for z in (1, 2, 3)]:
        laid, constraint, closed, odds, weighed = shape
        if closed and z == 1:
            continue
        for tracks in _filled(laid, joint_changes(z, not closed), joint_states(z, not closed)):
            alike = z == 1 and isinstance(constraint, AtMost) and laid == [changes(1, constraint.k)]
            for weights, threshold in weighed:
                group = _joint(tracks, constraint, odds, threshold, weights, spare, closed)
                yield LossCase(ReleasePlan((group,)), constraint, closed, reached=not (spare or alike))
    for z in (1, 2):
        panel = _joint([Track(1, joint_states(z)["krr_states"], 0, 4, reported=2)], AtMost(2), Odds(9, 1), 2)
        changing = _joint([Track(1, joint_changes(z)["signed_quiet"], 0, 4)], AtMost(2), Odds(8, 1), 1)
        plain = Group((Track(2, SignedSubset(MutationSpace(z), Odds(5, 2)), 0, 4),), 3)
        yield LossCase(ReleasePlan((panel, changing, plain)), AtMost(2), reached=True)


def joint_changes(answers: int, null: bool = True) -> dict[str, Randomizer]:
    """Randomizers of changes that can be joint; null: whether NULL is one of the states."""
    space = MutationSpace(answers, null=null)
    made: dict[str, Randomizer] = {
        "signed": SignedSubset(space, ANY),
        "signed_quiet": SignedSubset(space, ANY, spoken=Fraction(2, 7)),
        "krr_change": KaryChange(space, ANY),
    }
    return made | ({"signed_one_plus": SignedSubset(space, ANY, 1, Fraction(3, 5))} if space.states > 2 else {})


def joint_states(answers: int, null: bool = True) -> dict[str, Randomizer]:
    """Randomizers of states that can be joint."""
    space = StateSpace(answers, null)
    made: dict[str, Randomizer] = {"krr_states": KaryResponse(space, ANY)}
    return made | ({"subset": SubsetSelection(space, ANY, space.size // 2)} if space.size > 2 else {})


def lived(case: LossCase) -> bool:
    """Whether two lives of the case are enumerated: one answer, three periods at most, one group of one track."""
    (track, *others) = case.plan.tracks
    return case.answers == 1 and case.calendar.periods <= 3 and track.reports_changes and not others


def _filled(
    laid: Sequence[Laid], changing: dict[str, Randomizer], held: dict[str, Randomizer]
) -> Iterator[tuple[Track, ...]]:
    """The tracks with every choice of one randomizer for all of changes and one for all of states."""
    kinds = sorted({what for what, *_ in laid})
    for chosen in product(*((changing if kind == "changes" else held).values() for kind in kinds)):
        of = dict(zip(kinds, chosen, strict=True))
        yield tuple(Track(width, of[what], first, last, reported) for what, width, first, last, reported in laid)


def _joint(
    tracks: Sequence[Track],
    constraint: Constraint,
    odds: Odds,
    threshold: int,
    weights: tuple[int, ...] = (1,),
    spare: int = 0,
    closed: bool = False,
) -> Group:
    """A joint group with a slot for every report that may tell something; spare: and so many more."""
    slots = tuple(most_telling(track, calendar(tracks), constraint, closed) + spare for track in tracks)
    return Group.jointly(tracks, Joint(odds, threshold, weights, slots))
