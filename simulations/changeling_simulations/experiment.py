"""Simulated surveys: their estimates beside the truth, how far they are off, and what the field does to that.

Errors have two parts, which are kept apart. The noise of the randomizers gets smaller with more entries. The bias of
freezing entries that mutate more often than the constraint allows does not.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from pathlib import Path

import numpy as np
from changeling_protocol import Node, Randomizer, Survey, closings
from changeling_statistics import (
    POINT,
    Counts,
    Floats,
    Gap,
    Histogram,
    Indices,
    Moments,
    Prediction,
    Tallies,
    conserves,
    counterpart_of,
    intervals,
    predict,
    series,
    without_sum,
)
from numpy.typing import NDArray

from .field import Field, FieldTallies, sample_field
from .population import Population
from .sampler import sample_tallies

ROW = ("period", "time", "answer", "truth", "frozen", "estimate", "standard_error", "upper_bound")
"""The columns of an experiment's table: counts are in entries; `upper_bound` as a server says it."""


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """A survey's estimates beside the truth, at the ends of periods 1..T.

    survey: the survey that was simulated.
    population: who was asked.
    enrolled: how many entries have enrolled by then, shape (T,).
    counted: how many of them the server has heard of, which estimates are about, shape (T,); nan where there are none.
    truth: the histograms as they were, shape (T, z), in entries that have enrolled.
    frozen: the histograms of what the devices reported on, shape (T, z), likewise.
    estimates: the published histograms, shape (T, z), in entries that are counted; nan where nothing identifies them.
    variances: the published variances of the estimates given `frozen`, shape (T, z), in entries squared; nan likewise.
    upper_bound: whether those are too large on average, as tallies do not tell all of them, shape (T,).
    intervals: the published 95% intervals, lower and upper ends, shape (T, z, 2), in entries; nan likewise.
    heard: which share of those who have enrolled is heard at a closing, mean over closings.

    >>> from changeling_simulations import closed_cohort, design
    >>> population = closed_cohort(10_000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = design("?", population.answers, periods=4, closed=True).survey
    >>> experiment = simulate(population, survey, np.random.default_rng(2))
    >>> 0 < experiment.rms_noise == experiment.rms_error < 0.1
    True
    """

    survey: Survey
    population: Population
    enrolled: Counts
    counted: Floats
    truth: Floats
    frozen: Floats
    estimates: Floats
    variances: Floats
    upper_bound: NDArray[np.bool_]
    intervals: Floats
    heard: float = 1.0

    @property
    def entries(self) -> int:
        """How many entries have enrolled in the end."""
        return int(self.enrolled[-1])

    @property
    def true_shares(self) -> Floats:
        """The true shares of the answers, shape (T, z)."""
        return self.truth / self.enrolled[:, None]

    @property
    def frozen_shares(self) -> Floats:
        """The shares of the answers in what the devices reported on, shape (T, z)."""
        return self.frozen / self.enrolled[:, None]

    @property
    def estimated_shares(self) -> Floats:
        """The published shares of the answers, shape (T, z)."""
        return self.estimates / self.counted[:, None]

    @property
    def standard_errors(self) -> Floats:
        """The published standard errors, shape (T, z), in entries.

        nan where so few reported that the estimated variance is below zero, or nothing is estimated.
        """
        return np.sqrt(np.where(self.variances >= 0, self.variances, np.nan))

    @property
    def share_intervals(self) -> Floats:
        """The published 95% intervals of the shares, shape (T, z, 2)."""
        return self.intervals / self.counted[:, None, None]

    @property
    def gaps(self) -> int:
        """How many periods are not estimable."""
        return int(np.isnan(self.estimates[:, 0]).sum())

    @property
    def reports_an_entry(self) -> float:
        """How many reports an entry sends in the whole survey, mean over the groups."""
        plan = self.survey.plan
        sent = sum(group.share * sum(track.reports for track in group.tracks) for group in plan.groups)
        return sent / plan.total_share

    @property
    def rms_error(self) -> float:
        """The root mean square of (estimate - truth) over times and answers, as a share of the entries.

        Like the other errors it is over the times that are estimated; nan if none is.
        """
        return _rms(self.estimated_shares - self.true_shares)

    @property
    def rms_noise(self) -> float:
        """The root mean square of (estimate - frozen), likewise: the noise of the randomizers, and who is not heard."""
        return _rms(self.estimated_shares - self.frozen_shares)

    @property
    def rms_freezing(self) -> float:
        """The root mean square of (frozen - truth), likewise: the bias of freezing."""
        return _rms(self.frozen_shares - self.true_shares)

    @property
    def worst_freezing(self) -> float:
        """The largest bias of freezing, at any time and of any answer, as a share of the entries."""
        return float(np.abs(self.frozen_shares - self.true_shares).max())

    @property
    def coverage(self) -> float:
        """Share of the published 95% intervals that hold what the devices reported on; nan if there is none."""
        return _mean(_held(self))

    def devices_for(self, standard_error: float = POINT) -> Floats:
        """How many entries it takes for a standard error at the end of each period, shape (T,); nan for a gap.

        standard_error: of a share of the entries; 0.01 is one percentage point.
        They are of this population, and all heard. The variance of a share falls as 1/n, so it takes
        n·(se / standard_error)² entries. se is the exact error, not the published one, which may be an upper bound.
        """
        exact = exact_error(self.population, self.survey)
        needed: Floats = exact.devices * (exact.errors / standard_error) ** 2
        return np.where(np.isnan(self.estimates[:, 0]), np.nan, needed)

    def as_fields(self) -> dict[str, object]:
        """The figures by name, as JSON has them: errors as shares of the entries, None for what is not known."""
        survey = self.survey
        figures = {
            name: None if np.isnan(value := getattr(self, name)) else value
            for name in ("rms_error", "rms_noise", "rms_freezing", "worst_freezing", "coverage", "heard")
        }
        return {
            "epsilon": epsilon_text(survey.cost),
            "entries": self.entries,
            "answers": list(survey.answers),
            "periods": survey.calendar.periods,
            "gaps": self.gaps,
            **figures,
            "rows": [
                dict(
                    zip(ROW, row[:5] + [float(str(each)) if each else None for each in row[5:7]] + row[7:], strict=True)
                )
                for row in self._rows()
            ],
        }

    def write_csv(self, path: Path) -> None:
        """Writes a row for each period and answer, with a header; counts are in entries, times in UTC.

        Raises OSError if the file cannot be written.
        """
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(ROW)
            writer.writerows(self._rows())

    def times(self) -> list[datetime]:
        """The ends of periods 1..T, in UTC."""
        calendar = self.survey.calendar
        return [datetime.fromtimestamp(calendar.time(i), UTC) for i in range(1, calendar.periods + 1)]

    def _rows(self) -> Iterable[list[object]]:
        errors = self.standard_errors
        for i, time in enumerate(self.times()):
            for a, answer in enumerate(self.survey.answers):
                counts = (int(self.truth[i, a]), int(self.frozen[i, a]))
                estimate = (
                    "" if np.isnan(figure) else f"{figure:.3f}" for figure in (self.estimates[i, a], errors[i, a])
                )
                yield [i + 1, f"{time:%Y-%m-%dT%H:%M:%SZ}", answer, *counts, *estimate, bool(self.upper_bound[i])]


def _rms(differences: Floats) -> float:
    known = differences[~np.isnan(differences)]
    return float(np.sqrt(np.mean(known**2))) if known.size else np.nan


def epsilon_text(epsilon: Decimal) -> str:
    """An epsilon to four decimals, rounded up as every stated loss is.

    >>> epsilon_text(Decimal("7.99999"))
    '8'
    """
    return f"{epsilon.quantize(Decimal('0.0001'), ROUND_CEILING).normalize():f}"


def simulate(population: Population, survey: Survey, generator: np.random.Generator) -> Experiment:
    """Simulates a survey that every entry of a population answers, and sets its estimates beside the truth.

    population, survey: of the same answers, in the same order, and as many periods.
    generator: draws everything; with the same seed the simulation is the same.
    Raises ValueError if the two do not fit.

    >>> from changeling_simulations import closed_cohort, design
    >>> population = closed_cohort(10_000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = design("?", population.answers, periods=4, closed=True).survey
    >>> simulate(population, survey, np.random.default_rng(2)).rms_error < 0.1
    True
    """
    tallies = sample_tallies(population, survey, generator)
    histograms, enrolled = series(survey, tallies, population.periods), np.full(population.periods, population.entries)
    return _published(survey, population, histograms, enrolled, population.histogram(), population.frozen_histogram())


def in_the_field(population: Population, survey: Survey, field: Field, generator: np.random.Generator) -> Experiment:
    """Simulates a survey whose entries fare as a field says, and sets its estimates beside the truth.

    Estimates are made as each period closes, of what is known by then. Arguments as for `simulate`.

    >>> from changeling_simulations import closed_cohort, design
    >>> population = closed_cohort(10_000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = design("?", population.answers, periods=4, closed=True).survey
    >>> sparse = in_the_field(population, survey, Field(offline=0.5), np.random.default_rng(3))
    >>> 0.45 < sparse.heard < 0.55
    True
    """
    drawn = sample_field(population, survey, field, generator)
    enrolled = drawn.truth[1:].sum(1)
    heard, histograms = _heard(survey, drawn.tallies, enrolled), _as_periods_close(survey, drawn)
    return _published(survey, population, histograms, enrolled, drawn.truth[:, 1:], drawn.frozen[:, 1:], heard)


def _as_periods_close(survey: Survey, drawn: FieldTallies) -> list[Histogram | Gap]:
    """The histograms at the ends of periods 1..T, each of what is known as its period closes."""
    periods = survey.calendar.periods
    if not drawn.late.attendance:
        return series(survey, drawn.on_time, periods)
    return [series(survey, drawn.known_at(period), period)[-1] for period in range(1, periods + 1)]


def _published(
    survey: Survey,
    population: Population,
    histograms: Sequence[Histogram | Gap],
    enrolled: Counts,
    truth: Counts,
    frozen: Counts,
    heard: float = 1.0,
) -> Experiment:
    """The estimates of times 1..T beside what is true at times 0..T."""
    counted = np.full(len(histograms), np.nan)
    values, variances = np.full((2, len(histograms), len(survey.answers)), np.nan)
    ends, bounds = np.full((*values.shape, 2), np.nan), np.zeros(len(histograms), np.bool_)
    for at, each in enumerate(histograms):
        if isinstance(each, Histogram):
            counted[at] = each.basis.enrolled
            values[at], variances[at] = each.estimate.values, np.diag(each.estimate.covariance)
            bounds[at] = each.estimate.upper_bound
            ends[at] = intervals(each.estimate, LEVEL)
    true, reported = (counts[1:].astype(np.float64) for counts in (truth, frozen))
    return Experiment(survey, population, enrolled, counted, true, reported, values, variances, bounds, ends, heard)


def _heard(survey: Survey, tallies: Tallies, enrolled: Counts) -> float:
    """Share of those who have enrolled that is heard, mean over the closings of the plan."""
    heard = dict.fromkeys(closings(survey.plan, 0, survey.calendar.periods), 0)
    for (_, period), attendance in tallies.attendance.items():
        heard[period] += attendance.heard
    return float(np.mean([count / enrolled[period - 1] for period, count in heard.items()]))


LEVEL = 0.95
FEWEST, MOST = 20, 50
"""How many surveys a trial takes."""
ENTRIES_A_TRIAL = 1_000_000
"""About how many entries a trial goes through, if that leaves it with so many surveys."""


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """R surveys of one population, against the frozen histories of all who have enrolled.

    errors: of the published shares, shape (R, T, z); nan where nothing identifies them.
    held: whether the published 95% intervals hold what they are about, shape (R, T, z), 1 or 0; nan likewise.
    heard: which share of those who have enrolled is heard at a closing, mean over closings, shape (R,).
    """

    errors: Floats
    held: Floats
    heard: Floats

    @property
    def rms_error(self) -> float:
        """The root mean square of all errors; nan if nothing was ever estimated."""
        return float(np.sqrt(_mean(self.errors**2)))

    @property
    def bias(self) -> float:
        """The root mean square of the errors' means, over times and answers; nan if nothing was estimated twice."""
        return float(np.sqrt(_mean(self._means[0] ** 2)))

    @property
    def bias_by_chance(self) -> float:
        """The size that `bias` would have by chance alone, as R surveys are not many; nan likewise."""
        return float(np.sqrt(_mean(self._means[1])))

    @property
    def _means(self) -> tuple[Floats, Floats]:
        """The mean error of each time and answer that was estimated twice or more, and the variance of that mean."""
        known = (~np.isnan(self.errors)).sum(0)
        errors = self.errors[:, known > 1]
        return np.nanmean(errors, axis=0), np.nanvar(errors, axis=0, ddof=1) / known[known > 1]

    @property
    def coverage(self) -> float:
        """How often a published 95% interval holds what it is about; nan if there is none."""
        return _mean(self.held)

    @property
    def gaps(self) -> float:
        """The share of periods that are not estimable."""
        return float(np.isnan(self.errors[:, :, 0]).mean())


def trials_of(entries: int) -> int:
    """How many surveys of so many entries a trial takes."""
    return int(np.clip(ENTRIES_A_TRIAL // entries, FEWEST, MOST))


def tried(population: Population, survey: Survey, field: Field, generators: Iterable[np.random.Generator]) -> Trials:
    """Simulates a survey in the field again and again, with a generator for each time.

    population, survey: of the same answers, in the same order, and as many periods.
    Raises ValueError if they, or the field, do not fit.
    """
    experiments = [in_the_field(population, survey, field, generator) for generator in generators]
    return Trials(
        np.array([each.estimated_shares - each.frozen_shares for each in experiments]),
        np.array([_held(each) for each in experiments]),
        np.array([each.heard for each in experiments]),
    )


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


@dataclass(frozen=True)
class KnownPopulation:
    """A population's own figures, which take the place of those that a survey's designer expects.

    They are of its frozen histories, which the devices report on.
    survey: what is reported. population: who reports, of the same answers and as many periods.
    """

    survey: Survey
    population: Population

    def report_variances(self, track: int, end: Indices) -> Floats:
        """The variance of one report on some nodes of a track, mean over entries and answers, in entries squared.

        track: its number in the plan. end: when the nodes close, shape (nodes,). Returns shape (nodes,).
        """
        reported = self.survey.plan.tracks[track]
        closed, changes = self.survey.closed, reported.reports_changes
        kept = per_input(reported.randomizer, False)
        conserved = per_input(reported.randomizer, True) if conserves(closed, changes, 1) else kept
        return np.array(
            [
                self.population.mutation_counts(reported, node)
                @ (conserved if conserves(closed, changes, node.start) else kept)
                / self.population.entries
                for node in (Node(last - reported.width, last) for last in end.tolist())
            ]
        )

    @property
    def moments(self) -> Moments:
        """How many of the entries hold an answer at each of two times 0..T, as shares, mean over the answers."""
        z, n = len(self.survey.answers), self.population.entries
        products, squares = np.zeros((self.population.periods + 1,) * 2), np.zeros((self.population.periods + 1,) * 2)
        means = np.zeros(self.population.periods + 1)
        for answer in range(1, z + 1):
            held = (self.population.frozen == answer).astype(np.float64)
            weighted = held * self.population.weights[:, None]
            mean = weighted.sum(0) / n
            products += weighted.T @ held / n / z
            squares += np.outer(mean, mean) / z
            means += mean / z
        centred = (products - squares) * (n / max(n - 1.0, 1.0))
        return Moments(products, centred, means)


def exact_error(
    population: Population, survey: Survey, *, retrospective: bool = False, devices: int | None = None
) -> Prediction:
    """The exact standard errors of a survey's histograms, given the histories of a population.

    Which entry draws which group is part of the error; the bias of freezing is not.
    population: of the same answers and as many periods as the survey.
    retrospective: whether histograms are estimated when all is over, from everything.
    devices: how many entries of this kind answer; if not given, as many as the population has.

    >>> from changeling_simulations import closed_cohort, design
    >>> population = closed_cohort(10_000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = design("?", population.answers, periods=4, closed=True).survey
    >>> round(exact_error(population, survey, devices=100).mean / exact_error(population, survey).mean, 6)
    10.0
    """
    n = population.entries if devices is None else devices
    return predict(survey, n, retrospective=retrospective, population=KnownPopulation(survey, population))


def per_input(randomizer: Randomizer, conserved: bool) -> Floats:
    """The variance of one report for each true input, mean over the answers, shape (m,), in entries squared.

    conserved: whether changes are known to add up to zero over the answers.
    """
    z = randomizer.space.answers
    variances = np.zeros(randomizer.space.size)
    for true in range(len(variances)):
        covariance = counterpart_of(randomizer).report_covariance(true)
        if conserved:
            covariance = without_sum(np.zeros(z), covariance)[1]
        variances[true] = np.trace(covariance) / z
    return variances


def _held(experiment: Experiment) -> Floats:
    """1 where an interval holds the share after freezing, else 0, shape (T, z); nan where there is none."""
    ends, frozen = experiment.share_intervals, experiment.frozen_shares
    held = (ends[..., 0] <= frozen) & (frozen <= ends[..., 1])
    return np.where(np.isnan(ends[..., 0]), np.nan, held)
