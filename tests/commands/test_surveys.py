"""The commands of surveys: `new` from a wish, `notice`, and `code`, which makes a typed module of it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace

import pytest
from changeling_client import privacy_notice
from changeling_commands import survey_module
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_statistics import predict, read_survey, write_survey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.command_line import changeling as main
from tests.command_line import invoked

from ..protocol.examples import AUTHORITY, PINNED, survey

ROOT = Path(__file__).parents[2]
NEXT = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()
WISH = ["--period", "1w", "--periods", "4", "--epsilon", "8", "--devices", "20000"]
TEA = ["--question", "Tea?", "--answers", "yes,no"]
DAYS = [
    *(*TEA, "--start", "2027-01-31", "--period", "1d", "--horizon", "4d", "--epsilon", "4"),
    *("--devices", "1000", "--minimum", "1", "--at-most", "2"),
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(*words):
    """What `survey new` did, with its file at survey.json."""
    return invoked(main, "survey", "new", *words, "-o", "survey.json")


def made(*words):
    """What it printed, and the survey."""
    done = new(*words)
    assert done.exit_code == 0, done.stderr
    return done.stdout, read_survey(Path("survey.json"))


def test_a_successors_plan_may_be_for_more_changes_than_the_survey_before():
    """Plan, length and constraint are taken together: the new constraint is not held against the old plan."""
    for most, name in (("2", "first.json"), ("4", "planned.json")):
        words = [*DAYS[:-1], most]
        assert invoked(main, "survey", "new", *words, "-o", name).exit_code == 0
    done = invoked(main, "survey", "extend", "first.json", "--plan", "planned.json", "-o", "next.json")
    assert done.exit_code == 0, done.stderr
    assert read_survey(Path("next.json")).constraint == AtMost(4)


def test_a_wish_becomes_a_survey_that_says_what_it_will_show():
    """The planner's plan, at the wished epsilon; the error in points and devices, when it shows, and what it costs."""
    printed, asked = made(*DAYS, "--points", "0.5")
    assert (asked.epsilon, asked.minimum, asked.calendar.periods) == (4, 1, 4)
    assert any(group.joint for group in asked.plan.groups)
    prediction = predict(asked, 1000)
    for words in (
        "What it will show of 1,000 devices",
        f"{100 * prediction.mean:.3g} points, or {float(f'{1000 * prediction.mean:.3g}'):.0f} devices",
        "devices for an error of 0.5 points",
        f"{float(f'{prediction.devices_for(0.005):.3g}'):,.0f}",
        "of period 1, which closes at 2027-02-01T00:00:00Z",
        "65m after a period's close, and 1w after it",
        "what 1 devices reported, or more",
        f"{asked.per_week}",
    ):
        assert words in printed
    assert "warning" not in printed


def test_a_wish_that_would_show_nothing_says_so(here):
    """With too few devices it is written only anyway; with a large minimum, every node of the plan shows."""
    few = (*DAYS, "--devices", "10")
    refused = " ".join(new(*few).stderr.split())
    assert "shows nothing" in refused
    assert "--anyway" in refused
    assert not (here / "survey.json").exists()
    assert made(*few, "--anyway")[1].epsilon == 4
    assert "warning" not in made(*DAYS, "--minimum", "900")[0]
    assert "fewer than 1001 reports" in " ".join(new(*DAYS, "--minimum", "1001").stderr.split())


def test_the_forecast_says_what_each_breakdown_will_show(here):
    """At best, where all values have as many devices; and which is never shown. Nothing is refused."""
    words = [*TEA, *WISH, "--at-most", "2", "--breakdown", "arm:A,B"]
    printed = new(*words)
    assert printed.exit_code == 0
    of_all, of_arm = (
        float(re.search(rf"{row} .*?([\d.]+) points", printed.stdout)[1]) for row in ("of a share, online", "by arm")
    )
    assert "at best 10,000 devices for each of 2 values" in printed.stdout
    assert of_arm == pytest.approx(2**0.5 * of_all, rel=0.01)
    cities = ",".join(f"city {number}" for number in range(500))
    printed = new(*words, "--breakdown", f"city:{cities}")
    assert printed.exit_code == 0
    assert " ".join(re.sub("[│]", "", printed.stdout).split()).count("never shown, as each of 1,000 combinations") == 2
    (here / "two.toml").write_text('[[question]]\nname = "tea"\ntext = "Tea?"\nanswers = ["yes", "no"]\nat_most = 2\n')
    printed = new("--questions", "two.toml", *WISH, "--breakdown", "arm:A,B")
    assert "by arm: at best 10,000 devices for each of 2 values" in printed.stdout, printed.output


def test_a_calendar_that_is_longer_than_its_plan_is_warned_of(here):
    """As whoever writes it by hand may make it: shown or signed, it says of how many periods nothing will be known."""
    _, asked = made(*DAYS)
    write_survey(here / "longer.json", replace(asked, calendar=replace(asked.calendar, periods=7)))
    assert invoked(main, "authority", "new", "-o", "keys").exit_code == 0
    warning = "warning: no node ends with 3 of the 7 periods"
    for name, warned in (("longer.json", True), ("survey.json", False)):
        sign = ("sign", name, "--key", "keys/authority.key", "-o", f"{name}.signed")
        for words in (("show", name), sign):
            done = invoked(main, "survey", *words)
            assert (done.exit_code, warning in done.stdout, "warning" in done.stdout) == (0, warned, warned)


def test_an_unsigned_survey_is_readable_json(here):
    """With its plan, and what it costs; edited so that it costs more than it states, it cannot be signed."""
    invoked(main, "authority", "new", "-o", ".")
    made(*DAYS, "--within", "3d")
    content = json.loads((here / "survey.json").read_text())
    (asked,) = content["survey"]["questions"]
    assert (asked["answers"], asked["constraint"]["kind"]) == (["yes", "no"], "at-most-within")
    assert float(content["cost"]["epsilon"]) == pytest.approx(4)
    content["survey"]["plan"][0]["history"]["odds"] = [100, 1]
    (here / "survey.json").write_text(json.dumps(content))
    sign = ("survey", "sign", "survey.json", "--key", "authority.key", "-o", "signed")
    assert invoked(main, *sign).exit_code == 1
    assert not (here / "signed").exists()


def test_several_questions_share_answers_and_one_epsilon():
    """Each is NAME=TEXT; groups are about one or several of them, and all together cost what was asked."""
    questions = ["--question", "dark=Dark mode?", "--question", "sync=Sync?", "--answers", "on,off"]
    _, asked = made(*questions, *WISH, "--at-most", "2", "--detect", "0.02")
    assert [(each.name, each.text, each.answers) for each in asked.questions] == [
        ("dark", "Dark mode?", ("on", "off")),
        ("sync", "Sync?", ("on", "off")),
    ]
    assert {track.question for track in asked.plan.tracks} == {0, 1}
    assert 0 < asked.cost <= 8
    assert "Sync?  (on, off); at most 2 mutations" in invoked(main, "survey", "show", "survey.json").stdout


def test_answers_with_a_unit_are_levels_of_a_number():
    words = ["--question", "Minutes?", "--answers", "0,30,60.50", "--unit", "min", "--at-most", "2"]
    _, asked = made(*words, *WISH)
    assert asked.only.answers == ("0 min", "30 min", "60.5 min")
    assert (asked.only.values, asked.strata) == ((0, 30, 60.5), OFFSETS)


TWINS = ["--question", "tea=Tea?", "--question", "tea=Milk?", "--answers", "yes,no", *WISH]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([*DAYS, "--question", "milk=Milk?"], "of several questions each is NAME=TEXT"),
        ([*DAYS, "--unit", "cups"], "a level is a decimal number"),
        ([*DAYS, "--at-most", "0"], "k >= 1"),
        ([*DAYS, "--periods", "4"], "either --periods or --horizon"),
        ([*DAYS, "--horizon", "25h"], "no whole number of periods"),
        ([*DAYS, "--epsilon", "much"], "epsilon is a number"),
        ([*DAYS, "--epsilon", "nan"], "epsilon is a number"),
        ([*DAYS, "--epsilon", "-1"], "epsilon must be above 0"),
        ([*DAYS, "--devices", "few"], "write a number such as 20000"),
        ([*DAYS, "--points", "0"], "above 0 points"),
        ([*DAYS, "--start", "soon"], "a time is like"),
        ([*TWINS, "--at-most", "2"], "distinct names"),
        ([*TEA, *WISH], "--at-most, --within, or both"),
        ([*TEA, *WISH, "--answers", "0..9", "--unit", "min"], "--at-most, --within, or both"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(here, words, complaint):
    """On one line, with exit code 1, or 2 where an option cannot be read; nothing is written."""
    done = new(*words)
    assert (done.exit_code in (1, 2), done.stderr.count("\n")) == (True, 1)
    assert complaint in done.stderr
    assert not (here / "survey.json").exists()


def test_the_freezing_question_is_asked_in_a_word_or_by_a_file_of_those_it_names(here):
    """One more question, within the one epsilon, which no app answers; what freezing will do is said beforehand. The
    option beside a file is refused."""
    printed, asked = made(*TEA, "--ask-freezing", "--expected-changes", "2", *WISH, "--at-most", "2")
    assert ([each.name for each in asked.asked], asked.freezing) == (["question"], (1, None))
    assert {track.question for track in asked.plan.tracks} == {0, 1}
    assert 0 < asked.cost <= 8
    assert "Freezing: " in printed
    assert "question-frozen" in printed
    one = '[[question]]\nname = "{}"\ntext = "{}?"\nanswers = 2\nat_most = 2\n'
    (here / "questions.toml").write_text(one.format("a", "A") + one.format("b", "B") + "ask_freezing = true\n")
    words = ("--questions", "questions.toml", *WISH)
    assert [each.freezing_of for each in made(*words)[1].questions] == ["", "", "b"]
    assert "leave out" in new(*words, "--ask-freezing").stderr


def test_on_a_terminal_a_file_is_written_over_only_when_that_is_agreed_to(here, monkeypatch):
    """Asked before anything is planned; a script is not asked, and writes."""
    (here / "survey.json").write_text("kept")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    refused = new(*DAYS)
    assert (refused.exit_code, (here / "survey.json").read_text()) == (1, "kept")
    assert "stays as it is" in refused.stderr
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert made(*DAYS)[1].question == "Tea?"


def test_the_notice_of_a_survey_signed_or_not_is_printed(here):
    """So that it can be read before anything is signed; what is no survey has none."""
    signed, draft = here / "survey.signed", here / "draft.json"
    signed.write_bytes(survey().signed_by(AUTHORITY))
    write_survey(draft, survey())
    for file in (signed, draft):
        assert invoked(main, "survey", "notice", str(file)).stdout == privacy_notice(survey()) + "\n"
    signed.write_text("x")
    done = invoked(main, "survey", "notice", "survey.signed")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "survey.signed holds no survey" in done.stderr


AWKWARD = (
    *("a b", "a-b", "A B", "a b 2", "18 to 24", "18–24", "?!", "…", "None", "class", "mro", "name", "_", "__init__"),
    *("Straße", "STRASSE", "ﬁne", "日本語", "مرحبا", "e\u0301clair", "éclair", "\u0301", "x" * 200, '"""\\', "a\nb"),
    "\u202eright to left",
)
BREAKDOWNS = (
    Breakdown("platform", ("linux", "mac")),
    Breakdown("app version", ("1.0", "1-0", "2.0")),
    Breakdown("class", ("answers", "str")),
    Breakdown("answers", ("None",)),
    Breakdown("AUTHORITY", ("a",)),
    Breakdown("日本", ("はい",)),
)


def module_of(*answers, breakdowns=()):
    return survey_module(replace(survey(answers=answers), breakdowns=breakdowns), PINNED)


def run(text):
    """What the names of a module stand for."""
    names = {"__name__": "drinks"}
    exec(compile(text, "drinks.py", "exec"), names)
    return names


def names_of(*answers):
    return [each.name for each in run(module_of(*answers))["Answers"]]


@pytest.fixture
def signed(here):
    """A folder with a signed survey of awkward texts and its authority's key."""
    asked = replace(survey(answers=AWKWARD), breakdowns=BREAKDOWNS)
    (here / "survey.signed").write_bytes(asked.signed_by(AUTHORITY))
    (here / "authority.pub").write_text(PINNED[0].hex())
    (here / "next.pub").write_text(NEXT.hex())
    return asked


def test_the_module_holds_what_an_app_needs(signed, here):
    """The id, the question, the keys to pin, every answer and every value; made again it is the same text."""
    pinned = ("--authority", "authority.pub", "--authority", "next.pub")
    words = ("survey", "code", "survey.signed", *pinned, "-o", "drinks.py")
    done = invoked(main, *words)
    assert (done.exit_code, done.output) == (0, f"wrote drinks.py, survey {signed.id.hex()}\n")
    text = (here / "drinks.py").read_text()
    names = run(text)
    assert (names["SURVEY"], names["QUESTION"]) == (signed.id.hex(), signed.question)
    assert names["AUTHORITY"] == (PINNED[0], NEXT)
    assert tuple(names["Answers"]) == AWKWARD
    assert tuple(names["AppVersion"]) == ("1.0", "1-0", "2.0")
    enums = {name for name, value in names.items() if isinstance(value, type) and issubclass(value, StrEnum)}
    assert enums - {"StrEnum"} == {"Answers", "Platform", "AppVersion", "Class", "Answers_2", "AUTHORITY_2", "日本"}
    told = names["stratum"](
        platform=names["Platform"].MAC,
        app_version=names["AppVersion"].VALUE_1_0_2,
        class_=names["Class"].STR,
        answers=names["Answers_2"].NONE,
        authority=names["AUTHORITY_2"].A,
        日本=names["日本"].はい,
    )
    values = ("mac", "1-0", "str", "None", "a", "はい")
    assert told == {each.name: value for each, value in zip(BREAKDOWNS, values, strict=True)}
    invoked(main, *words)
    assert (here / "drinks.py").read_text() == text


SEVERAL = (
    Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3)),
    Question.of_number("minutes", "How long?", ["0", "60"], AtMost(3), unit="min"),
    Question("questions", "Any?", ("yes", "no"), AtMost(1)),
    Question("platform", "Which?", ("a", "b"), AtMost(1)),
)


def module_of_several():
    tracks = [Track(1, KaryResponse(StateSpace(2), Odds(2, 1)), 0, 8, question=place) for place in range(len(SEVERAL))]
    plan = ReleasePlan(tuple(Group((each,)) for each in tracks))
    handled = {"skew": 1, "spread": 1, "grace": 60, "minimum": 1}
    asked = Survey.at_cost(questions=SEVERAL, calendar=Calendar(0, 60, 8), plan=plan, **handled)
    return survey_module(replace(asked, breakdowns=BREAKDOWNS[:1]), PINNED)


def test_several_questions_have_their_names_and_answers():
    """An enum of the names, and one for the answers to each that is no number; none takes another's name."""
    names = run(module_of_several())
    assert [*names["Questions"]] == ["drink", "minutes", "questions", "platform"]
    answers = {name: [*names[name]] for name in ("Drink", "Questions_2", "Platform", "Platform_2")}
    expected = [["tea", "coffee"], ["yes", "no"], ["a", "b"], ["linux", "mac"]]
    assert answers == dict(zip(answers, expected, strict=True))
    assert not {"Answers", "QUESTION", "Minutes"} & names.keys()


@pytest.mark.usefixtures("signed")
def test_a_survey_that_no_pinned_key_signed_is_made_into_no_code(here):
    """Another's key, a draft, no survey: one line, exit code 1, and no file. Without a key it asks for one."""
    code = ("survey", "code", "survey.signed", "-o", "drinks.py")
    assert "--authority" in invoked(main, *code).stderr
    file = here / "survey.signed"
    for authority, change, sentence in (
        ("next.pub", lambda: None, "survey.signed is signed by none of these"),
        ("authority.pub", lambda: write_survey(file, survey()), "survey.signed is signed by none of these"),
        ("authority.pub", lambda: file.write_bytes(b"x"), "survey.signed holds no survey"),
    ):
        change()
        done = invoked(main, *code, "--authority", authority)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert sentence in done.stderr
    assert not (here / "drinks.py").exists()


@given(st.lists(st.text(min_size=1), min_size=2, max_size=6, unique=True))
def test_whatever_the_texts_are_there_is_a_name_for_each(answers):
    """The module's enum gives each text back, in order; nothing in it is invisible or turns letters around."""
    text = module_of(*answers)
    assert [*run(text)["Answers"]] == answers
    assert all(line.isprintable() for line in text.splitlines())


CALLED = st.sampled_from(["a", "A", "a 2", "Answers", "str enum", "stratum", "class", "\u202e", '"""', "\\"])
TEXTS = st.lists(CALLED | st.text(min_size=1, max_size=4), min_size=2, max_size=4, unique=True)


@settings(max_examples=40)
@given(TEXTS, TEXTS, TEXTS)
def test_whatever_questions_and_breakdowns_are_called_none_takes_anothers_name(named, answers, public):
    """Nor does any text of theirs become code."""
    questions = [Question(name, f"{name}?", tuple(answers), AtMost(1)) for name in named]
    space, breakdowns = StateSpace(len(answers)), tuple(Breakdown(name, tuple(answers)) for name in public)
    groups = [Group((Track(1, KaryResponse(space, Odds(2, 1)), 0, 8, question=at),)) for at in range(len(named))]
    made = {"calendar": Calendar(0, 60, 8), "plan": ReleasePlan(tuple(groups)), "breakdowns": breakdowns}
    text = survey_module(Survey.at_cost(questions=questions, skew=1, spread=1, grace=60, minimum=1, **made), PINNED)
    enums = [each for each in run(text).values() if isinstance(each, type) and issubclass(each, StrEnum)]
    assert [[*each] for each in enums[1:]] == [named, *[answers] * (len(named) + len(public))]
    assert all(line.isprintable() for line in text.splitlines())


def test_names_do_not_depend_on_what_follows():
    """An answer that is added at the end leaves the names of the others, if it does not spell one of theirs."""
    assert names_of("a b", "a-b") == names_of("a b", "a-b", "c")[:2]
    assert names_of("a b", "a-b", "a b 2") == ["A_B", "A_B_3", "A_B_2"]


RIGHT = """\
from changeling_client import Client, SurveyHandle
from drinks import AUTHORITY, SURVEY, Answers, AppVersion, Platform, stratum
from several import Drink, Questions

def begin(client: Client) -> SurveyHandle:
    told = stratum(platform=Platform.LINUX, app_version=AppVersion.VALUE_2_0)
    return client.join(SURVEY, stratum=told)

def answer(handle: SurveyHandle) -> None:
    handle.record(Answers.TEA)

def answer_several(handle: SurveyHandle) -> None:
    handle.question(Questions.DRINK).record(Drink.COFFEE)
    handle.question(Questions.MINUTES).record(37.5)

def pinned() -> tuple[bytes, ...]:
    return AUTHORITY
"""
TYPOS = """\
from drinks import Answers, AppVersion, Platform, stratum
Answers.TEE
stratum(platform=Platform.LINUX)
stratum(platform=AppVersion.VALUE_2_0, app_version=AppVersion.VALUE_2_0)
stratum(platform="linux", app_version=AppVersion.VALUE_2_0)
stratum(plattform=Platform.LINUX, app_version=AppVersion.VALUE_2_0)
Platform.WINDOWS
"""


@pytest.mark.heavy
def test_a_typo_is_a_type_error_and_the_right_use_is_none(tmp_path):
    """By mypy --strict, against the client's own annotations."""
    awkward = module_of(*AWKWARD, breakdowns=BREAKDOWNS)
    drinks = module_of("tea", "coffee", breakdowns=BREAKDOWNS[:2])
    files = {
        "drinks.py": drinks,
        "awkward.py": awkward,
        "several.py": module_of_several(),
        "right.py": RIGHT,
        "typos.py": TYPOS,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--cache-dir", "cache", *files]
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("protocol", "client_sdk"))
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MYPYPATH": paths}, capture_output=True, text=True, timeout=100
    )
    wrong = {line.split(": error: ")[0] for line in done.stdout.splitlines() if ": error: " in line}
    assert wrong == {f"typos.py:{number}" for number in range(2, TYPOS.count("\n") + 1)}, done.stdout + done.stderr
