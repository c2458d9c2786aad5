"""`changeling survey new`: from a wish to a survey, with the planner's plan and what it will show."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from changeling_aggregator.cli.survey import console, expectation_table
from changeling_protocol import Breakdown
from changeling_statistics import parse_duration, write_survey

from .questionnaires import (
    ForOption,
    QuestionsOption,
    UnitOption,
    check_only_file,
    error_in_words,
    handled,
    planned_questions,
    refuse_hopeless_questions,
    say_questions,
    with_levels,
)
from .wishes import (
    AnswersOption,
    AnywayOption,
    AtMostOption,
    ChangesSpreadOption,
    ClosedOption,
    DetectOption,
    DevicesOption,
    EpsilonOption,
    ExpectedOption,
    FirstShareOption,
    FromOption,
    GraceOption,
    Handling,
    MinimumOption,
    PeriodOption,
    PowerOption,
    RelayOption,
    SkewOption,
    SpreadOption,
    StartOption,
    WithinOption,
    asked_of,
    calendar_of,
    names_of,
    planning_bar,
    refuse_hopeless,
    say_detection,
    say_freezing,
    settled,
)


def new(
    period: PeriodOption,
    epsilon: EpsilonOption,
    devices: DevicesOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    question: Annotated[
        list[str] | None,
        typer.Option(help="What people are asked; again, as NAME=TEXT, for more with the same answers."),
    ] = None,
    answers: AnswersOption = "",
    questions: QuestionsOption = None,
    start: StartOption = None,
    periods: Annotated[int | None, typer.Option(help="How many periods there are.")] = None,
    horizon: Annotated[str | None, typer.Option(help="How long the survey lasts, instead of --periods.")] = None,
    at_most: AtMostOption = None,
    within: WithinOption = None,
    closed: ClosedOption = False,
    expected_changes: ExpectedOption = None,
    first_share: FirstShareOption = 1.0,
    changes_spread: ChangesSpreadOption = None,
    pilot: FromOption = None,
    points: Annotated[float, typer.Option(help="Say how many devices it takes for this standard error.")] = 1.0,
    skew: SkewOption = "5m",  # type: ignore[assignment]
    spread: SpreadOption = "1h",  # type: ignore[assignment]
    grace: GraceOption = "7d",  # type: ignore[assignment]
    minimum: MinimumOption = 100,
    relay: RelayOption = "",
    breakdown: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE,…", help="Results by a public property that the app tells, such as arm:A,B."),
    ] = None,
    detect: DetectOption = None,
    power: PowerOption = 0.8,
    unit: UnitOption = None,
    estimand: ForOption = "histogram",
    anyway: AnywayOption = False,
) -> None:
    """Write a survey as readable JSON, with the plan that shows most, and print what it will show and cost.

    Nothing is signed yet: read the file, then use `changeling survey sign`. `changeling-sim plan` shows the plan beside
    others.
    """
    from changeling_statistics import optimal_plan, plan_in_words

    if (periods is None) == (horizon is None):
        raise ValueError("say how long the survey lasts: either --periods or --horizon")
    if not points > 0:
        raise ValueError(f"a standard error to reach is above 0 points, got {points}")
    length = period * periods if periods is not None else parse_duration(horizon or "")
    calendar = calendar_of(start, period, length)
    if questions is not None:
        check_only_file(question, answers, at_most, within, expected_changes, pilot, unit)
        planned_all, listed = planned_questions(
            questions, calendar=calendar, epsilon=epsilon, devices=devices, closed=closed, minimum=minimum
        )
        say_questions(console(), planned_all, listed, points, (detect, power))
        refuse_hopeless_questions(planned_all, anyway)
        survey = handled(planned_all.survey, Handling((), skew, spread, grace, relay))
        write_survey(output, replace(survey, breakdowns=tuple(map(_breakdown, breakdown or ()))))
        typer.echo(f"wrote {output}; not signed yet")
        return
    if not (question and answers):
        raise ValueError("say what is asked: --question and --answers, or a file of --questions")
    wanted = asked_of(question)
    if unit is not None and ".." in answers:
        answers = with_levels(
            answers,
            unit,
            estimand,
            calendar,
            (at_most, within),
            expected_changes,
            epsilon=epsilon,
            devices=devices,
            closed=closed,
            minimum=minimum,
            questions=len(wanted),
        )
    names = names_of(answers)
    asked = settled(
        console(),
        answers,
        calendar,
        changes=(at_most, within),
        expected=(expected_changes, changes_spread, first_share),
        pilot=pilot,
        epsilon=epsilon,
        devices=devices,
        closed=closed,
        minimum=minimum,
        questions=len(wanted),
    )
    wish, planned = asked.wish, asked.planned
    if planned is None:
        with planning_bar() as progress:
            planned = optimal_plan(wish, progress)
    survey = Handling(wanted, skew, spread, grace, relay, unit).applied(planned.option.survey, names)
    survey = replace(survey, breakdowns=tuple(map(_breakdown, breakdown or ())))
    option = replace(planned.option, survey=survey)
    typer.echo(f"The plan: {plan_in_words(planned)}.")
    console().print(expectation_table(option, points))
    if len(wanted) == 1:
        typer.echo(planned.distance.words)
    about = survey.questions[0]
    if estimand != "histogram":
        typer.echo(f"Error of {error_in_words(estimand, about, option.error(wish), devices)}.")
    say_detection(console(), about, option.prediction, detect, power)
    say_freezing(console(), wish, planned, asked.habits)
    refuse_hopeless(option, asked.habits, anyway)
    if option.least_reports(wish.devices) < minimum:
        typer.echo("warning: some of its nodes will have fewer reports than are shown: choose a smaller --minimum")
    write_survey(output, survey)
    typer.echo(f"wrote {output}; not signed yet")


def _breakdown(text: str) -> Breakdown:
    name, _, values = text.partition(":")
    return Breakdown(name, tuple(value.strip() for value in values.split(",")))
