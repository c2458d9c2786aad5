"""Measure 1 of joint responses: how much of the charge of a joint group an adversary can really get.

Once for an entry that lives once, and for an entry whose store was copied and put back, over all that both of its lives
send.
"""

from collections.abc import Iterator

from changeling_protocol import lives_cost

from tests.enumeration import enumerated_lives_loss

from .joint_loss_cases import joint_loss_cases
from .loss import ratio
from .loss_cases import LossCase

MOST_LIVED = 3
"""Lives are enumerated over so many periods at most: pairs of pairs of changelogs are compared."""


def measure() -> dict[str, float]:
    """Enumerated loss over stated charge: never above 1, and 1 wherever a case is marked as reached."""
    cases = list(joint_loss_cases())
    ratios = {case.name: ratio(case) for case in cases}
    reached = [ratios[case.name] for case in cases if case.reached]
    lives = {case.name: lives_ratio(case) for case in cases if lived(case)}
    return (
        {
            "1_cases": len(ratios),
            "1_largest": max(ratios.values()),
            "1_reached_cases": len(reached),
            "1_reached_smallest": min(reached),
            "1_smallest": min(ratios.values()),
            "1_lives_cases": len(lives),
            "1_lives_largest": max(lives.values()),
            "1_lives_smallest": min(lives.values()),
        }
        | dict(_figures("1_", ratios))
        | dict(_figures("1_lives_", lives))
    )


def lived(case: LossCase) -> bool:
    """Whether two lives of the case are enumerated: it has one group, and changelogs few enough."""
    answers = case.plan.tracks[0].randomizer.space.answers
    few = answers == 1 or (answers == 2 and (case.closed or len(case.plan.tracks) == 1))
    return few and len(case.plan.groups) == 1 and case.calendar.periods <= MOST_LIVED


def lives_ratio(case: LossCase) -> float:
    """Of all that two lives send, enumerated, over what they are stated to cost."""
    stated = lives_cost(case.plan, case.calendar, case.constraint, case.closed, lives=2)
    return float(enumerated_lives_loss(case.plan, case.calendar, case.constraint, case.closed) / stated)


def _figures(prefix: str, ratios: dict[str, float]) -> Iterator[tuple[str, float]]:
    return ((f"{prefix}{name}", value) for name, value in ratios.items())
