"""Surveys whose questions differ: shares of the entries, weights, what stays within epsilon; and `--questions FILE`."""

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar, History, Question
from changeling_statistics import (
    PlannedQuestions,
    Questionnaire,
    WeightedQuestion,
    Wish,
    estimand_error,
    optimal_plan,
    plan_questionnaire,
    predict,
    questions_in_words,
    read_survey,
    steady_changes,
)

from tests.command_line import changeling as run
from tests.command_line import changeling_sim as main
from tests.command_line import invoked

CALENDAR = Calendar(0, "1w", 4)


def question(name: str, answers: int, k: int = 2) -> Question:
    named = tuple(f"{name}{each}" for each in range(answers))
    return Question(name, f"{name}?", named, AtMost(k), steady_changes(CALENDAR, AtMost(k)))


def wanted(*asked: WeightedQuestion, **fields: object) -> Questionnaire:
    rest: dict[str, object] = {"closed": True, "bridge": False, **fields}
    return Questionnaire(asked, CALENDAR, Decimal(4), 20_000, **rest)  # type: ignore[arg-type]


UNLIKE = (
    WeightedQuestion(question("a", 2, 1), 4),
    WeightedQuestion(question("b", 4)),
    WeightedQuestion(question("c", 3, 3), 2),
)


@pytest.fixture(scope="module")
def planned() -> PlannedQuestions:
    return plan_questionnaire(wanted(*UNLIKE))


def moved(planned: PlannedQuestions, part: int, factor: float) -> float:
    """The weighted mean squared error with one class's share multiplied."""
    plan, of_part = planned.survey.plan, set(planned.parts[part].places)
    groups = [
        replace(group, share=round(group.share * (factor if group.tracks[0].question in of_part else 1)))
        for group in plan.groups
    ]
    survey = replace(planned.survey, plan=replace(plan, groups=tuple(groups)))
    squares = [predict(survey.about(at), 20_000).mean ** 2 for at in range(len(UNLIKE))]
    return float(np.average(squares, weights=[each.weight for each in planned.wish.asked]))


def test_no_other_shares_of_the_classes_have_less_weighted_error(planned):
    """A tenth more or less of the entries for any class raises the weighted squared errors; more weight moves them."""
    assert len(planned.parts) == 3
    assert moved(planned, 0, 1) == pytest.approx(planned.total**2, rel=1e-6)
    for part in range(3):
        assert min(moved(planned, part, 0.9), moved(planned, part, 1.1)) > planned.total**2
    heavier = plan_questionnaire(wanted(UNLIKE[0], replace(UNLIKE[1], weight=16), UNLIKE[2]))
    assert heavier.error(1) < planned.error(1)
    assert heavier.error(0) > planned.error(0)


def test_every_question_is_planned_within_the_one_epsilon(planned):
    """The survey is made, so what it states bounds what it costs; every question is asked of somebody."""
    assert planned.survey.cost <= 4
    assert any(isinstance(group.joint, History) for group in planned.survey.plan.groups), "of unlike constraints"
    assert {track.question for track in planned.survey.plan.tracks} == {0, 1, 2}
    assert "of the devices are asked about a" in questions_in_words(planned)


def test_questions_that_could_be_one_class_are_planned_as_one_where_that_is_better():
    """Asked once at a large epsilon, all answer all: alike in their answers, they differ in weight and constraint."""
    once, ten = Calendar(0, "1w", 1), [question(f"q{at}", 4, 1 + at % 3) for at in range(10)]
    wish = Questionnaire(tuple(map(WeightedQuestion, ten)), once, Decimal(8), 20_000, closed=True)
    planned = plan_questionnaire(wish)
    assert len(planned.parts) == 1
    assert planned.total == pytest.approx(optimal_plan(wish.wish(range(10), 20_000)).option.prediction.mean)
    assert planned.total < 0.0048


def test_a_hundred_questions_of_several_kinds_have_a_plan():
    """Four kinds of twenty-five, of which every entry is asked about one kind."""
    asked = [WeightedQuestion(question(f"q{at}", 2 + at % 2, 1), 1 + at % 4 // 2) for at in range(100)]
    once = Calendar(0, "1w", 1)
    planned = plan_questionnaire(Questionnaire(tuple(asked), once, Decimal(8), 100_000, closed=True, minimum=100))
    assert planned.survey.cost <= 8
    assert all(np.isfinite(planned.error(place)) for place in range(100))
    assert planned.least_reports >= 100


def test_what_cannot_be_planned_is_refused_with_what_would_do():
    """Too many kinds, no weight, no question."""
    kinds = [WeightedQuestion(question(f"q{at}", 2 + at)) for at in range(33)]
    with pytest.raises(ValueError, match="got 33: make some of them alike"):
        plan_questionnaire(wanted(*kinds))
    with pytest.raises(ValueError, match="the weight of 'a' must be above 0"):
        WeightedQuestion(question("a", 2), 0)
    with pytest.raises(ValueError, match="1 to 256 questions, got 0"):
        wanted()


def test_the_error_of_a_mean_is_that_of_its_shares():
    """Against the covariance of a response that treats answers alike and adds up to nothing; rounding beside it."""
    asked = Question.of_number("n", "N?", ["0", "10", "40"], AtMost(1))
    share = 0.01
    covariance = share**2 * 3 / 2 * (np.eye(3) - 1 / 3)
    levels = np.array(asked.values)
    expected = np.sqrt(levels @ covariance @ levels + 15**2 / 10_000)
    assert estimand_error("mean", asked, share, 10_000).error == pytest.approx(expected)
    with pytest.raises(ValueError, match="is no number"):
        estimand_error("mean", question("a", 2), share, 10_000)


def test_a_hundred_questions_are_planned_within_the_tracks_that_a_plan_may_have():
    """Groups about many of them would each take more tracks than that, and be the best at this epsilon."""
    once = Calendar(0, "1w", 1)
    wish = Wish(4, once, AtMost(1), epsilon=16, devices=20_000, closed=True, bridge=False, questions=100)
    plan = optimal_plan(wish).option.survey.plan
    assert sum(len(group.tracks) for group in plan.groups) <= wish.most_tracks
    assert {track.question for group in plan.groups for track in group.tracks} == set(range(100))


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


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "questions.toml"
    path.write_text(FILE)
    return path


def plan(*arguments):
    return invoked(main, "plan", *USUAL, "--horizon", "3w", *arguments)


def test_questions_that_differ_become_one_survey(tmp_path, file):
    """Both commands read the file alike; each question's error and its figure are printed."""
    path = tmp_path / "survey.json"
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
def test_a_file_that_asks_nothing_sensible_is_refused(file, text, said):
    """One line, which says which question and what is wrong."""
    file.write_text(text)
    refused = plan("--questions", str(file))
    assert refused.exit_code == 1
    assert said in " ".join(refused.stderr.split())


def test_options_of_one_question_beside_a_file_are_refused(file):
    """Each of its questions says them itself."""
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


def test_each_question_of_a_survey_is_simulated_by_its_name(tmp_path, file):
    """Names and numbers; the noise is near what was predicted for the question. Without a name, the names are told."""
    path = tmp_path / "survey.json"
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
