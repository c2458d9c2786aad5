"""`changeling-sim plan`: from a wish to a table of plans, a picture and a survey file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_commands.questionnaires import (
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
from changeling_commands.wishes import (
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
    HorizonOption,
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
    why_hopeless,
)
from changeling_protocol import Survey
from changeling_statistics import Comparison, Option, compare_plans, write_survey
from rich.console import Console
from rich.markup import escape

from .options import ReportOption, recorder, write_report
from .plots import draw_comparison, save_plan_plot
from .reports import print_comparison

DELTA = 1e-6


def plan(
    horizon: HorizonOption,
    period: PeriodOption,
    epsilon: EpsilonOption,
    devices: DevicesOption,
    answers: AnswersOption = "",
    questions: QuestionsOption = None,
    at_most: AtMostOption = None,
    within: WithinOption = None,
    closed: ClosedOption = False,
    expected_changes: ExpectedOption = None,
    first_share: FirstShareOption = 1.0,
    changes_per_year: Annotated[float | None, typer.Option(metavar="X", help="The same as a rate.")] = None,
    changes_spread: ChangesSpreadOption = None,
    pilot: FromOption = None,
    retrospective: Annotated[
        bool, typer.Option("--retrospective", help="Histograms are wanted when all is over, from everything.")
    ] = False,
    objective: Annotated[str, typer.Option(metavar="mean|worst", help="The error to make small.")] = "mean",
    bridge: Annotated[
        bool, typer.Option("--bridge/--no-bridge", help="Any one lost period is bridged within a tenth of the horizon.")
    ] = True,
    choose: Annotated[str, typer.Option(metavar="NAME", help="paper, flat, sampled, panel or optimal.")] = "optimal",
    delta: Annotated[float, typer.Option(metavar="DELTA", help="Of the (epsilon, delta) figures.")] = DELTA,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the chosen plan's survey.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw errors and the release graph.")] = None,
    report: ReportOption = None,
    question: Annotated[str, typer.Option(help="What people are asked.")] = "Which of these is your answer?",
    start: StartOption = None,
    skew: SkewOption = "5m",  # type: ignore[assignment]
    spread: SpreadOption = "1h",  # type: ignore[assignment]
    grace: GraceOption = "7d",  # type: ignore[assignment]
    minimum: MinimumOption = 100,
    relay: RelayOption = "",
    detect: DetectOption = None,
    power: PowerOption = 0.8,
    unit: UnitOption = None,
    estimand: ForOption = "histogram",
    anyway: AnywayOption = False,
) -> None:
    """Find the best release plan for a budget, and show it beside the plans that others would make."""
    console = recorder()
    if objective not in ("mean", "worst"):
        raise ValueError(f"the objective is mean or worst, got {objective!r}")
    calendar, handling = calendar_of(start, period, horizon), (skew, spread, grace, relay)
    rest: dict[str, Any] = {
        "epsilon": epsilon,
        "devices": devices,
        "closed": closed,
        "retrospective": retrospective,
        "objective": objective,
        "bridge": bridge,
        "minimum": minimum,
    }
    if questions is not None:
        check_only_file(answers, at_most, within, expected_changes, changes_per_year, pilot, unit)
        planned, listed = planned_questions(questions, calendar=calendar, **rest)
        say_questions(console, planned, listed, 1.0, (detect, power))
        write_report(console, report, "The plan of a survey")
        if output is not None:
            refuse_hopeless_questions(planned, anyway)
            write_survey(output, handled(planned.survey, Handling((), *handling)))
            console.print(f"wrote {escape(str(output))}; not signed yet")
        return
    if not answers:
        raise ValueError("say what is asked: --answers, or a file of --questions")
    if unit is not None and ".." in answers:
        answers = with_levels(answers, unit, estimand, calendar, (at_most, within), expected_changes, **rest)
    names = names_of(answers)
    asked = settled(
        console,
        answers,
        calendar,
        changes=(at_most, within),
        expected=(expected_changes, changes_spread, first_share),
        per_year=changes_per_year,
        pilot=pilot,
        **rest,
    )
    wish = asked.wish
    with planning_bar() as progress:
        comparison = compare_plans(wish, progress)
    chosen = comparison.choose(choose)
    survey = Handling(asked_of([question]), *handling, unit).applied(chosen.survey, names)
    print_comparison(console, comparison, delta, survey.relay)
    about = survey.questions[0]
    if estimand != "histogram":
        console.print(f"Error of {error_in_words(estimand, about, chosen.error(wish), devices)}.", highlight=False)
    say_detection(console, about, chosen.prediction, detect, power)
    say_freezing(console, wish, comparison.planned, asked.habits)
    _warn(console, comparison, chosen, survey, why_hopeless(chosen, asked.habits))
    if report is not None:
        console.picture(draw_comparison(comparison, chosen), "Errors of the plans over time, and the release graph")
    write_report(console, report, f"The plan of a survey: {question}")
    if plot is not None:
        save_plan_plot(comparison, chosen, plot)
        console.print(f"wrote {escape(str(plot))}")
    if output is not None:
        refuse_hopeless(chosen, asked.habits, anyway)
        write_survey(output, survey)
        console.print(f"wrote {escape(str(output))}, the plan {escape(chosen.title)}; not signed yet")


def _warn(console: Console, comparison: Comparison, chosen: Option, survey: Survey, hopeless: str) -> None:
    """Prints a warning if the chosen plan will show nothing, or nodes have too few reports to be published."""
    if hopeless:
        console.print(f"[yellow]warning:[/] {hopeless}", highlight=False)
        return
    least = chosen.least_reports(comparison.wish.devices)
    if least < survey.minimum:
        console.print(
            f"[yellow]warning:[/] some nodes will have about {least:,.0f} reports, and fewer than {survey.minimum} "
            "are not published: choose a smaller --minimum, or more devices",
            highlight=False,
        )
