"""Publishing surveys, their early ends and keys over HTTP: what is taken, what stays, and what is refused and why."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from threading import Event

import httpx
import pytest
from changeling_aggregator import TurnedDown
from changeling_aggregator.server import GuardedClock, publishing
from changeling_aggregator.store import KeptTime
from changeling_client import Client, Status
from changeling_commands import main as run
from changeling_protocol import Calendar, EarlyEnd, Odds, SealingKey, decode, signed
from changeling_protocol.wire import ErrorCode
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, hierarchical, survey
from .devices import FOREVER
from .serving import ADMIN, ServerHere, survey_path

STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))
NEXT = Ed25519PrivateKey.from_private_bytes(b"the authority's next key of now.")
NOW = 1_800_000_000
ASKED = survey()
"""It begins NOW, and has eight periods of a minute."""


def put(server, path, content):
    """The status, and the sentence of a refusal."""
    response = server.http.put(path, content=content, headers=ADMIN)
    return response.status_code, response.json().get("detail", "")


def put_survey(server, asked=ASKED, authority=AUTHORITY):
    return put(server, survey_path(asked), asked.signed_by(authority))


def put_end(server, of, last, signer=AUTHORITY):
    return put(server, survey_path(of) + "/end", EarlyEnd(of.id, last).signed_by(signer))


def listed(server):
    return {each["id"]: each for each in server.http.get("/v1/surveys").json()["surveys"]}


@pytest.fixture
def keyless(tmp_path):
    """A server that takes what two keys of the authority sign, and has no sealing key."""
    with ServerHere(tmp_path, authority=[each.public_key().public_bytes_raw() for each in (AUTHORITY, NEXT)]) as server:
        server.move_clock(NOW)
        yield server


def test_an_id_has_one_survey_which_is_served_as_signed(keyless):
    """Publishing it again, also under the authority's next key, changes nothing; no other survey has its id."""
    keyless.new_key()
    encoded = ASKED.signed_by(AUTHORITY)
    assert put_survey(keyless) == (201, "")
    assert put_survey(keyless) == put_survey(keyless, authority=NEXT) == (200, "")
    assert put(keyless, survey_path(ASKED), ASKED.asking(question="Another?").signed_by(AUTHORITY))[0] == 400
    served = keyless.http.get(survey_path(ASKED))
    assert (served.content, served.headers["content-type"]) == (encoded, "application/msgpack")
    expected = {"question": ASKED.question, "last_period": 8, "public": False}
    assert expected.items() <= listed(keyless)[ASKED.id.hex()].items()


def refused_surveys():
    """What is put in the place of a survey, and how that is refused."""
    encoded = ASKED.signed_by(AUTHORITY)
    tampered = bytearray(encoded)
    tampered[tampered.index(b"coffee")] ^= 1
    for each in (bytes(tampered), ASKED.signed_by(STRANGER)):
        yield each, 403, "none of the pinned authority keys signed this survey"
    yield encoded[:-1], 400, "not canonical MessagePack"
    yield b"", 400, "not canonical MessagePack"
    yield signed("survey", {"question": "?"}, AUTHORITY), 400, "not a survey"
    yield SealingKey(bytes(31) + b"\7", 0, 1).signed_by(AUTHORITY), 400, "not a survey"
    yield ASKED.asking(question="Other?").signed_by(AUTHORITY), 400, "not the one in the path"
    yield bytes(2**20 + 1), 413, "at most 1048576 bytes"
    fields = decode(decode(encoded)["payload"])
    less = {name: each for name, each in fields.items() if name not in ("kind", "version")}
    less["epsilon_micro"] -= 1
    yield signed("survey", less, AUTHORITY), 422, "state at least"


def test_a_bad_survey_is_refused_in_one_sentence(server):
    """And is not published; also where the authority signed an epsilon that is too small."""
    for content, status, sentence in refused_surveys():
        told = put(server, survey_path(ASKED), content)
        assert told[0] == status
        assert sentence in told[1]
    assert server.http.get(survey_path(ASKED)).status_code == 404


def test_others_are_answered_while_a_survey_is_verified(keyless, monkeypatch):
    """However long that takes."""
    verifying, answered = Event(), Event()

    def slow(*_):
        verifying.set()
        assert answered.wait(100)
        raise TurnedDown(ErrorCode.MALFORMED, "after all")

    monkeypatch.setattr(publishing, "_verified", slow)
    with ThreadPoolExecutor(1) as elsewhere:
        putting = elsewhere.submit(put_survey, keyless)
        assert verifying.wait(100)
        assert httpx.get(keyless.url + "/v1/surveys", timeout=100).status_code == 200
        answered.set()
        assert putting.result() == (400, "after all")


def test_a_survey_is_published_once_a_key_is_good_while_it_is_answered(keyless):
    """None, or one that ends before the survey begins, is not enough; one that is good later is."""
    later = replace(ASKED, calendar=Calendar(NOW + 10_000, 60, 8))
    status, sentence = put_survey(keyless, later)
    assert status == 409
    assert "publish one first (`changeling keys`)" in sentence
    keyless.new_key(NOW - 10, NOW + 5_000)
    assert put_survey(keyless, later)[0] == 409
    keyless.new_key(NOW + 5_000, NOW + 20_000)
    assert put_survey(keyless, later) == (201, "")


def test_a_survey_that_has_ended_or_is_kept_by_no_server_is_not_published(keyless):
    """To the second of its calendar's end; with a grace of ninety days at most. One that was published stays."""
    keyless.new_key()
    for grace in (90 * 86_400 + 1, 2 * 10**11):
        status, sentence = put_survey(keyless, replace(ASKED, grace=grace))
        assert status == 422
        assert "more than 90d" in sentence
    keyless.move_clock(ASKED.calendar.time(8) - 1)
    kept = replace(ASKED, grace=90 * 86_400)
    assert put_survey(keyless, kept) == (201, "")
    keyless.move_clock(ASKED.calendar.time(8))
    assert put_survey(keyless, kept) == (200, "")
    too_late = 422, "the survey ended at 2027-01-15T08:08:00Z: nobody can answer it"
    assert put_survey(keyless, ASKED.asking(question="Too late?")) == too_late
    assert len(listed(keyless)) == 1


class Terminal(StringIO):
    """What somebody types."""

    def isatty(self):
        return True


def test_a_survey_that_would_show_nothing_is_asked_about(tmp_path, keyless, cli, monkeypatch, capsys):
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
    assert listed(keyless) == {}
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert "is published" in cli(*few)
    monkeypatch.setattr("sys.stdin", StringIO())
    for words in ((*few, "--yes"), (*publish, "--devices", "1e6"), publish):
        assert "was published before" in cli(*words)


def test_one_key_is_served_while_it_is_valid(own_server):
    """As the authority signed it; the next from the second in which the last expires: there is always one."""
    server, now = own_server, own_server.now
    future, present = server.new_key(now + 1000, FOREVER), server.new_key(now - 10, now + 1000)
    for later, key in ((0, present), (999, present), (1000, future), (1001, future)):
        server.move_clock(now + later)
        (served,) = decode(server.http.get("/v1/keys").content)["keys"]
        assert SealingKey.from_signed(served, PINNED) == key


def test_a_bad_key_is_refused_in_one_sentence(server):
    """One not made here, one a stranger signed, one with other dates, or with such as no store can tell."""
    key, end = server.key, 2**63 - 1
    foreign, far = (SealingKey(bytes(31) + b"\7", 0, expires).signed_by(AUTHORITY) for expires in (FOREVER, end))
    beyond = bytearray(far)
    beyond[beyond.index(b"\xcf\x7f") + 1] = 0xFF
    assert put(server, "/v1/keys", key.signed_by(AUTHORITY)) == (200, "")
    for content, status, sentence in (
        (key.signed_by(STRANGER), 403, "none of the pinned authority keys"),
        (b"\xc1", 400, ""),
        (foreign, 409, "this server did not make that key: ask it for one with `changeling keys new`"),
        (
            replace(key, expires=FOREVER + 1).signed_by(AUTHORITY),
            409,
            "that key is published already, with other dates",
        ),
        (far, 409, ""),
        (bytes(beyond), 403, ""),
        (bytes(beyond[:-1]), 400, ""),
    ):
        told = put(server, "/v1/keys", content)
        assert told[0] == status
        assert sentence in told[1]


def test_an_end_is_published_once_and_stays(server):
    """The same again changes nothing; another is refused; the survey's answers tell its last period."""
    published = server.new_survey()
    assert server.http.get(survey_path(published) + "/end").status_code == 404
    assert put_end(server, published, 5) == (201, "")
    assert put_end(server, published, 5) == (200, "")
    encoded = server.http.get(survey_path(published) + "/end")
    assert EarlyEnd.from_signed(encoded.content, PINNED) == EarlyEnd(published.id, 5)
    assert put_end(server, published, 6) == (409, "the survey was ended after period 5 before: an end stays as it is")
    assert put_end(server, published, 4)[0] == 409
    assert listed(server)[published.id.hex()]["last_period"] == server.status(published)["last_period"] == 5


def test_a_bad_end_is_refused_in_one_sentence(server):
    """Of a stranger, of another survey, after the calendar, before what has closed, or no end at all."""
    published, other = server.new_survey(), server.new_survey()
    server.move_clock(published.calendar.time(3) + 1)
    assert put_end(server, published, 5, STRANGER)[0] == 403
    assert put_end(server, published, 8) == (422, "the survey's calendar ends with period 8: end it before")
    assert put_end(server, published, 2) == (422, "period 3 has closed: end the survey after it, or later")
    content = EarlyEnd(other.id, 5).signed_by(AUTHORITY)
    for body in (content, published.signed_by(AUTHORITY), b"", b"\xc1"):
        assert put(server, survey_path(published) + "/end", body)[0] == 400
    assert server.http.put(survey_path(published) + "/end", content=content).status_code == 401
    assert put(server, survey_path(ASKED) + "/end", content)[0] == 404
    assert server.status(published)["last_period"] == 8
    assert put_end(server, published, 3) == (201, "")


def test_after_its_end_a_survey_takes_and_shows_nothing_more(server, tmp_path):
    """A device answers on until the last grace is over, and what ends after the last period is never counted. Then it
    learns of the end, drops what waits, counted, and asks nothing more."""
    published = server.publish(
        survey(calendar=Calendar(server.now, 60, 8), grace=120).asking(question="Ended after three?")
    )
    calendar, how = published.calendar, {"max_epsilon": 100, "background": False, "clock": lambda: now}
    with Client(path=tmp_path / "device.db", server=server.url, authority=PINNED, **how) as device:
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
    beyond = "the survey was ended early, after period 3: there is no period 4"
    assert (response.status_code, response.json()["detail"]) == (422, beyond)


def test_a_successor_that_does_not_go_on_is_not_published(server):
    """422, which names what does not fit."""
    first = server.new_survey()
    second = replace(first, calendar=Calendar(first.calendar.time(8), 60, 8), follows=first.id)
    for bad, sentence in (
        (second.asking(answers=("tea", "coffee", "none")), "has the answers of the survey that it follows"),
        (replace(second, calendar=Calendar(0, 30, 8)), "has the period of the survey"),
        (replace(second, calendar=Calendar(0, 60, 8)), "starts where the one before ends"),
        (replace(second, follows=bytes(16)), "is not published here"),
    ):
        status, told = put_survey(server, bad)
        assert status == 422
        assert sentence in told
        assert server.http.get(survey_path(bad)).status_code == 404
    server.publish(second)


def test_the_clock_moves_forward_only_and_dates_every_answer(server):
    """Devices delay by the Date header, so it is the server's own clock, on errors too."""
    now = server.now
    server.move_clock(now + 5)
    assert server.now == now + 5
    assert server.put_clock(now).status_code == 409
    assert server.put_clock(now + 5).status_code == 200
    for bad in (
        b"",
        b"5",
        b'{"time": "noon"}',
        b'{"time": true}',
        b'{"time": Infinity}',
        b'{"time": 1%s}' % (b"0" * 400),
    ):
        assert put(server, "/v1/clock", bad)[0] == 400
    for far in (b'{"time": 1e300}', b'{"time": -1e300}'):
        assert put(server, "/v1/clock", far)[0] == 409
    assert server.http.get("/nothing").headers["date"] == server.http.get("/readyz").headers["date"]


def test_the_real_clock_cannot_be_moved(tmp_path, cli):
    """Unless the server was started for it, nobody moves its clock: another time than it shows is no confirmation; that
    of the machine where the command is typed is one."""
    with ServerHere(tmp_path, clock=GuardedClock(KeptTime(0, False))) as server:
        refused = server.put_clock(FOREVER)
        assert refused.status_code == 409
        assert "set it right, then confirm" in refused.json()["detail"]
        assert "believes" in cli("clock", "confirm", "--server", server.url)
        assert server.http.get("/v1/surveys").json() == {"surveys": []}
