"""What really goes out, and which way; and one deadline for each exchange, which any thread ends at once, whatever the
server does. Real sockets on loopback: each flush here asks once, for a survey that it never gets."""

import errno
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from tempfile import TemporaryDirectory

import httpx
import pytest
from changeling_client import Client, ClientClosed, outbox
from changeling_protocol import wire
from changeling_protocol.wire import encode_acknowledgement, encode_key_list, survey_path

from ..protocol.examples import AUTHORITY, PINNED
from .device import LATE, PLAIN, PRIVATE, START, Clock, FakeServer, ended, forked, options, signed_key
from .loopback import BAD, answer, answering, full_backlog, serving, silent

pytestmark = pytest.mark.timed

SOON = 0.15
"""A deadline, in seconds."""
AT_ONCE = 0.5
"""What "at once" may take on a machine that is busy with other tests, in seconds."""
NAME = "statistics.example"
ANSWERED, SLOW, ENDED, HANGS = "told no time", "in time", "was ended", "still hangs"
"""Words of a flush's trouble: the server answered, and told no time; and so on."""


@contextmanager
def asking(url, **others):
    """A client that has asked for a survey, so that each flush asks its server for that, and does nothing else."""
    with TemporaryDirectory() as folder, Client(**options(path=f"{folder}/store.db", server=url, **others)) as device:
        device.join(PLAIN.id)
        yield device


def trouble(device, seconds=5.0) -> str:
    return device.flush(seconds).trouble


@contextmanager
def within(seconds):
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


@contextmanager
def meanwhile(*work):
    """Does these in another thread, one after the other, which is through when the block ends."""
    thread = threading.Thread(target=lambda: [each() for each in work])
    thread.start()
    yield
    thread.join(5)
    assert not thread.is_alive()


def of_exchanges() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "changeling-exchange"]


@pytest.fixture(autouse=True, scope="module")
def imported():
    """httpx is imported and its client built once, so that no test's time is about that."""
    with serving(answering(b"")) as server, asking(server.url) as device:
        device.flush()


@pytest.fixture
def environment(monkeypatch):
    """An environment without proxies and certificates, in which the test may name some."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)
    return monkeypatch.setenv


STALLS = {**BAD, "stalls in a handshake": silent}
"""As TLS begins, with a socket that the first handle no longer reaches."""


@pytest.mark.parametrize(
    ("name", "end"), [*zip(STALLS, ["leave", "close", "close", "set_consent", "leave", "leave"], strict=True)]
)
def test_the_deadline_and_any_thread_end_an_exchange_at_once(name, end):
    """A server that keeps every single read short does not hold the caller: the deadline is of the whole exchange, and
    the one who leaves the survey, closes or withdraws does not wait, nor does the one who asked. No thread is left."""
    scheme = "https" if name == "stalls in a handshake" else "http"
    with serving(STALLS[name]) as server, asking(f"{scheme}://127.0.0.1:{server.port}") as device:
        for _ in range(2):
            with within(SOON + 0.3 + AT_ONCE):
                assert SLOW in trouble(device, SOON + 0.3 * ("handshake" in name))
            assert not of_exchanges()
        server.reached.clear()
        ended = []
        argument = {"leave": [PLAIN.id], "close": [], "set_consent": [False]}[end]

        def now():
            ended.append(time.monotonic())

        with meanwhile(server.reached.wait, now, lambda: getattr(device, end)(*argument), now):
            with suppress(ClientClosed):
                assert ENDED in trouble(device, 30)
            back = time.monotonic()
        assert ended[1] - ended[0] < AT_ONCE
        assert back - ended[0] < AT_ONCE
        assert not of_exchanges()


def test_a_black_hole_holds_nobody_and_nothing_else_is_asked_meanwhile():
    """A connection that is not made cannot be ended. Its one thread stays until the deadline it had, who asks again
    meanwhile hears so at once, and nobody who closes waits for it."""
    with full_backlog() as url, asking(url) as device:
        with within(SOON + AT_ONCE):
            assert SLOW in trouble(device, SOON)
        assert not of_exchanges()
        with meanwhile(lambda: time.sleep(SOON), lambda: device.leave(PLAIN.id)), within(SOON + AT_ONCE):
            assert ENDED in trouble(device, 1)
        (left_behind,) = of_exchanges()
        with within(AT_ONCE):
            device.close()
        assert of_exchanges() == [left_behind]
        left_behind.join(5)


def test_a_name_that_is_not_found_in_time_holds_nobody(monkeypatch):
    """Looking up a name cannot be ended. Who asks again meanwhile hears so at once; when it is through at last, the
    next exchange goes ahead, and the one that was given up sends nothing afterwards."""
    free = threading.Event()
    find = socket.getaddrinfo

    def slow(*args, **options):
        free.wait(5)
        return find(*args, **options)

    with serving(answering(b"body")) as server, asking(f"http://localhost:{server.port}") as device:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        with within(SOON + AT_ONCE):
            assert SLOW in trouble(device, SOON)
        with within(AT_ONCE):
            assert HANGS in trouble(device, 30)
        free.set()
        for thread in of_exchanges():
            thread.join(5)
        assert server.heard == []
        assert ANSWERED in trouble(device)


def test_a_refused_connection_is_told_at_once():
    """With scheme, host and port, the name of the error, and what the operating system says; no path."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with asking(f"{url}/a/path") as device, within(AT_ONCE):
            told = trouble(device)
    assert told == f"{url} could not be reached: ConnectError: {os.strerror(errno.ECONNREFUSED)}"


@pytest.mark.skipif(os.name != "posix", reason="elsewhere Ctrl-C does not end a wait")
def test_an_exception_in_the_waiting_thread_ends_the_exchange():
    """Such as that of Ctrl-C: it goes on to the caller, and the connection is shut."""
    with serving(silent) as server, asking(server.url) as device, ExitStack() as afterwards:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may pass over it
        afterwards.callback(signal.signal, signal.SIGINT, before)
        presses = threading.Timer(SOON, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        presses.start()
        with within(SOON + AT_ONCE), pytest.raises(KeyboardInterrupt):
            device.flush(30)
        presses.join(5)
        assert not of_exchanges()
        assert SLOW in trouble(device, SOON), "the turn was given back"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_child_neither_waits_for_its_parents_exchange_nor_ends_it():
    """Forked in the middle of one, it leaves its survey and closes for itself; the parent then gets its answer."""
    goes_on, told = threading.Event(), []

    def behave(connection, _stop):
        connection.request()
        goes_on.wait(5)
        connection.send(answer(b"body"))

    def leave():
        with within(AT_ONCE):
            device.leave(PLAIN.id)
            device.close()

    with serving(behave) as server, asking(server.url) as device:
        with meanwhile(lambda: told.append(trouble(device))):
            server.reached.wait(5)
            assert ended(forked(leave)) == 0
            goes_on.set()
        assert ANSWERED in told[0]


EXITING = """
import sys, threading, time
import httpx
from changeling_client import Client
client = Client(path=sys.argv[3] + "/store.db", server=sys.argv[1], authority=[bytes.fromhex(sys.argv[4])],
                max_epsilon=1, background=False)
client.join(bytes(16))
if sys.argv[2] == "abandoned":
    client.flush(0.1)
else:
    threading.Thread(target=client.flush, args=(30,), daemon=True).start()
    time.sleep(0.1)
print(time.time())
"""


@pytest.mark.parametrize(
    ("name", "how"), [("never answers", "under way"), ("full backlog", "abandoned"), ("full backlog", "under way")]
)
def test_the_interpreter_waits_for_no_exchange(tmp_path, name, how):
    """It ends well within a second of its last statement, with an exchange under way or one left behind."""
    with full_backlog() if name == "full backlog" else serving(BAD[name]) as server:
        url = server if isinstance(server, str) else server.url
        command = [sys.executable, "-c", EXITING, url, how, str(tmp_path), PINNED[0].hex()]
        run = subprocess.run(command, capture_output=True, text=True, timeout=100)
        ended = time.time()
    assert run.returncode == 0, run.stderr
    assert ended - float(run.stdout.split()[-1]) < 1
    assert run.stderr == ""


def test_a_request_is_these_bytes_and_no_others(environment, tmp_path):
    """Each time the same, in the same order: no cookie of the answer before, no credentials that a .netrc holds for
    this host, no version of anything."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login alice password hunter2\n")
    environment("NETRC", str(tmp_path / "netrc"))
    with serving(answering(b"", b"set-cookie: tracker=1\r\n")) as server, asking(server.url + "/base/") as device:
        for _ in range(3):
            trouble(device)
    head = (
        b"Host: 127.0.0.1:%d\r\nuser-agent: changeling\r\naccept-encoding: identity\r\n"
        b"cache-control: no-cache, no-store\r\n\r\n"
    )
    path = b"GET /base/v1/surveys/%b HTTP/1.1\r\n" % PLAIN.id.hex().encode()
    assert server.heard == [path + head % server.port] * 3
    assert server.connections == 3


DATE = b"date: %b\r\n" % formatdate(LATE, usegmt=True).encode()
KEYS = answer(encode_key_list([signed_key(PRIVATE)]), DATE)
TAKEN = answer(encode_acknowledgement({}), DATE)
REFUSING = answering(b"", status=b"403 Forbidden")


@contextmanager
def due(url, *questions, **options):
    """A client with an answer due for each of these surveys."""
    clock = Clock()
    with asking(url, clock=clock, **options) as device:
        device.leave(PLAIN.id)
        for question in questions:
            other = PLAIN.asking(question=question)
            device.join(other.id, signed=other.signed_by(AUTHORITY))
        clock.now = LATE
        yield device


@pytest.mark.parametrize("kind", ["plain", "TLS"])
def test_each_exchange_has_a_connection_that_ends_with_it(kind, certified, monkeypatch):
    """The server sees it go before the next comes, and what it says behind an answer is not the next one's."""
    gone, context = threading.Semaphore(0), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certified)

    def behave(connection, _stop):
        with suppress(OSError), ExitStack() as ends:
            if server.connections > 1:
                assert gone.acquire(timeout=AT_ONCE)
            if kind == "TLS":
                connection.over(ends.enter_context(context.wrap_socket(connection.plain, server_side=True)))
            connection.send(KEYS + TAKEN if connection.request().startswith(b"GET") else TAKEN + TAKEN)
            while connection.raw():
                pass
        gone.release()

    monkeypatch.setattr(outbox, "MOST_ENVELOPES_TAKEN", 1)
    verify = ssl.create_default_context(cafile=certified[0])
    with serving(behave) as server:
        url = server.url if kind == "plain" else f"https://localhost:{server.port}"
        with due(url, "One?", "Two?", verify=verify) as device:
            assert device.flush().waiting == 0
            assert (len(server.heard), server.connections) == (3, 3), "keys and two uploads"
            assert gone.acquire(timeout=AT_ONCE)


@pytest.mark.parametrize("how", ["HTTPS_PROXY", "argument"])
def test_a_real_host_is_asked_through_the_proxy(environment, how):
    """Of the environment, or the one that is passed; all that it sees is the host's name."""
    with serving(REFUSING) as proxy:
        environment(how, proxy.url)
        with asking(f"https://{NAME}", proxy=proxy.url if how == "argument" else None) as device:
            assert "ProxyError" in trouble(device)
    at = b"statistics.example:443"
    assert proxy.heard == [b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nAccept: */*\r\n\r\n" % (at, at)]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_asked_directly_whatever_the_environment_says(environment, host):
    """A proxy elsewhere cannot reach it, and has nothing to hear of it."""
    with serving(REFUSING) as proxy, serving(answering(b"body")) as server:
        for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
            environment(name, proxy.url)
        with asking(f"http://{host}:{server.port}") as device:
            assert ANSWERED in trouble(device)
    assert proxy.connections == 0


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """The files of a certificate for NAME and for loopback that signs itself, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    words = f"req -x509 -newkey ed25519 -nodes -days 2 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME},DNS:localhost"
    command = ["openssl", *words.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def secured(certified):
    """A server on loopback that speaks TLS, whatever name it was asked by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certified)

    def behave(connection, _stop):
        with context.wrap_socket(connection.plain, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(answer(b"body"))

    with serving(behave) as server:
        yield server


def test_the_apps_context_decides_which_certificates_are_good(certified, secured):
    """Without it nobody vouches for this server, and nothing is sent."""
    url = f"https://localhost:{secured.port}"
    with asking(url) as device:
        assert "could not be reached" in trouble(device)
    with asking(url, verify=ssl.create_default_context(cafile=certified[0])) as device:
        assert ANSWERED in trouble(device)


def test_certificates_of_the_environment_serve_for_real_hosts_only(environment, monkeypatch, certified, secured):
    """Whoever may set the environment for a company's proxy does not vouch for a server on this machine."""
    environment("SSL_CERT_FILE", str(certified[0]))
    find = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest, **options: find("127.0.0.1", *rest, **options))
    for host, words in ((NAME, ANSWERED), ("localhost", "could not be reached")):
        with asking(f"https://{host}:{secured.port}") as device:
            assert words in trouble(device)


@pytest.mark.parametrize("kind", ["httpx, read", "httpx, streamed", "httpx2"])
def test_a_transport_of_the_apps_own_is_taken(begin, kind):
    """One that has read the answer, as one does that counts what comes, one that has not, and one of httpx's successor.
    It is told to keep no connection, as we could not end it."""
    library = pytest.importorskip("httpx2") if kind == "httpx2" else httpx
    server, asked = FakeServer(PLAIN), []

    class Streamed(library.SyncByteStream):
        def __init__(self, content):
            self._content = content

        def __iter__(self):
            yield self._content

    class Counting(library.BaseTransport):
        def handle_request(self, request):
            asked.append((type(request), request.headers["connection"]))
            told = server._serve(httpx.Request(request.method, str(request.url), content=request.read()))
            answer = library.Response(told.status_code, headers=told.headers.raw, stream=Streamed(told.content))
            if kind == "httpx, read":
                answer.read()
            return answer

    device, *_ = begin(server=server, transport=Counting())
    device.join(PLAIN.id, signed=None)
    device.flush()
    assert device.at(START + 80).flush().sent == 1
    assert set(asked) == {(library.Request, "close")}


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


def test_a_traced_apps_requests_for_us_carry_the_listed_headers_and_no_others(tmp_path):
    """A survey, keys and an upload were asked for: no trace, no baggage, nothing that ties two requests together; and
    neither an id of a survey nor a path of ours is in the app's log. Sentry and OpenTelemetry do mark and log what the
    app sends through httpx itself, so that this could fail."""
    other, date = PLAIN.asking(question="And what else?"), formatdate(START + 80, usegmt=True).encode()
    contents = {
        survey_path(other.id.hex()): other.signed_by(AUTHORITY),
        wire.KEYS: encode_key_list([signed_key(PRIVATE)]),
        wire.UPLOADS: encode_acknowledgement({}),
    }

    def behave(connection, _stop):
        path = connection.request().split()[1].decode()
        connection.send(answer(contents.get(path, b""), b"date: %b\r\n" % date))

    with serving(behave) as server:
        signed, ids = PLAIN.signed_by(AUTHORITY).hex(), (PLAIN.id.hex(), other.id.hex())
        arguments = [server.url, str(tmp_path), PINNED[0].hex(), signed, *ids, f"{START}"]
        app = subprocess.run([sys.executable, "-c", TRACING, *arguments], capture_output=True, text=True, timeout=100)
    assert app.returncode == 0, app.stderr
    heads = [request.partition(b"\r\n\r\n")[0].decode().splitlines() for request in server.heard]
    seen = [(line.split()[1], {each.partition(":")[0].lower() for each in rest}) for line, *rest in heads]
    (of_the_app,) = [names for path, names in seen if path == "/of-the-app"]
    assert {"traceparent", "sentry-trace", "baggage"} <= of_the_app
    assert "/of-the-app" in app.stderr
    ours = [(path.split("/")[2], names) for path, names in seen if path.startswith("/v1/")]
    always = {"host", "user-agent", "accept-encoding", "cache-control"}
    assert {what for what, _ in ours} == {"surveys", "keys", "uploads"}
    for what, names in ours:
        assert names == always | ({"content-type", "content-length"} if what == "uploads" else set())
    assert not [word for word in ("/v1/", *ids) if word in app.stderr]
