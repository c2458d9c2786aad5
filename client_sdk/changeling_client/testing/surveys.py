"""A survey for tests, and the authority that signs it, whose private key everybody knows."""

from collections.abc import Sequence
from decimal import Decimal

from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    ReleasePlan,
    SignedSubset,
    Survey,
    Track,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .clock import FIRST_DAY

AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"changeling: authority of tests, ")
"""Signs the surveys and keys of tests."""
TRUTHFUL = Odds(2**63, 1)
"""The odds of the truth where a test wants to see it: one report in 10^17 is another."""
SKEW, SPREAD, GRACE = 60, 3600, 7 * 86_400


def make_survey(
    *,
    question: str = "What do you drink?",
    answers: Sequence[str] = ("tea", "coffee", "neither"),
    periods: int = 365,
    period: int = 86_400,
    start: int = FIRST_DAY,
    at_most: int = 3,
    epsilon: Decimal | float | None = None,
    closed: bool = False,
    grace: int = GRACE,
    breakdowns: Sequence[Breakdown] = (),
    stratum_changes: int = 0,
) -> Survey:
    """A survey in which an entry reports at every period's close how its answer changed.

    periods: how many. period: how long each is, in seconds. start: when the first begins, in Unix seconds.
    at_most: how often an entry's answer may change; the first answer is a change as well.
    epsilon: what the survey costs an entry, about. None: its reports tell the truth, so that a test can see it.
    closed: whether every entry has an answer from the first period to the last.
    grace: for how long after a period's close its reports are taken, in seconds.
    breakdowns, stratum_changes: as a survey has them.
    Reports are due up to SKEW + SPREAD seconds after a period's close, or half a period where that is shorter.
    Raises ValueError for what cannot be.
    """
    if isinstance(answers, str):
        raise ValueError(f"the answers are a list of texts, got the one text {answers!r}")
    space = MutationSpace(len(answers))
    randomizer: Randomizer = KaryResponse(space, TRUTHFUL)
    if epsilon is not None:
        randomizer = SignedSubset(space, Odds.within(Decimal(str(epsilon)) / at_most))
    return Survey.at_cost(
        question=question,
        answers=answers,
        calendar=Calendar(start, period, periods),
        constraint=AtMost(at_most),
        plan=ReleasePlan((Group((Track(1, randomizer, 0, periods),)),)),
        skew=min(SKEW, period // 8),
        spread=max(min(SPREAD, period // 4), 1),
        grace=grace,
        minimum=1,
        closed=closed,
        breakdowns=breakdowns,
        stratum_changes=stratum_changes,
    )
