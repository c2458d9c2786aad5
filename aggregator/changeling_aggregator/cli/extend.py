"""`changeling survey extend`: a survey that goes on from another, and what a person's surveys come to in all."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import Survey
from changeling_statistics import (
    check_successor,
    next_calendar,
    offsets,
    parse_count,
    parse_epsilon,
    read_survey,
    write_survey,
)

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
        str | None, typer.Option(help="Plan anew, as `survey new` does, so that an entry loses at most so much.")
    ] = None,
    devices: Annotated[str | None, typer.Option(help="With --epsilon: how many are expected to answer.")] = None,
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
    if (epsilon is None) != (devices is None):
        raise ValueError("--epsilon and --devices go together")
    if plan is not None:
        survey = _with_plan(last, read_survey(plan), periods)
    elif epsilon is not None and devices is not None:
        length = last.calendar.periods if periods is None else periods
        survey = _planned_anew(last, length, epsilon, devices)
    elif periods not in (None, last.calendar.periods):
        raise ValueError(
            f"the plan is made for {last.calendar.periods} periods: for {periods} give --plan, "
            "or --epsilon and --devices"
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


def _planned_anew(last: Survey, periods: int, epsilon: str, devices: str) -> Survey:
    """The successor with the best plan for a budget and so many devices, who change as often as before."""
    from changeling_statistics import Wish, optimal_plan

    wish = Wish(
        answers=len(last.answers),
        calendar=next_calendar(last, periods),
        constraint=last.constraint,
        epsilon=parse_epsilon(epsilon),
        devices=parse_count(devices),
        closed=last.closed,
        expected=last.expected,
        minimum=last.minimum,
    )
    return _with_plan(last, wish.survey(optimal_plan(wish).plan), None)
