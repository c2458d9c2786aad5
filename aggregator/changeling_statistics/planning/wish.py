"""What a survey designer wishes for, which is all that the plans for it have in common.

Knows no plan. A wish that no plan can meet is refused when it is made, with what would do instead.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from changeling_protocol import MICRO, AtMost, AtMostWithin, Calendar, Constraint, ExpectedChanges, ReleasePlan, Survey

MOST_PLANNED_PERIODS = 1200
"""Planning solves dense systems of at most so many times; longer horizons are planned with wider periods."""
LEAST_EPSILON = Decimal("0.001")
"""With a smaller epsilon, reports say next to nothing."""

Objective = Literal["mean", "worst"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a survey is to tell, and what it may cost.

    answers: z, how many there are.
    calendar, constraint: those of the survey.
    epsilon: the most that an entry may lose in all, in nats.
    devices: how many will answer.
    closed: whether every entry has an answer from the first period to the last.
    expected: how often the designer expects answers to change.
    retrospective: whether histograms are wanted when all is over, from everything; if not, each as its period closes.
    objective: whether the mean of the variances over the horizon is to be small, or the worst of them.
    bridge: whether estimates are to be back within a tenth of the horizon after any one closing is lost.
    minimum: nodes with fewer reports are not published, and bridge nothing.
    Raises ValueError for a wish that no plan can meet.
    """

    answers: int
    calendar: Calendar
    constraint: Constraint
    epsilon: Decimal
    devices: int
    closed: bool = False
    expected: ExpectedChanges = field(default_factory=ExpectedChanges)
    retrospective: bool = False
    objective: Objective = "mean"
    bridge: bool = True
    minimum: int = 1

    def __post_init__(self) -> None:
        if self.answers < 1:
            raise ValueError(f"a survey has at least one answer, got {self.answers}")
        if not (self.epsilon.is_finite() and self.epsilon >= LEAST_EPSILON):
            raise ValueError(f"epsilon must be at least {LEAST_EPSILON} to say anything, got {self.epsilon}")
        if self.devices < 1:
            raise ValueError(f"a survey needs at least one device, got {self.devices}")
        if self.calendar.periods > MOST_PLANNED_PERIODS:
            raise ValueError(
                f"a plan over {self.calendar.periods} periods is too fine to work out, at most {MOST_PLANNED_PERIODS}: "
                f"choose periods {-(-self.calendar.periods // MOST_PLANNED_PERIODS)} times as wide"
            )
        if self.objective not in ("mean", "worst"):
            raise ValueError(f"the objective is mean or worst, got {self.objective!r}")
        if self.minimum < 1:
            raise ValueError(f"a node that is published has at least one report, got a minimum of {self.minimum}")
        if self.closed and self.answers < 2:
            raise ValueError(f"a closed cohort with {self.answers} answer never changes: name at least two answers")

    @property
    def periods(self) -> int:
        """T, how many periods the calendar has."""
        return self.calendar.periods

    def most_later(self) -> int | None:
        """How many mutations a closed cohort's entry may make after the first period; None if they are not counted."""
        return self.constraint.k - 1 if self.closed and isinstance(self.constraint, AtMost) else None

    def survey(self, plan: ReleasePlan, answers: tuple[str, ...] = (), question: str = "a plan") -> Survey:
        """An unsigned survey with this plan, whose epsilon is what the plan costs.

        answers: their names; if not given, they are numbered. question: what people are asked.
        What only devices and a server need (skew, spread, grace) is filled with the least there is. Replace
        it before the survey is signed.
        """
        return Survey.at_cost(
            question=question,
            answers=answers or tuple(f"answer {i}" for i in range(1, self.answers + 1)),
            calendar=self.calendar,
            constraint=self.constraint,
            plan=plan,
            closed=self.closed,
            skew=0,
            spread=1,
            grace=2,
            minimum=self.minimum,
            expected=self.expected,
        )


def steady_changes(calendar: Calendar, constraint: Constraint, changes: float | None = None) -> ExpectedChanges:
    """The expectation that everybody answers in the first period, and changes come at a steady rate after it.

    changes: of an entry over the whole calendar; None for half of those that the constraint allows after the first, or
    one where it does not count them. Raises ValueError for fewer than 0, or more than one a period.
    """
    if changes is None:
        changes = (constraint.k - 1) / 2 if isinstance(constraint, AtMost | AtMostWithin) else 1.0
    if changes < 0:
        raise ValueError(f"an entry cannot be expected to change {changes} times")
    rate = changes / max(1, calendar.periods - 1)
    if rate > 1:
        raise ValueError(
            f"{changes:g} changes in {calendar.periods} periods are more than one a period: choose shorter periods"
        )
    return ExpectedChanges(MICRO, round(MICRO * rate))
