"""`changeling survey extend`: a survey that goes on from another, and what a person's surveys come to in all."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import Survey
from changeling_statistics.epsilons import parse_epsilon
from changeling_statistics.succession import check_successor, next_calendar, offsets
from changeling_statistics.survey_files import read_survey, write_survey

from .tables import console, cost_table, total_table


def extend(
    files: Annotated[
        list[Path], typer.Argument(help="The surveys so far, signed or not, in order; it goes on from the last.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    periods: Annotated[int | None, typer.Option(help="How many periods there are; as many as before.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A survey that `changeling-sim plan` wrote: its plan, length and constraint are taken."),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Make the paper's plan anew, as `survey new` does, that loses at most so much.")
    ] = None,
    branching: Annotated[int, typer.Option(help="With --epsilon: how many nodes make one of the next layer.")] = 2,
    layers: Annotated[int, typer.Option(help="With --epsilon: layers of the hierarchy.")] = 1,
) -> None:
    """Write the successor of a survey, with a budget of its own, and print what all of them cost a person.

    Question, answers, breakdowns and all else are those of the survey before, and so is the plan unless another is
    asked for. Nothing is signed yet.
    """
    before = [read_survey(file) for file in files]
    offsets(before)
    last = before[-1]
    if plan is not None and epsilon is not None:
        raise ValueError("choose one of --plan and --epsilon")
    if plan is not None:
        survey = _with_plan(last, read_survey(plan), periods)
    elif epsilon is not None:
        length = last.calendar.periods if periods is None else periods
        survey = _with_paper_plan(last, length, epsilon, branching, layers)
    elif periods not in (None, last.calendar.periods):
        raise ValueError(
            f"the plan is made for {last.calendar.periods} periods: for {periods} give --plan, or --epsilon"
        )
    else:
        survey = replace(last, calendar=next_calendar(last, last.calendar.periods), follows=last.id)
    check_successor(last, survey)
    write_survey(output, survey)
    console().print(cost_table(survey))
    console().print(total_table([*before, survey]))
    typer.echo(f"wrote {output}, which follows survey {last.id.hex()}; not signed yet")


def _with_plan(last: Survey, planned: Survey, periods: int | None) -> Survey:
    """The successor that takes from `planned` what the planner decides, and its cost."""
    if planned.calendar.period != last.calendar.period:
        raise ValueError(
            f"the plan is made for periods of {planned.calendar.period} s, the survey has {last.calendar.period} s"
        )
    if periods not in (None, planned.calendar.periods):
        raise ValueError(f"the plan is made for {planned.calendar.periods} periods, got {periods}")
    return replace(
        last,
        calendar=next_calendar(last, planned.calendar.periods),
        constraint=planned.constraint,
        plan=planned.plan,
        epsilon_micro=planned.epsilon_micro,
        closed=planned.closed,
        expected=planned.expected,
        follows=last.id,
    )


def _with_paper_plan(last: Survey, periods: int, epsilon: str, branching: int, layers: int) -> Survey:
    from changeling_protocol.millionths import micro
    from changeling_statistics.planning.paper import hierarchical_plan

    if last.closed:
        raise ValueError("the paper's plan is made for open cohorts: give --plan")
    calendar, budget = next_calendar(last, periods), parse_epsilon(epsilon)
    plan = hierarchical_plan(
        len(last.answers), calendar, last.constraint, epsilon=budget, branching=branching, layers=layers
    )
    return replace(last, calendar=calendar, plan=plan, epsilon_micro=micro(budget), follows=last.id)
