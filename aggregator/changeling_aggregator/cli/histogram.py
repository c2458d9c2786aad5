"""`changeling histogram`: what a server publishes, as a table, JSON or CSV."""

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_protocol.wire import survey_path
from changeling_protocol.wire.paths import HISTOGRAM, SERIES
from changeling_statistics.instants import format_instant, parse_instant
from changeling_statistics.survey_files import read_survey

from .remote import get_json
from .tables import console, estimate_table, series_table


def histogram(
    survey: Annotated[str, typer.Argument(help="The survey's id, or its file.")],
    server: Annotated[str, typer.Option(help="The server's URL.")],
    at: Annotated[str | None, typer.Option(help="At the last period's end until then: ISO 8601.")] = None,
    period: Annotated[int | None, typer.Option(help="At the end of this period.")] = None,
    series: Annotated[bool, typer.Option("--series", help="Every period until then.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As the server gives it, with the covariance.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A row per period and answer.")] = False,
) -> None:
    """Print how many entries hold each answer, with standard errors.

    By default at the last period that has closed and been answered.
    """
    if as_json and as_csv:
        raise ValueError("choose one of --json and --csv")
    path = survey_path(_id(survey)) + (SERIES if series else HISTOGRAM)
    answer = get_json(server, path, **_query(at, period, series))
    rows = answer["series"] if series else [answer]
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    elif as_csv:
        _write_csv(answer["answers"], rows)
    elif series:
        console().print(series_table(answer["question"], answer["answers"], rows))
    else:
        console().print(estimate_table(answer))


def _id(survey: str) -> str:
    path = Path(survey)
    return read_survey(path).id.hex() if path.is_file() else survey


def _query(at: str | None, period: int | None, series: bool) -> dict[str, str]:
    if at is not None and period is not None:
        raise ValueError("choose one of --at and --period")
    if period is not None:
        return {"until" if series else "period": str(period)}
    return {} if at is None else {"time": format_instant(parse_instant(at))}


def _write_csv(answers: list[str], rows: Iterable[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(["period", "time", "answer", "estimate", "standard_error"])
    for row in rows:
        for answer, value, error in zip(answers, row["values"], row["standard_errors"], strict=True):
            writer.writerow([row["period"], row["time"], answer, value, "" if error is None else error])
