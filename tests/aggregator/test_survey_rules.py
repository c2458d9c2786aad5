"""Which surveys a server publishes, and how long it runs them."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from changeling_commands.__main__ import main as run
from changeling_protocol import Calendar, Odds
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, hierarchical, survey
from .serving import ADMIN, Cli, ServerHere, survey_path

NEXT = Ed25519PrivateKey.from_private_bytes(b"the authority's next key of now.")
NOW = 1_800_000_000
ASKED = survey()
"""It begins NOW, and has eight periods of a minute."""


@pytest.fixture
def keyless(tmp_path: Path) -> Iterator[ServerHere]:
    """A server that takes what two keys of the authority sign, and has no sealing key."""
    with ServerHere(tmp_path, authority=[each.public_key().public_bytes_raw() for each in (AUTHORITY, NEXT)]) as server:
        server.move_clock(NOW)
        yield server


def published(server: ServerHere, asked=ASKED, authority=AUTHORITY) -> tuple[int, str]:
    """The status, and the sentence of a refusal."""
    response = server.http.put(survey_path(asked), content=asked.signed_by(authority), headers=ADMIN)
    return response.status_code, response.json().get("detail", "")


def test_a_survey_is_published_once_a_key_is_good_while_it_is_answered(keyless: ServerHere) -> None:
    """None, or one that ends before the survey begins, is not enough; one that is good later is."""
    later = replace(ASKED, calendar=Calendar(NOW + 10_000, 60, 8))
    status, sentence = published(keyless, later)
    assert status == 409
    assert "publish one first (`changeling keys`)" in sentence
    keyless.new_key(NOW - 10, NOW + 5_000)
    assert published(keyless, later)[0] == 409
    keyless.new_key(NOW + 5_000, NOW + 20_000)
    assert published(keyless, later) == (201, "")


def test_a_survey_that_has_ended_is_not_published_but_one_that_was_stays(keyless: ServerHere) -> None:
    """To the second of its calendar's end; publishing it again is then still the same survey."""
    keyless.new_key()
    end = ASKED.calendar.time(8)
    keyless.move_clock(end - 1)
    assert published(keyless) == (201, "")
    keyless.move_clock(end)
    assert published(keyless) == (200, "")
    status, sentence = published(keyless, ASKED.asking(question="Too late?"))
    assert (status, sentence) == (422, "the survey ended at 2027-01-15T08:08:00Z: nobody can answer it")
    assert len(keyless.http.get("/v1/surveys").json()["surveys"]) == 1


def test_a_survey_with_a_grace_that_no_server_keeps_is_not_published(keyless: ServerHere) -> None:
    """Ninety days are kept, and no more; a grace of thousands of years neither."""
    keyless.new_key()
    for grace in (90 * 86_400 + 1, 2 * 10**11):
        status, sentence = published(keyless, replace(ASKED, grace=grace))
        assert status == 422
        assert "more than 90d" in sentence
    assert published(keyless, replace(ASKED, grace=90 * 86_400)) == (201, "")


def test_an_id_has_one_survey_whoever_of_the_authority_signed_it(keyless: ServerHere) -> None:
    """The same survey under the authority's next key is the same survey, and the bytes stay; no other has its id."""
    keyless.new_key()
    assert published(keyless) == (201, "")
    assert published(keyless, authority=NEXT) == (200, "")
    assert keyless.http.get(survey_path(ASKED)).content == ASKED.signed_by(AUTHORITY)
    other = ASKED.asking(question="Another?").signed_by(AUTHORITY)
    assert keyless.http.put(survey_path(ASKED), content=other, headers=ADMIN).status_code == 400
    assert keyless.http.get(survey_path(ASKED)).content == ASKED.signed_by(AUTHORITY)


class Terminal(StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


def test_a_survey_that_would_show_nothing_is_asked_about(
    tmp_path: Path,
    keyless: ServerHere,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where nobody can answer it is refused; a no publishes nothing; --yes, or devices enough, are not asked."""
    keyless.new_key()
    asked = ASKED.asking(plan=hierarchical(3, 8, (1,), Odds(3, 1)), question="What shows?")
    (tmp_path / "few.signed").write_bytes(asked.signed_by(AUTHORITY))
    publish = ("survey", "publish", "few.signed", "--server", keyless.url)
    few = (*publish, "--devices", "100")
    assert run(few) == 1
    assert capsys.readouterr().err == (
        "changeling: of 100 devices this survey would show nothing: --yes publishes it all the same\n"
    )
    for typed in ("n\n", "\n", ""):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        assert run(few) == 1
        assert capsys.readouterr().err.endswith("changeling: not published\n")
    assert keyless.http.get("/v1/surveys").json()["surveys"] == []
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert "is published" in cli(*few)
    monkeypatch.setattr("sys.stdin", StringIO())
    assert "was published before" in cli(*few, "--yes")
    assert "was published before" in cli(*publish, "--devices", "1e6")
    assert "was published before" in cli(*publish)
