"""Uploads through real HTTP: what is appended, what is refused, and that nothing bad changes anything."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgpack
import pytest
from changeling_aggregator.store import Store
from changeling_protocol import HEAD_BYTES, VERSION, SealingKey, encode
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES_TAKEN, ErrorAnswer, ErrorCode

from .devices import body, envelope, report
from .serving import eventually


@pytest.fixture
def survey(server):
    """In its second period, the first of which is due."""
    _ = server.key
    made = server.new_survey()
    server.move_clock(made.calendar.time(1) + 16)
    return made


def test_an_upload_sent_twice_counts_once(server, survey):
    """Both are acknowledged; the second is a duplicate, before and after a fold."""
    upload = envelope(survey, server.key, [report(1)])
    assert server.upload(upload, upload) == []
    assert server.reports(survey) == {(0, 1): 1}
    assert server.upload(upload) == []
    assert server.reports(survey) == {(0, 1): 1}
    assert server.status(survey)["refused"] == {"duplicate": 2}


def test_concurrent_uploads_are_all_acknowledged_and_counted(server, survey):
    """From eight connections at once, while the fold runs."""

    def device(_):
        with httpx.Client(base_url=server.url, timeout=100) as http:
            bodies = [body(envelope(survey, server.key, [report(1)])) for _ in range(10)]
            return sum(http.post("/v1/uploads", content=each).status_code == 200 for each in bodies)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(device, range(8))) == 80
    assert server.reports(survey) == {(0, 1): 80}


def test_each_envelope_is_refused_for_its_own_reason(own_server):
    """The answer names its index and why; its neighbours are appended; the counters tell, a little later. Of what has
    the right form, and rubbish inside, nothing is in the log once it is folded."""
    server = own_server
    expired = server.new_key(expires=server.now + 10)
    key = server.new_key(begins=server.now + 10)
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 16)
    sound, stranger = envelope(survey, key, [report(1)]), SealingKey(bytes(31) + b"\1", 0, 1)
    junk = [sound[:HEAD_BYTES] + os.urandom(len(sound) - HEAD_BYTES) for _ in range(20)]
    assert server.upload(*junk) == []
    server.fold()
    server.fold()
    store = Store.open(server.store_path)
    with store.view() as view:
        assert [*view.kept_requests()] == []
    store.close()
    refused = {
        b"short": "malformed",
        bytes([VERSION + 1]) + sound[1:]: "malformed",
        17: "malformed",
        sound[:1] + os.urandom(16) + sound[17:]: "unknown-survey",
        sound[:17] + stranger.id + sound[33:]: "unknown-key",
        sound[:17] + expired.id + sound[33:]: "expired-key",
        sound + bytes(2000): "too-large",
    }
    told = server.upload(sound, *refused, envelope(survey, key, [report(1)]))
    assert told == [[place, reason] for place, reason in enumerate(refused.values(), 1)]
    assert server.reports(survey)[0, 1] == 2
    server.move_clock(survey.calendar.time(8) + survey.grace)
    assert server.upload(sound) == []
    server.move_clock(survey.calendar.time(8) + survey.grace + 1)
    assert server.upload(sound) == [[0, "closed"]]
    counted = dict.fromkeys(("unknown-key", "expired-key", "too-large", "closed", "late"), 1) | {"unopenable": 20}
    assert eventually(lambda: server.status(survey)["refused"], counted)


def test_a_body_that_is_no_upload_is_refused_whole(server):
    """400, one sentence, and nothing is appended. What came packed is never unpacked: a hundred megabytes of zeros in a
    hundred kilobytes are as any other bytes that are no upload."""
    server.fold()
    packed = gzip.compress(bytes(10**8), compresslevel=9), gzip.compress(body())
    for content in (
        *(b"", b"\xc1", b"not MessagePack", b"\x81\xa9envelopes\xdc\x00\x00", b"\x91" * 5000, bytes(MOST_BODY_BYTES)),
        *(body(b"envelope")[:-1], body(b"envelope") + b"\0", body(*[b""] * (MOST_ENVELOPES_TAKEN + 1))),
        *(encode([]), encode({"envelopes": b""}), encode({"envelopes": [], "more": 1})),
        msgpack.packb({"envelopes": [1.5]}),
        *packed,
    ):
        headers = {"content-encoding": "gzip"} if content in packed else {}
        response = server.http.post("/v1/uploads", content=content, headers=headers)
        assert (response.status_code, response.json()["code"]) == (400, "malformed")
    assert server.fold()["envelopes"] == 0
    assert server.http.post("/v1/uploads", content=body()).status_code == 200


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


def test_an_open_node_is_counted_but_not_shown(server, survey):
    """A report from a fast clock is held in the tally of its node until the node has closed and is due."""
    server.move_clock(survey.calendar.time(2) - 40)
    assert server.upload(envelope(survey, server.key, [report(1), report(2), report(4)])) == []
    assert server.reports(survey) == {(0, 1): 1}
    assert server.status(survey)["refused"] == {"future": 1}
    for later, shown in ((0, {(0, 1): 1}), (16, {(0, 1): 1, (0, 2): 1})):
        server.move_clock(survey.calendar.time(2) + later)
        assert server.reports(survey) == shown
