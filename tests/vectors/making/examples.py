"""What several files of vectors are about: randomizers, joint groups and surveys of every kind."""

from dataclasses import replace
from fractions import Fraction

from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    CustomResponse,
    ExpectedChanges,
    Group,
    History,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    SealingKey,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Survey,
    TimeBounded,
    Track,
    UnaryEncoding,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ...protocol.examples import AUTHORITY, PINNED, hierarchical, joint_plan, mixed, survey

NEXT_AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"the next authority, thirty-two b")
PRIVATE = X25519PrivateKey.from_private_bytes(bytes(range(100, 132)))
SEALING_KEY = SealingKey(PRIVATE.public_key().public_bytes_raw(), 1_800_000_000, 1_900_000_000)

RANDOMIZERS = (
    KaryResponse(MutationSpace(3), Odds(3, 1)),
    KaryResponse(StateSpace(3), Odds(5, 1)),
    KaryResponse(MutationSpace(2, repeats=True), Odds(9, 2)),
    KaryResponse(MutationSpace(1), Odds(2**63, 3)),
    KaryChange(MutationSpace(2), Odds(7, 2)),
    KaryChange(MutationSpace(3, null=False), Odds(20, 1)),
    SignedSubset(MutationSpace(3), Odds(20, 1), spoken=Fraction(2, 7)),
    SignedSubset(MutationSpace(4), Odds(20, 1), pluses=2, spoken=Fraction(1)),
    SignedSubset(MutationSpace(4, null=False), Odds(20, 1), spoken=Fraction(1, 2)),
    SignedSubset(MutationSpace(16), Odds(3, 1), spoken=Fraction(1, 3)),
    SignedSubset(MutationSpace(63), Odds(2**40, 3), spoken=Fraction(1, 10**6)),
    SubsetSelection(StateSpace(5), Odds(3, 1), 2),
    UnaryEncoding(StateSpace(5, null=False), Odds(3, 1)),
    CustomResponse(StateSpace(2), ((3, 1, 1), (1, 2, 1), (1, 1, 2**63))),
    CustomResponse(MutationSpace(2, null=False), ((2, 1, 1), (1, 5, 1), (1, 2, 7))),
)
ANY = Odds(2, 1)
JOINT_GROUPS = (
    joint_plan(3, 8).groups[0],
    Group.jointly([Track(1, SignedSubset(MutationSpace(2), ANY), 0, 8)], Joint(Odds(3, 1), 1, (1,), (2,))),
    Group.jointly([Track(1, KaryChange(MutationSpace(2), ANY), 0, 8)], Joint(Odds(20, 1), 2, (1,), (3,))),
    Group.jointly(
        [
            Track(2, SubsetSelection(StateSpace(3, null=False), ANY, 2), 0, 8, reported=1),
            Track(1, SignedSubset(MutationSpace(3, null=False), ANY, spoken=Fraction(1, 2)), 1, 8),
        ],
        Joint(Odds(2981, 1000), 3, (3, 2), (1, 2)),
    ),
)
HISTORY_CALENDAR = Calendar(1_800_000_000, 60, 8)
HISTORIES_OF = (
    (3, range(1, 9), AtMost(3), False),
    (3, range(2, 9, 3), AtMost(2), True),
    (2, range(1, 9), TimeBounded(200), False),
    (2, range(1, 9), TimeBounded(200), True),
    (2, range(2, 8), Hybrid((AtMost(2), TimeBounded(150))), False),
    (1, range(3, 4), AtMost(1), False),
)
"""Answers, the periods of the reports, the constraint, and whether the cohort is closed."""


def signed_survey(survey):
    """A survey as cases have it: its signed bytes, and the keys that a device pins."""
    return {"survey": survey.signed_by(AUTHORITY).hex(), "authority": [key.hex() for key in PINNED]}


def history_group(answers, periods, constraint, closed):
    return Group.of_history(History.of(Odds(55, 2), periods, constraint, HISTORY_CALENDAR, closed), answers)


HISTORY_GROUPS = tuple((history_group(*each), each[0]) for each in HISTORIES_OF)
PUBLIC = (Breakdown("platform", ("linux", "mac", "other")), Breakdown("channel", ("release", "beta")))
LONG = Calendar(1_800_000_000, 86_400, 64)


def _surveys() -> dict[str, Survey]:
    plain = survey()
    anchored = ReleasePlan(
        (
            Group(
                (
                    Track(1, UnaryEncoding(StateSpace(3, null=False), Odds(3, 1)), 0, 1),
                    Track(1, KaryChange(MutationSpace(3, null=False), Odds(20, 1)), 1, 8),
                )
            ),
            JOINT_GROUPS[3],
        )
    )
    insertions = ReleasePlan(
        (
            Group((Track(2, SignedSubset(MutationSpace(3), Odds(20, 1), spoken=Fraction(2, 7)), 0, 8),)),
            Group((Track(1, KaryChange(MutationSpace(3), Odds(15, 1)), 0, 8, reported=3),), share=5),
        )
    )
    weights = tuple(tuple(8 if symbol == true else 1 for true in range(4)) for symbol in range(5))
    states = ReleasePlan(
        (
            Group((Track(1, SubsetSelection(StateSpace(3), Odds(3, 1), 2), 0, 8, reported=3),)),
            Group((Track(4, CustomResponse(StateSpace(3), weights), 0, 8),), share=2),
        )
    )
    signed_subsets = ReleasePlan(
        tuple(
            Group(tuple(Track(width, SignedSubset(MutationSpace(3), each), 0, 64) for width in widths))
            for each, widths in ((Odds(20, 1), (1,)), (Odds(7, 2), (1, 2, 4)), (Odds(3, 1), (64, 8)))
        )
    )
    hybrid = Hybrid((AtMost(2), TimeBounded(7 * 86_400)))
    return {
        "hierarchy": plain,
        "mixed": survey(mixed(3, 8)),
        "joint": survey(joint_plan(3, 8)),
        "closed": survey(anchored, closed=True),
        "closed, from the first period": survey(insertions, closed=True),
        "states": survey(states),
        "time-bounded": survey(signed_subsets, calendar=LONG, constraint=TimeBounded(5 * 86_400), grace=10**6),
        "hybrid": survey(signed_subsets, calendar=LONG, constraint=hybrid, grace=10**6),
        "more than it needs": replace(plain, epsilon_micro=plain.epsilon_micro + 1),
        "strata": replace(
            plain, breakdowns=PUBLIC, stratum_changes=2, relay="https://relay.example", follows=bytes(range(16))
        ),
        "expected": plain.asking(expected=ExpectedChanges(500_000, 1), text="Très bien? 茶か"),
        "history": survey(ReleasePlan((history_group(*HISTORIES_OF[0]), JOINT_GROUPS[0])), constraint=AtMost(3)),
        "history, closed": survey(
            ReleasePlan((history_group(3, *HISTORIES_OF[1][1:]),)), constraint=AtMost(2), closed=True
        ),
        "history, time-bounded": survey(
            ReleasePlan((history_group(3, range(1, 9, 2), TimeBounded(200), False),)), constraint=TimeBounded(200)
        ),
        "large odds": survey(hierarchical(3, 8, (1, 8), Odds(2**63, 1)), minimum=2**32),
    }


def _numbers() -> Survey:
    """Three questions, the second for a number, with tracks of each alone and of all in a joint group."""
    asked = (
        Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3)),
        Question.of_number("minutes", "How long do you drink?", ["-1.5", "0", "12", "100.25"], AtMost(2), "min"),
        Question("why", "Why?", ("thirst", "cold", "habit"), TimeBounded(130)),
    )
    tracks = [
        Track(1, KaryResponse(StateSpace(2), Odds(2, 1)), 0, 8, 2),
        Track(2, SignedSubset(MutationSpace(4), Odds(2, 1)), 0, 8, question=1),
        Track(2, SignedSubset(MutationSpace(3), Odds(2, 1)), 0, 8, question=2),
    ]
    odds, calendar = Odds(55, 1), Calendar(1_800_000_000, 60, 8)
    history = History.of(Odds(55, 2), range(1, 9, 2), asked[1].constraint, calendar, closed=False)
    groups = (
        Group.jointly(tracks, Joint(odds, 3, (2, 1, 1), (2, 2, 3))),
        Group.of_history(history, 4, 2, question=1),
        Group((replace(tracks[2], randomizer=KaryResponse(MutationSpace(3), Odds(3, 1))), tracks[0])),
    )
    others = {"skew": 5, "spread": 10, "grace": 600, "minimum": 1, "breakdowns": PUBLIC}
    return Survey.at_cost(questions=asked, plan=ReleasePlan(groups), calendar=calendar, **others)


def _freezing() -> Survey:
    """A question, and whether its changes are used up, in a joint group about both and in a group about the second."""
    drink = Question("drink", "What do you drink?", ("tea", "coffee", "neither"), AtMost(2))
    asked = (drink, Question.of_freezing(drink))
    states, frozen = (
        Track(2, KaryResponse(StateSpace(len(each.answers)), Odds(3, 1)), 0, 8, question=place)
        for place, each in enumerate(asked)
    )
    groups = (
        Group.jointly((states, frozen), Joint(Odds(21, 1), 3, (1, 1), (4, 4))),
        Group((replace(frozen, width=1, reported=3),)),
    )
    others = {"skew": 5, "spread": 10, "grace": 600, "minimum": 1}
    return Survey.at_cost(questions=asked, plan=ReleasePlan(groups), calendar=Calendar(1_800_000_000, 60, 8), **others)


NUMBERS, FREEZING = _numbers(), _freezing()
SURVEYS = {
    **_surveys(),
    "a question that devices answer by themselves": FREEZING,
    "several questions, a number among them": NUMBERS,
}
