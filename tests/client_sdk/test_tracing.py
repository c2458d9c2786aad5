"""An app that traces with Sentry and OpenTelemetry: nothing of that is in our requests, and its log names no survey."""

import subprocess
import sys
from email.utils import formatdate

import pytest
from changeling_protocol.wire import KEYS, encode_acknowledgement, encode_key_list, survey_path

from ..protocol.examples import AUTHORITY, PINNED
from .device import PLAIN, PRIVATE, START, signed_key
from .loopback import serving

TRACING = """
import logging, sys
import httpx, sentry_sdk
from opentelemetry import baggage, context, trace
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from changeling_client import Client, Status

url, folder, key, signed, joined, asked = sys.argv[1:7]
now = float(sys.argv[7])
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
sentry_sdk.init("http://key@127.0.0.1:9/1", traces_sample_rate=1.0, transport=lambda event: None)
trace.set_tracer_provider(TracerProvider())
HTTPXClientInstrumentor().instrument()
with sentry_sdk.start_transaction(name="launch"), trace.get_tracer("app").start_as_current_span("launch"):
    context.attach(baggage.set_baggage("user", "alice"))
    httpx.get(url + "/of-the-app", headers={"x-of-the-app": "1"})
    with Client(path=folder + "/store.db", server=url, authority=[bytes.fromhex(key)], max_epsilon=10**6,
                background=False, clock=lambda: now) as client:
        handles = [client.join(joined, signed=bytes.fromhex(signed)), client.join(asked)]
        handles[0].record("tea")
        now += 80
        flushed = client.flush()
        assert (handles[1].status, flushed.sent) == (Status.JOINED, 2), flushed
"""


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """What a traced app's server heard, head by head, and what is in the app's log."""
    other = PLAIN.asking(question="And what else?")
    contents = {
        survey_path(other.id.hex()): other.signed_by(AUTHORITY),
        KEYS: encode_key_list([signed_key(PRIVATE)]),
        "/v1/uploads": encode_acknowledgement({}),
    }

    def behave(connection, _stop):
        path = connection.request().split()[1].decode()
        content = contents.get(path, b"")
        head = (
            f"HTTP/1.1 200 OK\r\ndate: {formatdate(START + 80, usegmt=True)}\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        connection.send(head.encode() + content)

    with serving(behave) as server:
        signed, folder = PLAIN.signed_by(AUTHORITY).hex(), str(tmp_path_factory.mktemp("app"))
        arguments = [server.url, folder, PINNED[0].hex(), signed, PLAIN.id.hex(), other.id.hex(), f"{START}"]
        app = subprocess.run(
            [sys.executable, "-c", TRACING, *arguments], capture_output=True, text=True, timeout=100, check=False
        )
    assert app.returncode == 0, app.stderr
    return [request.partition(b"\r\n\r\n")[0].decode() for request in server.heard], app.stderr, (PLAIN, other)


def names(head):
    return {line.partition(":")[0].lower() for line in head.splitlines()[1:]}


def test_a_traced_apps_requests_for_us_carry_the_listed_headers_and_no_others(lived):
    """A survey, keys and an upload were asked for: no trace, no baggage, nothing that ties two requests together; and
    neither an id of a survey nor a path of ours is in the app's log. Sentry and OpenTelemetry do mark and log what the
    app sends through httpx itself, so that this could fail."""
    heads, log, surveys = lived
    (own,) = [head for head in heads if "/of-the-app" in head]
    assert {"traceparent", "sentry-trace", "baggage"} <= names(own)
    assert "/of-the-app" in log
    ours = [head for head in heads if "/v1/" in head]
    assert {head.split()[1].split("/")[2] for head in ours} == {"surveys", "keys", "uploads"}
    always = {"host", "user-agent", "accept-encoding", "cache-control"}
    for head in ours:
        assert names(head) == always | ({"content-type", "content-length"} if head.startswith("POST") else set())
    assert not [word for word in ("/v1/", *(survey.id.hex() for survey in surveys)) if word in log]
