"""Designing a survey in a notebook: a wish in, a plan and its simulations out, each of which a notebook can show.

from changeling_simulations import design

wished = design("Do you use feature X?", ["yes", "no"], every="1w", periods=12, at_most=2, epsilon=4, devices=20_000)
run = wished.simulate(seed=1)
run.plot()
run.report("run.html")
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from changeling_protocol import AtMost, Calendar, Survey
from changeling_statistics import (
    Changelog,
    Planned,
    Wish,
    optimal_plan,
    pilot_of,
    rung,
    steady_changes,
)

from .experiment import Experiment, simulate
from .population import HISTORIES, START, Population, synthetic_changelog

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .reports import RecordingConsole


@dataclass(frozen=True, slots=True, eq=False)
class Run(Experiment):
    """A simulated survey beside the truth, which a notebook shows as tables."""

    def plot(self) -> "Figure":
        """The picture of all answers over time: the truth, the estimates and their 95% intervals."""
        from .plots import draw_experiment

        return draw_experiment(self)

    def report(self, path: str | PathLike[str]) -> None:
        """Writes the tables and the picture as one HTML file. Raises OSError if it cannot be written."""
        recorded = self._recorded()
        recorded.picture(self.plot(), "The truth and the estimates of every answer over time, with bands")
        recorded.write(Path(path), "A simulated survey beside the truth")

    def _recorded(self) -> "RecordingConsole":
        from .reports import print_report, silent

        recorded = silent()
        print_report(recorded, self)
        return recorded

    def _repr_html_(self) -> str:
        return self._recorded().html


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A survey with the best plan for what was wished.

    survey: not signed yet; `write_survey` writes it for `changeling survey sign`. planned: its plan, with what the
    planner predicts. pilot: the changelog that it was designed by, if any.
    """

    survey: Survey
    planned: Planned
    pilot: Changelog | None = None

    @property
    def wish(self) -> Wish:
        """The wish that the plan is the best for."""
        return self.planned.wish

    @property
    def error(self) -> float:
        """The predicted standard error of a share, mean over time."""
        return self.planned.option.prediction.mean

    def devices_for(self, error: float) -> int:
        """How many devices it takes for such a standard error of a share, mean over time."""
        return int(np.ceil(self.planned.option.prediction.devices_for(error)))

    def simulate(self, changes: float | None = None, seed: int = 0) -> Run:
        """Runs the survey on a population, and sets its estimates beside the truth.

        changes: of a made-up entry after its first answer, on average; as many as the wish expects, if not given. Where
        there is a pilot, the population is its entries, drawn again to as many as the wish has devices.
        seed: the same seed repeats the run.
        Raises ValueError for more changes than there are periods, or changes beside a pilot.
        """
        generator, wish = np.random.default_rng(seed), self.wish
        if self.pilot is not None and changes is not None:
            raise ValueError("a pilot has changes of its own: leave changes out, or design without one")
        if self.pilot is None:
            entries = min(wish.devices, HISTORIES)
            expected = wish.expected.later * (wish.periods - 1) / 1e6 if changes is None else changes
            made = synthetic_changelog(wish.answers, entries, expected, wish.calendar, generator)
            source = replace(made, answers=self.survey.answers)
        else:
            source = self.pilot
        population = Population.from_changelog(source, wish.calendar, wish.constraint)
        if population.entries != wish.devices:
            population = population.resampled(wish.devices, generator)
        experiment = simulate(population, self.survey, generator)
        return Run(*(getattr(experiment, each.name) for each in fields(experiment)))

    def _repr_html_(self) -> str:
        from .reports import silent

        shown = silent()
        shown.print(
            f"{self.wish.devices:,} devices: a standard error of {100 * self.error:.3g} points, mean over time. "
            f"One point takes {self.devices_for(0.01):,} devices."
        )
        return self.survey._repr_html_() + shown.html


def design(
    question: str,
    answers: Sequence[str],
    *,
    every: str = "1w",
    periods: int = 12,
    at_most: int = 2,
    epsilon: float | Decimal = 4,
    devices: int = 10_000,
    closed: bool = False,
    pilot: Changelog | None = None,
    start: str | int = START,
) -> Design:
    """Finds the best plan for a survey of one question.

    question, answers: what people are asked, and what they can say. every, periods: how long a period is, as 1h, 1d or
    1w, and how many there are. at_most: how often an entry's answer may change; appearing counts. epsilon: the most
    that an entry may lose over all of it. devices: how many will answer. closed: whether everybody has an answer from
    the first period to the last. pilot: a changelog that shows how often such answers change. start: of the calendar,
    a date or Unix seconds.
    Its survey has no freezing question: simulated runs know the truth, and say what freezing does to them. For one of
    real people, `changeling survey new --ask-freezing` adds it.
    Raises ValueError for what cannot be, or what no plan can meet.

    >>> wished = design("Tea?", ["yes", "no"], periods=4, epsilon=4, devices=10_000, closed=True)
    >>> wished.survey
    <Survey: 'Tea?', 4 periods of 604800 s, epsilon 4>
    >>> 0 < wished.error < 0.05
    True
    >>> wished.simulate(seed=1).rms_error < 0.05
    True
    """
    calendar, constraint = Calendar(start, every, periods), AtMost(at_most)
    wish = Wish(
        len(answers),
        calendar,
        constraint,
        epsilon=Decimal(str(epsilon)),
        devices=devices,
        closed=closed,
        expected=steady_changes(calendar, constraint),
    )
    planned = optimal_plan(wish) if pilot is None else rung(wish, pilot_of(pilot, calendar, closed=closed)).planned
    return Design(planned.wish.survey(planned.plan, tuple(answers), question), planned, pilot)
