"""A survey server on loopback in a process of its own, which keeps every upload in a file; and surveys to ask it for.

A process that is killed between sending and hearing has sent: the file tells what arrived, whatever the client knows.
"""

import os
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from changeling_client.testing import AUTHORITY, read_upload
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SealingKey,
    Survey,
    Track,
    head_of,
    open_envelope,
)
from changeling_protocol.wire import (
    KEYS,
    UPLOADS,
    decode_upload_request,
    encode_acknowledgement,
    encode_key_list,
    survey_path,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

PINNED = (AUTHORITY.public_key().public_bytes_raw(),)
ANSWERS = ("tea", "coffee", "neither")
TRUTHFUL = Odds(2**63, 1)
_PRIVATE = X25519PrivateKey.from_private_bytes(b"sealing key of benches, 32 bytes")
START = 1_800_000_000
FAST_FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108
"""In memory where there is such a place: a SIGKILL loses nothing there either."""


def plain_survey(periods: int, *, start: int = START, period: int = 60, noise: bool = False, most: int = 4) -> Survey:
    """A track of changes with true symbols and, with noise, one whose symbols say nothing: one drawn anew differs."""
    odds = (TRUTHFUL, Odds(1, 1)) if noise else (TRUTHFUL,)
    tracks = tuple(Track(1, KaryResponse(MutationSpace(3), each), 0, periods) for each in odds)
    return Survey.at_cost(
        question="What do you drink?",
        answers=ANSWERS,
        calendar=Calendar(start, period, periods),
        constraint=AtMost(most),
        plan=ReleasePlan((Group(tracks),)),
        skew=5,
        spread=10,
        grace=10**8,
        minimum=1,
    )


class _Handler(BaseHTTPRequestHandler):
    """Serves surveys and keys, and appends each upload to a file before it is acknowledged.

    Its clock is far ahead of every client's, which then goes by its own.
    """

    protocol_version = "HTTP/1.1"
    contents: dict[str, bytes]
    kept: Path
    lock = threading.Lock()
    connections = requests = 0

    def setup(self) -> None:
        type(self).connections += 1
        super().setup()

    def do_GET(self) -> None:
        self._answer(self.contents.get(self.path))

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        body = self.rfile.read(size)
        if len(body) < size:  # who sent it was killed
            return
        with self.lock, self.kept.open("ab") as kept:
            kept.write(struct.pack(">I", len(body)) + body)
        self._answer(self.contents[UPLOADS])

    def _answer(self, content: bytes | None) -> None:
        type(self).requests += 1
        self.send_response_only(200 if content is not None else 404)
        self.send_header("date", formatdate(START + 10**7, usegmt=True))
        self.send_header("content-length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        """Nothing: there are thousands of requests."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients are killed in the middle of a request."""


class LoopbackServer:
    """Serves these surveys from a thread, and keeps what is uploaded in a file. url: where."""

    def __init__(self, kept: Path, *surveys: Survey) -> None:
        key = SealingKey(_PRIVATE.public_key().public_bytes_raw(), 0, 2**32)
        contents = {survey_path(each.id.hex()): each.signed_by(AUTHORITY) for each in surveys}
        contents |= {KEYS: encode_key_list([key.signed_by(AUTHORITY)]), UPLOADS: encode_acknowledgement({})}

        class Handler(_Handler):
            pass

        Handler.contents, Handler.kept = contents, kept
        self.handler = Handler
        self._server = _Quiet(("127.0.0.1", 0), self.handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def keep_in(self, kept: Path) -> None:
        """From now on uploads go into another file."""
        self.handler.kept = kept

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def bodies(kept: Path) -> Iterator[bytes]:
    """The uploads in a file."""
    content = kept.read_bytes() if kept.exists() else b""
    while content:
        (size,) = struct.unpack(">I", content[:4])
        yield content[4 : 4 + size]
        content = content[4 + size :]


def arrived(uploads: Iterable[bytes], asked: Survey) -> dict[tuple[int, int], dict[bytes, set[int]]]:
    """What was uploaded for a survey: by track and node, the symbols under each closing's id."""
    symbols: dict[tuple[int, int], dict[bytes, set[int]]] = defaultdict(lambda: defaultdict(set))
    for body in uploads:
        for envelope in decode_upload_request(body):
            if head_of(envelope).survey != asked.id:
                continue
            _, answered, reports = read_upload(asked.plan, open_envelope(envelope, _PRIVATE))
            ids = {closing.period: closing.id for closing in answered}
            for report in reports:
                end = asked.plan.tracks[report.track].node(report.node).end
                symbols[report.track, report.node][ids[end]].add(report.symbol)
    return symbols


def forked(work: Callable[[], Any]) -> int:
    """Runs it in a forked process. Returns the child's id."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """Waits for a child. Returns its exit code, or the signal that killed it, negative."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
