"""Experiments: estimates right on average, with the errors they state; figures and files of them."""

import csv
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar
from changeling_simulations import Experiment, Population, paper_survey, save_plot, simulate, synthetic_changelog
from changeling_statistics import read_rows

CALENDAR = Calendar(1_767_225_600, 86_400, 6)


@pytest.fixture(scope="module")
def population() -> Population:
    changelog = synthetic_changelog(2, 3_000, 3, CALENDAR, np.random.default_rng(1))
    return Population.from_changelog(changelog, CALENDAR, AtMost(3))


@pytest.fixture(scope="module")
def survey(population):
    return paper_survey(population.answers, CALENDAR, AtMost(3), epsilon=Decimal(12), layers=2)


@pytest.fixture(scope="module")
def experiment(population, survey) -> Experiment:
    return simulate(population, survey, np.random.default_rng(2))


def test_estimates_are_unbiased_for_the_frozen_histogram_with_the_variance_they_state(population, survey):
    """400 surveys: mean error and mean squared error within five of their standard errors (false alarm 2e-5)."""
    experiments = [simulate(population, survey, np.random.default_rng([3, i])) for i in range(400)]
    errors = np.array([e.estimates - e.frozen for e in experiments])
    stated = np.mean([e.variances for e in experiments], axis=0)
    assert np.abs(errors.mean(0) / np.sqrt(stated / 400)).max() < 5
    assert np.abs((errors**2).mean(0) / stated - 1).max() < 5 * np.sqrt(2 / 400)


def test_errors_come_apart_into_noise_and_freezing(population, experiment):
    """Freezing is the population's own bias, whatever was drawn."""
    n = population.entries
    frozen = (population.frozen_histogram() - population.histogram())[1:] / n
    assert experiment.rms_freezing == pytest.approx(np.sqrt((frozen**2).mean()))
    assert experiment.worst_freezing == pytest.approx(np.abs(frozen).max())
    assert experiment.rms_freezing > 0
    assert experiment.rms_noise == pytest.approx(
        np.sqrt((((experiment.estimates - experiment.frozen) / n) ** 2).mean())
    )
    assert experiment.rms_error <= experiment.rms_noise + experiment.rms_freezing


def test_as_many_entries_as_needed_give_the_wanted_standard_error(population, survey, experiment):
    """With so many entries as one period asks for, its standard error is one point, within 5 percent."""
    needed = experiment.devices_for(0.01)
    worst = int(needed.argmax())
    many = population.resampled(round(needed[worst]), np.random.default_rng(4))
    again = simulate(many, survey, np.random.default_rng(5))
    assert np.sqrt(again.variances[worst].mean()) / many.entries == pytest.approx(0.01, rel=0.05)


def test_a_csv_of_it_holds_every_period_and_answer(experiment, tmp_path):
    """In entries, with times that name their zone; the file reads back."""
    experiment.write_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["period"], row["answer"]) for row in rows] == [
        (str(period), answer) for period in range(1, 7) for answer in experiment.survey.answers
    ]
    assert rows[0]["time"] == "2026-01-02T00:00:00Z"
    for column, figures in (("truth", experiment.truth), ("estimate", experiment.estimates)):
        assert [float(row[column]) for row in rows] == pytest.approx(figures.ravel(), abs=0.001)


@pytest.mark.parametrize("answers", [1, 4, 7])
def test_a_plot_has_a_panel_an_answer(answers, tmp_path):
    """And is a PNG that says epsilon and entries, whether or not a period has a standard error."""
    rows = [(str(i), CALENDAR.start + 1 + i, f"answer {i % answers}") for i in range(20)]
    population = Population.from_changelog(read_rows(rows), CALENDAR, AtMost(1))
    survey = paper_survey(population.answers, CALENDAR, AtMost(1), epsilon=Decimal("0.5"))
    save_plot(simulate(population, survey, np.random.default_rng(6)), tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
