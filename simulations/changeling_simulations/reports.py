"""What commands print of experiments, plans and sweeps, and the HTML file that keeps it for those who decide.

A `RecordingConsole` is a console that keeps what is printed on it. Its tables become tables, its lines paragraphs;
pictures are set between them as SVG. The file asks no address for anything, is read in light and dark, and prints.
"""

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from changeling_protocol import History, HistoryKernel, Joint, Track, format_duration
from changeling_statistics import (
    PRICE,
    Comparison,
    Option,
    Planned,
    Prediction,
    Wish,
    gap_after_loss,
    loss_statement,
    outage,
)
from rich.console import Console
from rich.table import Table

from .experiment import Experiment, Trials, epsilon_text
from .sweep import Row, varied

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMISE = (
    "How to read it: each device answers at random, with odds that are fixed beforehand. Epsilon bounds what all "
    "that one device ever sends in this survey can tell about its whole history of answers: nothing that is sent is "
    "more than e to the power of epsilon times likelier for one history than for any other. At epsilon 1 that is 2.7 "
    "times, at 4 it is 55 times, at 8 it is 2,981 times. It holds against the server itself, whatever it knows besides."
)
STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
.scrolled { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #8886 }
td { vertical-align: top; white-space: pre-line }
.number { text-align: right }
figure { margin: 1.5rem 0; background: #fff; padding: .5rem; border-radius: .3rem }
figure svg { max-width: 100%; height: auto; display: block }
@media print {
  body { margin: 0; max-width: none }
  .scrolled { overflow: visible }
  table, figure { break-inside: avoid }
}
"""


class RecordingConsole(Console):
    """A console that keeps the tables and lines that are printed on it.

    Nothing in brackets or between colons is markup: answers, and names of files, are shown as they are.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, markup=False, emoji=False)
        self._parts: list[str] = []

    def print(self, *objects: Any, **settings: Any) -> None:
        """Prints as a console does, and keeps tables and lines."""
        super().print(*objects, **settings)
        self._parts += [_table(each) if isinstance(each, Table) else f"<p>{_plain(each)}</p>" for each in objects]

    def picture(self, figure: "Figure", said: str) -> None:
        """Keeps a picture, which is not printed. said: what it shows, for those who do not see it."""
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        svg = drawn.getvalue()
        svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{html.escape(said)}"', 1)
        self._parts.append(f"<figure>{svg}</figure>")

    @property
    def html(self) -> str:
        """The HTML of what was kept so far, without a head."""
        return "\n".join(self._parts)

    def write(self, path: Path, title: str) -> None:
        """Writes what was kept as one HTML file, under a title. Raises OSError if it cannot be written."""
        path.write_text(
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{STYLE}</style></head>\n<body><main>\n<h1>{html.escape(title)}</h1>\n<p>{PROMISE}</p>\n"
            + self.html
            + "\n</main></body></html>\n",
            encoding="utf-8",
        )


def silent() -> RecordingConsole:
    """A recorder that keeps and shows nothing, for what a notebook or a file will show."""
    return RecordingConsole(file=io.StringIO())


def _plain(shown: object) -> str:
    return html.escape(str(shown))


def _table(table: Table) -> str:
    classes = [' class="number"' if column.justify == "right" else "" for column in table.columns]
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    rows = [
        "".join(f"<td{c}>{cell}</td>" for c, cell in zip(classes, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    heads = [_plain(column.header) for column in table.columns]
    head = (
        "".join(f"<th scope=col{c}>{name}</th>" for c, name in zip(classes, heads, strict=True)) if any(heads) else ""
    )
    caption = f"<caption>{_plain(table.title)}</caption>" if table.title else ""
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    note = f"<p>{_plain(table.caption)}</p>" if table.caption else ""
    whole = f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return f'<div class="scrolled" tabindex="0">{whole}</div>{note}'


LAST_PERIODS = 3


def print_report(console: Console, experiment: Experiment) -> None:
    """Prints the last periods of an experiment as a table, and all of it in a few lines."""
    console.print(_histograms(experiment))
    console.print(_summary(experiment))


def print_freezing(console: Console, experiment: Experiment) -> None:
    """Prints what a freezing question bounds. experiment: of that question, whose second answer is yes."""
    ends, shares = experiment.share_intervals[:, 1, 1], experiment.estimated_shares[:, 1]
    if len(known := np.flatnonzero(~np.isnan(ends))):
        last = known[-1]
        console.print(
            f"The freezing question: by the end of period {last + 1}, {shares[last]:.1%} of the entries have made a "
            f"change that is not counted; beyond its interval a share is off by {100 * ends[last]:.3g} points at most.",
            highlight=False,
        )


def print_paper(console: Console, experiment: Experiment, papers: Prediction, layers: int) -> None:
    """Prints the error that the paper's plan would have for the same epsilon, beside an experiment's own.

    papers: exact for the experiment's population, with everybody heard. layers: of the paper's hierarchy.
    """
    plan = "flat release" if layers == 1 else f"hierarchy of {layers} layers"
    line = f"The paper's {plan}, at the same epsilon: a noise of {_points(papers.mean)}"
    if experiment.rms_noise > 0:
        line += f", {(papers.mean / experiment.rms_noise) ** 2:,.3g} times the entries for the same"
    console.print(f"{line}.", highlight=False)


def print_trials(console: Console, trials: Mapping[str, Trials], surveys: int) -> None:
    """Prints what goes wrong in the field, and what that does, a row for each of the trials.

    trials: by what goes wrong. surveys: how many there were of each.
    """
    table = Table(title=f"What the field does, over {surveys} surveys each", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in ("heard", "rms error", "bias", "by chance", "95% holds", "gaps"):
        table.add_column(column, justify="right")
    for name, tried in trials.items():
        points = (f"{100 * figure:,.3g}" for figure in (tried.rms_error, tried.bias, tried.bias_by_chance))
        shares = (f"{100 * share:.1f}%" for share in (tried.coverage, tried.gaps))
        table.add_row(name, f"{100 * tried.heard.mean():.1f}%", *points, *shares)
    console.print(table)
    console.print(
        "In points, against what the devices report on. Bias is what the mean error is, by chance what it would be "
        "about if there was no bias."
    )


def _histograms(experiment: Experiment) -> Table:
    table = Table(title=f"Percent of {experiment.entries:,} entries", title_justify="left")
    table.add_column("period ends", no_wrap=True)
    table.add_column("answer")
    for column in ("truth", "frozen", "estimate", "95% interval"):
        table.add_column(column, justify="right")
    times = experiment.times()
    columns = (experiment.true_shares, experiment.frozen_shares, experiment.estimated_shares)
    ends = experiment.share_intervals
    for i in range(max(0, len(times) - LAST_PERIODS), len(times)):
        for a, answer in enumerate(experiment.survey.answers):
            table.add_row(
                f"{times[i]:%Y-%m-%d %H:%M}".removesuffix(" 00:00") if a == 0 else "",
                answer,
                *(_percent(shares[i, a]) for shares in columns),
                " to ".join(_percent(end) for end in ends[i, a]),
                end_section=a == len(experiment.survey.answers) - 1,
            )
    return table


def _summary(experiment: Experiment) -> Table:
    survey = experiment.survey
    calendar = survey.calendar
    lines = [
        ("survey", f"{calendar.periods} periods of {format_duration(calendar.period)}"),
        ("reports", _reports(experiment)),
        ("epsilon", f"at most {epsilon_text(survey.cost)} an entry, for all its reports together"),
    ]
    if experiment.gaps:
        lines.append(("gaps", f"{experiment.gaps} of the periods are not estimable"))
    if experiment.gaps < calendar.periods:
        lines += _errors(experiment)
    table = Table.grid(padding=(0, 2))
    for line in lines:
        table.add_row(*line)
    return table


def _errors(experiment: Experiment) -> list[tuple[str, str]]:
    devices = experiment.devices_for()
    return [
        ("rms error", f"{_points(experiment.rms_error)}, over all periods and answers"),
        ("  noise", f"{_points(experiment.rms_noise)}, falls with more entries"),
        ("  freezing", _freezing(experiment)),
        *_of_number(experiment),
        ("entries needed", "for a standard error of one point, if all are heard, as the planner predicts it:"),
        ("", f"{np.nanmean(devices):,.0f} on average over the periods, {np.nanmax(devices):,.0f} in the worst"),
    ]


def _of_number(experiment: Experiment) -> list[tuple[str, str]]:
    """The mean at the end, and how far it is off over all periods; nothing where the answers are names."""
    question = experiment.survey.only
    if not question.is_number:
        return []
    shares, levels = (experiment.true_shares, experiment.estimated_shares), np.array(question.values)
    true, estimated = (each @ levels / each.sum(axis=1) for each in shares)
    known = np.flatnonzero(~np.isnan(estimated))
    last, error = known[-1], float(np.sqrt(np.mean((estimated - true)[known] ** 2)))
    said = f"{estimated[last]:,.4g}, in truth {true[last]:,.4g}, at the end of period {last + 1}"
    return [("mean", f"{said}; rms error {error:,.3g} over all periods, in {question.unit or 'what is asked'}")]


def _reports(experiment: Experiment) -> str:
    """How many reports an entry sends, and how long the nodes are that they are about."""
    survey = experiment.survey
    widths = sorted({track.width * survey.calendar.period for track in survey.plan.tracks})
    reports = f"{experiment.reports_an_entry:,.1f}".removesuffix(".0")
    return f"{reports} an entry, on nodes of {', '.join(format_duration(width) for width in widths)}"


def _freezing(experiment: Experiment) -> str:
    if experiment.rms_freezing == 0:
        return "none: no entry mutates more often than the survey allows"
    worst = _points(experiment.worst_freezing)
    return f"{_points(experiment.rms_freezing)}, at worst {worst}: entries that mutate more than the survey allows"


def _percent(share: float) -> str:
    """A share in percent; a dash for what is not known."""
    return "-" if np.isnan(share) else f"{100 * share:.2f}"


def _points(fraction: float) -> str:
    """A fraction in percentage points."""
    return f"{100 * fraction:,.3g} points"


CONDITION = (
    "shuffled: if an honest relay shuffles the envelopes of all devices at every closing, the same devices every time; "
    "breakdowns would part them"
)
GAP = "gap: for how many periods estimates are missing at worst, if the server is down as one closes"
MOST_GROUPS = 12


def print_comparison(console: Console, comparison: Comparison, delta: float, relay: str) -> None:
    """Prints plans side by side: how accurate, how costly, a verdict, and the groups of the optimal plan.

    delta: of the (epsilon, delta) figures.
    relay: the URL of the relay that the survey declares; empty if none, and then no shuffled figure is shown.
    """
    console.print(_accuracy(comparison))
    console.print(_costs(comparison, delta, relay))
    console.print(comparison.verdict, highlight=False)
    wish, planned = comparison.wish, comparison.planned
    console.print(
        f"{planned.considered} candidate groups; with other shares of these same groups, or other weights of the "
        f"reports, the {wish.objective} variance could fall by {100 * planned.gap:.1f}% at most",
        style="dim",
        highlight=False,
    )
    console.print(planned.distance.words, highlight=False)
    console.print(bridge_in_words(wish, planned), highlight=False)
    console.print(_groups(planned.option))


def bridge_in_words(wish: Wish, planned: Planned) -> str:
    """Says whether the optimal plan bridges a lost period, at what price, and how good estimates are after one."""
    lost = outage(wish, planned.option)
    words = []
    if planned.floor:
        error = planned.option.error(wish)
        words.append(
            f"{100 * planned.floor:.1f}% of the devices are there to bridge a lost period: the {wish.objective} error "
            f"is {_in_points(error)} points, {_points(planned.without)} without them "
            f"(+{100 * (error / planned.without - 1):.1f}%)."
        )
    if not lost.bridged:
        if wish.bridge:
            words.append(f"Nothing bridges every lost period for {100 * PRICE:.0f}% of the error.")
        words.append(f"If the server is down as a period closes, estimates may be missing for {lost.gap} periods.")
        return " ".join(words)
    if not planned.floor:
        words.append("The plan bridges a lost period by itself.")
    words.append(
        f"If the server is down as period {lost.lost} closes, estimates are back by period {lost.back}, with an error "
        f"of {_in_points(lost.error)} points at most."
    )
    return " ".join(words)


def _beside(title: str, what: str, figures: Sequence[str], caption: str | None = None) -> Table:
    """A table without rows, of what stands in the first column, and its figures."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column(what)
    for column in figures:
        table.add_column(column, justify="right")
    return table


def _accuracy(comparison: Comparison) -> Table:
    wish = comparison.wish
    when = "from everything, when all is over" if wish.retrospective else "when each period closes"
    title = f"Standard error of a fraction in points, {wish.devices:,} devices, {when}"
    figures_of = ("mean", "worst", "first", "middle", "last", "devices for ±1 point", "gap")
    table, periods = _beside(title, "plan", figures_of, GAP), wish.periods
    for option in comparison.options.values():
        prediction = option.prediction
        at = [prediction.at(period) for period in (1, (periods + 1) // 2, periods)]
        figures = [_in_points(error) for error in (prediction.mean, prediction.worst, *at)]
        best = option is comparison.planned.option
        table.add_row(
            option.title,
            *figures,
            _many(prediction.devices_for(objective=wish.objective)),
            str(gap_after_loss(wish, option)),
            style="bold" if best else None,
        )
    return table


def _costs(comparison: Comparison, delta: float, relay: str) -> Table:
    wish = comparison.wish
    title = f"What it costs a device over {format_duration(wish.periods * wish.calendar.period)}"
    figures_of = ("epsilon", f"at delta {delta:g}", *(["shuffled"] if relay else []), "reports", "kB sent")
    table = _beside(title, "plan", figures_of, CONDITION if relay else None)
    for option in comparison.options.values():
        losses = loss_statement(replace(option.survey, relay=relay), delta, wish.devices)
        figures = [losses.pure, losses.approximate, *([losses.shuffled] if losses.shuffled else [])]
        table.add_row(
            option.title,
            *(_loss(figure.epsilon) for figure in figures),
            f"{option.reports:,.1f}".removesuffix(".0"),
            f"{option.sent_bytes / 1000:,.1f}",
            style="bold" if option is comparison.planned.option else None,
        )
    return table


def _groups(option: Option) -> Table:
    table = Table(title="The optimal plan: an entry draws one group", title_justify="left")
    table.add_column("devices", justify="right")
    table.add_column("reports")
    table.add_column("through")
    plan, period = option.plan, option.survey.calendar.period
    for group in plan.groups[:MOST_GROUPS]:
        lines, through = [], []
        for track in () if isinstance(group.joint, History) else group.tracks:
            lines.append(_in_words(track, period))
            through.append(f"{track.randomizer.kind}, {float(track.randomizer.losses.mutations):.3g}")
        if isinstance(group.joint, Joint):
            lines.append(_agreeing(group.joint))
        if isinstance(group.joint, History):
            lines.append(_history(group.joint, group.histories, period))
        if group.joint is not None:
            through.append(f"together {float(group.joint.odds.epsilon):.3g}")
        table.add_row(
            f"{100 * group.share / plan.total_share:.1f}%", "\n".join(lines), "\n".join(through), end_section=True
        )
    if len(plan.groups) > MOST_GROUPS:
        rest = plan.groups[MOST_GROUPS:]
        share = sum(group.share for group in rest) / plan.total_share
        table.add_row(f"{100 * share:.1f}%", f"{len(rest)} smaller groups", "")
    return table


def _in_words(track: Track, period: int) -> str:
    """Describes the reports on a track, for a designer.

    >>> from changeling_protocol import KaryResponse, Odds, StateSpace
    >>> response = KaryResponse(StateSpace(3), Odds(3, 1))
    >>> _in_words(Track(1, response, 0, 14, reported=2), 86_400)
    'states at 2 of 14 nodes of 1d, at random, periods 1 to 14'
    """
    reported = "changes over" if track.reports_changes else "states at"
    nodes, drawn = ("all", "") if track.reported is None else (f"{track.reported} of", ", at random")
    if track.count == 1:
        reported, nodes, drawn = ("the change over" if track.reports_changes else "the state at the end of"), "", ""
    first, last = track.first + 1, track.first + track.count * track.width
    named = f"{track.count} nodes of {format_duration(track.width * period)}" if track.count > 1 else "one node"
    return " ".join(f"{reported} {nodes} {named}{drawn}, periods {first} to {last}".split())


def _agreeing(joint: Joint) -> str:
    """How the reports of a joint group hang together, as a designer reads it.

    >>> from changeling_protocol import Odds
    >>> _agreeing(Joint(Odds(20, 1), 3, (2, 1), (1, 3)))
    'jointly: patterns that agree in 3 of 5 are favoured 20:1'
    """
    odds = joint.odds.favoured / joint.odds.other
    return f"jointly: patterns that agree in {joint.threshold} of {joint.heaviest} are favoured {odds:,.3g}:1"


def _history(history: History, kernel: HistoryKernel, period: int) -> str:
    """Describes the reports of a history group's entry, and how likely all of it is the truth, for a designer.

    >>> from changeling_protocol import AtMost, Calendar, Group, Odds
    >>> history = History.of(Odds(9, 1), range(1, 4), AtMost(2), Calendar(0, 86_400, 3), closed=True)
    >>> _history(history, Group.of_history(history, 2).histories, 86_400)
    'the history at 3 times, each 1d, periods 1 to 3: all true with 57%, else any of 6'
    """
    times = f"{history.times} times, each {format_duration(history.every * period)}"
    told, count = float(kernel.told), kernel.possible.count
    return (
        f"the history at {times}, periods {history.first} to {history.last}: "
        f"all true with {told:.0%}, else any of {count:,}"
    )


def _in_points(error: float) -> str:
    return f"{100 * error:.3g}" if isfinite(error) else "–"


def _many(devices: float) -> str:
    if not isfinite(devices):
        return "–"
    digits = max(0, len(str(int(devices))) - 3)
    return f"{round(devices, -digits):,.0f}"


def _loss(epsilon: float) -> str:
    return f"{epsilon:.3g}" if epsilon < 10 else f"{epsilon:.1f}"


def sweep_table(rows: Sequence[Row]) -> Table:
    """The cells of a sweep: what varies, and how wrong its surveys are predicted to be and were."""
    names = varied(rows)
    left_out = {*names, "predicted", "noise", "error", "coverage", "reason"}
    same = ", ".join(f"{name} {value}" for name, value in rows[0].items() if name not in left_out)
    table = Table(title=f"{len(rows)} kinds of surveys, errors in points", title_justify="left", caption=same)
    for name in (*names, "predicted", "noise", "error", "95% holds"):
        table.add_column(name, justify="right")
    for row in rows:
        figures = [row[name] for name in ("predicted", "noise", "error", "coverage")]
        shown = ["-" if each is None else f"{100 * each:.3g}" for each in figures]
        table.add_row(*(str(row[name]) for name in names), *shown)
    return table
