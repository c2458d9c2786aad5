"""What the demo prints as tables."""

from collections import Counter
from collections.abc import Mapping, Sequence

from changeling_client import SurveyHandle
from changeling_simulations.experiment import Experiment, epsilon_text
from rich.table import Table

COLUMNS = 4


def series_table(experiment: Experiment) -> Table:
    """Truth, estimate and standard error in percent, at a few times from first to last."""
    table = Table(title=f"Percent of {experiment.entries:,} entries: truth → estimate ± standard error")
    table.add_column("answer", no_wrap=True)
    times, errors = experiment.times(), experiment.standard_errors
    chosen = sorted({round((len(times) - 1) * column / (COLUMNS - 1)) for column in range(COLUMNS)})
    for i in chosen:
        table.add_column(f"{times[i]:%Y-%m-%d}", justify="right", no_wrap=True)
    percent = 100 / experiment.entries
    for a, answer in enumerate(experiment.survey.answers):
        figures = ((experiment.truth[i, a], experiment.estimates[i, a], errors[i, a]) for i in chosen)
        table.add_row(answer, *(f"{t * percent:.1f} → {e * percent:.1f} ± {s * percent:.1f}" for t, e, s in figures))
    return table


def comparison_table(experiments: Mapping[str, Experiment]) -> Table:
    """Plans side by side: their total epsilon, their error, and the entries for a standard error of one point."""
    table = Table(title="Plans side by side")
    for column in ("", "total epsilon", "reports an entry", "rms error, points", "entries for ± 1 point"):
        table.add_column(column, justify="right")
    for name, experiment in experiments.items():
        groups = experiment.survey.plan.groups
        reports = sum(group.share * sum(track.reports for track in group.tracks) for group in groups)
        table.add_row(
            name,
            epsilon_text(experiment.survey.cost),
            f"{reports / experiment.survey.plan.total_share:.1f}",
            f"{100 * experiment.rms_error:.3f}",
            f"{experiment.devices_for().mean():,.0f}",
        )
    return table


def ledger_table(handles: Sequence[SurveyHandle]) -> Table:
    """What the clients' own ledgers say, equal ones together."""
    ledgers = Counter(handle.ledger() for handle in handles)
    table = Table(title="The clients' ledgers")
    for column in ("clients", "epsilon, whole survey", "answered through period", "waiting", "dropped"):
        table.add_column(column, justify="right")
    for ledger, clients in ledgers.items():
        figures = (ledger.answered, ledger.waiting, ledger.dropped)
        table.add_row(f"{clients:,}", epsilon_text(ledger.epsilon), *(f"{figure:,}" for figure in figures))
    return table
