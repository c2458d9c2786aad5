"""`changeling-sim plan`: tables, pictures, and a survey file that can be signed."""

import re

import pytest
from changeling_statistics import read_survey

from tests.command_line import changeling as run
from tests.command_line import changeling_sim as main
from tests.command_line import invoked

from .wishes import without_histories

USUAL = ["--answers", "3", "--horizon", "8d", "--period", "1d", "--epsilon", "4", "--devices", "2e4"]


def plan(*arguments):
    return invoked(main, "plan", *arguments)


def test_it_prints_every_plan_and_says_which_kind_wins(tmp_path, monkeypatch):
    """A row for each plan in both tables, devices for one point, two losses, and the verdict; and who answers at
    first stands in the survey that is written. The picture may be of more periods than are drawn."""
    path, picture = tmp_path / "survey.json", tmp_path / "plan.png"
    monkeypatch.setattr("changeling_simulations.plots.MOST_SHOWN", 3)
    arguments = ["--at-most", "2", "--first-share", "0.4", "-o", str(path), "--anyway", "--plot", str(picture)]
    shown = plan(*USUAL, *arguments)
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())
    for name in ("paper HDCR", "flat DCR", "sampled hierarchy", "panel", "optimal"):
        assert said.count(name) >= 2
    for word in ("devices for ±1 point", "at delta 1e-06", "kB sent", "times fewer devices than panel"):
        assert word in said
    assert "shuffled" not in said
    assert "other shares of these same groups" in said
    assert "The best of all reports that keep epsilon, of any kind, would need at most" in said
    assert read_survey(path).expected.first == 400_000
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_shuffled_figure_is_shown_where_the_survey_declares_its_relay(tmp_path):
    """In a column of its own, with its conditions; and the relay stands in the survey that is written. One period has a
    picture as well."""
    path, picture, relay = tmp_path / "survey.json", tmp_path / "plan.png", "https://relay.example.org/here"
    arguments = ["--relay", relay, "-o", str(path), "--plot", str(picture)]
    shown = plan(*USUAL, "--horizon", "1d", "--at-most", "1", *arguments)
    assert shown.exit_code == 0, shown.output
    assert "shuffled" in shown.output
    assert "the same devices every time" in " ".join(shown.output.split())
    assert read_survey(path).relay == relay
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_chosen_plan_becomes_a_survey_that_can_be_signed(tmp_path):
    """`changeling survey sign` takes the file; the signed survey is the one that was planned."""
    unsigned, signed = tmp_path / "survey.json", tmp_path / "survey.signed"
    arguments = ["--at-most", "2", "--choose", "paper", "-o", str(unsigned), "--question", "Which?", "--closed"]
    written = plan(*USUAL, *arguments, "--start", "2026-12-01", "--anyway")
    assert written.exit_code == 0, written.output
    assert run(["authority", "new", "-o", str(tmp_path)]) == 0
    assert run(["survey", "sign", str(unsigned), "--key", str(tmp_path / "authority.key"), "-o", str(signed)]) == 0
    survey = read_survey(signed)
    assert survey.closed
    assert survey.question == "Which?"
    assert survey.answers == ("answer 1", "answer 2", "answer 3")
    assert survey.calendar.periods == 8
    assert survey.cost <= survey.epsilon <= 4
    assert survey.minimum == 100


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--epsilon", "0.0001"], "at least 0.001 to say anything, got 0.0001"),
        (["--at-most", "0"], "k >= 1, got 0"),
        (["--horizon", "10d", "--period", "3d"], "choose 9d or 12d"),
        (["--horizon", "5h"], "choose 1d or 1d"),
        (["--expected-changes", "-1"], "cannot be expected to change -1"),
        (["--expected-changes", "40"], "more than one a period"),
        (["--answers", "0"], "1 to 1000 answers, got 0"),
        (["--expected-changes", "1", "--changes-per-year", "1"], "not both"),
        (["--devices", "50"], "fewer than 100 reports are not published, and there are 50 devices"),
        (["--closed", "--first-share", "0.4"], "everybody answers in the first period"),
        *((["--devices", devices], devices) for devices in ("0", "-5", "1.5", "many")),
        *(
            (["--relay", relay], "https://relay.example.org")
            for relay in ("relay.example.org", "http://relay.example.org", "https://", "https://a:b@c", "http://")
        ),
    ],
)
def test_bad_input_is_one_line_that_names_the_value(arguments, named):
    """The value, and what would do; exit code 2 where an option by itself is none, as a relay that no device would
    speak to is, or devices that are no positive whole number."""
    refused = plan(*USUAL, "--at-most", "3", *arguments)
    by_itself = "--relay" in arguments or named == arguments[-1]
    assert refused.exit_code == (2 if by_itself else 1)
    assert named in " ".join(refused.stderr.split())


def test_a_plan_of_no_such_name_is_refused_before_anything_is_planned(monkeypatch):
    """Planning may take a minute."""
    monkeypatch.setattr("changeling_simulations.commands.compare_plans", pytest.fail)
    assert "--at-most, --within, or both" in " ".join(plan(*USUAL).stderr.split())
    refused = plan(*USUAL, "--at-most", "3", "--choose", "best")
    assert refused.exit_code == 1
    assert "no plan 'best': choose one of paper, flat" in refused.stderr


def test_a_plan_that_would_show_nothing_is_written_only_anyway(tmp_path):
    """The paper's plan of this wish is off by more than ten points: it says so, and --anyway writes it."""
    path = tmp_path / "survey.json"
    wish = ["--horizon", "6d", "--devices", "4000", "--at-most", "3", "--closed"]
    arguments = [*USUAL, *wish, "--choose", "paper", "-o", str(path)]
    refused = plan(*arguments)
    assert refused.exit_code == 1
    assert "points is more than 10, which shows nothing" in " ".join(refused.stderr.split())
    assert "--anyway" in refused.stderr
    assert not path.exists()
    assert plan(*arguments, "--anyway").exit_code == 0
    assert path.exists()


CUT = ["--answers", "4", "--horizon", "32d", "--period", "1d", "--epsilon", "30", "--devices", "2e4"]
CUT += ["--at-most", "2", "--closed", "--expected-changes", "0.15"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("told", "said", "unsaid"),
    [
        (
            (),
            "of the devices are there to bridge a lost period: the mean error is .*"
            "If the server is down as period 16 closes, estimates are back by period 20, with an error of",
            "estimates may be missing",
        ),
        (("--no-bridge",), r"estimates may be missing for 32 periods\.", "there to bridge"),
    ],
)
def test_it_says_what_bridging_a_lost_period_costs_and_leaves_it_out_if_told_to(told, said, unsaid):
    """The share of the devices, both errors, and the error after a loss; or for how long estimates may be missing."""
    with without_histories():
        shown = " ".join(plan(*CUT, "--minimum", "1", *told).output.split())
    assert re.search(said, shown)
    assert unsaid not in shown


@pytest.mark.heavy
def test_it_says_if_nothing_bridges_a_lost_period_at_the_price():
    """At so large a budget, asking even a few devices for something else is dear."""
    with without_histories():
        shown = plan(*CUT)
    assert "Nothing bridges every lost period for 3% of the error." in " ".join(shown.output.split())
