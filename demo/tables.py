"""What the demo prints as tables."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from changeling_client import SurveyHandle
from changeling_simulations import Experiment, epsilon_text
from changeling_statistics import Floats
from rich.table import Table

COLUMNS = 3
BARS = "▁▂▃▄▅▆▇█"


def series_table(experiment: Experiment) -> Table:
    """For each answer the truth, and the estimate with its band below it: as curves, and in percent at a few times."""
    times, errors = experiment.times(), experiment.standard_errors
    chosen = sorted({round((len(times) - 1) * column / (COLUMNS - 1)) for column in range(COLUMNS)})
    table = Table(title=f"Percent of {experiment.entries:,} entries: the truth, and the estimate ± 2 standard errors")
    if np.isnan(errors[chosen]).any():
        table.caption = "–: so few reported that the variance was estimated below zero"
    table.add_column("answer", no_wrap=True)
    table.add_column("")
    table.add_column(f"{times[0]:%b %Y} to {times[-1]:%b %Y}", no_wrap=True)
    for i in chosen:
        table.add_column(f"{times[i]:%b %Y}", justify="right", no_wrap=True)
    percent = 100 / experiment.entries
    for a, answer in enumerate(experiment.survey.answers):
        truth, estimate, band = (
            figures[:, a] * percent for figures in (experiment.truth, experiment.estimates, 2 * errors)
        )
        most = max(truth.max(), estimate.max())
        table.add_row(answer, "truth", curve(truth, most), *(f"{truth[i]:.1f}" + " " * len(" ± 00.0") for i in chosen))
        table.add_row(
            "",
            "estimate",
            curve(estimate, most),
            *(f"{estimate[i]:.1f} ± {_width(band[i])}" for i in chosen),
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


def _width(band: float) -> str:
    """A band's width; a dash where so few reported that there is none."""
    return "   –" if np.isnan(band) else f"{band:4.1f}"


def comparison_table(sampled: Mapping[str, Sequence[Experiment]]) -> Table:
    """Plans side by side: what they cost and ask for, and their error with fewer entries and with many.

    sampled: for each plan one experiment with each number of entries.
    """
    table = Table(title="Root mean squared error over all quarters and answers, in points")
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
    """What the clients' own ledgers say, equal ones together."""
    known = [ledger for handle in handles if (ledger := handle.ledger()) is not None]
    rows = Counter((ledger.epsilon, ledger.answered_period, ledger.waiting, ledger.dropped) for ledger in known)
    table = Table(title="The clients' ledgers")
    for column in ("clients", "epsilon, whole survey", "answered through period", "waiting", "dropped"):
        table.add_column(column, justify="right")
    for (epsilon, *figures), clients in rows.items():
        table.add_row(f"{clients:,}", epsilon_text(epsilon), *(f"{figure:,}" for figure in figures))
    return table
