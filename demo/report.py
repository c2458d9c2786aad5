"""Everything that the demo prints: tables and sentences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
from changeling_client import SurveyHandle
from changeling_simulations import Experiment, epsilon_text
from changeling_statistics import Floats
from rich.table import Table

COLUMNS = 3
BARS = "▁▂▃▄▅▆▇█"


def series_table(experiment: Experiment) -> Table:
    """For each answer the truth, and the estimate with its band below it: as curves, and in percent at a few times."""
    times, ends = experiment.times(), experiment.intervals
    chosen = sorted({round((len(times) - 1) * column / (COLUMNS - 1)) for column in range(COLUMNS)})
    table = Table(title=f"Percent of {experiment.entries:,} entries: the truth, and the estimate with its 95% interval")
    table.add_column("answer", no_wrap=True)
    table.add_column("")
    table.add_column(f"{times[0]:%b %Y} to {times[-1]:%b %Y}", no_wrap=True)
    for i in chosen:
        table.add_column(f"{times[i]:%b %Y}", justify="right", no_wrap=True)
    percent = 100 / experiment.entries
    for a, answer in enumerate(experiment.survey.answers):
        truth, estimate, band = (figures[:, a] * percent for figures in (experiment.truth, experiment.estimates, ends))
        most = max(truth.max(), estimate.max())
        table.add_row(answer, "truth", curve(truth, most), *(f"{truth[i]:.1f}" + " " * len(" 00–00") for i in chosen))
        table.add_row(
            "",
            "estimate",
            curve(estimate, most),
            *(f"{estimate[i]:.1f} {_interval(*band[i])}" for i in chosen),
            end_section=True,
        )
    return table


def curve(figures: Floats, most: float) -> str:
    """Figures as a row of bars: the lowest for 0 and below, the highest for `most`.

    >>> curve(np.array([-1.0, 0, 5, 10]), 10)
    '▁▁▅█'
    """
    heights = np.clip(figures / most, 0, 1) * (len(BARS) - 1)
    return "".join(BARS[height] for height in np.rint(heights).astype(int).tolist())


def _interval(low: float, high: float) -> str:
    """An interval in percent, of which nothing below none is shown."""
    return f"{max(0.0, low):2.0f}–{max(0.0, high):2.0f}"


def comparison_table(sampled: Mapping[str, Sequence[Experiment]]) -> Table:
    """Plans side by side: what they cost and ask for, and their error with fewer entries and with many.

    sampled: for each plan one experiment with each number of entries.
    """
    table = Table(title="Root mean squared error over all periods and answers, in points")
    table.add_column("plan")
    for column in ("total epsilon", "reports an entry"):
        table.add_column(column, justify="right")
    for experiment in next(iter(sampled.values())):
        table.add_column(f"{experiment.entries:,} entries", justify="right")
    table.add_column("entries for ± 1 point", justify="right")
    for name, experiments in sampled.items():
        last = experiments[-1]
        table.add_row(
            name,
            epsilon_text(last.survey.cost),
            f"{last.reports_an_entry:.1f}",
            *(f"{100 * experiment.rms_error:,.3g}" for experiment in experiments),
            f"{last.devices_for().mean():,.0f}",
        )
    return table


def ledger_table(handles: Sequence[SurveyHandle]) -> Table:
    """The clients' own ledgers, equal ones together."""
    known = [ledger for handle in handles if (ledger := handle.ledger()) is not None]
    rows = Counter((ledger.epsilon, ledger.answered_period, ledger.waiting, ledger.dropped) for ledger in known)
    table = Table(title="The clients' ledgers")
    for column in ("clients", "epsilon, whole survey", "answered through period", "waiting", "dropped"):
        table.add_column(column, justify="right")
    for (epsilon, *figures), clients in rows.items():
        table.add_row(f"{clients:,}", epsilon_text(epsilon), *(f"{figure:,}" for figure in figures))
    return table


def introduction(people: int, epsilon: Decimal) -> str:
    """Who takes part, and what is promised to them."""
    return (
        f"{people} young people in Northern Ireland, July 1993 to June 1999: at school, in training, at work, or not. "
        "Each has a client and a store of its own. Every step is the product's: planned and signed survey, sealed "
        "uploads over HTTP, log, fold, estimates.\n"
        f"[bold]ε = {epsilon} for the whole survey[/]: whatever somebody did in six years, all that their device ever "
        f"sends is at most e^{epsilon} times likelier than if they had done anything else.\n"
    )


def coverage(published: Experiment) -> str:
    """How far the estimates are off, and how often the bands hold the truth."""
    low, high = np.moveaxis(published.intervals, -1, 0)
    in_truth, in_reported = (((low <= held) & (held <= high)).sum() for held in (published.truth, published.frozen))
    reach = 100 * float((high - low).mean()) / 2 / published.entries
    return (
        f"[bold]The estimates are off by {100 * published.rms_error:.1f} points[/], root mean square. Their 95% "
        f"intervals reach {reach:.1f} to either side on average; {in_reported} of {low.size} hold what the devices "
        f"reported on, and {in_truth} hold the truth. The two differ where somebody changed more often than the "
        "survey allows: from then on a device reports the last answer that it allowed.\n"
    )


def beside_the_paper(paper: Experiment) -> str:
    """What differs between the two plans, and that no devices are asked any more."""
    return (
        f"The paper gives each of an entry's {paper.reports_an_entry:.0f} reports a slice of ε. Above, all that an "
        "entry says is drawn together, on one budget. Both are sampled here without devices: of the same histories, "
        "and of a billion drawn from them.\n"
    )


def without_protection(people: int, epsilon: Decimal) -> str:
    """What it would take without joint responses and a planner."""
    return (
        f"To say as much of {people} entries, the paper's plan would need a total ε of about {epsilon}, which protects "
        "nobody."
    )
