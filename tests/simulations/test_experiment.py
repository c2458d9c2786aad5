"""Experiments, in the laboratory, in the field and in a notebook: unbiased, with the errors they state; their files."""

import csv
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar, Node
from changeling_simulations import (
    Experiment,
    Field,
    Population,
    aligned,
    check_dates,
    closed_cohort,
    design,
    exact_error,
    in_the_field,
    paper_survey,
    save_plot,
    simulate,
    synthetic_calendar,
    synthetic_changelog,
)
from changeling_simulations.experiment import Trials, tried
from changeling_statistics import read_rows

CALENDAR = Calendar(1_767_225_600, 86_400, 8)


@pytest.fixture(scope="module")
def population() -> Population:
    changelog = synthetic_changelog(2, 2_000, 1, CALENDAR, np.random.default_rng(1))
    return Population.from_changelog(changelog, CALENDAR, AtMost(3)).resampled(10_000, np.random.default_rng(2))


@pytest.fixture(scope="module")
def survey(population):
    return paper_survey(population.answers, CALENDAR, AtMost(3), epsilon=Decimal(20), layers=3)


@pytest.fixture(scope="module")
def experiment(population, survey) -> Experiment:
    return simulate(population, survey, np.random.default_rng(3))


@pytest.fixture
def asked(population, survey):
    def asked(seed: int, **field) -> Experiment:
        return in_the_field(population, survey, Field(**field), np.random.default_rng(seed))

    return asked


@pytest.mark.heavy
def test_estimates_are_unbiased_for_the_frozen_histogram_with_the_variance_they_state(population, survey):
    """100 surveys: mean error and mean squared error within five of their standard errors (false alarm 2e-5)."""
    experiments = [simulate(population, survey, np.random.default_rng([3, i])) for i in range(100)]
    errors = np.array([e.estimates - e.frozen for e in experiments])
    stated = np.mean([e.variances for e in experiments], axis=0)
    assert np.abs(errors.mean(0) / np.sqrt(stated / 100)).max() < 5
    assert np.abs((errors**2).mean(0) / stated - 1).max() < 5 * np.sqrt(2 / 100)


def test_errors_come_apart_into_noise_and_freezing():
    """Freezing is the population's own bias, whatever was drawn."""
    changelog = synthetic_changelog(2, 3_000, 3, CALENDAR, np.random.default_rng(1))
    restless = Population.from_changelog(changelog, CALENDAR, AtMost(3))
    asked = paper_survey(restless.answers, CALENDAR, AtMost(3), epsilon=Decimal(12), layers=2)
    experiment, n = simulate(restless, asked, np.random.default_rng(2)), restless.entries
    frozen = (restless.frozen_histogram() - restless.histogram())[1:] / n
    assert experiment.rms_freezing == pytest.approx(np.sqrt((frozen**2).mean()))
    assert experiment.worst_freezing == pytest.approx(np.abs(frozen).max())
    assert experiment.rms_freezing > 0
    noise = (experiment.estimates - experiment.frozen) / n
    assert experiment.rms_noise == pytest.approx(np.sqrt((noise**2).mean()))
    assert experiment.rms_error <= experiment.rms_noise + experiment.rms_freezing


def test_as_many_entries_as_needed_give_the_wanted_standard_error(population, survey, experiment):
    """With so many entries as one period asks for, its standard error is one point, within 5 percent."""
    needed = experiment.devices_for(0.01)
    worst = int(needed.argmax())
    many = population.resampled(round(needed[worst]), np.random.default_rng(4))
    again = simulate(many, survey, np.random.default_rng(5))
    assert np.sqrt(again.variances[worst].mean()) / many.entries == pytest.approx(0.01, rel=0.05)


def test_entries_needed_are_the_planners_where_published_errors_are_bounds(tmp_path):
    """Of histories the published variance is an upper bound, several times what is true: the CSV marks it, and the
    entries needed are predicted, not taken from it.
    """
    closed = closed_cohort(20_000, 2, periods=12, most_changes=3, generator=np.random.default_rng(1))
    histories = design("?", closed.answers, periods=12, every="4w", at_most=3, epsilon=4, closed=True).survey
    experiment = simulate(closed, histories, np.random.default_rng(2))
    needed = experiment.devices_for(0.01)
    assert needed.mean() == pytest.approx(exact_error(closed, histories).devices_for(0.01))
    assert needed.mean() < 0.5 * (experiment.variances.mean(1) / experiment.counted / 0.01**2).mean()
    marked = [row["upper_bound"] for row in _written(experiment, tmp_path)]
    assert [each == "True" for each in marked[::2]] == experiment.upper_bound.tolist()
    assert experiment.upper_bound.any()
    assert [row["upper_bound"] for row in experiment.as_fields()["rows"]][::2] == experiment.upper_bound.tolist()


def test_a_csv_of_it_holds_every_period_and_answer(experiment, tmp_path):
    """In entries, with times that name their zone; the file reads back."""
    rows = _written(experiment, tmp_path)
    assert [(row["period"], row["answer"]) for row in rows] == [
        (str(period), answer) for period in range(1, 9) for answer in experiment.survey.answers
    ]
    assert rows[0]["time"] == "2026-01-02T00:00:00Z"
    for column, figures in (("truth", experiment.truth), ("estimate", experiment.estimates)):
        assert [float(row[column]) for row in rows] == pytest.approx(figures.ravel(), abs=0.001)


def _written(experiment, folder):
    experiment.write_csv(folder / "out.csv")
    with (folder / "out.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("answers", [1, 4])
def test_a_plot_has_a_panel_an_answer(answers, tmp_path):
    """And is a PNG that says epsilon and entries, whether or not a period has a standard error."""
    rows = [(str(i), CALENDAR.start + 1 + i, f"answer {i % answers}") for i in range(20)]
    population = Population.from_changelog(read_rows(rows), CALENDAR, AtMost(1))
    survey = paper_survey(population.answers, CALENDAR, AtMost(1), epsilon=Decimal("0.5"))
    save_plot(simulate(population, survey, np.random.default_rng(6)), tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_where_nothing_goes_wrong_the_field_is_the_laboratory(asked, experiment):
    """The same truth, entries and stated variances, within what their seeds explain."""
    quiet = asked(3)
    for figures in ("truth", "frozen", "counted"):
        assert np.array_equal(getattr(quiet, figures), getattr(experiment, figures))
    assert quiet.heard == experiment.heard == 1
    assert quiet.gaps == 0
    assert quiet.standard_errors == pytest.approx(experiment.standard_errors, rel=0.05)


def test_an_outage_leaves_gaps_and_the_rest_is_as_good_as_ever(asked, tmp_path):
    """Periods that nothing identifies are nan, and empty in a CSV; later ones are estimated through wide nodes."""
    experiment = asked(4, outage=Node(2, 3))
    assert np.isnan(experiment.estimates[:, 0]).tolist() == [at == 2 for at in range(8)]
    assert experiment.gaps == 1
    assert experiment.rms_noise < 0.1
    assert np.isnan(experiment.devices_for()).sum() == 1
    assert [row["period"] for row in _written(experiment, tmp_path) if not row["estimate"]] == ["3", "3"]


def test_shares_are_about_those_who_have_enrolled(asked):
    """Arrivals, of whom everybody is heard: as many are counted as have come; and what is late is not yet counted."""
    arriving = asked(5, arrivals=0.1)
    assert np.array_equal(arriving.counted, arriving.enrolled)
    assert (np.diff(arriving.enrolled) > 0).all()
    assert arriving.entries == 10_000
    assert arriving.true_shares.sum(1) == pytest.approx(np.ones(8))
    late = asked(5, late=0.2)
    assert late.counted[0] == pytest.approx(8_000, rel=0.05)
    assert late.counted[-1] == 10_000


def test_a_clock_that_is_behind_reports_changes_late_and_nothing_else(asked):
    """Everybody's is: as time t the estimates are of the frozen histories at t - 1, but for the first."""
    behind, half, punctual = asked(7, behind=1), asked(7, behind=0.5), asked(7)
    late = np.vstack([behind.frozen_shares[:1], behind.frozen_shares[:-1]])
    for other in (behind, half):
        assert np.array_equal(other.frozen, punctual.frozen)
    off = np.abs(behind.estimated_shares - late) / (behind.standard_errors / behind.counted[:, None])
    assert off.max() < 5  # 16 estimates, each within 5 standard errors but for a chance of 6e-7


def test_liars_count_as_entries_and_raise_what_they_push(asked):
    """A twentieth of invented entries: at random they move a share a little, pushing one by far more."""
    honest, random, pushing = asked(8), asked(8, liars=0.05), asked(8, liars=0.05, pushed=2)
    assert random.counted.tolist() == pushing.counted.tolist() == [10_500] * 8
    assert np.array_equal(pushing.truth, honest.truth)
    raised = (pushing.estimated_shares - honest.estimated_shares)[-1]
    assert raised[1] > 0.05
    assert np.abs(random.estimated_shares - honest.estimated_shares).max() < raised[1]


def test_trials_say_what_a_field_does(population, survey):
    """20 surveys with a tenth offline: heard 90%, no bias beyond chance, and intervals that hold about as often."""
    generators = [np.random.default_rng([6, i]) for i in range(20)]
    offline = tried(population, survey, Field(offline=0.1), generators)
    assert offline.heard.mean() == pytest.approx(0.9, abs=0.01)
    assert offline.bias < 2 * offline.bias_by_chance
    assert 0.9 < offline.coverage <= 1
    assert offline.gaps == 0


def test_bias_is_told_from_chance():
    """Errors that are one on average, beside errors around nothing; what is never estimated counts in neither."""
    noise = np.random.default_rng(7).normal(size=(400, 3, 2))
    noise[:, 1] = np.nan
    unbiased, biased = (Trials(noise + bias, np.ones_like(noise), np.ones(400)) for bias in (0, 1))
    assert unbiased.bias == pytest.approx(unbiased.bias_by_chance, rel=0.7)
    assert biased.bias == pytest.approx(1, abs=0.2)
    assert unbiased.gaps == pytest.approx(1 / 3)
    nothing = Trials(np.full((2, 1, 1), np.nan), np.full((2, 1, 1), np.nan), np.zeros(2))
    assert np.isnan([nothing.rms_error, nothing.bias, nothing.coverage]).all()


def test_a_changelog_is_moved_as_a_whole():
    """Its first mutation to the end of the first period, and no two nearer to each other."""
    changelog = read_rows([("1", 100, "a"), ("1", 86_500, "b"), ("2", 604_900, "a")])
    moved = aligned(changelog, CALENDAR)
    assert moved.time[0] == CALENDAR.time(1) * 10**6
    assert np.array_equal(np.diff(moved.time), np.diff(changelog.time))
    check_dates(moved, CALENDAR)
    with pytest.raises(ValueError, match="0 of the 8 periods"):
        check_dates(changelog, CALENDAR)


@pytest.fixture(scope="module")
def wished():
    return design("<Tea>?", ["yes", "no"], periods=4, epsilon=6, devices=20_000, closed=True)


def test_a_design_is_short_as_text_and_a_table_as_html(wished):
    """No object of a notebook prints its plan; what people are asked is escaped."""
    assert len(repr(wished.survey)) < 200
    assert len(repr(wished.survey.plan)) < 100
    html = wished._repr_html_()
    assert "&lt;Tea&gt;?" in html
    assert "<Tea>" not in html
    assert f"{wished.devices_for(0.01):,} devices" in html


def test_a_run_repeats_by_its_seed_and_is_shown_and_reported(wished, tmp_path):
    """The error is about the predicted one: 8 estimates, so within a factor of 3 but for a chance below 1e-5."""
    run = wished.simulate(changes=0.5, seed=3)
    assert run.rms_error == wished.simulate(changes=0.5, seed=3).rms_error
    assert wished.error / 3 < run.rms_noise < 3 * wished.error
    assert "<table>" in run._repr_html_()
    run.report(tmp_path / "run.html")
    assert "<svg" in (tmp_path / "run.html").read_text()
    assert len(run.plot().axes) == 2


def test_a_pilot_is_what_is_simulated():
    """Its entries stand for all; changes beside it are refused."""
    calendar = synthetic_calendar(periods=4)
    pilot = synthetic_changelog(2, 500, 0.5, calendar, np.random.default_rng(1))
    wished = design("?", pilot.answers, periods=4, epsilon=6, devices=5_000, pilot=pilot)
    assert wished.simulate(seed=1).entries == 5_000
    with pytest.raises(ValueError, match="a pilot has changes of its own"):
        wished.simulate(changes=1)
