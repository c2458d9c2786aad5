"""`changeling-sim compare`: the best plan beside the methods of others, at one epsilon for an entry's whole life."""

import json
from decimal import Decimal
from typing import Annotated

import typer
from changeling_commands.wishes import (
    ANSWERS,
    AT_MOST,
    DEVICES,
    EPSILON,
    EXPECTED,
    HORIZON,
    PERIOD,
    RETROSPECTIVE,
    calendar_of,
    names_of,
    planning_bar,
    wish_of,
)

from .comparison import compare_methods
from .options import ReportOption, recorder, write_report

NOTE = (
    "Promised: what a method says that an entry loses in all. Really: what one change halfway can cost, in nats. "
    "Exposed: of those who change halfway, how many send what is more telling than the promise allows. Methods below "
    "the line count a loss for each value that is held, and not for when it changes."
)


def compare(
    answers: Annotated[str, ANSWERS],
    horizon: Annotated[int, HORIZON],
    period: Annotated[int, PERIOD],
    epsilon: Annotated[Decimal, EPSILON],
    devices: Annotated[int, DEVICES],
    at_most: Annotated[int | None, AT_MOST] = None,
    expected_changes: Annotated[float | None, EXPECTED] = None,
    retrospective: Annotated[bool, RETROSPECTIVE] = False,
    report: ReportOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Set the best plan beside the methods of others, at one epsilon: how wrong, what is promised, what is exposed.

    Everybody has an answer from the first period to the last.
    """
    console = recorder()
    calendar = calendar_of(None, period, horizon)
    wish = wish_of(
        len(names_of(answers)),
        calendar,
        changes=(at_most or calendar.periods, None),
        expected=expected_changes,
        epsilon=epsilon,
        devices=devices,
        closed=True,
        retrospective=retrospective,
        minimum=1,
    )
    with planning_bar() as progress:
        found = compare_methods(wish, progress)
    if as_json:
        print(json.dumps([method.as_fields() for method in found.methods], indent=1))
        return
    console.print(found.table())
    console.print(NOTE, style="dim", highlight=False)
    write_report(console, report, "Methods at one epsilon, side by side")
