"""Uploads through real HTTP: what is appended, what is refused, and that nothing bad changes anything."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgpack
import pytest
from changeling_protocol import VERSION, SealingKey, encode
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES_TAKEN, ErrorAnswer, ErrorCode

from .devices import body, envelope, report
from .serving import eventually


@pytest.fixture(scope="module")
def key(server):
    return server.key


def test_an_upload_sent_twice_counts_once(server, key):
    """Both are acknowledged; the second is a duplicate, before and after a fold."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    upload = envelope(survey, key, [report(1)])
    assert server.upload(upload, upload) == []
    assert server.reports(survey) == {(0, 1): 1}
    assert server.upload(upload) == []
    assert server.reports(survey) == {(0, 1): 1}
    assert server.status(survey)["refused"] == {"duplicate": 2}


def test_concurrent_uploads_are_all_acknowledged_and_counted(server, key):
    """From eight connections at once, while the fold runs."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)

    def device(_):
        with httpx.Client(base_url=server.url, timeout=100) as http:
            bodies = [body(envelope(survey, key, [report(1)])) for _ in range(20)]
            return sum(http.post("/v1/uploads", content=each).status_code == 200 for each in bodies)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(device, range(8))) == 160
    assert server.reports(survey) == {(0, 1): 160}


def test_each_envelope_is_refused_for_its_own_reason(own_server):
    """The answer names its index and why; its neighbours are appended; the counters tell, a little later."""
    server = own_server
    expired = server.new_key(expires=server.now + 10)
    key = server.new_key(begins=server.now + 10)
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    sound = envelope(survey, key, [report(1)])
    stranger = SealingKey(bytes(31) + b"\1", 0, 1)
    envelopes = [
        sound,
        b"short",
        bytes([VERSION + 1]) + sound[1:],
        17,
        sound[:1] + os.urandom(16) + sound[17:],
        sound[:17] + stranger.id + sound[33:],
        sound[:17] + expired.id + sound[33:],
        sound + bytes(2000),
        envelope(survey, key, [report(1)]),
    ]
    assert server.upload(*envelopes) == [
        [1, "malformed"],
        [2, "malformed"],
        [3, "malformed"],
        [4, "unknown-survey"],
        [5, "unknown-key"],
        [6, "expired-key"],
        [7, "too-large"],
    ]
    assert server.reports(survey)[0, 1] == 2
    server.move_clock(survey.calendar.time(8) + survey.grace)
    assert server.upload(sound) == []
    server.move_clock(survey.calendar.time(8) + survey.grace + 1)
    assert server.upload(sound) == [[0, "closed"]]
    assert eventually(
        lambda: server.status(survey)["refused"],
        {"unknown-key": 1, "expired-key": 1, "too-large": 1, "closed": 1, "late": 1},
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xc1",
        b"not MessagePack",
        body(b"envelope")[:-1],
        body(b"envelope") + b"\0",
        msgpack.packb({"envelopes": [1.5]}),
        b"\x81\xa9envelopes\xdc\x00\x00",
        encode([]),
        encode({"envelopes": b""}),
        encode({"envelopes": [], "more": 1}),
        body(*[b""] * (MOST_ENVELOPES_TAKEN + 1)),
        b"\x91" * 5000,
    ],
)
def test_a_body_that_is_no_upload_is_refused_whole(server, content):
    """400, one sentence, and nothing is appended."""
    before = server.fold()["envelopes"]
    response = server.http.post("/v1/uploads", content=content)
    assert response.status_code == 400
    assert response.json()["code"] == "malformed"
    assert server.fold()["envelopes"] == before == 0


def in_chunks():
    for _ in range(MOST_BODY_BYTES // 4096 + 2):
        yield bytes(4096)


@pytest.mark.parametrize("content", [bytes(MOST_BODY_BYTES + 1), in_chunks], ids=["stated", "chunked"])
def test_an_oversized_body_is_refused_before_it_is_read(server, content):
    """413, whether it states its length or not; the server goes on."""
    with httpx.Client(base_url=server.url, timeout=100) as http:
        response = http.post("/v1/uploads", content=content() if callable(content) else content)
    assert response.status_code == 413
    answer = ErrorAnswer(ErrorCode.TOO_LARGE, "a body here has at most 1048576 bytes")
    assert ErrorAnswer.decode(response.content) == answer
    assert server.http.get("/readyz").status_code == 200


def test_a_packed_body_is_never_unpacked(server):
    """A hundred megabytes of zeros that came as a hundred kilobytes are 400, as any other bytes that are no upload."""
    bomb = gzip.compress(bytes(10**8), compresslevel=9)
    assert len(bomb) < 10**5 + 10**4
    response = server.http.post("/v1/uploads", content=bomb, headers={"content-encoding": "gzip"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed")
    packed = gzip.compress(body())
    assert server.http.post("/v1/uploads", content=packed, headers={"content-encoding": "gzip"}).status_code == 400
    assert server.http.post("/v1/uploads", content=body()).status_code == 200


def test_an_open_node_is_counted_but_not_shown(server, key):
    """A report from a fast clock is held in the tally of its node until the node has closed and is due."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1))
    assert server.upload(envelope(survey, key, [report(1), report(2), report(3)])) == []
    assert server.reports(survey) == {}
    assert server.status(survey)["refused"] == {"future": 1}
    server.move_clock(survey.calendar.time(1) + 16)
    assert server.reports(survey) == {(0, 1): 1}
    server.move_clock(survey.calendar.time(2) + 16)
    assert server.reports(survey) == {(0, 1): 1, (0, 2): 1}


def test_envelopes_that_do_not_open_are_not_kept(own_server):
    """Of the right form, and rubbish inside: once they are folded nothing of them is in the log."""
    from changeling_aggregator.store import Store
    from changeling_protocol import HEAD_BYTES

    asked = own_server.new_survey()
    own_server.move_clock(asked.calendar.time(1) + 16)
    good = envelope(asked, own_server.key, [report(1)])
    junk = [good[:HEAD_BYTES] + os.urandom(len(good) - HEAD_BYTES) for _ in range(100)]
    own_server.http.post("/v1/uploads", content=body(*junk)).raise_for_status()
    assert own_server.status(asked)["refused"] == {"unopenable": 100}
    own_server.fold()
    store = Store.open(own_server.store_path)
    with store.view() as view:
        assert [*view.kept_requests()] == []
    store.close()
