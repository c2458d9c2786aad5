"""A survey that the authority ends early, against a real server, and a device that learns of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from changeling_client import Client, Status
from changeling_protocol import Calendar, EarlyEnd, Survey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, survey
from .serving import ADMIN, ServerProcess, survey_path

STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))
END = "/end"


def put_end(server: ServerProcess, of: Survey, last: int, signer: Ed25519PrivateKey = AUTHORITY) -> tuple[int, str]:
    """The status, and the sentence of an error."""
    content = EarlyEnd(of.id, last).signed_by(signer)
    response = server.http.put(survey_path(of) + END, content=content, headers=ADMIN)
    return response.status_code, response.json().get("detail", "")


def test_an_end_is_published_once_and_stays(server: ServerProcess) -> None:
    """The same again changes nothing; another is refused; the survey's answers tell its last period."""
    published = server.new_survey()
    assert server.http.get(survey_path(published) + END).status_code == 404
    assert put_end(server, published, 5) == (201, "")
    assert put_end(server, published, 5) == (200, "")
    signed = server.http.get(survey_path(published) + END)
    assert EarlyEnd.from_signed(signed.content, PINNED) == EarlyEnd(published.id, 5)
    assert put_end(server, published, 6) == (409, "the survey was ended after period 5 before: an end stays as it is")
    assert put_end(server, published, 4)[0] == 409
    listed = {each["id"]: each["last_period"] for each in server.http.get("/v1/surveys").json()["surveys"]}
    assert listed[published.id.hex()] == 5
    assert server.status(published)["last_period"] == 5


def test_a_bad_end_is_refused_in_one_sentence(server: ServerProcess) -> None:
    """Of a stranger, of another survey, after the calendar, before what has closed, or no end at all."""
    published, other = server.new_survey(), server.new_survey()
    server.move_clock(published.calendar.time(3) + 1)
    assert put_end(server, published, 5, STRANGER)[0] == 403
    assert put_end(server, published, 8) == (422, "the survey's calendar ends with period 8: end it before")
    assert put_end(server, published, 2) == (422, "period 3 has closed: end the survey after it, or later")
    content = EarlyEnd(other.id, 5).signed_by(AUTHORITY)
    for body in (content, published.signed_by(AUTHORITY), b"", b"\xc1"):
        assert server.http.put(survey_path(published) + END, content=body, headers=ADMIN).status_code == 400
    assert server.http.put(survey_path(published) + END, content=content).status_code == 401
    assert server.http.put(survey_path(survey()) + END, content=content, headers=ADMIN).status_code == 404
    assert server.status(published)["last_period"] == 8
    assert put_end(server, published, 3) == (201, "")


def test_after_its_end_a_survey_takes_and_shows_nothing_more(server: ServerProcess, tmp_path: Path) -> None:
    """A device answers on until the last grace is over, and what ends after the last period is never counted. Then it
    learns of the end, drops what waits, counted, and asks nothing more."""
    published = server.publish(
        survey(calendar=Calendar(server.now, 60, 8), grace=120).asking(question="Ended after three?")
    )
    assert server.key
    calendar = published.calendar
    with Client(
        path=tmp_path / "device.db",
        server=server.url,
        authority=PINNED,
        max_epsilon=100,
        background=False,
        clock=lambda: now,
    ) as device:
        now = calendar.start
        handle = device.join(published.id)
        handle.record("tea")
        assert put_end(server, published, 3) == (201, "")
        sent = dropped = 0
        for period in range(1, 12):
            now = calendar.time(period) + published.skew + published.spread + 1
            server.move_clock(now)
            flushed = device.flush()
            sent, dropped = sent + flushed.sent, dropped + flushed.dropped
        assert flushed.waiting == 0
        assert (sent, dropped) == (4, 1), "a closing more than count arrives while the last grace lasts"
        assert handle.status is Status.ENDED
    assert {end for _, end in server.reports(published)} == {1, 2, 3}
    assert server.status(published)["closed_periods"] == 3
    series = server.http.get(survey_path(published) + "/series").raise_for_status().json()
    assert (series["last_period"], [each["period"] for each in series["series"]]) == (3, [1, 2, 3])
    response = server.http.get(survey_path(published) + "/histogram?period=4")
    assert (response.status_code, response.json()["detail"]) == (
        422,
        "the survey was ended early, after period 3: there is no period 4",
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"answers": ("tea", "coffee", "none")}, "has the answers of the survey that it follows"),
        ({"calendar": Calendar(0, 30, 8)}, "has the period of the survey"),
        ({"calendar": Calendar(0, 60, 8)}, "starts where the one before ends"),
        ({"follows": bytes(16)}, "is not published here"),
    ],
)
def test_a_successor_that_does_not_go_on_is_not_published(
    server: ServerProcess, changed: dict[str, object], sentence: str
) -> None:
    """422, which names what does not fit."""
    first = server.new_survey()
    calendar = Calendar(first.calendar.time(8), 60, 8)
    second = replace(first, calendar=calendar, follows=first.id)
    bad = second.asking(**changed) if "answers" in changed else replace(second, **changed)
    response = server.http.put(survey_path(bad), content=bad.signed_by(AUTHORITY), headers=ADMIN)
    assert response.status_code == 422
    assert sentence in response.json()["detail"]
    assert server.http.get(survey_path(bad)).status_code == 404
    server.publish(second)
