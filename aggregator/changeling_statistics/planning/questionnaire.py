"""The plan of a survey whose questions differ: each class of alike ones planned by itself, and shares of the entries.

An entry is asked about one class, with all of epsilon. A class with a share w of the entries has the squared error

    A / w - B,    B what the entries differ by in themselves, which is no error where all of them are asked,

so the weighted sum of squared errors is least where w is proportional to the root of weight · A. Classes that differ
only in their constraints, expectations or weights are also planned as one, under the loosest constraint, and the better
of the two is taken: joint groups range over all questions of a class. docs/mathematics.md, "Several questions".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import hypot, sqrt
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    MICRO,
    MOST_QUESTIONS,
    MOST_TRACKS,
    OFFSETS,
    AtMost,
    Calendar,
    ExpectedChanges,
    Group,
    History,
    Limits,
    Question,
    ReleasePlan,
    Survey,
)

from ..estimate import Floats
from ..estimation.entries import expected_moments
from .freezing import Habits
from .plans import Planned, Progress, optimal_plan
from .prediction import Objective, Prediction, Wish, drafted, expected_reports, predict

MOST_KINDS = 32
"""So many kinds of questions at most: each takes the planner as long as a survey of its own."""
RESOLUTION = 10**9
"""Shares of the entries are in such parts."""


@dataclass(frozen=True, slots=True)
class WeightedQuestion:
    """A question of a survey that is wished for, and how much its accuracy counts.

    weight: above 0; twice the weight counts as two such questions.
    """

    question: Question
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"the weight of {self.question.name!r} must be above 0 and finite, got {self.weight}")


def asking_freezing(
    asked: WeightedQuestion, calendar: Calendar, habits: Habits | None = None
) -> tuple[WeightedQuestion, WeightedQuestion]:
    """A question, and its freezing question with the same weight, which devices answer by themselves.

    calendar: the survey's. habits: what is known of how entries will change; where nothing is, half of them are
    expected to freeze in the end.

    >>> drink = WeightedQuestion(Question("drink", "Tea?", ("yes", "no"), AtMost(2)))
    >>> [each.question.name for each in asking_freezing(drink, Calendar(0, "1w", 3))]
    ['drink', 'drink-frozen']
    """
    question = asked.question
    stopped = 0.5 if habits is None else float(habits.freezing(question.constraint).stopped[-1])
    later = min(stopped, calendar.periods - 1) / max(1, calendar.periods - 1)
    expected = ExpectedChanges(question.expected.first, round(MICRO * later))
    return asked, WeightedQuestion(Question.of_freezing(question, expected), asked.weight)


@dataclass(frozen=True, slots=True)
class Questionnaire:
    """A survey of several questions that is wished for; the fields are those of `Wish`, for all questions together.

    Raises ValueError for one that no plan can meet, here or when it is planned.

    >>> drink = Question("drink", "Tea?", ("yes", "no"), AtMost(2))
    >>> size = Question("size", "How large?", ("S", "M", "L"), AtMost(1))
    >>> asked = WeightedQuestion(drink, 3), WeightedQuestion(size)
    >>> wanted = Questionnaire(asked, Calendar(0, "1w", 2), Decimal(4), 20_000)
    >>> planned = plan_questionnaire(wanted)
    >>> [len(part.places) for part in planned.parts], planned.survey.cost <= 4
    ([1, 1], True)
    """

    asked: tuple[WeightedQuestion, ...]
    calendar: Calendar
    epsilon: Decimal
    devices: int
    closed: bool = False
    retrospective: bool = False
    objective: Objective = "mean"
    bridge: bool = True
    minimum: int = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.asked) <= MOST_QUESTIONS:
            raise ValueError(f"a survey asks 1 to {MOST_QUESTIONS} questions, got {len(self.asked)}")

    def wish(self, places: Sequence[int], devices: int) -> Wish:
        """The wish for some of the questions, as if they were alike: under the loosest of their constraints."""
        questions = [self.asked[place].question for place in places]
        rates = [each.expected for each in questions]
        return Wish(
            len(questions[0].answers),
            self.calendar,
            max((each.constraint for each in questions), key=lambda each: each.k if isinstance(each, AtMost) else 0),
            self.epsilon,
            devices,
            closed=self.closed,
            expected=ExpectedChanges(
                *(round(float(np.mean([getattr(each, name) for each in rates]))) for name in ("first", "later"))
            ),
            retrospective=self.retrospective,
            objective=self.objective,
            bridge=self.bridge,
            minimum=self.minimum,
            questions=len(places),
            most_tracks=max(1, MOST_TRACKS * len(places) // len(self.asked)),
        )


@dataclass(frozen=True, slots=True)
class QuestionClass:
    """A class of questions that are planned as if they were alike.

    places: of the questions. share: of the entries, who are asked about these. planned: the plan for them alone.
    """

    places: tuple[int, ...]
    share: float
    planned: Planned


@dataclass(frozen=True, slots=True)
class PlannedQuestions:
    """The best plan for a questionnaire.

    survey: unsigned, with what only devices and a server need filled with the least there is.
    parts: the classes that it is made of. predictions: how accurate each question will be, by its place.
    """

    wish: Questionnaire
    survey: Survey
    parts: tuple[QuestionClass, ...]
    predictions: tuple[Prediction, ...]

    def error(self, place: int) -> float:
        """The standard error of a share of the answers to a question, mean or worst as the wish wants."""
        return self.predictions[place].objective(self.wish.objective)

    def planned(self, place: int) -> Planned:
        """The plan of a question's class, with what is predicted for the question of its share of the entries."""
        planned = next(each for each in self.parts if place in each.places).planned
        return replace(planned, option=replace(planned.option, prediction=self.predictions[place]))

    @property
    def total(self) -> float:
        """The root of the weighted mean of the squared errors, which is made small."""
        weights = [each.weight for each in self.wish.asked]
        squares = [self.error(place) ** 2 for place in range(len(weights))]
        return float(np.sqrt(np.average(squares, weights=weights)))

    @property
    def least_reports(self) -> float:
        """How many reports the node with the fewest is expected to get."""
        return min(expected_reports(self.survey.plan, self.wish.devices))

    def hopeless(self, place: int) -> str:
        """Why the figures of a question will show nothing, as `Option.hopeless`; empty if they will."""
        why = self.planned(place).option.hopeless
        return why and f"{self.wish.asked[place].question.name}: {why}"


def plan_questionnaire(wish: Questionnaire, progress: Progress | None = None) -> PlannedQuestions:
    """The plan with the least weighted sum of squared errors that the planner finds. progress: as for `optimal_plan`.

    Raises ValueError as `optimal_plan` does, and for more kinds of questions than it can plan.
    """
    finest, loosest = (_classes(wish, kind) for kind in (_kind, _loose_kind))
    if len(finest) > MOST_KINDS:
        raise ValueError(
            f"a survey has at most {MOST_KINDS} kinds of questions, which differ in how many answers they have, their "
            f"constraint, expected changes or weight; got {len(finest)}: make some of them alike"
        )
    ways = [finest] if len(finest) == len(loosest) else [finest, loosest]
    steps = _Steps(progress or (lambda _: None), sum(map(len, ways)))
    plans = {places: _alone(wish, places, steps) for places in dict.fromkeys(each for way in ways for each in way)}
    composed = [_composed(wish, {places: plans[places] for places in way}) for way in ways]
    return min(composed, key=lambda each: each.total)


def _kind(asked: WeightedQuestion) -> object:
    question = asked.question
    return len(question.answers), repr(question.constraint.as_fields()), question.expected, asked.weight


def _loose_kind(asked: WeightedQuestion) -> object:
    question = asked.question
    counted = isinstance(question.constraint, AtMost)
    return len(question.answers), counted or repr(question.constraint.as_fields())


Classes: TypeAlias = tuple[tuple[int, ...], ...]


def _classes(wish: Questionnaire, kind: Callable[[WeightedQuestion], object]) -> Classes:
    classes: dict[object, list[int]] = {}
    for place, asked in enumerate(wish.asked):
        classes.setdefault(kind(asked), []).append(place)
    return tuple(map(tuple, classes.values()))


@dataclass(slots=True)
class _Steps:
    """Progress over several plans. done: how many are."""

    progress: Progress
    total: int
    done: int = field(default=0)

    def __call__(self, part: float) -> None:
        self.progress(min(1.0, (self.done + part) / self.total))


def _alone(wish: Questionnaire, places: tuple[int, ...], steps: _Steps) -> Planned:
    planned = _planned(wish, places, wish.devices * len(places) // len(wish.asked), steps)
    steps.done += 1
    return planned


def _planned(wish: Questionnaire, places: tuple[int, ...], devices: int, progress: Progress | None = None) -> Planned:
    """The best plan for some of the questions, which so many of the devices are asked. Raises ValueError with names."""
    try:
        return optimal_plan(wish.wish(places, max(1, devices)), progress)
    except ValueError as error:
        names = ", ".join(wish.asked[place].question.name for place in places)
        raise ValueError(f"about {names} {devices:,} of {wish.devices:,} devices are asked: {error}") from error


def _composed(wish: Questionnaire, plans: dict[tuple[int, ...], Planned]) -> PlannedQuestions:
    """The mixture of plans with the best shares; a plan that its share leaves too few devices for is made again."""
    weights = [sum(wish.asked[place].weight for place in places) for places in plans]
    scaled = [weight * _scaled_variance(planned) for weight, planned in zip(weights, plans.values(), strict=True)]
    shares = np.sqrt(scaled) / np.sqrt(scaled).sum()
    parts = []
    for (places, planned), share in zip(plans.items(), shares.tolist(), strict=True):
        least = min(expected_reports(planned.plan, 1)) * share * wish.devices
        if wish.minimum > 1 and least < wish.minimum:
            planned = _planned(wish, places, int(share * wish.devices))
        parts.append(QuestionClass(places, share, planned))
    plan = ReleasePlan(tuple(group for part in parts for group in _groups(wish, part)))
    survey = drafted([each.question for each in wish.asked], plan, wish.calendar, wish.closed, wish.minimum)
    return PlannedQuestions(wish, survey, tuple(parts), _predictions(wish, survey, parts))


def _scaled_variance(planned: Planned) -> float:
    """A: the part of the squared error of one question that is inverse to the class's share, of one entry."""
    wish = planned.wish
    own = np.diagonal(expected_moments(wish.answers, wish.expected, wish.periods).centred)[1:]
    return float(planned.option.error(wish) ** 2 * wish.devices + own.mean())


def _predictions(wish: Questionnaire, survey: Survey, parts: Iterable[QuestionClass]) -> tuple[Prediction, ...]:
    """The prediction of each question; those of one kind in one part are alike, and worked out once."""
    known: dict[object, Prediction] = {}
    predicted: dict[int, Prediction] = {}
    for number, part in enumerate(parts):
        for place in part.places:
            kind = number, _kind(wish.asked[place])
            if kind not in known:
                known[kind] = predict(survey.about(place), wish.devices, retrospective=wish.retrospective)
            predicted[place] = known[kind]
    return tuple(predicted[place] for place in range(len(wish.asked)))


def _groups(wish: Questionnaire, part: QuestionClass) -> list[Group]:
    """The groups of a class as the whole survey has them: of its share, and about its questions by their places."""
    plan, made = part.planned.plan, partial(_about, wish, part.places)
    unit = Fraction(part.share) * RESOLUTION / plan.total_share
    return [replace(made(group), share=max(1, round(unit * group.share))) for group in plan.groups]


def _about(wish: Questionnaire, places: Sequence[int], group: Group) -> Group:
    tracks = tuple(replace(track, question=places[track.question]) for track in group.tracks)
    if not isinstance(group.joint, History):
        return replace(group, tracks=tracks)
    question = wish.asked[tracks[0].question].question  # its own constraint, if the class was planned under a looser
    limits = Limits.of(question.constraint, wish.calendar, wish.closed, group.joint.periods)
    history = replace(group.joint, limits=limits)
    return Group.of_history(history, len(question.answers), group.share, tracks[0].question)


def questions_in_words(planned: PlannedQuestions) -> str:
    """Describes which share of the devices is asked what."""
    names = [each.question.name for each in planned.wish.asked]
    words = []
    for part in planned.parts:
        some = [names[place] for place in part.places]
        listed = ", ".join(some[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
        words.append(f"{part.share:.1%} of the devices are asked about {listed}")
    return "; ".join(words)


ESTIMANDS = ("histogram", "mean", "quantile", "difference")
LEVELS = (2, 3, 4, 5, 6, 8, 11, 16)
"""How many levels of a number are tried."""
DECIMALS = 9
"""Levels that the planner chooses are rounded to so many decimals."""


@dataclass(frozen=True, slots=True)
class EstimandError:
    """The standard error of one figure of a question.

    error: in the question's unit where the figure is a number, else as a fraction of the entries.
    relative: the same as a part of the range of the levels, or as it is. words: what it is an error of.
    """

    error: float
    relative: float
    words: str


def estimand_error(estimand: str, question: Question, share: float, devices: int) -> EstimandError:
    """The standard error of a figure.

    share: the standard error of a share of an answer, as a fraction; root mean square over the answers.
    devices: n, how many answer.
    A sum of shares with the coefficients c has the variance share² z/(z - 1) Σ (c - mean c)², exactly where everybody
    has an answer, and at most elsewhere. Rounding a number to levels adds a quarter of a level's width squared, over n.
    Raises ValueError for a mean or a quantile of what is no number.

    >>> from changeling_protocol import AtMost
    >>> minutes = Question.of_number("minutes", "How long?", ["0", "100"], AtMost(1), "min")
    >>> round(estimand_error("mean", minutes, 0.01, 10**6).error, 3)
    1.001
    """
    if estimand not in ESTIMANDS:
        raise ValueError(f"a survey is for one of {', '.join(ESTIMANDS)}, got {estimand!r}")
    if estimand in ("mean", "quantile") and not question.is_number:
        raise ValueError(
            f"{question.name!r} is no number: a {estimand} is one of levels, say --unit, or --for histogram"
        )
    z = len(question.answers)
    if estimand == "mean" or (estimand == "difference" and question.is_number):
        levels = np.array(question.values)
        error = hypot(_of_sum(share, levels), float(np.diff(levels).max()) / 2 / sqrt(devices))
        error *= 1 if estimand == "mean" else 2
        words = "the mean" if estimand == "mean" else "the difference of two arms' means"
        return EstimandError(error, error / float(np.ptp(levels)), words)
    if estimand == "quantile":
        error = _of_sum(share, (np.arange(z) >= z / 2).astype(float))
        return EstimandError(error, error, "the share above the median")
    if estimand == "difference":
        error = 2 * sqrt(share**2 + (1 - 1 / z) / z / devices)
        return EstimandError(error, error, "the difference of a share between two arms")
    return EstimandError(share, share, "a share")


def _of_sum(share: float, coefficients: Floats) -> float:
    z = len(coefficients)
    return share * sqrt(z / max(1, z - 1) * float(((coefficients - coefficients.mean()) ** 2).sum()))


def even_levels(low: Decimal, high: Decimal, count: int) -> tuple[Decimal, ...]:
    """So many levels at even distances. Raises ValueError for a range that does not rise."""
    if not low < high:
        raise ValueError(f"a range rises, got {low} to {high}")
    inner = (round(low + (high - low) * place / (count - 1), DECIMALS) for place in range(1, count - 1))
    return low, *inner, high


@dataclass(frozen=True, slots=True)
class LevelsTried:
    """Levels that were tried. planned: the plan for so many answers. relative: the error that is to be small."""

    levels: tuple[Decimal, ...]
    planned: Planned
    relative: float


def levels_tried(wish: Wish, low: Decimal, high: Decimal, estimand: str) -> Iterator[LevelsTried]:
    """Plans for each number of levels of a range; the one with the least error of the figure is the best.

    wish: its answers are not looked at. A quantile's error has the distance of the points of the distribution added,
    over all offsets; without another aim it is that of the mean.
    """
    for count in LEVELS:
        levels = even_levels(low, high, count)
        planned = optimal_plan(replace(wish, answers=count))
        question = Question.of_number("number", "a number", levels, wish.constraint)
        error = planned.option.error(planned.wish)
        aim = "quantile" if estimand == "quantile" else "mean"
        relative = estimand_error(aim, question, error, wish.devices).relative
        apart = 1 / (count - 1) / OFFSETS / sqrt(12) if aim == "quantile" else 0.0
        yield LevelsTried(levels, planned, hypot(relative, apart))
