"""Questions of a survey that differ, as a TOML file lists them; their plan, and the table of what it will show.

[[question]]
name = "drink"
text = "What do you drink?"
answers = ["tea", "coffee", "water"]
at_most = 3
weight = 2                  # its squared error counts twice; 1 if not said
expected_changes = 1        # of an entry over the horizon; half of those allowed if not said
ask_freezing = true         # ask too whether its answer changed more often; devices answer that by themselves

[[question]]
name = "minutes"
text = "How long did you wait?"
range = [0, 120]            # or levels = [0, 10, 30, 120]
unit = "min"
at_most = 4
within = "26w"
for = "mean"                # histogram, mean, quantile or difference: the error that is printed
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from changeling_protocol import Calendar, Question, parse_duration
from changeling_statistics import constraint_in_words, constraint_of
from rich.console import Console
from rich.table import Table

from .settling import (
    best_levels,
    breakdowns_in_words,
    devices_in_words,
    error_in_words,
    planning_bar,
    say_detection,
    say_freezing,
    settled,
    when_shown,
)
from .wishes import WishOptions, names_of

if TYPE_CHECKING:
    from changeling_statistics import Habits, PlannedQuestions, WeightedQuestion, Wish

KNOWN = {"name", "text", "answers", "levels", "range", "unit", "weight", "for", "ask_freezing"}
KNOWN |= {"at_most", "within", "expected_changes", "first_share"}
"""What a question may say."""


@dataclass(frozen=True, slots=True)
class ListedQuestion:
    """A question as it is listed, with the figure that it is asked for."""

    asked: "WeightedQuestion"
    estimand: str


def read_questions(path: Path, wish_of_one: "Wish") -> tuple[ListedQuestion, ...]:
    """The questions of a TOML file.

    wish_of_one: the survey as it would be for one question; its answers and constraint are not looked at. The levels
    of a range are those that make its figure's error least, with as many devices as every question has on average.
    Raises OSError, and ValueError with what is wrong in which question.
    """
    with path.open("rb") as file:
        try:
            tables = tomllib.load(file, parse_float=Decimal)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}") from None
    match tables:
        case {"question": [*listed], **rest} if listed and not rest:
            few = replace(wish_of_one, devices=max(1, wish_of_one.devices // len(listed)))
            return tuple(each for number, table in enumerate(listed, 1) for each in _listed(number, table, few))
    raise ValueError(f"{path} lists no questions: begin each with [[question]]")


def _listed(number: int, table: Any, wish: "Wish") -> tuple[ListedQuestion, ...]:
    """The question of a table, and its freezing question if it asks for one."""
    try:
        if not (isinstance(table, dict) and isinstance(table.get("name"), str) and isinstance(table.get("text"), str)):
            raise ValueError("it has no name or no text")
        if unknown := sorted(set(table) - KNOWN):
            raise ValueError(f"it has {', '.join(unknown)}, which no question has")
        return _asked(table, wish)
    except (ValueError, TypeError) as error:
        raise ValueError(f"question {number}: {error}") from None


def _asked(table: Mapping[str, Any], wish: "Wish") -> tuple[ListedQuestion, ...]:
    from changeling_statistics import ESTIMANDS, SteadyChanges, WeightedQuestion, steady_changes

    estimand = table.get("for", "histogram")
    if estimand not in ESTIMANDS:
        raise ValueError(f"for is one of {', '.join(ESTIMANDS)}, got {estimand!r}")
    if len(given := [name for name in ("answers", "levels", "range") if name in table]) != 1:
        raise ValueError(f"say either answers, levels or range; got {given or 'none of them'}")
    within = table.get("within")
    constraint = constraint_of(
        _whole(table, "at_most"), None if within is None else parse_duration(within, months=True)
    )
    changes = None if (said := table.get("expected_changes")) is None else float(said)
    expected = steady_changes(wish.calendar, constraint, changes, float(table.get("first_share", 1)))
    wish = replace(wish, constraint=constraint, expected=expected)
    name, text, weight = table["name"], table["text"], table.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | Decimal):
        raise ValueError(f"a weight is a number above 0, got {weight!r}")
    if "answers" in table:
        if "unit" in table:
            raise ValueError("only levels and a range have a unit")
        question = Question(name, text, _names(table["answers"]), constraint, expected)
    else:
        levels = table["levels"] if "levels" in table else best_levels(wish, table["range"], estimand)
        question = Question.of_number(name, text, levels, constraint, table.get("unit", ""), expected)
    asked = WeightedQuestion(question, float(weight))
    if not isinstance(ask := table.get("ask_freezing", False), bool):
        raise ValueError(f"ask_freezing is true or false, got {ask!r}")
    if not ask:
        return (ListedQuestion(asked, estimand),)
    habits = None if changes is None else SteadyChanges(len(question.answers), wish.calendar, changes)
    return _with_freezing(asked, estimand, wish.calendar, habits)


def _with_freezing(
    asked: "WeightedQuestion", estimand: str, calendar: Calendar, habits: "Habits | None"
) -> tuple[ListedQuestion, ListedQuestion]:
    from changeling_statistics import asking_freezing

    asked, frozen = asking_freezing(asked, calendar, habits)
    return ListedQuestion(asked, estimand), ListedQuestion(frozen, "histogram")


def _whole(table: Mapping[str, Any], name: str) -> int | None:
    value = table.get(name)
    if isinstance(value, bool) or not (value is None or isinstance(value, int)):
        raise ValueError(f"{name} is a whole number, got {value!r}")
    return value


def _names(answers: Any) -> tuple[str, ...]:
    if isinstance(answers, int) and not isinstance(answers, bool):
        return names_of(str(answers))
    if isinstance(answers, list) and all(isinstance(name, str) for name in answers):
        return tuple(answers)
    raise ValueError(f"answers are their names, or how many there are; got {answers!r}")


def planned_questions(console: Console, options: WishOptions, points: float = 1.0) -> "PlannedQuestions":
    """The plan for the questions that a file lists, or for those of the command line with their freezing questions.

    Prints who is asked what, and how accurate every question will be. points: the standard error that devices are
    counted for. Raises ValueError for options beside the file of what each of its questions says itself.
    """
    from changeling_statistics import Questionnaire, plan_questionnaire, questions_in_words

    listed, habits = (_alike(console, options)) if options.questions is None else (_in_file(options), None)
    wanted = Questionnaire(tuple(each.asked for each in listed), calendar=options.calendar, **options.common)
    with planning_bar() as progress:
        planned = plan_questionnaire(wanted, progress)
    console.print(f"The plan: {questions_in_words(planned)}.", highlight=False)
    console.print(_table(planned, listed, points))
    survey = options.handled(planned.survey)
    console.print(f"Shown, and for good: {when_shown(survey, planned.least_reports)}.", highlight=False)
    for breakdown, said in breakdowns_in_words(survey, planned.wish.devices):
        console.print(f"{breakdown}: {said}.", highlight=False)
    console.print(f"Epsilon for life, over all questions together: {planned.survey.epsilon}.", highlight=False)
    for place, each in enumerate(listed):
        question = each.asked.question
        say_detection(console, question, planned.predictions[place], options)
        if not question.freezing_of:
            say_freezing(console, question.constraint, planned.planned(place), habits)
    return planned


def _in_file(options: WishOptions) -> tuple[ListedQuestion, ...]:
    said = ["question", "answers", "unit", "at_most", "within", "expected_changes", "changes_per_year", "pilot"]
    if options.questions is None or options.ask_freezing or any(getattr(options, name) for name in said):
        raise ValueError(
            "with --questions each question says its own answers and changes, and whether to ask_freezing: leave out "
            "--question, --answers, --unit, --from, --ask-freezing, and the options about changes"
        )
    return read_questions(options.questions, options.wish(2))


def _alike(console: Console, options: WishOptions) -> tuple[tuple[ListedQuestion, ...], "Habits | None"]:
    from changeling_statistics import WeightedQuestion

    found = settled(console, options)
    pairs = (
        _with_freezing(WeightedQuestion(each), options.estimand, options.calendar, found.habits)
        for each in found.questions
    )
    return tuple(each for pair in pairs for each in pair), found.habits


def _table(planned: "PlannedQuestions", listed: Sequence[ListedQuestion], points: float) -> Table:
    wish = planned.wish
    table = Table(title=f"What it will show of {wish.devices:,} devices", title_justify="left")
    for column in ("question", "answers", "weight", "± a share", f"devices for ±{points:g}", "its figure"):
        table.add_column(column)
    for place, each in enumerate(listed):
        question, prediction = each.asked.question, planned.predictions[place]
        needed = prediction.devices_for(points / 100, wish.objective) if isfinite(prediction.mean) else float("inf")
        table.add_row(
            question.name,
            f"{len(question.answers)}, {constraint_in_words(question.constraint)}",
            f"{each.asked.weight:g}",
            f"{100 * planned.error(place):.3g} points",
            devices_in_words(needed),
            error_in_words(each.estimand, question, planned.error(place), wish.devices),
        )
    return table


def refuse_hopeless_questions(planned: "PlannedQuestions", anyway: bool) -> None:
    """Raises ValueError if a question's figures are expected to show nothing, unless that is wanted anyway."""
    hopeless = [why for place in range(len(planned.wish.asked)) if (why := planned.hopeless(place))]
    if hopeless and not anyway:
        raise ValueError(
            f"{hopeless[0]}: ask more devices, or less, give it more weight, or write it all the same with --anyway"
        )
