"""One exchange has one deadline, and any thread ends it at once, whatever the server does. Real sockets on loopback."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from changeling_client import ServerTrouble
from changeling_client.exchange import Deadline, Exchanges
from changeling_client.obstacles import Obstacle
from changeling_client.route import Route
from changeling_protocol.wire import MOST_BODY_BYTES

from .loopback import BAD, answering, full_backlog, serving, silent

pytestmark = pytest.mark.timed

SOON = 0.15
"""A deadline, in seconds."""
AT_ONCE = 0.5
"""What "at once" may take on a machine that is busy with other tests, in seconds."""


@pytest.fixture(autouse=True, scope="module")
def imported():
    """httpx is imported and its client built once, so that no test's time is about that."""
    with serving(answering(b"")) as server:
        exchanges = Exchanges(Route(server.url))
        ask(exchanges)
        exchanges.close()


def ask(exchanges, seconds=5.0):
    return exchanges.ask("GET", "/v1/keys", None, Deadline.after(seconds))


def trouble(exchanges, seconds=5.0) -> Obstacle:
    with pytest.raises(ServerTrouble) as raised:
        ask(exchanges, seconds)
    return raised.value.obstacle


@contextmanager
def within(seconds):
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


@contextmanager
def meanwhile(work):
    """Does this in another thread, which is through when the block ends."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(5)
    assert not thread.is_alive()


def of_exchanges() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "changeling-exchange"]


def test_an_answer_is_given_whole():
    """Status, headers and body, as the server sent them."""
    with serving(answering(b"body", b"Date: now\r\n")) as server:
        answer = ask(Exchanges(Route(server.url + "/base/")))
    assert (answer.status, answer.body, answer.headers["date"]) == (200, b"body", "now")
    assert server.heard[0].startswith(b"GET /base/v1/keys HTTP/1.1\r\n")


@pytest.mark.parametrize("name", BAD)
def test_the_deadline_is_of_the_whole_exchange(name):
    """A server that keeps every single read short does not hold the caller, and its thread is gone."""
    with serving(BAD[name]) as server:
        exchanges = Exchanges(Route(server.url))
        with within(SOON + AT_ONCE):
            assert trouble(exchanges, SOON) is Obstacle.TOO_SLOW
        assert not of_exchanges()
        assert trouble(exchanges, SOON) is Obstacle.TOO_SLOW, "the next one is a new one"
        exchanges.close()


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("end", [Exchanges.interrupt, Exchanges.close])
def test_any_thread_ends_an_exchange_at_once(name, end):
    """The one who ends it does not wait, nor does the one who asked."""
    with serving(BAD[name]) as server:
        exchanges, ended = Exchanges(Route(server.url)), []

        def end_it():
            server.reached.wait(5)
            ended.append(time.monotonic())
            end(exchanges)
            ended.append(time.monotonic())

        with meanwhile(end_it):
            assert trouble(exchanges, 30) is Obstacle.ENDED
            back = time.monotonic()
        assert ended[1] - ended[0] < AT_ONCE
        assert back - ended[0] < AT_ONCE
        assert not of_exchanges()
        exchanges.close()


def test_a_handshake_that_stalls_is_ended_too():
    """TLS begins with a socket that the first handle no longer reaches; the deadline and another thread end it."""
    with serving(silent) as server:
        exchanges = Exchanges(Route(f"https://127.0.0.1:{server.port}", verify=True))
        assert trouble(exchanges, SOON + 0.3) is Obstacle.TOO_SLOW
        assert not of_exchanges()
        server.reached.clear()
        with meanwhile(lambda: (server.reached.wait(5), exchanges.close())), within(1):
            assert trouble(exchanges, 30) is Obstacle.ENDED
        assert not of_exchanges()


def test_a_black_hole_holds_nobody_and_nothing_else_is_asked_meanwhile():
    """A connection that is not made cannot be ended. Its one thread stays until the deadline it had, who asks again
    meanwhile hears so at once, and nobody who closes waits for it."""
    with full_backlog() as url:
        exchanges = Exchanges(Route(url))
        with within(SOON + AT_ONCE):
            assert trouble(exchanges, SOON) is Obstacle.TOO_SLOW
        assert not of_exchanges()
        with meanwhile(lambda: (time.sleep(SOON), exchanges.interrupt())), within(SOON + AT_ONCE):
            assert trouble(exchanges, 1) is Obstacle.ENDED
        (left_behind,) = of_exchanges()
        with within(AT_ONCE):
            assert trouble(exchanges, 30) is Obstacle.HANGING
            exchanges.close()
        assert of_exchanges() == [left_behind]
        left_behind.join(5)


def test_a_name_that_is_not_found_in_time_holds_nobody(monkeypatch):
    """Looking up a name cannot be ended either. When it is through at last, the next exchange goes ahead."""
    free = threading.Event()
    find = socket.getaddrinfo

    def slow(*args, **options):
        free.wait(5)
        return find(*args, **options)

    with serving(answering(b"body")) as server:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        exchanges = Exchanges(Route(f"http://localhost:{server.port}"))
        with within(SOON + AT_ONCE):
            assert trouble(exchanges, SOON) is Obstacle.TOO_SLOW
        assert trouble(exchanges) is Obstacle.HANGING
        free.set()
        for thread in of_exchanges():
            thread.join(5)
        assert server.heard == [], "an exchange that was given up sends nothing afterwards"
        assert ask(exchanges).body == b"body"
        exchanges.close()


def test_a_refused_connection_is_told_at_once():
    """With scheme, host and port, the name of the error, and what the operating system says; no path."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        exchanges = Exchanges(Route(f"{url}/a/path"))
        with within(AT_ONCE), pytest.raises(ServerTrouble) as raised:
            ask(exchanges)
    assert str(raised.value) == f"{url} could not be reached: ConnectError: {os.strerror(errno.ECONNREFUSED)}"
    assert raised.value.obstacle is Obstacle.UNREACHABLE


def test_nothing_begins_once_it_is_closed():
    """Every later exchange fails at once, and no connection is made."""
    with serving(answering(b"")) as server:
        exchanges = Exchanges(Route(server.url))
        exchanges.close()
        exchanges.close()
        with within(AT_ONCE):
            assert trouble(exchanges, 30) is Obstacle.ENDED
    assert server.connections == 0


def test_an_interruption_is_of_one_exchange_alone():
    """One that comes between two of them ends neither."""
    with serving(answering(b"body")) as server:
        exchanges = Exchanges(Route(server.url))
        exchanges.interrupt()
        assert ask(exchanges).body == b"body"
        exchanges.interrupt()
        assert ask(exchanges).body == b"body"
        exchanges.close()


def test_without_time_nothing_is_sent():
    """A deadline that is over when the exchange would begin."""
    with serving(answering(b"")) as server:
        assert trouble(Exchanges(Route(server.url)), 0) is Obstacle.ENDED
    assert server.connections == 0


def test_threads_take_turns():
    """Eight of them on one server all get their answer, one connection at a time."""
    busy, most = threading.Semaphore(1), []

    def behave(connection, _stop):
        connection.request()
        most.append(busy.acquire(blocking=False))
        time.sleep(0.01)
        busy.release()
        connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with serving(behave) as server:
        exchanges, answers = Exchanges(Route(server.url)), []
        threads = [threading.Thread(target=lambda: answers.append(ask(exchanges))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        exchanges.close()
    assert [answer.status for answer in answers] == [200] * 8
    assert most == [True] * 8


def test_who_waits_for_a_turn_hears_of_a_close_too():
    """All of them, at once."""
    with serving(silent) as server:
        exchanges, told = Exchanges(Route(server.url)), []
        threads = [threading.Thread(target=lambda: told.append(trouble(exchanges, 30))) for _ in range(4)]
        for thread in threads:
            thread.start()
        server.reached.wait(5)
        with within(AT_ONCE):
            exchanges.close()
            for thread in threads:
                thread.join(5)
    assert told == [Obstacle.ENDED] * 4
    assert server.connections == 1


@pytest.mark.skipif(os.name != "posix", reason="elsewhere Ctrl-C does not end a wait")
def test_an_exception_in_the_waiting_thread_ends_the_exchange():
    """Such as that of Ctrl-C: it goes on to the caller, and the connection is shut."""
    with serving(silent) as server, ExitStack() as afterwards:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may pass over it
        afterwards.callback(signal.signal, signal.SIGINT, before)
        exchanges = Exchanges(Route(server.url))
        presses = threading.Timer(SOON, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        presses.start()
        with within(SOON + AT_ONCE), pytest.raises(KeyboardInterrupt):
            ask(exchanges, 30)
        presses.join(5)
        assert not of_exchanges()
        assert trouble(exchanges, SOON) is Obstacle.TOO_SLOW, "the turn was given back"


@pytest.mark.parametrize("length", [b"content-length: 4000000\r\n", b"transfer-encoding: chunked\r\n"])
def test_an_answer_is_never_longer_than_a_megabyte(length):
    """It is given up there, whatever length it states."""

    def behave(connection, _stop):
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        for _ in range(64):
            connection.send(b"10000\r\n" + bytes(65536) + b"\r\n" if b"chunked" in length else bytes(65536))

    with serving(behave) as server:
        exchanges = Exchanges(Route(server.url))
        with pytest.raises(ServerTrouble, match=f"longer than {MOST_BODY_BYTES} bytes") as raised:
            ask(exchanges)
    assert raised.value.obstacle is Obstacle.UNREADABLE


def test_a_transport_that_knows_no_sockets_is_left_behind_too():
    """One of the app's that hangs holds nobody; its name is all that is told of what it raises."""
    free = threading.Event()

    def hang(_request):
        free.wait(5)
        raise KeyError("secret")

    exchanges = Exchanges(Route("https://s.example", transport=httpx.MockTransport(hang)))
    assert trouble(exchanges, SOON) is Obstacle.TOO_SLOW
    assert trouble(exchanges, SOON) is Obstacle.HANGING
    free.set()
    for thread in of_exchanges():
        thread.join(5)
    with pytest.raises(ServerTrouble) as raised:
        ask(exchanges)
    assert str(raised.value) == "https://s.example could not be reached: KeyError"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_child_neither_waits_for_its_parents_exchange_nor_ends_it():
    """Forked in the middle of one, it asks and closes for itself; the parent then gets its answer."""
    forked, answer = threading.Event(), []

    def behave(connection, _stop):
        connection.request()
        if server.connections == 1:
            forked.wait(5)
        connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody")

    with serving(behave) as server:
        exchanges = Exchanges(Route(server.url))
        with meanwhile(lambda: answer.append(ask(exchanges))):
            server.reached.wait(5)
            if (child := os.fork()) == 0:
                try:
                    exchanges.interrupt()
                    assert ask(exchanges).body == b"body"
                    exchanges.close()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            forked.set()
        assert answer[0].body == b"body"
        exchanges.close()
    assert server.connections == 2


EXITING = """
import sys, threading, time
import httpx
from changeling_client.exchange import Deadline, Exchanges
from changeling_client.route import Route
exchanges = Exchanges(Route(sys.argv[1]))
if sys.argv[2] == "abandoned":
    try:
        exchanges.ask("GET", "/", None, Deadline.after(0.1))
    except Exception as error:
        print(error.obstacle, flush=True)
else:
    asking = threading.Thread(target=exchanges.ask, args=("GET", "/", None, Deadline.after(30)), daemon=True)
    asking.start()
    time.sleep(0.1)
print(time.time())
"""


@pytest.mark.parametrize("how", ["abandoned", "under way"])
@pytest.mark.parametrize("name", ["never answers", "102 without end", "full backlog"])
def test_the_interpreter_waits_for_no_exchange(name, how):
    """It ends well within a second of its last statement, with an exchange under way or one left behind."""
    with full_backlog() if name == "full backlog" else serving(BAD[name]) as server:
        url = server if isinstance(server, str) else server.url
        run = subprocess.run([sys.executable, "-c", EXITING, url, how], capture_output=True, text=True, timeout=100)
        ended = time.time()
    assert run.returncode == 0, run.stderr
    assert ended - float(run.stdout.split()[-1]) < 1
    assert run.stderr == ""
