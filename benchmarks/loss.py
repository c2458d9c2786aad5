"""Measure 1 of the release plans: how much of the charge that a survey states an adversary can really get."""

from changeling_protocol import plan_cost

from tests.enumeration import enumerated_loss

from .loss_cases import LossCase, loss_cases


def measure() -> dict[str, float]:
    """Enumerated loss over stated charge for every case: never above 1, and 1 where the charge is attained."""
    return {f"1_{case.name}": ratio(case) for case in loss_cases()}


def ratio(case: LossCase) -> float:
    """1 where both are zero: nothing can be told apart, and nothing is charged."""
    stated = plan_cost(case.plan, case.calendar, case.constraint, case.closed)
    found = enumerated_loss(case.plan, case.calendar, case.constraint, case.closed)
    return max(0.0, float(found / stated)) if stated else 1.0
