"""`changeling survey new` for several questions and for numbers: the survey that it writes, and what it refuses."""

from pathlib import Path

import pytest
from changeling_protocol import OFFSETS
from changeling_statistics import read_survey

from tests.command_line import changeling as main
from tests.command_line import invoked

WISH = ["--period", "1w", "--periods", "4", "--epsilon", "8", "--at-most", "2", "--devices", "20000"]


def test_several_questions_share_answers_and_one_epsilon(tmp_path: Path) -> None:
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


def test_answers_with_a_unit_are_levels_of_a_number(tmp_path: Path) -> None:
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
def test_what_cannot_be_asked_is_refused_in_words(tmp_path: Path, asked: list[str], complaint: str) -> None:
    written = tmp_path / "survey.json"
    done = invoked(main, "survey", "new", *asked, "--answers", "yes,no", *WISH, "-o", str(written))
    assert done.exit_code == 1
    assert complaint in " ".join(done.stderr.split())
    assert not written.exists()
