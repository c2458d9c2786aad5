"""Words that only a simulation's command line has, as values: rates and spans of periods."""

import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from changeling_protocol import Node

from .report import RecordingConsole

TABLE_WIDTH = 110
"""How wide tables are, in characters, if there is no terminal to fit them into."""
ReportOption: TypeAlias = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write all this as one HTML file, with its pictures.")
]


def recorder() -> RecordingConsole:
    """The console that a command prints its tables on."""
    return RecordingConsole(width=None if sys.stdout.isatty() else TABLE_WIDTH)


def write_report(console: RecordingConsole, path: Path | None, title: str) -> None:
    """Writes what was printed as a report, if one is wanted."""
    if path is not None:
        console.write(path, title)
        console.print(f"wrote {path}", markup=False, highlight=False)


def rate(text: str) -> float:
    """A rate from 0 to 1, which may be written in percent, as 5%."""
    try:
        value = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except InvalidOperation:
        raise typer.BadParameter(f"a rate is a number such as 0.05, or 5%, got {text!r}") from None
    if not (value.is_finite() and 0 <= value <= 1):
        raise typer.BadParameter(f"a rate is from 0 to 1, got {text}")
    return float(value)


def span(text: str) -> Node:
    """A period, such as 5, or periods in a row, such as 5-7: the span (4, 7]."""
    first, _, last = text.partition("-")
    try:
        return Node(int(first) - 1, int(last or first))
    except ValueError:
        raise typer.BadParameter(f"periods are like 5 or 5-7, counted from 1, got {text!r}") from None
