"""`changeling histogram`, `series`, `change` and `status`: what a server shows, as tables, JSON or CSV."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from changeling_protocol import format_instant, parse_instant
from changeling_protocol.wire import CHANGE, COMPARISON, HISTOGRAM, NUMBERS, SERIES, WINDOWS, survey_path
from rich.table import Table

from .access import TokenFile, asking, console, shown_error, token_in

Answer = Mapping[str, Any]
Query = list[tuple[str, str]]
Method = Literal["online", "retrospective", "smoothed"]
Population = Literal["heard", "enrolled"]
_Question = Annotated[str | None, typer.Option(help="The name of one of the survey's questions, if there are several.")]
_Survey = Annotated[str, typer.Argument(help="The survey's id, or its file.")]
_Server = Annotated[str, typer.Option(help="The server's URL.")]
_Stratum = Annotated[list[str] | None, typer.Option(help="NAME:VALUE of a breakdown; once or more.")]
_Method = Annotated[Method, typer.Option(help="What closed by then; all; or all, smoothed, which is biased.")]
_Population = Annotated[
    Population,
    typer.Option(help="Whom figures are about: who was heard at the time, or all who ever enrolled, as if alike."),
]
_Confidence = Annotated[float, typer.Option(help="The level of the intervals, as 0.8, 0.95 or 0.99.")]
_AsJson = Annotated[bool, typer.Option("--json", help="As the server gives it.")]
_AsCsv = Annotated[bool, typer.Option("--csv", help="A row per time and answer.")]
_At = Annotated[str | None, typer.Option(help="At the last period's end until then: ISO 8601.")]


def histogram(
    survey: _Survey,
    server: _Server,
    at: _At = None,
    period: Annotated[int | None, typer.Option(help="At the end of this period.")] = None,
    method: _Method = "online",
    population: _Population = "heard",
    stratum: _Stratum = None,
    confidence: _Confidence = 0.95,
    question: _Question = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    token_file: TokenFile = None,
) -> None:
    """Print how many entries hold each answer, with their shares and intervals.

    By default at the last period of which anything is shown.
    """
    query = _query(question, method, stratum, confidence, *_moment("period", at, period))
    query.append(("population", population))
    _print(survey, server, HISTOGRAM, query, token_in(token_file), as_json=as_json, as_csv=as_csv)


def series(
    survey: _Survey,
    server: _Server,
    at: _At = None,
    until: Annotated[int | None, typer.Option(help="The last period.")] = None,
    method: _Method = "online",
    population: _Population = "heard",
    stratum: _Stratum = None,
    confidence: _Confidence = 0.95,
    question: _Question = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="Differences from this stratum, NAME:VALUE; once or more. The other arm is --stratum."),
    ] = None,
    since: Annotated[int | None, typer.Option(help="Differences of the changes since the end of this period.")] = None,
    mean: Annotated[bool, typer.Option("--mean", help="Of a number: its mean and median.")] = False,
    quantile: Annotated[list[float] | None, typer.Option(help="Of a number: this quantile; once or more.")] = None,
    above: Annotated[
        list[float] | None, typer.Option(help="Of a number: the share at or above this value; once or more.")
    ] = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    token_file: TokenFile = None,
) -> None:
    """Print how many entries hold each answer at the end of every period, or how the shares of two arms differ.

    With --compare or --since it prints differences of shares, in points, and the chance of so large ones by noise;
    with --mean, --quantile or --above the figures of a number.
    """
    query, path = _query(question, method, stratum, confidence, *_moment("until", at, until)), SERIES
    if mean or quantile or above:
        path = NUMBERS
        query += [("quantile", str(each)) for each in quantile or ()] + [("above", str(each)) for each in above or ()]
    elif compare or since is not None:
        path = COMPARISON
        query += [("against", each) for each in compare or ()] + [("after", str(since or 0))]
    else:
        query.append(("population", population))
    if path != SERIES and population == "enrolled":
        raise ValueError("these figures are of those heard: leave out --population")
    _print(survey, server, path, query, token_in(token_file), as_json=as_json, as_csv=as_csv)


def change(
    survey: _Survey,
    server: _Server,
    after: Annotated[int | None, typer.Option(help="The change since the end of this period; 0 is the start.")] = None,
    width: Annotated[int | None, typer.Option(help="The changes over all windows of so many periods.")] = None,
    until: Annotated[int | None, typer.Option(help="The end of the last window.")] = None,
    method: _Method = "online",
    population: _Population = "heard",
    stratum: _Stratum = None,
    confidence: _Confidence = 0.95,
    question: _Question = None,
    as_json: _AsJson = False,
    as_csv: _AsCsv = False,
    token_file: TokenFile = None,
) -> None:
    """Print by how many entries each answer changed: over one window (--after), or over all of a width (--width)."""
    if (after is None) == (width is None):
        raise ValueError("choose one of --after and --width")
    window = ("after", str(after)) if width is None else ("width", str(width))
    query = _query(question, method, stratum, confidence, *_moment("until", None, until), window)
    query.append(("population", population))
    path = CHANGE if width is None else WINDOWS
    _print(survey, server, path, query, token_in(token_file), as_json=as_json, as_csv=as_csv)


def status(survey: _Survey, server: _Server, as_json: _AsJson = False, token_file: TokenFile = None) -> None:
    """Print how far a survey is, and who answers; with an operator's token also what was refused."""
    with asking(server, token_in(token_file)) as client:
        answer = client.status(_id(survey))
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    for table in status_table(answer):
        console().print(table)


def _print(
    survey: str,
    server: str,
    path: str,
    query: Query,
    token: str | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    if as_json and as_csv:
        raise ValueError("choose one of --json and --csv")
    path = survey_path(_id(survey)) + path
    with asking(server, token) as client:
        if as_csv:
            typer.echo(client.request("GET", path, [*query, ("format", "csv")]).text, nl=False)
            return
        answer = client.json(path, query)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    console().print(_table(answer))
    for note in notes(answer):
        console().print(note)


def _table(answer: dict[str, Any]) -> Table:
    if "levels" in answer:
        return numbers_table(answer)
    if "differences" in next(iter(answer.get("series", ())), {}):
        return differences_table(answer)
    if "series" not in answer:
        return histogram_table(answer)
    windows = any("after" in each for each in answer["series"])
    return changes_table(answer) if windows else series_table(answer)


def _id(survey: str) -> str:
    from changeling_statistics import read_survey

    path = Path(survey)
    return read_survey(path).id.hex() if path.is_file() else survey


def _query(
    question: str | None, method: Method, stratum: list[str] | None, confidence: float, *more: tuple[str, str]
) -> Query:
    return [
        *([] if question is None else [("question", question)]),
        ("method", method),
        ("confidence", str(confidence)),
        *(("stratum", each) for each in stratum or ()),
        *more,
    ]


def _moment(name: str, at: str | None, period: int | None) -> Query:
    if at is not None and period is not None:
        raise ValueError(f"choose one of --at and --{name}")
    if period is not None:
        return [(name, str(period))]
    return [] if at is None else [("time", format_instant(parse_instant(at)))]


def _grid(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], footer: Sequence[str] = ()) -> Table:
    """A table of figures; a column of words is on the left of its cells."""
    table = Table(title=title, show_footer=bool(footer))
    for column, foot in zip_longest(columns, footer, fillvalue=""):
        table.add_column(column, foot, justify="left" if column in ("answer", "at", "reason") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def histogram_table(answer: Answer) -> Table:
    """One histogram, or one change, with shares of those whom it is about."""
    total, entries = sum(answer["values"]), answer["entries"]
    figures = zip(answer["answers"], answer["values"], answer["standard_errors"], answer["intervals"], strict=True)
    return _grid(
        f"{answer['question']}\n{_when(answer)}",
        ["answer", "estimate", "± standard error", "share", f"{answer['confidence']:.0%} interval"],
        (
            (name, f"{value:,.1f}", shown_error(error), _share(value, entries), _ends(ends))
            for name, value, error, ends in figures
        ),
        ["all answers", f"{total:,.1f}", "", _share(total, entries), ""],
    )


def series_table(answer: Answer) -> Table:
    """A series of histograms, a row each; a gap names the node that is missing."""
    rows = ((f"{at['period']}{_mark(at)}", at["time"], *_cells(answer, at)) for at in answer["series"])
    return _grid(answer["question"], ["period", "at", *answer["answers"], "total", "heard"], rows)


def changes_table(answer: Answer) -> Table:
    """Changes over windows, a row each."""
    rows = ((f"{at['after']} to {at['until']}{_mark(at)}", *_cells(answer, at)) for at in answer["series"])
    return _grid(f"{answer['question']}\nchanges", ["periods", *answer["answers"], "total", "heard"], rows)


def differences_table(answer: Answer) -> Table:
    """Differences of shares, a row for each period, with the chance of so large ones by noise."""
    since = f"of the changes since the end of period {answer['after']}, " if answer["after"] else ""
    title = f"{answer['question']}\ndifferences {since}in points"
    return _grid(title, ["period", *answer["answers"], "any answer"], map(_differences, answer["series"]))


def _differences(at: Answer) -> list[str]:
    if at["differences"] is None:
        return [str(at["period"]), _why(at)]
    cells = [
        f"{100 * value:+.2f} ({100 * low:.2f} to {100 * high:.2f}) p={_chance(chance)}"
        for value, (low, high), chance in zip(at["differences"], at["intervals"], at["p_values"], strict=True)
    ]
    return [f"{at['period']}{_mark(at)}", *cells, f"p={_chance(at['p_together'])}"]


def numbers_table(answer: Answer) -> Table:
    """A number's figures, a row for each period."""
    quantiles = ["median" if each == 0.5 else f"{each:.0%} are below" for each in answer["quantiles"]]
    columns = ["period", "mean", *quantiles, *(f"at or above {each:g}" for each in answer["above"])]
    title = f"{answer['question']}\nin {answer['unit'] or 'its own unit'}"
    return _grid(title, columns, (_numbers(answer, at) for at in answer["series"]))


def _numbers(answer: Answer, at: Answer) -> list[str]:
    figures = [at["mean"], *(at["quantiles"] or [None] * len(answer["quantiles"]))]
    cells = ["?" if each is None else f"{each['value']:,.4g} ({_ends(each['interval'])})" for each in figures]
    for each in at["above"] or [None] * len(answer["above"]):
        cells.append("?" if each is None else f"{each['value']:.1%} ({', '.join(map(_percent, each['interval']))})")
    return [f"{at['period']}{_mark(at)}", *cells]


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _chance(chance: float) -> str:
    return f"{chance:.3f}" if chance >= 0.001 else "<.001"


def status_table(answer: Answer) -> Iterator[Table]:
    """How far a survey is, who was heard at each closing, and, for operators, what was refused."""
    from changeling_statistics import enough  # which other commands need not load

    table = Table(title=f"{answer['question']}\nsurvey {answer['survey']}", show_header=False)
    for name, said in (
        ("an entry loses at most", f"epsilon {answer['epsilon']:g}"),
        ("periods closed", f"{answer['closed_periods']} of {answer['last_period']}"),
        ("shown, and for good", f"up to {answer['shown_periods']}, and up to {answer['final_periods']}"),
        ("shown before its grace is over", f"a closing whose nodes have {enough(answer['minimum']):,} reports each"),
        ("shown at all", f"nodes with {answer['minimum']:,} reports"),
        ("reports shown", f"{sum(node['reports'] for node in answer['nodes']):,} on {len(answer['nodes'])} nodes"),
    ):
        table.add_row(name, said)
    if answer["most_from_network"]:
        table.add_row("one network adds", f"{answer['most_from_network']:,} entries to a closing at most")
    if "unfolded_requests" in answer:
        table.add_row("waiting to be counted", f"{answer['unfolded_requests']:,} requests")
    yield table
    reports = Counter[int]()
    for node in answer["nodes"]:
        reports[node["end"]] += node["reports"]
    yield _grid(
        "Who was heard, at the latest closings",
        ["period", "heard", "of them new", "reports"],
        (
            (str(each["period"]), f"{each['heard']:,}", f"{each['new']:,}", f"{reports[each['period']]:,}")
            for each in answer["closings"][-20:]
        ),
    )
    if "refused" in answer:
        rows = ((reason, f"{count:,}") for reason, count in answer["refused"].items())
        yield _grid("Refused", ["reason", ""], rows, ["all", f"{sum(answer['refused'].values()):,}"])


def notes(answer: Answer) -> Iterator[str]:
    """Remarks on the figures above, a line each."""
    if "levels" in answer:
        low, high = answer["levels"][0], answer["levels"][-1]
        yield (
            f"Of those heard. Rounding to levels moves a number by at most {answer['rounding']:g} {answer['unit']}, on "
            f"average over the offsets; what lies beyond {low:g} and {high:g} counts as that."
        )
        yield from _frozen(answer, "a share at or above a value", high - low)
        return
    if "population" not in answer:
        yield (
            "Of the shares of those heard. p is the chance of so large a difference by noise alone: where nothing "
            "differs, one in twenty is below 0.05."
        )
        yield from _frozen(answer, "a difference")
        return
    last = next((at for at in reversed(answer.get("series", [answer])) if at["values"] is not None), None)
    if last is None:
        yield "Nothing can be estimated yet."
        return
    yield (
        f"About {_people(answer, last)}: {last['heard']:,} of {last['enrolled']:,} ({last['response_rate']:.0%}) "
        f"were heard; an entry loses at most epsilon {answer['epsilon']:g}."
    )
    if last["heard"] < last["enrolled"] and answer["population"] == "enrolled":
        yield "Counts are scaled up to all who ever enrolled, as if those who fell silent were like those heard."
    yield f"{last['false_entries']:,} false entries could move a share by one percentage point."
    if frozen := last.get("freezing"):
        share, bound = (_share(frozen[name], last["entries"]) for name in ("entries", "bound"))
        yield (
            f"Freezing: {share} of them have made a change that is not counted. Beyond its interval a share may be off "
            f"by so much, and by {bound} at most."
        )
    if any(at.get("upper_bound") for at in answer.get("series", [answer])):
        yield "Standard errors are upper bounds, as tallies do not tell all of them; intervals are not."
    if last["provisional"]:
        yield "* provisional: late reports may still change it."
    if answer["biased"]:
        yield "Smoothed: less noise, some bias; the intervals hold what slow drifts make of it, not a sudden jump."
    if answer["diagnostics"]["impossible"]:
        suspects = ", ".join(
            f"({each['start']}, {each['end']}] of track {each['track']}" for each in answer["diagnostics"]["suspects"]
        )
        yield f"These tallies cannot come from honest devices: {suspects}"


def _frozen(answer: Answer, off: str, span: float = 0.0) -> Iterator[str]:
    """How far freezing moves differences, or figures of a number, at most. off: what. span: of a number's levels."""
    if frozen := next((at["freezing"] for at in reversed(answer["series"]) if at.get("freezing")), None):
        shares, bound = " and ".join(map(_percent, frozen["shares"])), frozen["bound"]
        mean = f", and the mean by {span * bound:.4g} {answer['unit']}" if span else ""
        yield (
            f"Freezing: {shares} of them have made a change that is not counted. Beyond its interval {off} may be off "
            f"by {100 * bound:.1f} points at most{mean}."
        )


def _cells(answer: Answer, at: Answer) -> list[str]:
    if at["values"] is None:
        return [_why(at), *[""] * (len(answer["answers"]) - 1), "", ""]
    cells = [f"{value:,.1f} ({_ends(ends)})" for value, ends in zip(at["values"], at["intervals"], strict=True)]
    return [*cells, f"{sum(at['values']):,.1f}", f"{at['heard']:,} ({at['response_rate']:.0%})"]


def _why(at: Answer) -> str:
    missing = at["missing"]
    return f"needs ({missing['start']}, {missing['end']}]" if missing else "no node leads there"


def _when(answer: Answer) -> str:
    mark = _mark(answer)
    if "after" in answer:
        return f"change from the end of period {answer['after']} to that of {answer['until']}{mark}"
    return f"at {answer['time']}, the end of period {answer['period']}{mark}"


def _mark(at: Answer) -> str:
    return "*" if at.get("provisional") else ""


def _people(answer: Answer, at: Answer) -> str:
    of_heard = answer["population"] == "heard"
    return f"the {at['entries']:,} entries that " + ("were heard" if of_heard else "ever enrolled")


def _share(value: float, entries: int) -> str:
    return f"{value / entries:.1%}" if entries else "?"


def _ends(ends: Sequence[float | None]) -> str:
    low, high = ends
    return "?" if low is None or high is None else f"{low:,.1f} to {high:,.1f}"
