"""Publishing surveys and keys over HTTP, and who may."""

import asyncio
from dataclasses import replace
from pathlib import Path
from threading import Event

import httpx
import pytest
from changeling_aggregator.errors import TurnedDown
from changeling_aggregator.server import GuardedClock, ServerSettings, Service, make_app, publishing
from changeling_aggregator.store import KeptTime, Store, TokenScope
from changeling_protocol import Calendar, SealingKey, UnixSeconds, decode, signed
from changeling_protocol.wire import ErrorCode
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, PINNED, mixed, survey
from .devices import FOREVER
from .serving import ADMIN, Cli, ServerHere, ServerProcess, survey_path

STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))


def test_a_survey_is_published_once_and_served_as_signed(server: ServerProcess) -> None:
    """Publishing it again changes nothing; the bytes served are the bytes published."""
    published = survey(calendar=Calendar(server.now, 60, 8))
    published = published.asking(question="Published twice?")
    encoded = published.signed_by(AUTHORITY)
    assert server.key
    statuses = [server.http.put(survey_path(published), content=encoded, headers=ADMIN).status_code for _ in "12"]
    assert statuses == [201, 200]
    served = server.http.get(survey_path(published))
    assert (served.content, served.headers["content-type"]) == (encoded, "application/msgpack")
    listed = server.http.get("/v1/surveys").json()["surveys"]
    (entry,) = (entry for entry in listed if entry["id"] == published.id.hex())
    assert {"question": "Published twice?", "last_period": 8, "public": False}.items() <= entry.items()


def _tampered() -> bytes:
    encoded = bytearray(survey().signed_by(AUTHORITY))
    encoded[encoded.index(b"coffee")] ^= 1
    return bytes(encoded)


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        (_tampered(), 403, "none of the pinned authority keys signed this survey"),
        (survey().signed_by(STRANGER), 403, "none of the pinned authority keys signed this survey"),
        (survey().signed_by(AUTHORITY)[:-1], 400, "not canonical MessagePack"),
        (b"", 400, "not canonical MessagePack"),
        (signed("survey", {"question": "?"}, AUTHORITY), 400, "not a survey"),
        (SealingKey(bytes(31) + b"\7", 0, 1).signed_by(AUTHORITY), 400, "not a survey"),
        (survey().asking(question="Other?").signed_by(AUTHORITY), 400, "not the one in the path"),
        (bytes(2**20 + 1), 413, "at most 1048576 bytes"),
    ],
)
def test_a_bad_survey_is_refused_in_one_sentence(
    server: ServerProcess, content: bytes, status: int, sentence: str
) -> None:
    """And is not published."""
    response = server.http.put(survey_path(survey()), content=content, headers=ADMIN)
    assert response.status_code == status
    assert sentence in response.json()["detail"]
    assert server.http.get(survey_path(survey())).status_code == 404


def test_others_are_answered_while_a_survey_is_verified(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes."""
    with store.transaction() as writing:
        writing.add_token("token", "me", {TokenScope.SURVEY_WRITE}, UnixSeconds(0.0))
    verifying, answered = Event(), Event()

    def slow(*_: object) -> None:
        verifying.set()
        assert answered.wait(100)
        raise TurnedDown(ErrorCode.MALFORMED, "after all")

    monkeypatch.setattr(publishing, "_verified", slow)
    service = Service(store, ServerSettings(PINNED, lambda: 1_800_000_000.0))

    async def both() -> int:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as http:
            headers = {"authorization": "Bearer token"}
            putting = asyncio.create_task(http.put(survey_path(survey()), content=b"survey", headers=headers))
            while not verifying.is_set():
                await asyncio.sleep(0.01)
            assert (await http.get("/v1/surveys")).status_code == 200
            answered.set()
            return (await putting).status_code

    assert asyncio.run(both()) == 400


def test_a_survey_that_understates_its_epsilon_is_refused(server: ServerProcess) -> None:
    """Even though the authority signed it: 422, with what it should state."""
    encoded = survey().signed_by(AUTHORITY)
    fields = decode(decode(encoded)["payload"])
    del fields["kind"], fields["version"]
    encoded = signed("survey", {**fields, "epsilon_micro": fields["epsilon_micro"] - 1}, AUTHORITY)
    response = server.http.put(survey_path(survey()), content=encoded, headers=ADMIN)
    assert response.status_code == 422
    assert "state at least" in response.json()["detail"]


def test_one_key_is_served_while_it_is_valid(own_server: ServerProcess) -> None:
    """As the authority signed it; the next from the second in which the last expires: there is always one."""
    server, now = own_server, own_server.now
    future, present = server.new_key(now + 1000, FOREVER), server.new_key(now - 10, now + 1000)

    def served() -> set[bytes]:
        content = decode(server.http.get("/v1/keys").content)
        keys = {SealingKey.from_signed(key, PINNED).id for key in content["keys"]}
        assert len(keys) == 1
        return keys

    assert served() == {present.id}
    server.move_clock(now + 999)
    assert served() == {present.id}
    server.move_clock(now + 1000)
    assert served() == {future.id}
    server.move_clock(now + 1001)
    assert served() == {future.id}


def test_a_bad_key_is_refused_in_one_sentence(server: ServerProcess) -> None:
    """One not made here, one a stranger signed, one published with other dates; the same again is fine."""
    key = server.key

    def put(content: bytes) -> tuple[int, str]:
        response = server.http.put("/v1/keys", content=content, headers=ADMIN)
        return response.status_code, response.json().get("detail", "")

    assert put(key.signed_by(AUTHORITY)) == (200, "")
    assert put(key.signed_by(STRANGER))[0] == 403
    assert put(b"\xc1")[0] == 400
    foreign = SealingKey(bytes(31) + b"\7", 0, FOREVER)
    assert put(foreign.signed_by(AUTHORITY)) == (
        409,
        "this server did not make that key: ask it for one with `changeling keys new`",
    )
    assert put(replace(key, expires=FOREVER + 1).signed_by(AUTHORITY)) == (
        409,
        "that key is published already, with other dates: make a new one instead",
    )


def test_the_clock_moves_forward_only_and_dates_every_answer(server: ServerProcess) -> None:
    """Devices delay by the Date header, so it is the server's own clock, on errors too."""
    now = server.now
    server.move_clock(now + 5)
    assert server.now == now + 5
    assert server.put_clock(now).status_code == 409
    assert server.put_clock(now + 5).status_code == 200
    for bad in (b"", b"5", b'{"time": "noon"}', b'{"time": true}', b'{"time": Infinity}', b'{"time": NaN}'):
        assert server.http.put("/v1/clock", content=bad, headers=ADMIN).status_code == 400
    assert server.http.put("/v1/clock", content=b'{"time": 1%s}' % (b"0" * 400), headers=ADMIN).status_code == 400
    for far in (b'{"time": 1e300}', b'{"time": -1e300}'):
        assert server.http.put("/v1/clock", content=far, headers=ADMIN).status_code == 409
    assert server.http.get("/nothing").headers["date"] == server.http.get("/readyz").headers["date"]


def test_the_real_clock_cannot_be_moved(tmp_path: Path, cli: Cli) -> None:
    """Unless the server was started for it, nobody moves its clock: another time than it shows is no confirmation; that
    of the machine where the command is typed is one."""
    with ServerHere(tmp_path, clock=GuardedClock(KeptTime(0, False))) as server:
        refused = server.put_clock(FOREVER)
        assert refused.status_code == 409
        assert "set it right, then confirm" in refused.json()["detail"]
        assert "believes" in cli("clock", "confirm", "--server", server.url)
        assert server.http.get("/v1/surveys").json() == {"surveys": []}


def test_a_survey_the_server_cannot_estimate_says_so(server: ServerProcess) -> None:
    """A plan with panels is counted, and its histogram is refused with the reason."""
    published = server.new_survey(plan=mixed(3, 8))
    server.move_clock(published.calendar.time(1) + 30)
    response = server.http.get(survey_path(published) + "/histogram")
    assert response.status_code in (409, 422)
    assert response.json()["detail"]


def test_a_key_that_expires_when_no_store_can_tell_is_refused(server: ServerProcess) -> None:
    """As an error of who sent it, and never of the server's."""
    far = SealingKey(bytes(31) + b"\x09", 0, 2**63 - 1).signed_by(AUTHORITY)
    signed = bytearray(far)
    signed[signed.index(b"\xcf\x7f") + 1] = 0xFF
    for each in (bytes(signed), bytes(signed[:-1]), far):
        assert 400 <= server.http.put("/v1/keys", content=each, headers=ADMIN).status_code < 500
