"""`changeling histogram`, `series`, `change` and `status`: what a server shows, as tables, JSON or CSV."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from changeling_protocol.wire import CHANGE, HISTOGRAM, SERIES, STATUS, WINDOWS, survey_path
from changeling_statistics import format_instant, parse_instant, read_survey
from rich.table import Table

from .remote import TokenFile, get_csv, get_json, token_in
from .result_tables import changes_table, histogram_table, notes, series_table, status_table
from .tables import console


class Method(StrEnum):
    """Which nodes estimates use."""

    ONLINE = "online"
    RETROSPECTIVE = "retrospective"
    SMOOTHED = "smoothed"


_Survey = Annotated[str, typer.Argument(help="The survey's id, or its file.")]
_Server = Annotated[str, typer.Option(help="The server's URL.")]
_Stratum = Annotated[list[str] | None, typer.Option(help="NAME:VALUE of a breakdown; once or more.")]
_Method = Annotated[Method, typer.Option(help="What closed by then; all; or all, smoothed, which is biased.")]
_Confidence = Annotated[float, typer.Option(help="The level of the intervals.")]
_AsJson = Annotated[bool, typer.Option("--json", help="As the server gives it.")]
_AsCsv = Annotated[bool, typer.Option("--csv", help="A row per time and answer.")]
_At = Annotated[str | None, typer.Option(help="At the last period's end until then: ISO 8601.")]


def histogram(
    survey: _Survey,
    server: _Server,
    at: _At = None,
    period: Annotated[int | None, typer.Option(help="At the end of this period.")] = None,
    method: _Method = Method.ONLINE,
    stratum: _Stratum = None,
    confidence: _Confidence = 0.95,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    token_file: TokenFile = None,
) -> None:
    """Print how many entries hold each answer, with their shares and intervals.

    By default at the last period of which anything is shown.
    """
    query = _query(method, stratum, confidence) | _moment("period", at, period)
    _print(survey, server, HISTOGRAM, query, token_in(token_file), as_json=as_json, as_csv=as_csv)


def series(
    survey: _Survey,
    server: _Server,
    at: _At = None,
    until: Annotated[int | None, typer.Option(help="The last period.")] = None,
    method: _Method = Method.ONLINE,
    stratum: _Stratum = None,
    confidence: _Confidence = 0.95,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    token_file: TokenFile = None,
) -> None:
    """Print how many entries hold each answer at the end of every period."""
    query = _query(method, stratum, confidence) | _moment("until", at, until)
    _print(survey, server, SERIES, query, token_in(token_file), as_json=as_json, as_csv=as_csv)


def change(
    survey: _Survey,
    server: _Server,
    after: Annotated[int | None, typer.Option(help="The change since the end of this period; 0 is the start.")] = None,
    width: Annotated[int | None, typer.Option(help="The changes over all windows of so many periods.")] = None,
    until: Annotated[int | None, typer.Option(help="The end of the last window.")] = None,
    method: _Method = Method.ONLINE,
    stratum: _Stratum = None,
    confidence: _Confidence = 0.95,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    token_file: TokenFile = None,
) -> None:
    """Print by how many entries each answer changed: over one window (--after), or over all of a width (--width)."""
    if (after is None) == (width is None):
        raise ValueError("choose one of --after and --width")
    query = _query(method, stratum, confidence) | _moment("until", None, until)
    query |= {"after": str(after)} if width is None else {"width": str(width)}
    path = CHANGE if width is None else WINDOWS
    _print(survey, server, path, query, token_in(token_file), as_json=as_json, as_csv=as_csv)


def status(survey: _Survey, server: _Server, as_json: _AsJson = False, token_file: TokenFile = None) -> None:
    """Print how far a survey is, and who answers; with an operator's token also what was refused."""
    answer = get_json(server, survey_path(_id(survey)) + STATUS, token=token_in(token_file))
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    for table in status_table(answer):
        console().print(table)


def _print(
    survey: str,
    server: str,
    path: str,
    query: dict[str, str | list[str]],
    token: str | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    if as_json and as_csv:
        raise ValueError("choose one of --json and --csv")
    path = survey_path(_id(survey)) + path
    if as_csv:
        typer.echo(get_csv(server, path, query, token), nl=False)
        return
    answer = get_json(server, path, query, token)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    console().print(_table(answer))
    for note in notes(answer):
        console().print(note)


def _table(answer: dict[str, Any]) -> Table:
    if "series" not in answer:
        return histogram_table(answer)
    windows = any("after" in each for each in answer["series"])
    return changes_table(answer) if windows else series_table(answer)


def _id(survey: str) -> str:
    path = Path(survey)
    return read_survey(path).id.hex() if path.is_file() else survey


def _query(method: Method, stratum: list[str] | None, confidence: float) -> dict[str, str | list[str]]:
    query: dict[str, str | list[str]] = {"method": method.value, "confidence": str(confidence)}
    return query | ({"stratum": stratum} if stratum else {})


def _moment(name: str, at: str | None, period: int | None) -> dict[str, str | list[str]]:
    if at is not None and period is not None:
        raise ValueError(f"choose one of --at and --{name}")
    if period is not None:
        return {name: str(period)}
    return {} if at is None else {"time": format_instant(parse_instant(at))}
