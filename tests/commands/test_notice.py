"""`changeling survey notice`: the client's paragraph, on the operators' command line."""

from changeling_client import privacy_notice
from changeling_statistics import write_survey

from tests.command_line import changeling as main
from tests.command_line import invoked

from ..protocol.examples import AUTHORITY, survey


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
