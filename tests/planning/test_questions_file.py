"""`--questions FILE` of `survey new` and `plan`, and `--for`: what is written, printed and refused."""

import json

import pytest
from changeling_statistics import predict, read_survey

from tests.command_line import changeling as run
from tests.command_line import changeling_sim as main
from tests.command_line import invoked

FILE = """
[[question]]
name = "drink"
text = "What do you drink?"
answers = ["tea", "coffee"]
at_most = 2
weight = 3
[[question]]
name = "minutes"
text = "How long?"
levels = [0, 10.5, 60]
unit = "min"
at_most = 1
for = "mean"
"""
USUAL = ["--period", "1w", "--epsilon", "4", "--devices", "2e4", "--closed"]


def plan(*arguments):
    return invoked(main, "plan", *USUAL, "--horizon", "3w", *arguments)


def test_questions_that_differ_become_one_survey(tmp_path):
    """Both commands read the file alike; each question's error and its figure are printed."""
    file, path = tmp_path / "questions.toml", tmp_path / "survey.json"
    file.write_text(FILE)
    shown = plan("--questions", str(file), "-o", str(path), "--detect", "0.05")
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())
    assert "of the devices are asked about drink" in said
    assert "the mean: ±" in said
    assert "minutes: Arms that differ by 5 points" in said
    survey = read_survey(path)
    assert [each.name for each in survey.questions] == ["drink", "minutes"]
    assert survey.questions[1].answers == ("0 min", "10.5 min", "60 min")
    other = tmp_path / "other.json"
    new = ["survey", "new", *USUAL, "--periods", "3", "--questions", str(file), "-o", str(other)]
    assert run([*new, "--minimum", "1", "--breakdown", "arm:A,B"]) == 0
    assert read_survey(other).breakdowns[0].name == "arm"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lists no questions"),
        ("[[question]", "questions.toml"),
        ('[[question]]\nname = "a"', "question 1: it has no name or no text"),
        ('[[question]]\nname = "a"\ntext = "A?"\nanswers = 2', "question 1: say how an entry's answer may change"),
        ('[[question]]\nname = "a"\ntext = "A?"\nat_most = 1', "either answers, levels or range"),
        ('[[question]]\nname = "a"\ntext = "A?"\nanswers = 2\nat_most = 1\nwheight = 2', "it has wheight"),
        ('[[question]]\nname = "a"\ntext = "A?"\nanswers = 2\nat_most = 1\nweight = 0', "must be above 0"),
        ('[[question]]\nname = "a"\ntext = "A?"\nrange = [3, 1]\nat_most = 1', "question 1: a range rises"),
        ('[[question]]\nname = "a"\ntext = "A?"\nanswers = 2\nat_most = 1\nfor = "mode"', "for is one of histogram"),
    ],
)
def test_a_file_that_asks_nothing_sensible_is_refused(tmp_path, text, said):
    """One line, which says which question and what is wrong."""
    file = tmp_path / "questions.toml"
    file.write_text(text)
    refused = plan("--questions", str(file))
    assert refused.exit_code == 1
    assert said in " ".join(refused.stderr.split())


def test_options_of_one_question_beside_a_file_are_refused(tmp_path):
    """Each of its questions says them itself."""
    file = tmp_path / "questions.toml"
    file.write_text(FILE)
    assert "leave out --question" in plan("--questions", str(file), "--answers", "2").stderr
    assert "--answers, or a file of --questions" in plan("--at-most", "1").stderr
    several = ("--question", "a=A?", "--question", "b=B?", "--answers", "2", "--at-most", "1")
    assert "plans are compared for one question" in plan(*several).stderr


@pytest.mark.heavy
def test_the_planner_chooses_the_levels_of_a_range_for_its_mean(tmp_path):
    """At little noise many levels are best, at much two are; the error of the mean is printed, in its unit."""
    path, few = tmp_path / "survey.json", ["--at-most", "1", "--minimum", "1", "--answers", "0..100", "--unit", "min"]
    shown = invoked(main, "plan", *USUAL[:2], "--epsilon", "0.3", *USUAL[4:], "--horizon", "1w", *few, "-o", str(path))
    assert shown.exit_code == 0, shown.output
    assert read_survey(path).questions[0].answers == ("0 min", "100 min")
    shown = plan("--for", "mean", *few, "-o", str(path), "--epsilon", "16")
    assert len(read_survey(path).questions[0].answers) > 2
    assert " min." in next(line for line in shown.output.splitlines() if "Error of the mean" in line)
    assert "is no number" in plan("--for", "mean", "--answers", "2", "--at-most", "1").stderr


def test_each_question_of_a_survey_is_simulated_by_its_name(tmp_path):
    """Names and numbers; the noise is near what was predicted for the question. Without a name, the names are told."""
    file, path = tmp_path / "questions.toml", tmp_path / "survey.json"
    file.write_text(FILE)
    shown = plan("--questions", str(file), "-o", str(path), "--minimum", "1")
    assert shown.exit_code == 0, shown.output
    run_it = ["run", "--synthetic", "--survey", str(path), "--entries", "2e4", "--changes", "0", "--seed", "3"]
    survey = read_survey(path)
    for place, name in enumerate(("drink", "minutes")):
        simulated = json.loads(invoked(main, *run_it, "--question", name, "--json").stdout)
        predicted = predict(survey.about(place), 20_000).mean
        assert simulated["answers"] == list(survey.questions[place].answers)
        assert 0.3 < simulated["rms_noise"] / predicted < 2
    assert "say which with --question, of drink, minutes" in invoked(main, *run_it).stderr
