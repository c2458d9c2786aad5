"""The wish of a survey designer, which is all that the plans for it have in common.

Knows no plan. A wish that no plan can meet is refused when it is made, with what would do instead.
"""

from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache
from typing import Literal

from changeling_protocol import (
    MICRO,
    MOST_EPSILON,
    MOST_QUESTIONS,
    MOST_TRACKS,
    ONLY,
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    ExpectedChanges,
    Losses,
    Odds,
    Question,
    Randomizer,
    ReleasePlan,
    Survey,
    Track,
    node_cost,
)

MOST_PLANNED_PERIODS = 1200
"""Planning solves dense systems of at most so many times; longer horizons are planned with wider periods."""
LEAST_EPSILON = Decimal("0.001")
"""With a smaller epsilon, reports say next to nothing."""

Objective = Literal["mean", "worst"]


@dataclass(frozen=True, slots=True)
class Wish:
    """A survey that is wished for: what it is to tell, and what it may cost.

    answers: z, how many there are.
    calendar, constraint: those of the survey.
    epsilon: the most that an entry may lose in all, in nats; any number, kept as the decimal that it is written as.
    devices: how many will answer.
    closed: whether every entry has an answer from the first period to the last.
    expected: how often the designer expects answers to change.
    retrospective: whether histograms are wanted when all is over, from everything; if not, each as its period closes.
    objective: whether the mean of the variances over the horizon is to be small, or the worst of them.
    bridge: whether estimates are to be back within a tenth of the horizon after any one closing is lost.
    minimum: nodes with fewer reports are not published, and bridge nothing.
    questions: how many questions of this kind the survey asks, for the one epsilon; each is to be as accurate.
    most_tracks: how many tracks its plan may have; fewer where other questions of the survey have theirs.
    Raises ValueError for a wish that no plan can meet.

    >>> Wish(2, Calendar(0, 604_800, 8), AtMost(2), epsilon=4, devices=1000).epsilon
    Decimal('4')
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
    questions: int = 1
    most_tracks: int = MOST_TRACKS

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", Decimal(str(self.epsilon)))
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
        if not 1 <= self.questions <= MOST_QUESTIONS:
            raise ValueError(f"a survey asks 1 to {MOST_QUESTIONS} questions, got {self.questions}")
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

        answers: their names; if not given, they are numbered. question: what people are asked; if the wish is for
        several questions, they are numbered.
        What only devices and a server need (skew, spread, grace) is filled with the least there is. Replace
        it before the survey is signed.
        """
        answers = answers or tuple(f"answer {i}" for i in range(1, self.answers + 1))
        only = Question(ONLY, question, answers, self.constraint, self.expected)
        numbered = ((f"{ONLY} {i}", f"{question}, question {i}") for i in range(1, self.questions + 1))
        return Survey.at_cost(
            questions=[replace(only, name=name, text=text) for name, text in numbered]
            if self.questions > 1
            else [only],
            calendar=self.calendar,
            plan=plan,
            closed=self.closed,
            skew=0,
            spread=1,
            grace=2,
            minimum=self.minimum,
        )


def steady_changes(
    calendar: Calendar, constraint: Constraint, changes: float | None = None, first: float = 1.0
) -> ExpectedChanges:
    """The expectation that a share of the entries answers in the first period, and changes come steadily after it.

    changes: of an entry over the whole calendar; None for half of those that the constraint and the periods allow after
    the first, or one where the constraint does not count them. first: the share that has an answer after the first
    period. Raises ValueError for fewer changes than 0, or more than one a period, and for no share.

    >>> steady_changes(Calendar(0, 604_800, 5), AtMost(20)).later  # two of four, in millionths a period
    500000
    """
    if not 0 <= first <= 1:
        raise ValueError(f"the share that answers in the first period is from 0 to 1, got {first:g}")
    if changes is None:
        changes = min(1.0, calendar.periods - 1.0)
        if isinstance(constraint, AtMost | AtMostWithin):
            changes = (min(constraint.k, calendar.periods) - 1) / 2
    if changes < 0:
        raise ValueError(f"an entry cannot be expected to change {changes} times")
    rate = changes / max(1, calendar.periods - 1)
    if rate > 1:
        raise ValueError(
            f"{changes:g} changes in {calendar.periods} periods are more than one a period: choose shorter periods"
        )
    return ExpectedChanges(round(MICRO * first), round(MICRO * rate))


_SAFE = 1 - Decimal("1e-40")
"""Losses are rounded up in the 45th digit. Budgets are cut by this, so that sums of losses stay within them."""


@dataclass(frozen=True, slots=True)
class Span:
    """The nodes of a track: those of one width, in periods, that follow on one another within (first, last].

    reported: on how many of them an entry reports, drawn at random; None for all.
    """

    width: int
    first: int
    last: int
    reported: int | None = None

    @classmethod
    def of(cls, track: Track) -> "Span":
        """The nodes of a track."""
        return cls(track.width, track.first, track.last, track.reported)

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return (self.last - self.first) // self.width

    @property
    def reports(self) -> int:
        """N, on how many nodes an entry reports."""
        return self.count if self.reported is None else self.reported

    def track(self, randomizer: Randomizer) -> Track:
        """The track that reports on these nodes through a randomizer."""
        return Track(self.width, randomizer, self.first, self.last, self.reported)


@lru_cache(maxsize=4096)
def odds_within(budget: Decimal, reports: Decimal) -> Odds | None:
    """The largest odds with reports · ln(odds) <= budget; None if the budget is so small that they would say nothing.

    budget: in nats.
    reports: how many reports tell two changelogs of an entry apart; 0 if none does, and reports cost nothing.
    """
    with localcontext(prec=50, rounding=ROUND_FLOOR):
        loss = min(budget * _SAFE / reports, Decimal(MOST_EPSILON)) if reports else Decimal(MOST_EPSILON)
    return Odds.within(loss) if loss >= LEAST_EPSILON else None


def reports_that_tell(wish: Wish, span: Span, unit: Losses) -> Decimal:
    """How many reports on a track of changes tell two changelogs apart: what the track costs in losses of one report.

    span: the nodes of the track. unit: the losses of a report in units of the loss of one.
    """
    bounds = [wish.calendar.time(span.first + i * span.width) for i in range(span.count + 1)]
    most = wish.constraint.most_nodes(bounds)
    if not wish.closed:
        return node_cost(unit, most, span.reports)
    later = wish.most_later()
    most = most if later is None else min(later, most)
    if span.first > 0:
        return node_cost(unit, most, span.reports)
    with_first = unit.insertions + node_cost(unit, most, span.reports - 1)
    return with_first if span.reported is None else max(with_first, node_cost(unit, most, span.reports))
