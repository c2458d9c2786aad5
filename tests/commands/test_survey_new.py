"""`changeling survey new` for several questions and for numbers, what it refuses, and `survey notice`."""

import pytest
from changeling_client import privacy_notice
from changeling_protocol import OFFSETS
from changeling_statistics import read_survey, write_survey

from tests.command_line import changeling as main
from tests.command_line import invoked

from ..protocol.examples import AUTHORITY, survey

WISH = ["--period", "1w", "--periods", "4", "--epsilon", "8", "--at-most", "2", "--devices", "20000"]


def test_several_questions_share_answers_and_one_epsilon(tmp_path):
    """Each is NAME=TEXT; groups are about one or several of them, and all together cost what was asked."""
    asked = ["--question", "dark=Dark mode?", "--question", "sync=Sync?"]
    written = tmp_path / "survey.json"
    done = invoked(main, "survey", "new", *asked, "--answers", "on,off", *WISH, "-o", str(written), "--detect", "0.02")
    assert done.exit_code == 0
    survey = read_survey(written)
    assert [(each.name, each.text, each.answers) for each in survey.questions] == [
        ("dark", "Dark mode?", ("on", "off")),
        ("sync", "Sync?", ("on", "off")),
    ]
    assert {track.question for track in survey.plan.tracks} == {0, 1}
    assert 0 < survey.cost <= 8
    shown = invoked(main, "survey", "show", str(written)).stdout
    assert "Sync?  (on, off); at most 2 mutations" in shown


def test_answers_with_a_unit_are_levels_of_a_number(tmp_path):
    written = tmp_path / "survey.json"
    asked = ["--question", "Minutes?", "--answers", "0,30,60.50", "--unit", "min"]
    assert invoked(main, "survey", "new", *asked, *WISH, "-o", str(written)).exit_code == 0
    survey = read_survey(written)
    assert survey.only.answers == ("0 min", "30 min", "60.5 min")
    assert survey.only.values == (0, 30, 60.5)
    assert survey.strata == OFFSETS


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (["--question", "Tea?", "--question", "milk=Milk?"], "of several questions each is NAME=TEXT"),
        (["--question", "tea=Tea?", "--question", "tea=Milk?"], "distinct names"),
        (["--question", "Tea?", "--unit", "cups"], "a level is a decimal number"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(tmp_path, asked, complaint):
    written = tmp_path / "survey.json"
    done = invoked(main, "survey", "new", *asked, "--answers", "yes,no", *WISH, "-o", str(written))
    assert done.exit_code == 1
    assert complaint in " ".join(done.stderr.split())
    assert not written.exists()


def test_the_freezing_question_is_asked_in_a_word(tmp_path):
    """One more question, within the one epsilon, which no app answers; what freezing will do is said beforehand."""
    written = tmp_path / "survey.json"
    asked = ["--question", "Tea?", "--answers", "yes,no", "--ask-freezing", "--expected-changes", "2"]
    done = invoked(main, "survey", "new", *asked, *WISH, "-o", str(written))
    assert done.exit_code == 0
    survey = read_survey(written)
    assert ([each.name for each in survey.asked], survey.freezing) == (["question"], (1, None))
    assert {track.question for track in survey.plan.tracks} == {0, 1}
    assert 0 < survey.cost <= 8
    assert "Freezing: " in done.stdout
    assert "question-frozen" in done.stdout


def test_a_file_asks_the_freezing_question_of_those_it_names(tmp_path):
    """And of no others; the option beside a file is refused."""
    file, written = tmp_path / "questions.toml", tmp_path / "survey.json"
    one = '[[question]]\nname = "{}"\ntext = "{}?"\nanswers = 2\nat_most = 2\n'
    file.write_text(one.format("a", "A") + one.format("b", "B") + "ask_freezing = true\n")
    wish = [word for word in WISH if word not in ("--at-most", "2")]
    new = ("survey", "new", "--questions", str(file), *wish, "-o", str(written))
    assert invoked(main, *new).exit_code == 0
    assert [each.freezing_of for each in read_survey(written).questions] == ["", "", "b"]
    assert "leave out" in invoked(main, *new, "--ask-freezing").stderr


def test_on_a_terminal_a_file_is_written_over_only_when_that_is_agreed_to(tmp_path, monkeypatch):
    """Asked before anything is planned; a script is not asked, and writes."""
    written = tmp_path / "survey.json"
    written.write_text("kept")
    new = ("survey", "new", "--question", "Tea?", "--answers", "2", *WISH, "-o", str(written))
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    refused = invoked(main, *new)
    assert (refused.exit_code, written.read_text()) == (1, "kept")
    assert "stays as it is" in refused.stderr
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert invoked(main, *new).exit_code == 0
    assert read_survey(written).question == "Tea?"


class Terminal:
    def isatty(self):
        return True


def test_the_notice_of_a_survey_signed_or_not_is_printed(tmp_path):
    """So that it can be read before anything is signed."""
    signed, draft = tmp_path / "survey.signed", tmp_path / "survey.json"
    signed.write_bytes(survey().signed_by(AUTHORITY))
    write_survey(draft, survey())
    for file in (signed, draft):
        assert invoked(main, "survey", "notice", str(file)).stdout == privacy_notice(survey()) + "\n"


def test_what_is_no_survey_has_no_notice(tmp_path):
    """One line that names the file, and exit code 1."""
    (tmp_path / "garbage").write_text("x")
    done = invoked(main, "survey", "notice", str(tmp_path / "garbage"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "garbage holds no survey" in done.stderr
