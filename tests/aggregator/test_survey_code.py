"""`changeling survey code`: a survey as a typed module, whatever its texts are."""

import os
import subprocess
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest
from changeling_commands.__main__ import main
from changeling_commands.survey_code import survey_module
from changeling_protocol import Breakdown
from changeling_statistics import write_survey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ..command_line import invoked
from ..protocol.examples import AUTHORITY, PINNED, survey

ROOT = Path(__file__).parents[2]
NEXT = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()

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


@pytest.fixture
def signed(tmp_path, monkeypatch):
    """A folder with a signed survey of awkward texts and its authority's key."""
    monkeypatch.chdir(tmp_path)
    asked = replace(survey(answers=AWKWARD), breakdowns=BREAKDOWNS)
    (tmp_path / "survey.signed").write_bytes(asked.signed_by(AUTHORITY))
    (tmp_path / "authority.pub").write_text(PINNED[0].hex())
    (tmp_path / "next.pub").write_text(NEXT.hex())
    return asked


def test_the_module_holds_what_an_app_needs(signed, tmp_path):
    """The id, the question, the keys to pin, every answer and every value; made again it is the same text."""
    pinned = ("--authority", "authority.pub", "--authority", "next.pub")
    words = ("survey", "code", "survey.signed", *pinned, "-o", "drinks.py")
    done = invoked(main, *words)
    assert (done.exit_code, done.output) == (0, f"wrote drinks.py, survey {signed.id.hex()}\n")
    text = (tmp_path / "drinks.py").read_text()
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
    assert told == {
        each.name: value for each, value in zip(BREAKDOWNS, ("mac", "1-0", "str", "None", "a", "はい"), strict=True)
    }
    invoked(main, *words)
    assert (tmp_path / "drinks.py").read_text() == text


@pytest.mark.usefixtures("signed")
def test_a_survey_that_no_pinned_key_signed_is_made_into_no_code(tmp_path):
    """Another's key, a draft, no survey: one line, exit code 1, and no file. Without a key it asks for one."""
    code = ("survey", "code", "survey.signed", "-o", "drinks.py")
    assert "--authority" in invoked(main, *code).stderr
    file = tmp_path / "survey.signed"
    for authority, change, sentence in (
        ("next.pub", lambda: None, "survey.signed is signed by none of these"),
        ("authority.pub", lambda: write_survey(file, survey()), "survey.signed is signed by none of these"),
        ("authority.pub", lambda: file.write_bytes(b"x"), "survey.signed holds no survey"),
    ):
        change()
        done = invoked(main, *code, "--authority", authority)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.startswith("changeling: ")
        assert sentence in done.stderr
    assert not (tmp_path / "drinks.py").exists()


RIGHT = """\
from changeling_client import Client, SurveyHandle
from drinks import AUTHORITY, SURVEY, Answers, AppVersion, Platform, stratum

def begin(client: Client) -> SurveyHandle:
    told = stratum(platform=Platform.LINUX, app_version=AppVersion.VALUE_2_0)
    return client.join(SURVEY, stratum=told)

def answer(handle: SurveyHandle) -> None:
    handle.record(Answers.TEA)

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
    (tmp_path / "drinks.py").write_text(module_of("tea", "coffee", breakdowns=BREAKDOWNS[:2]))
    (tmp_path / "awkward.py").write_text(module_of(*AWKWARD, breakdowns=BREAKDOWNS))
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "typos.py").write_text(TYPOS)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--cache-dir", "cache"]
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("protocol", "client_sdk"))
    done = subprocess.run(
        [*command, "drinks.py", "awkward.py", "right.py", "typos.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    wrong = {line.split(": error: ")[0] for line in errors}
    assert wrong == {f"typos.py:{number}" for number in range(2, TYPOS.count("\n") + 1)}, done.stdout + done.stderr


def names_of(*answers):
    return [each.name for each in run(module_of(*answers))["Answers"]]


@given(st.lists(st.text(min_size=1), min_size=2, max_size=6, unique=True))
def test_whatever_the_texts_are_there_is_a_name_for_each(answers):
    """The module's enum gives each text back, in order; nothing in it is invisible or turns letters around."""
    text = module_of(*answers)
    assert [*run(text)["Answers"]] == answers
    assert all(line.isprintable() for line in text.splitlines())


def test_names_do_not_depend_on_what_follows():
    """An answer that is added at the end leaves the names of the others, if it does not spell one of theirs."""
    assert names_of("a b", "a-b") == names_of("a b", "a-b", "c")[:2]
    assert names_of("a b", "a-b", "a b 2") == ["A_B", "A_B_3", "A_B_2"]
