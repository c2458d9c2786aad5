"""A survey designer's wish, and how accurate a plan for it will be: its standard errors, before anybody answers.

A wish is all that the plans for it have in common; one that no plan can meet is refused when it is made. Errors are
those of the estimator in estimation/, with the same weights, for an expected population: the noise of the randomizers,
what the reports of one entry have in common, and the sampling error of shares (docs/mathematics.md, "Shares"). It does
not matter who made the plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from functools import cached_property, lru_cache
from typing import Literal, Protocol

import numpy as np
from changeling_protocol import (
    HEAD_BYTES,
    MICRO,
    MOST_EPSILON,
    MOST_QUESTIONS,
    MOST_TRACKS,
    ONLY,
    SEAL_BYTES,
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    ExpectedChanges,
    KaryChange,
    Losses,
    MutationSpace,
    Node,
    Odds,
    Question,
    Randomizer,
    ReleasePlan,
    Survey,
    Track,
    TrackNumber,
    closings,
    track_cost,
    upload_bytes,
)
from numpy.typing import NDArray

from ..estimate import NORMAL, Floats, Indices
from ..estimation.entries import Moments, edges_by_group, entry_covariance, expected_moments, expected_variances
from ..estimation.network import Network, best_weights, hangs_together, is_partial, online_rows
from ..estimation.releases import plan_nodes, planned_variances, shares

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

    def survey(self, plan: ReleasePlan, answers: tuple[str, ...] = (), question: str = "a plan") -> Survey:
        """An unsigned survey with this plan, whose epsilon is what the plan costs.

        answers: their names; if not given, they are numbered. question: what people are asked; if the wish is for
        several questions, they are numbered. The rest is as in `drafted`.
        """
        answers = answers or tuple(f"answer {i}" for i in range(1, self.answers + 1))
        questions = [Question(ONLY, question, answers, self.constraint, self.expected)]
        if self.questions > 1:
            numbered = ((f"{ONLY} {i}", f"{question}, question {i}") for i in range(1, self.questions + 1))
            questions = [replace(questions[0], name=name, text=text) for name, text in numbered]
        return drafted(questions, plan, self.calendar, self.closed, self.minimum)


def drafted(questions: Sequence[Question], plan: ReleasePlan, calendar: Calendar, closed: bool, minimum: int) -> Survey:
    """An unsigned survey, whose epsilon is what the plan costs.

    What only devices and a server need (skew, spread, grace) is filled with the least there is. Replace it before the
    survey is signed.
    """
    return Survey.at_cost(
        questions=questions, calendar=calendar, plan=plan, closed=closed, skew=0, spread=1, grace=2, minimum=minimum
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


ANY_CHANGE = KaryChange(MutationSpace(1), Odds(2, 1))
"""A randomizer of changes, where it does not matter which."""


def reports_that_tell(wish: Wish, span: Span, unit: Losses) -> Decimal:
    """How many reports on a track of changes tell two changelogs apart: what the track costs in losses of one report.

    span: the nodes of the track. unit: the losses of a report in units of the loss of one.
    """
    return track_cost(span.track(ANY_CHANGE), wish.calendar, wish.constraint, wish.closed, unit)


TEST = 0.05
"""The share of the cases without a difference in which a test finds one."""
POINT = 0.01
"""One percentage point, as a fraction of the entries."""


class PopulationMoments(Protocol):
    """The moments of a population that a prediction needs."""

    def report_variances(self, track: int, end: Indices) -> Floats:
        """The variance of one report on some nodes of a track, mean over the answers, in entries squared.

        track: its number in the plan. end: when the nodes close, shape (nodes,). Returns shape (nodes,).
        """
        ...

    @property
    def moments(self) -> Moments:
        """Means of products of the histories, at the times 0..T."""
        ...


@dataclass(frozen=True)
class ExpectedPopulation:
    """The population that a survey's designer expects.

    survey: the survey, which states the expectation.
    """

    survey: Survey

    def report_variances(self, track: int, end: Indices) -> Floats:
        """The mean variance over entries that change as often as expected."""
        survey, reported = self.survey, self.survey.plan.tracks[track]
        return expected_variances(reported.randomizer, end - reported.width, end, survey.expected, survey.closed)

    @property
    def moments(self) -> Moments:
        """The moments of answers that are uniform, and change at a steady rate."""
        survey = self.survey
        return expected_moments(len(survey.answers), survey.expected, survey.calendar.periods)


@dataclass(frozen=True)
class Prediction:
    """How accurate a survey's histograms will be, as fractions of the entries, at the ends of periods 1..T.

    devices: how many answer.
    response: the variance that the randomizers add, mean over the answers, shape (T,), in squared fractions.
    sampling: the variance that asking only some of the entries adds, likewise.
    Both are inf at the end of a period that no nodes connect with the start.
    """

    devices: int
    response: Floats
    sampling: Floats

    @cached_property
    def errors(self) -> Floats:
        """The standard error at the end of each period, root mean square over the answers, shape (T,)."""
        errors: Floats = np.sqrt(self.response + self.sampling)
        return errors

    @property
    def mean(self) -> float:
        """The standard error over all periods: their root mean square."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def worst(self) -> float:
        """The largest standard error of all periods."""
        return float(self.errors.max())

    def at(self, period: int) -> float:
        """The standard error at the end of a period. Raises ValueError outside 1..T."""
        if not 1 <= period <= len(self.errors):
            raise ValueError(f"periods are numbered 1 to {len(self.errors)}, got {period}")
        return float(self.errors[period - 1])

    def objective(self, objective: str) -> float:
        """One standard error for all periods.

        objective: "mean" for their root mean square, or "worst" for the largest.
        """
        return self.worst if objective == "worst" else self.mean

    def devices_for(self, error: float = POINT, objective: str = "mean") -> float:
        """How many devices it takes for a standard error, which falls with the root of their number; inf if none do.

        At least 1, however small the error of one would be.

        error: the standard error to reach, as a fraction of the entries; 0.01 is one percentage point.
        objective: "mean" or "worst", as above. Raises ValueError for an error that is not above 0.
        """
        if not error > 0:
            raise ValueError(f"a standard error to reach is above 0, got {error}")
        return max(1.0, self.devices * (self.objective(objective) / error) ** 2)

    def devices_to_detect(self, difference: float, held: float = 0.5, *, power: float = 0.8) -> float:
        """How many devices, in two arms of one size together, it takes to tell the arms' shares apart; inf if none do.

            n = 4 {n Var p̂ + p (1 - p)} ((z_{1 - TEST/2} + z_power) / Δ)²

        An arm's entries are drawn at random too, which adds p (1 - p).

        difference: Δ, between the arms' shares of an answer: 0.02 is two points. held: p, the share that holds it.
        power: the chance to find such a difference in a two-sided test that finds one where there is none in TEST of
        all cases.
        Raises ValueError for a difference that is not between 0 and 1, and a power that is not between TEST and 1.

        >>> prediction = Prediction(20_000, response=np.array([1e-4]), sampling=np.array([0.0]))
        >>> round(prediction.devices_to_detect(0.02))
        176600
        """
        if not 0 < difference < 1:
            raise ValueError(f"a difference of shares to detect lies between 0 and 1, got {difference}")
        if not TEST < power < 1:
            raise ValueError(f"the power of a test lies between {TEST} and 1, got {power}")
        apart = (NORMAL.inv_cdf(1 - TEST / 2) + NORMAL.inv_cdf(power)) / difference
        return 4 * (self.devices * self.mean**2 + held * (1 - held)) * apart**2


def predict(
    survey: Survey,
    devices: int,
    *,
    retrospective: bool = False,
    population: PopulationMoments | None = None,
    lost: int | None = None,
) -> Prediction:
    """How accurate a survey's histograms will be.

        Var v̂_t = (1/n) {Σ_g K_g V_g K_g' / f_g - E x(t)²}

    with the weights K of the estimator, and V_g the covariance of what one entry of the population says in group g.
    Tracks whose nodes are expected to have fewer reports than the survey's minimum, if that is above 1, count not.

    devices: n, how many answer, at least 1.
    retrospective: whether histograms are estimated from everything; if not, each as its period closes.
    population: who answers; if not given, the population that the survey's designer expects.
    lost: a period at whose end nobody is heard, so that no node that ends then is published; None for none.
    Raises ValueError for fewer than one device.
    """
    if devices < 1:
        raise ValueError(f"a survey needs at least one device, got {devices}")
    population, periods = population or ExpectedPopulation(survey), survey.calendar.periods
    plan = PlannedEdges(survey, lost, devices)
    K, reached = plan.weights(retrospective)
    variances = plan.by_edge(population.report_variances)
    response, sampling = np.zeros(periods), np.zeros(periods)
    if not hangs_together(survey):
        response = K**2 @ variances
    else:
        moments = population.moments
        for share, (edges, at) in zip(shares(survey).tolist(), plan.groups, strict=True):
            if not len(at):
                continue
            said = entry_covariance(edges, variances[at], moments)
            rows = K[:, at]
            response += (rows**2 @ said.response + _quadratic(rows, said.joint)) / share
            sampling += _quadratic(rows, said.sampling) / share
        if is_partial(survey):
            sampling = np.maximum(sampling - np.diagonal(moments.centred)[1:], 0.0)  # rounding could leave it below
        else:
            sampling = np.zeros(periods)
    response[~reached] = sampling[~reached] = np.inf
    return Prediction(devices, response / devices, sampling / devices)


def _quadratic(rows: Floats, form: Floats) -> Floats:
    """r A r' for every row r, shape (rows,)."""
    quadratic: Floats = ((rows @ form) * rows).sum(1)
    return quadratic


class PlannedEdges:
    """The nodes of a survey's plan as edges, in order of their ends, and the weights that the estimator gives them.

    lost: a period; nodes that end with it are left out. None for no such period.
    devices: how many answer; tracks that they are too few for are left out. None for any number.
    start, end: their two times, shape (E,). group, track: the numbers of their group and track, shape (E,).
    groups: the edges of each group, and their numbers among all.
    """

    def __init__(self, survey: Survey, lost: int | None = None, devices: int | None = None) -> None:
        planned, plan = plan_nodes(survey.plan), survey.plan
        kept = planned.end != (-1 if lost is None else lost)
        if devices is not None and survey.minimum > 1:
            enough = np.array(expected_reports(plan, devices)) >= survey.minimum * (1 - 1e-9)
            kept &= enough[planned.track]
        self._survey, self.start, self.end = survey, planned.start[kept], planned.end[kept]
        self.track, self.group = planned.track[kept], planned.group[kept]
        self.groups = list(edges_by_group(plan, self.group, self.track, self.start, self.end))

    def weights(self, retrospective: bool) -> tuple[Floats, NDArray[np.bool_]]:
        """K of every time 1..T, shape (T, E), and which times the nodes connect with time 0, shape (T,).

        K is 0 for the others.
        """
        survey, periods = self._survey, self._survey.calendar.periods
        K, reached = np.zeros((periods, len(self.end))), np.zeros(periods, np.bool_)
        if not len(self.end):
            return K, reached
        network = Network(periods, self.start, self.end, np.ones(len(self.end)))  # best weights know no resistances
        best = best_weights(survey, network, self.group, self.track, remember=False)
        if best is None:
            planned = self.by_edge(lambda number, end: planned_variances(survey, TrackNumber(number), end))
            network = replace(network, variance=planned)
        if retrospective:
            there = [time for time in range(1, periods + 1) if network.connected(time, 0)]
            at = np.array(there, np.intp) - 1
            reached[at] = True
            K[at] = best.retrospective[there] if best else network.rows(network.unit_sources(there))
            return K, reached
        for time, row in best.online if best else online_rows(network, periods):
            K[time - 1], reached[time - 1] = row, True
        return K, reached

    def by_edge(self, of_track: Callable[[int, Indices], Floats]) -> Floats:
        """A figure of every edge, shape (E,). of_track: takes a track's number and when some of its nodes close."""
        by_edge = np.empty(len(self.end))
        for number in np.unique(self.track).tolist():
            at = np.flatnonzero(self.track == number)
            by_edge[at] = of_track(number, self.end[at])
        return by_edge


def expected_reports(plan: ReleasePlan, devices: int) -> list[float]:
    """How many reports each node of a track is expected to get if so many devices answer, by the tracks' numbers."""
    total = plan.total_share
    return [
        devices * group.share / total * track.reports / track.count for group in plan.groups for track in group.tracks
    ]


HOPELESS = 0.1
"""A standard error of a share from which on a survey says next to nothing: a band of 95% is then 40 points wide."""


@dataclass(frozen=True, slots=True)
class Option:
    """A plan, how accurate it will be, and what it asks of a device.

    name: what kind of plan it is.
    detail: its parameters in a few words; may be empty.
    survey: an unsigned survey with this plan.
    prediction: how accurate its histograms will be if as many devices answer as the wish says.
    """

    name: str
    detail: str
    survey: Survey
    prediction: Prediction

    @classmethod
    def of(cls, wish: Wish, name: str, plan: ReleasePlan, detail: str = "") -> "Option":
        """The option of a plan for this wish, its accuracy predicted."""
        survey = wish.survey(plan)
        of_each = predict(survey.about(0), wish.devices, retrospective=wish.retrospective)
        return cls(name, detail, survey, of_each)

    @property
    def plan(self) -> ReleasePlan:
        """The release plan itself."""
        return self.survey.plan

    @property
    def title(self) -> str:
        """Name and detail, as tables show them."""
        return f"{self.name}, {self.detail}" if self.detail else self.name

    def error(self, wish: Wish) -> float:
        """The standard error that the wish wants small, mean or worst, as a fraction of the entries."""
        return self.prediction.objective(wish.objective)

    @property
    def reports(self) -> float:
        """How many reports one device sends in all, mean over the groups."""
        groups = self.plan.groups
        sent = sum(group.share * sum(track.reports for track in group.tracks) for group in groups)
        return sent / self.plan.total_share

    @property
    def sent_bytes(self) -> int:
        """How many bytes one device uploads in all, in one envelope for each time at which nodes of the plan close.

        It is the same for every device, as uploads are padded to the length of the longest group's.
        """
        ends = closings(self.plan, 0, self.survey.calendar.periods)
        return sum(upload_bytes(self.plan, Node(end - 1, end)) + HEAD_BYTES + SEAL_BYTES for end in ends)

    def least_reports(self, devices: int) -> float:
        """How many reports the node with the fewest is expected to get, if so many devices answer."""
        return min(expected_reports(self.plan, devices))

    @property
    def hopeless(self) -> str:
        """Why the figures will show nothing, in words; empty if they will show something.

        They do not if the error is as large as the share of an answer would be if all were alike, or HOPELESS.
        """
        error, most = self.prediction.mean, min(HOPELESS, 1 / len(self.survey.questions[0].answers))
        if error < most:
            return ""
        if not np.isfinite(error):
            return f"some periods have no node with the {self.survey.minimum} reports that it takes to be published"
        return f"its standard error of {100 * error:.3g} points is more than {100 * most:.3g}, which shows nothing"

    def hopeless_beside(self, typical: float) -> str:
        """As `hopeless`, where it is known what share of the entries an answer typically has."""
        error = self.prediction.mean
        if self.hopeless or error < typical:
            return self.hopeless
        return f"its standard error of {100 * error:.3g} points is more than a typical answer's {100 * typical:.3g}"
