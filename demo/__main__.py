"""The main job, end to end, on real input: `make demo`."""

import time
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from changeling_protocol import AtMost, Calendar, ExpectedChanges
from changeling_protocol.expectation import MICRO
from changeling_simulations.bundled import changelog_path
from changeling_simulations.experiment import Experiment, epsilon_text, simulate
from changeling_simulations.plots import save_plot
from changeling_simulations.population import Population
from changeling_simulations.surveys import paper_survey
from changeling_statistics.changelog import Changelog, read_csv
from changeling_statistics.durations import parse_duration
from changeling_statistics.instants import parse_instant
from changeling_statistics.planning.optimal import optimal_plan
from changeling_statistics.planning.prediction import POINT
from changeling_statistics.planning.wish import Wish
from rich.console import Console
from rich.progress import track

from .deployment import Deployment, deployed, new_survey
from .replay import joined, replay
from .tables import comparison_table, ledger_table, series_table

QUESTION = "What do you do?"
START, PERIOD, PERIODS = "1993-06-30", "13w", 24
MOST_MUTATIONS = 11
BRANCHING, LAYERS = 2, 4
OPEN_EPSILON, SENSIBLE_EPSILON = Decimal(260), Decimal(8)
MANY = 10**9
EXPECTED = ExpectedChanges(first=MICRO, later=MICRO // 10)
"""Everybody starts with an answer, and one in ten changes it in a quarter: what a designer would guess."""
SEED = 1993
OUTPUT = Path("build/demo")


def main() -> None:
    """Runs the three parts and writes their plots into build/demo."""
    console = Console(width=110)
    began = time.monotonic()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    changelog = read_csv(changelog_path("school-to-work"))
    calendar = Calendar(int(parse_instant(START)), parse_duration(PERIOD), PERIODS)
    population = Population.from_changelog(changelog, calendar, AtMost(MOST_MUTATIONS))

    console.rule("1. Real clients, a real server, an epsilon that protects nobody")
    console.print(_introduction(len(changelog.entries)))
    with TemporaryDirectory(prefix="changeling-demo-") as folder:
        small = _through_real_clients(console, changelog, population, Path(folder))
    save_plot(small, OUTPUT / "clients.png")

    console.rule("2. The same survey at a sensible epsilon")
    survey = paper_survey(
        changelog.answers,
        calendar,
        AtMost(MOST_MUTATIONS),
        epsilon=SENSIBLE_EPSILON,
        branching=BRANCHING,
        layers=LAYERS,
    )
    generator = np.random.default_rng(SEED)
    many = population.resampled(MANY, generator)
    paper = simulate(many, survey, generator)
    save_plot(paper, OUTPUT / "paper.png")
    console.print(series_table(paper))
    console.print(_conclusion(paper, population.entries))

    console.rule("3. The same epsilon, the same entries, the optimal plan")
    wish = Wish(
        len(changelog.answers), calendar, AtMost(MOST_MUTATIONS), SENSIBLE_EPSILON, devices=MANY, expected=EXPECTED
    )
    planned = optimal_plan(wish)
    optimal = simulate(many, wish.survey(planned.plan, changelog.answers, QUESTION), generator)
    save_plot(optimal, OUTPUT / "optimal.png")
    console.print(comparison_table({"the paper's plan": paper, "the optimal plan": optimal}))
    console.print(f"\nPlots: clients, paper and optimal in {OUTPUT}. {time.monotonic() - began:.0f} seconds.")


def _through_real_clients(console: Console, changelog: Changelog, population: Population, folder: Path) -> Experiment:
    options = (
        *("--start", START, "--period", PERIOD, "--periods", str(PERIODS), "--at-most", str(MOST_MUTATIONS)),
        *("--branching", str(BRANCHING), "--layers", str(LAYERS), "--epsilon", str(OPEN_EPSILON)),
    )
    with deployed(folder, new_survey(folder, QUESTION, changelog.answers, options)) as deployment:
        console.print(f"server at {deployment.url}, survey {deployment.survey.id.hex()}")
        with joined(changelog, deployment, folder) as people:
            closings = replay(changelog, deployment, people)
            sent = sum(track(closings, "quarters", total=PERIODS, console=console, transient=True))
            deployment.fold()
            console.print(f"{sent:,} sealed uploads acknowledged and folded into tallies.")
            console.print(ledger_table(people.handles))
            published = _published(deployment, population)
        console.print(series_table(published))
    return published


def _published(deployment: Deployment, population: Population) -> Experiment:
    """The published series beside the truth."""
    series = deployment.series()
    return Experiment(
        survey=deployment.survey,
        entries=population.entries,
        truth=population.histogram()[1:].astype(np.float64),
        frozen=population.frozen_histogram()[1:].astype(np.float64),
        estimates=np.array([at["values"] for at in series]),
        variances=np.array([np.diag(at["covariance"]) for at in series]),
    )


def _introduction(people: int) -> str:
    return (
        f"{people} young people in Northern Ireland, 1993 to 1999, each with a client, a store and a secret of their "
        "own, report for every quarter, half year, year and two years how their activity changed. Every step is the "
        "product's: signed survey, sealed uploads over HTTP, log, fold. [bold]The total epsilon here is "
        f"{OPEN_EPSILON}, which protects nobody[/]: so few people show nothing at a sensible one, see below."
    )


def _conclusion(large: Experiment, people: int) -> str:
    epsilon = epsilon_text(large.survey.cost)
    needed = large.devices_for().mean()
    alone = POINT * (needed / people) ** 0.5
    return (
        f"[bold]Total epsilon {epsilon}[/]: whatever anybody did in six years, their reports are at most e^{epsilon} "
        "times likelier under it than under anything else they might have done. "
        f"{large.entries:,} entries, resampled: root mean squared error {100 * large.rms_error:.2f} points. "
        f"A standard error of one point takes {needed:,.0f} entries. The {people} alone would have one of "
        f"{100 * alone:,.0f} points, wider than the whole scale: hence the epsilon above."
    )


if __name__ == "__main__":
    main()
