"""The main job, end to end, on real input: `make demo`, and for longer `make demo-full`."""

import argparse
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from changeling_protocol import MICRO, AtMost, Calendar, ExpectedChanges, Survey
from changeling_simulations import (
    Experiment,
    Population,
    changelog_path,
    exact_error,
    paper_survey,
    save_plot,
    simulate,
)
from changeling_statistics import Changelog, Planned, Wish, optimal_plan, plan_in_words, read_csv, write_survey
from rich.console import Console
from rich.progress import track

from .deployment import Deployment, deployed, joined, replay
from .report import (
    beside_the_paper,
    comparison_table,
    coverage,
    introduction,
    ledger_table,
    series_table,
    without_protection,
)

QUESTION = "What do you do?"
START = "1993-06-30"


@dataclass(frozen=True, slots=True)
class Size:
    """The calendar that the six years are cut into, how many changes an entry may report in it, and who takes part.

    one_in: one in so many of the 712 young people.
    """

    period: str
    periods: int
    constraint: AtMost
    one_in: int

    def calendar(self) -> Calendar:
        """The calendar of its periods."""
        return Calendar(START, self.period, self.periods)

    def changelog(self) -> Changelog:
        """What those who take part answered, and when."""
        everybody = read_csv(changelog_path("school-to-work"))
        some = everybody.take(everybody.entry % self.one_in == 0)
        return replace(some, entries=everybody.entries[:: self.one_in], entry=some.entry // self.one_in)


SHORT = Size("52w", 6, AtMost(6), one_in=2)
FULL = Size("13w", 24, AtMost(11), one_in=1)
EPSILON = Decimal(8)
SHAPES = ((2, 1), *((branching, layers) for branching in (2, 3, 4) for layers in (2, 3, 4)))
"""The branching and the layers of the paper's hierarchies; one layer has no branching."""
MANY = 10**9
EXPECTED = ExpectedChanges(first=MICRO, later=MICRO // 10)
"""Everybody starts with an answer, and one in ten changes it in a quarter: what a designer would guess."""
SKEW, SPREAD, GRACE, MINIMUM = 300, 3600, 7 * 86_400, 1
SEED = 1993
OUTPUT = Path("build/demo")
WIDTH = 110
ROOM = 2**30
"""Bytes that all stores and the server's have room in, many times over."""


def main() -> None:
    """Runs the two parts and writes their plots into build/demo."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Real clients against a real server.")
    parser.add_argument("--full", action="store_true", help="quarters instead of years, for some minutes")
    size = FULL if parser.parse_args().full else SHORT
    console = Console(width=WIDTH, highlight=False)
    began = time.monotonic()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    changelog = size.changelog()
    population = Population.from_changelog(changelog, size.calendar(), size.constraint)

    console.rule(f"1. {population.entries} real clients and a real server, ε = {EPSILON}")
    console.print(introduction(population.entries, EPSILON))
    with console.status("Looking for the plan with the least error"):
        planned, survey = best_plan(size, changelog.answers, population.entries)
    console.print(f"The planner took {time.monotonic() - began:.0f} s: {plan_in_words(planned)}.\n")
    with TemporaryDirectory(prefix="changeling-demo-", dir=_memory()) as folder:
        published = _through_real_clients(console, changelog, population, survey, Path(folder))
    save_plot(published, OUTPUT / "clients.png")
    console.print(series_table(published))
    console.print(coverage(published))
    console.print(f"A picture of it: {OUTPUT / 'clients.png'}, after {time.monotonic() - began:.0f} seconds.\n")

    console.rule(f"2. The paper's plan beside it, at the same ε = {EPSILON}")
    shape, paper = best_of_the_paper(size, population)
    with console.status("Sampling the same survey with a billion devices"):
        sampled = sample(population, planned=survey, paper=paper)
    for name, (_, large) in sampled.items():
        save_plot(large, OUTPUT / f"{name}.png")
    console.print(beside_the_paper(sampled["paper"][0]))
    console.print(comparison_table(sampled))
    console.print(without_protection(population.entries, _as_good(population, survey, size, shape)))
    console.print(f"\nPlots in {OUTPUT}: clients, planned, paper. {time.monotonic() - began:.0f} seconds.")


def best_plan(size: Size, answers: Sequence[str], devices: int) -> tuple[Planned, Survey]:
    """The best plan for so many devices, and the survey with it."""
    wish = Wish(
        len(answers), size.calendar(), size.constraint, EPSILON, devices=devices, closed=True, expected=EXPECTED
    )
    planned = optimal_plan(wish)
    survey = wish.survey(planned.plan, tuple(answers), QUESTION)
    return planned, replace(survey, skew=SKEW, spread=SPREAD, grace=GRACE, minimum=MINIMUM)


def sample(population: Population, **surveys: Survey) -> dict[str, list[Experiment]]:
    """Each survey, by its name, of the population, and of a billion entries that live as these do."""
    generator = np.random.default_rng(SEED)
    many = population.resampled(MANY, generator)
    return {
        name: [simulate(each, survey, generator) for each in (population, many)] for name, survey in surveys.items()
    }


def _memory() -> Path | None:
    """A folder in memory, where there is room: hundreds of stores on one disk wait for it."""
    shared = Path("/dev/shm")  # noqa: S108  # what is made there has a name that nobody can guess
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > ROOM else None


def best_of_the_paper(size: Size, population: Population) -> tuple[tuple[int, int], Survey]:
    """The shape of the paper's hierarchy with the least error for this population, and the survey with it."""
    shapes = [each for each in SHAPES if each[0] ** (each[1] - 1) <= size.periods]
    made = {shape: _paper(size, population.answers, EPSILON, shape) for shape in shapes}
    shape = min(made, key=lambda each: exact_error(population, made[each]).mean)
    return shape, made[shape]


def _paper(size: Size, answers: Sequence[str], epsilon: Decimal, shape: tuple[int, int]) -> Survey:
    branching, layers = shape
    return paper_survey(answers, size.calendar(), size.constraint, epsilon=epsilon, branching=branching, layers=layers)


def _as_good(population: Population, survey: Survey, size: Size, shape: tuple[int, int]) -> Decimal:
    """The total epsilon, in steps of ten, at which the paper's plan is as accurate as a survey is, or more so."""
    wanted, epsilon = exact_error(population, survey).mean, EPSILON
    while exact_error(population, _paper(size, survey.answers, epsilon, shape)).mean > wanted:
        epsilon += 10
    return epsilon


def _through_real_clients(
    console: Console, changelog: Changelog, population: Population, survey: Survey, folder: Path
) -> Experiment:
    write_survey(folder / "survey.json", survey)
    with deployed(folder, folder / "survey.json") as deployment:
        console.print(f"Server at {deployment.url}, survey {deployment.survey.id.hex()}, signed and published.")
        with joined(changelog, deployment, folder) as people:
            closings = replay(changelog, deployment, people)
            sent = sum(track(closings, "periods", total=survey.calendar.periods, console=console, transient=True))
            deployment.seal()
            console.print(f"{sent:,} sealed uploads acknowledged, and folded into tallies.\n")
            console.print(ledger_table(people.handles))
            console.print()
            return _published(deployment, population)


def _published(deployment: Deployment, population: Population) -> Experiment:
    """The published series beside the truth."""
    series = deployment.series()
    everybody = np.full(population.periods, population.entries)
    return Experiment(
        survey=deployment.survey,
        population=population,
        enrolled=everybody,
        counted=everybody.astype(np.float64),
        truth=population.histogram()[1:].astype(np.float64),
        frozen=population.frozen_histogram()[1:].astype(np.float64),
        estimates=np.array([at["values"] for at in series]),
        variances=np.array([np.diag(at["covariance"]) for at in series]),
        upper_bound=np.array([at["upper_bound"] for at in series]),
        intervals=np.array([at["intervals"] for at in series]),
    )


if __name__ == "__main__":
    main()
