"""`changeling-sim run` where things go wrong: what switches show, and what is refused by name."""

import csv
import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar, Node
from changeling_simulations import Field, Population, in_the_field, paper_survey, simulate, synthetic_changelog
from changeling_simulations import experiment as trials
from changeling_simulations.changelogs import aligned, check_dates
from changeling_simulations.experiment import Trials, tried
from changeling_statistics import read_rows, write_survey

from tests.command_line import changeling_sim as main
from tests.command_line import invoked

CALENDAR = Calendar(1_767_225_600, 86_400, 8)
SMALL = ["--synthetic", "--answers", "2", "--changes", "1", "--periods", "4", "--period", "1d", "--entries", "50000"]
PLAN = ["--at-most", "4", "--epsilon", "20"]


def invoke(*arguments: str):
    return invoked(main, "run", *arguments)


@pytest.fixture(scope="module")
def population():
    changelog = synthetic_changelog(2, 2_000, 1, CALENDAR, np.random.default_rng(1))
    return Population.from_changelog(changelog, CALENDAR, AtMost(3)).resampled(10_000, np.random.default_rng(2))


@pytest.fixture(scope="module")
def survey(population):
    return paper_survey(population.answers, CALENDAR, AtMost(3), epsilon=Decimal(20), layers=3)


def test_where_nothing_goes_wrong_the_field_is_the_laboratory(population, survey):
    """The same truth, entries and stated variances, within what their seeds explain."""
    quiet = in_the_field(population, survey, Field(), np.random.default_rng(3))
    laboratory = simulate(population, survey, np.random.default_rng(3))
    assert np.array_equal(quiet.truth, laboratory.truth)
    assert np.array_equal(quiet.frozen, laboratory.frozen)
    assert np.array_equal(quiet.counted, laboratory.counted)
    assert quiet.heard == laboratory.heard == 1
    assert quiet.standard_errors == pytest.approx(laboratory.standard_errors, rel=0.05)


def test_an_outage_leaves_gaps_and_the_rest_is_as_good_as_ever(population, survey, tmp_path):
    """Periods that nothing identifies are nan, and empty in a CSV; later ones are estimated through wide nodes."""
    experiment = in_the_field(population, survey, Field(outage=Node(2, 3)), np.random.default_rng(4))
    assert np.isnan(experiment.estimates[:, 0]).tolist() == [at == 2 for at in range(8)]
    assert experiment.gaps == 1
    assert experiment.rms_noise < 0.1
    assert np.isnan(experiment.devices_for()).sum() == 1
    experiment.write_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["period"] for row in rows if not row["estimate"]] == ["3", "3"]


def test_shares_are_about_those_who_have_enrolled(population, survey):
    """Arrivals, of whom everybody is heard: as many are counted as have come; and what is late is not yet counted."""
    arriving = in_the_field(population, survey, Field(arrivals=0.1), np.random.default_rng(5))
    assert np.array_equal(arriving.counted, arriving.enrolled)
    assert (np.diff(arriving.enrolled) > 0).all()
    assert arriving.entries == 10_000
    assert arriving.true_shares.sum(1) == pytest.approx(np.ones(8))
    late = in_the_field(population, survey, Field(late=0.2), np.random.default_rng(5))
    assert late.counted[0] == pytest.approx(8_000, rel=0.05)
    assert late.counted[-1] == 10_000


def test_a_clock_that_is_behind_reports_changes_late_and_nothing_else(population, survey):
    """Everybody's is: as time t the estimates are of the frozen histories at t - 1, but for the first."""
    behind = in_the_field(population, survey, Field(behind=1), np.random.default_rng(7))
    late = np.vstack([behind.frozen_shares[:1], behind.frozen_shares[:-1]])
    punctual = in_the_field(population, survey, Field(), np.random.default_rng(7))
    assert np.array_equal(behind.frozen, punctual.frozen)
    off = np.abs(behind.estimated_shares - late) / (behind.standard_errors / behind.counted[:, None])
    assert off.max() < 5  # 16 estimates, each within 5 standard errors but for a chance of 6e-7
    half = in_the_field(population, survey, Field(behind=0.5), np.random.default_rng(7))
    assert np.array_equal(half.frozen, punctual.frozen)


def test_liars_count_as_entries_and_raise_what_they_push(population, survey):
    """A twentieth of invented entries: at random they move a share a little, pushing one by far more."""
    honest, random, pushing = (
        in_the_field(population, survey, field, np.random.default_rng(8))
        for field in (Field(), Field(liars=0.05), Field(liars=0.05, pushed=2))
    )
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


def test_switches_show_what_they_do_alone_and_together(monkeypatch):
    """A row where everybody answers, one for each switch, one for all."""
    monkeypatch.setattr(trials, "ENTRIES_A_TRIAL", 0)
    monkeypatch.setattr(trials, "FEWEST", 4)
    result = invoke(*SMALL, *PLAN, "--offline", "10%", "--spell", "3", "--outage", "3")
    assert result.exit_code == 0, result.output
    rows = [line for line in result.output.splitlines() if "%" in line and "│" in line]
    first = [row.split("│")[1].strip() for row in rows[-4:]]
    assert first == ["everybody answers", "--offline", "--outage", "all of these"]
    assert "over 4 surveys each" in result.output
    assert "1 of the periods are not estimable" in result.output
    alone = invoke(*SMALL, *PLAN, "--uninstalls", "0.02")
    assert "all of these" not in alone.output


def test_a_minimum_is_kept(tmp_path):
    """The command line's, else that of the survey's file; what is below it is a gap."""
    file, out = tmp_path / "survey.json", tmp_path / "out.csv"
    asked = paper_survey(("tea", "coffee"), CALENDAR, AtMost(3), epsilon=Decimal(9))
    write_survey(file, replace(asked, minimum=1_000_000))
    for options, empty in (([], True), (["--minimum", "2"], False)):
        result = invoke("--synthetic", "--changes", "1", "--survey", str(file), "--csv", str(out), *options)
        assert result.exit_code == 0, result.output
        with out.open() as written:
            assert all((row["estimate"] == "") == empty for row in csv.DictReader(written))


OVERRIDDEN = (
    "--answers 3, --period 1d, --start 2026-01-01, --periods 9, --at-most 2, --within 1d, --branching 3, --layers 2, "
    "--epsilon 4"
)


def test_what_a_survey_says_itself_is_refused_beside_it(tmp_path):
    """Each such option by its name."""
    for option, value in (each.split() for each in OVERRIDDEN.split(", ")):
        result = invoke("--synthetic", "--survey", str(tmp_path / "survey.json"), option, value)
        assert result.exit_code == 1
        assert f"{option} is the survey's own" in " ".join(result.stderr.split())


def test_a_survey_of_other_dates_is_refused_or_the_changelog_moved(tmp_path):
    """Never simulated as if nobody changed; what is too short for it is refused even so."""
    file = tmp_path / "survey.json"
    answers = ("employment", "further education", "higher education", "joblessness", "school", "training")
    week = 7 * 86_400
    write_survey(file, paper_survey(answers, Calendar(1_767_225_600, 24 * week, 13), AtMost(5), epsilon=Decimal(9)))
    refused = invoke("school-to-work", "--survey", str(file))
    assert refused.exit_code == 1
    assert "which is 0 of the 13 periods from 2026-01-01" in " ".join(refused.stderr.split())
    assert "move it with --align" in " ".join(refused.stderr.split())
    moved = invoke("school-to-work", "--survey", str(file), "--align")
    assert moved.exit_code == 0, moved.output
    write_survey(file, paper_survey(answers, Calendar(1_767_225_600, 24 * week, 26), AtMost(5), epsilon=Decimal(9)))
    short = invoke("school-to-work", "--survey", str(file), "--align")
    assert short.exit_code == 1
    assert "choose fewer or shorter periods" in " ".join(short.stderr.split())
    assert "--align moves a changelog" in invoke("--synthetic", "--align").stderr


def test_a_changelog_is_moved_as_a_whole():
    """Its first mutation to the end of the first period, and no two nearer to each other."""
    changelog = read_rows([("1", 100, "a"), ("1", 86_500, "b"), ("2", 604_900, "a")])
    moved = aligned(changelog, CALENDAR)
    assert moved.time[0] == CALENDAR.time(1) * 10**6
    assert np.array_equal(np.diff(moved.time), np.diff(changelog.time))
    check_dates(moved, CALENDAR)
    with pytest.raises(ValueError, match="0 of the 8 periods"):
        check_dates(changelog, CALENDAR)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--offline", "1.5"], "'--offline': a rate is from 0 to 1, got 1.5"),
        (["--arrivals", "-0.1"], "'--arrivals': a rate is from 0 to 1, got -0.1"),
        (["--uninstalls", "nan"], "'--uninstalls': a rate is from 0 to 1"),
        (["--reinstalls", "often"], "'--reinstalls': a rate is a number such as 0.05, or 5%"),
        (["--late", "120%"], "'--late': a rate is from 0 to 1"),
        (["--outage", "sunday"], "'--outage': periods are like 5 or 5-7"),
        (["--outage", "7-5"], "'--outage': periods are like 5 or 5-7"),
        (["--spell", "3"], "say how many are offline, too"),
        (["--push", "answer 1"], "say how many lie, too"),
        (["--liars", "1%", "--push", "tea"], "there is no 'tea'"),
        (["--reluctant", "tea:5%"], "there is no 'tea'"),
        (["--reluctant", "answer 1"], "a rate is a number such as 0.05, or 5%, got 'answer 1'"),
        (["--reluctant", "answer 1:often"], "a rate is a number such as 0.05, or 5%"),
        (["--behind", "2"], "'--behind': a rate is from 0 to 1, got 2"),
        (["--world", "flat"], "'flat' is not one of 'drift', 'shift', 'seasons', 'heavy'"),
        (["--offline", "0.9", "--spell", "2"], "too few for offline = 0.9"),
        (["--offline", "1"], "somebody has to be heard"),
        (
            ["--offline", "0.1", "--entries", "3000000", "--at-most", "2", "--periods", "4", "--changes", "1"],
            "at most 2,000,000",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments, fault):
    """No traceback, and an exit code."""
    result = invoke("--synthetic", "--periods", "8", *arguments)
    assert result.exit_code in (1, 2)
    assert fault in re.sub(r"[\s│]+", " ", result.stderr)
