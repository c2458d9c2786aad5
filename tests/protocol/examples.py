"""Surveys, keys and plans that tests of every package share."""

from fractions import Fraction
from typing import Any

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    Joint,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"authority of the tests, 32 bytes")
PINNED = (AUTHORITY.public_key().public_bytes_raw(),)


def hierarchical(answers: int, periods: int, widths: tuple[int, ...], odds: Odds) -> ReleasePlan:
    response = KaryResponse(MutationSpace(answers), odds)
    return ReleasePlan((Group(tuple(Track(width, response, 0, periods) for width in widths)),))


def mixed(answers: int, periods: int) -> ReleasePlan:
    """A plan with everything: a panel of two random nodes, a change track, and an anchored mix of both."""
    changes, states = MutationSpace(answers), StateSpace(answers)
    panel = Group((Track(1, KaryResponse(states, Odds(5, 1)), 0, periods, reported=2),), share=3)
    flat = Group((Track(2, KaryResponse(changes, Odds(9, 2)), 0, periods),), share=2)
    anchored = Group(
        (Track(1, KaryResponse(states, Odds(4, 1)), 0, 1), Track(1, KaryResponse(changes, Odds(2, 1)), 1, periods))
    )
    return ReleasePlan((panel, flat, anchored))


def joint_plan(answers: int, periods: int) -> ReleasePlan:
    """One budget for two random states and the changes over nodes of two periods, for at most three mutations."""
    tracks = (
        Track(1, KaryResponse(StateSpace(answers), Odds(2, 1)), 0, periods, reported=2),
        Track(2, SignedSubset(MutationSpace(answers), Odds(2, 1), spoken=Fraction(2, 3)), 0, periods),
    )
    return ReleasePlan((Group.jointly(tracks, Joint(Odds(55, 1), 4, (2, 1), (2, 3))),))


def survey(
    plan: ReleasePlan | None = None,
    *,
    answers: tuple[str, ...] = ("tea", "coffee", "neither"),
    calendar: Calendar = Calendar(1_800_000_000, 60, 8),  # noqa: B008
    constraint: Constraint = AtMost(3),  # noqa: B008
    **others: Any,
) -> Survey:
    """A survey at its cost. others: fields of it, by name; `questions` instead of one with these answers."""
    plan = plan or hierarchical(len(answers), calendar.periods, (1, 2, 4), Odds(3, 1))
    usual: dict[str, Any] = {"skew": 5, "spread": 10, "grace": 600, "minimum": 1}
    if "questions" not in others:
        usual |= {"question": "What do you drink?", "answers": answers, "constraint": constraint}
    return Survey.at_cost(plan=plan, calendar=calendar, **usual | others)
