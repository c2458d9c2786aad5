"""A survey for tests, the authority that signs it, whose private key everybody knows, and a clock that stands still."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from changeling_protocol import (
    AtMost,
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

FIRST_DAY = 1_798_761_600
"""The first midnight of 2027, in Unix seconds: when surveys of `make_survey` begin."""
_NOON = 43_200
AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"changeling: authority of tests, ")
"""Signs the surveys and keys of tests."""
TRUTHFUL = Odds(2**63, 1)
"""The odds of the truth where a test wants to see it: one report in 10^17 is another."""
SKEW, SPREAD, GRACE = 60, 3600, 7 * 86_400


class ManualClock:
    """Unix time in seconds, as a client takes it.

    now: what it shows first: noon of the first day, so that after a day the period before is over and answered.
    """

    def __init__(self, now: float = FIRST_DAY + _NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time that it shows."""
        return self.now

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Moves it on; backwards if that is negative, as clocks of devices sometimes do."""
        self.now += ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def make_survey(
    *,
    question: str = "What do you drink?",
    answers: Sequence[str] = ("tea", "coffee", "neither"),
    periods: int = 365,
    period: int = 86_400,
    start: int = FIRST_DAY,
    at_most: int = 3,
    epsilon: Decimal | float | None = None,
    **others: Any,
) -> Survey:
    """A survey in which an entry reports at every period's close how its answer changed.

    periods: how many. period: how long each is, in seconds. start: when the first begins, in Unix seconds.
    at_most: how often an entry's answer may change; the first answer is a change as well.
    epsilon: what the survey costs an entry, about. None: its reports tell the truth, so that a test can see it.
    others: further fields of a survey, such as closed=True, grace=86_400 in seconds, breakdowns or relay.
    Reports are due up to SKEW + SPREAD seconds after a period's close, or half a period where that is shorter.
    Raises ValueError for what cannot be.
    """
    if isinstance(answers, str):
        raise ValueError(f"the answers are a list of texts, got the one text {answers!r}")
    space = MutationSpace(len(answers))
    randomizer: Randomizer = KaryResponse(space, TRUTHFUL)
    if epsilon is not None:
        randomizer = SignedSubset(space, Odds.within(Decimal(str(epsilon)) / at_most))
    usual = {"skew": min(SKEW, period // 8), "spread": max(min(SPREAD, period // 4), 1), "grace": GRACE, "minimum": 1}
    return Survey.at_cost(
        question=question,
        answers=answers,
        calendar=Calendar(start, period, periods),
        constraint=AtMost(at_most),
        plan=ReleasePlan((Group((Track(1, randomizer, 0, periods),)),)),
        **{**usual, **others},
    )
