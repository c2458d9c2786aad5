"""What a server shows, as tables for people: counts, shares, intervals and totals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from .tables import shown_error

Answer = Mapping[str, Any]


def histogram_table(answer: Answer) -> Table:
    """One histogram, or one change, with shares of those who are enrolled."""
    table = Table(title=f"{answer['question']}\n{_when(answer)}", show_footer=True)
    total, enrolled = sum(answer["values"]), answer["enrolled"]
    level = f"{answer['confidence']:.0%} interval"
    table.add_column("answer", footer="all answers")
    table.add_column("estimate", justify="right", footer=f"{total:,.1f}")
    table.add_column("± standard error", justify="right")
    table.add_column("share", justify="right", footer=_share(total, enrolled))
    table.add_column(level, justify="right")
    for name, value, error, ends in zip(
        answer["answers"], answer["values"], answer["standard_errors"], answer["intervals"], strict=True
    ):
        table.add_row(name, f"{value:,.1f}", shown_error(error), _share(value, enrolled), _ends(ends))
    return table


def series_table(answer: Answer) -> Table:
    """A series of histograms, a row each; a gap names the node that is missing."""
    table = Table(title=answer["question"])
    table.add_column("period", justify="right")
    table.add_column("at")
    for name in answer["answers"]:
        table.add_column(name, justify="right")
    table.add_column("total", justify="right")
    table.add_column("heard", justify="right")
    for at in answer["series"]:
        table.add_row(f"{at['period']}{_mark(at)}", at["time"], *_cells(answer, at))
    return table


def changes_table(answer: Answer) -> Table:
    """Changes over windows, a row each."""
    table = Table(title=f"{answer['question']}\nchanges")
    table.add_column("periods", justify="right")
    for name in answer["answers"]:
        table.add_column(name, justify="right")
    table.add_column("total", justify="right")
    table.add_column("heard", justify="right")
    for at in answer["series"]:
        table.add_row(f"{at['after']} to {at['until']}{_mark(at)}", *_cells(answer, at))
    return table


def status_table(answer: Answer) -> Iterator[Table]:
    """How far a survey is, who was heard at each closing, and, for operators, what was refused."""
    table = Table(title=f"{answer['question']}\nsurvey {answer['survey']}", show_header=False)
    for name, said in (
        ("an entry loses at most", f"epsilon {answer['epsilon']:g}"),
        ("periods closed", f"{answer['closed_periods']} of {answer['last_period']}"),
        ("shown, and for good", f"up to {answer['shown_periods']}, and up to {answer['final_periods']}"),
        ("shown at once", f"{answer['minimum']} reports at least"),
        ("reports shown", f"{sum(node['reports'] for node in answer['nodes']):,} on {len(answer['nodes'])} nodes"),
    ):
        table.add_row(name, said)
    if "unfolded_requests" in answer:
        table.add_row("waiting to be counted", f"{answer['unfolded_requests']:,} requests")
    yield table
    closings = Table(title="Who was heard, at the latest closings")
    for column in ("period", "heard", "of them new", "reports"):
        closings.add_column(column, justify="right")
    for closing in answer["closings"][-20:]:
        reports = sum(node["reports"] for node in answer["nodes"] if node["end"] == closing["period"])
        closings.add_row(str(closing["period"]), f"{closing['heard']:,}", f"{closing['new']:,}", f"{reports:,}")
    yield closings
    if "refused" in answer:
        refused = Table(title="Refused", show_footer=True)
        refused.add_column("reason", footer="all")
        refused.add_column("", justify="right", footer=f"{sum(answer['refused'].values()):,}")
        for reason, count in answer["refused"].items():
            refused.add_row(reason, f"{count:,}")
        yield refused


def notes(answer: Answer) -> Iterator[str]:
    """What to know of the figures above, a line each."""
    last = next((at for at in reversed(answer.get("series", [answer])) if at["values"] is not None), None)
    if last is None:
        yield "Nothing can be estimated yet."
        return
    yield (
        f"About {last['enrolled']:,} entries, of which {last['heard']:,} ({last['response_rate']:.0%}) were heard; "
        f"an entry loses at most epsilon {answer['epsilon']:g}."
    )
    yield f"{last['false_entries']:,} false entries could move a share by one percentage point."
    if last["provisional"]:
        yield "* provisional: late reports may still change it."
    if answer["biased"]:
        yield "Smoothed: less noise, some bias, of which the intervals say nothing."
    if answer["diagnostics"]["impossible"]:
        suspects = ", ".join(
            f"({each['start']}, {each['end']}] of track {each['track']}" for each in answer["diagnostics"]["suspects"]
        )
        yield f"[bold red]These tallies cannot come from honest devices:[/] {suspects}"


def _cells(answer: Answer, at: Answer) -> list[str]:
    if at["values"] is None:
        missing = at["missing"]
        why = f"needs ({missing['start']}, {missing['end']}]" if missing else "no node leads there"
        return [why, *[""] * (len(answer["answers"]) - 1), "", ""]
    cells = [
        f"{value:,.1f} ± {shown_error(error)}" for value, error in zip(at["values"], at["standard_errors"], strict=True)
    ]
    return [*cells, f"{sum(at['values']):,.1f}", f"{at['heard']:,} ({at['response_rate']:.0%})"]


def _when(answer: Answer) -> str:
    mark = _mark(answer)
    if "after" in answer:
        return f"change from the end of period {answer['after']} to that of {answer['until']}{mark}"
    return f"at {answer['time']}, the end of period {answer['period']}{mark}"


def _mark(at: Answer) -> str:
    return "*" if at.get("provisional") else ""


def _share(value: float, enrolled: int) -> str:
    return f"{value / enrolled:.1%}" if enrolled else "?"


def _ends(ends: Sequence[float | None]) -> str:
    low, high = ends
    return "?" if low is None or high is None else f"{low:,.1f} to {high:,.1f}"
