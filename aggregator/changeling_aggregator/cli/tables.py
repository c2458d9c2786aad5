"""What a plan costs, as tables for people."""

import sys
from collections.abc import Sequence

from changeling_protocol import Group, Survey, Track, group_cost, rounded_up, track_cost
from changeling_statistics import format_duration, format_instant, total_cost
from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Standard output, at its full width where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 110)


def cost_table(survey: Survey) -> Table:
    """What each track can cost an entry, or each joint group, and the dearest group; odds are those of one report."""
    table = Table(title="What the plan can cost an entry", show_footer=True)
    table.add_column("track", footer="an entry, at most", justify="right")
    table.add_column("reports on", footer="")
    table.add_column("nodes", justify="right")
    table.add_column("width", justify="right")
    table.add_column("largest odds", justify="right")
    table.add_column("epsilon", justify="right", footer=f"{rounded_up(survey.cost):.4f}")
    for number, group in enumerate(survey.plan.groups):
        for track_number, track in survey.plan.numbered(number):
            losses = track.randomizer.losses
            table.add_row(
                str(track_number),
                "changes" if track.reports_changes else "states",
                str(track.count),
                format_duration(track.width * survey.calendar.period),
                f"{float(max(losses.mutations, losses.appears, losses.vanishes).exp()):.6g} : 1",
                _charge(survey, group, track),
            )
    return table


def total_table(surveys: Sequence[Survey]) -> Table:
    """What successive surveys cost a person who takes part in all of them, each and together, and per week."""
    total, weekly = total_cost(surveys)
    table = Table(title="What a person can lose in all, with one entry in each", show_footer=True)
    table.add_column("survey", footer="together, at most", no_wrap=True)
    table.add_column("from")
    table.add_column("to")
    table.add_column("epsilon", justify="right", footer=f"{total}")
    table.add_column("a week, on average", justify="right", footer=f"{weekly}")
    for survey in surveys:
        calendar = survey.calendar
        ends = format_instant(calendar.start), format_instant(calendar.time(calendar.periods))
        table.add_row(survey.id.hex(), *ends, f"{survey.epsilon}", f"{survey.per_week}")
    return table


def _charge(survey: Survey, group: Group, track: Track) -> str:
    """What a track costs; of a joint group, which costs its odds whole, it stands at the first track."""
    circumstances = survey.calendar, survey.constraint, survey.closed
    if group.joint is None:
        return f"{rounded_up(track_cost(track, *circumstances)):.4f}"
    return f"{rounded_up(group_cost(group, *circumstances)):.4f} jointly" if track is group.tracks[0] else ""


def shown_error(error: float | None, digits: int = 1) -> str:
    """A standard error; a question mark where its variance came out below zero."""
    return "?" if error is None else f"{error:,.{digits}f}"
