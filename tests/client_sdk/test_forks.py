"""What an app may do to a client at once: forks, threads, greenlets, signals, the interpreter's end; no record is lost.

Each case runs in a process of its own, as `python -m tests.client_sdk.test_forks CASE FOLDER`; one that does not end in
time is a deadlock. It writes a line to FOLDER/made for each entry whose record has returned; the entry's answer must
then be in the store for good.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from changeling_client import Client, ClientClosed, Recorded, SurveyHandle

from ..protocol.examples import AUTHORITY, PINNED
from .device import PLAIN, START, Clock, ended, forked, options
from .loopback import serving

ENTRIES = 256
_NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there; the client tries it in the background."""


class App:
    """An app with a client of a survey of many entries, of which each is recorded once."""

    def __init__(self, folder: Path, background: bool = True) -> None:
        self.client = Client(
            server=_NOWHERE,
            authority=PINNED,
            max_epsilon=10**6,
            path=folder / "store.db",
            background=background,
            clock=_now,
        )
        self.handle: SurveyHandle = self.client.join(PLAIN.id, entries=ENTRIES, signed=PLAIN.signed_by(AUTHORITY))
        self._made = os.open(folder / "made", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(self, entry: int) -> None:
        """Records, then notes that it has returned."""
        if self.handle.record("coffee", entry) is not Recorded.DROPPED:
            self.returned(entry)

    def returned(self, entry: int) -> None:
        os.write(self._made, b"%d\n" % entry)

    def record_all(self, entries: Iterable[int]) -> None:
        for entry in entries:
            self.record(entry)

    def found(self) -> set[int]:
        """The entries whose answer is in the store."""
        return {entry for entry in range(ENTRIES) if self.handle.answer(entry) == "coffee"}


def _now() -> float:
    return START + 5 + time.monotonic() % 50


@contextmanager
def beside(work: Callable[[Any], None], *each: Any, waits: bool = True) -> Iterator[None]:
    """A thread for each of these does its work meanwhile; waits for all of them."""
    workers = [threading.Thread(target=work, args=(one,), daemon=not waits) for one in each]
    for worker in workers:
        worker.start()
    yield
    for worker in workers:
        worker.join()


def eighths(of: int) -> list[range]:
    return [range(n, of, 8) for n in range(8)]


def forks(app: App) -> None:
    """Forks while eight threads record: each child records, and so does its parent."""
    with beside(app.record_all, *eighths(128)):
        for entry in range(128, 192, 2):
            child = forked(lambda: app.record(entry))  # noqa: B023
            app.record(entry + 1)
            _must(ended(child) == 0)


def forks_at_once(app: App) -> None:
    """Eight threads fork at the same time, again and again."""
    failed = []

    def fork_often(first: int) -> None:
        for entry in range(first, ENTRIES, 64):
            child = forked(lambda: app.record(entry))  # noqa: B023
            app.record(entry + 1)
            failed.append(ended(child) != 0)

    with beside(fork_often, *range(0, 16, 2)):
        pass
    _must(not any(failed))


def fork_in_transaction(app: App) -> None:
    """Forks while a thread is in the middle of a transaction, which holds the client's lock."""
    for entry in range(0, 40, 2):
        inside = threading.Event()

        def hold(_: object) -> None:
            with app.client._device.store.transaction():
                inside.set()  # noqa: B023
                time.sleep(0.02)

        with beside(hold, entry):
            inside.wait()
            child = forked(lambda: _record_and_close(app, entry))  # noqa: B023
            app.record(entry + 1)
        _must(ended(child) == 0)


def _record_and_close(app: App, entry: int) -> None:
    app.record(entry)
    app.client.close()


def pool(app: App) -> None:
    """A pool of forked workers records with the parent's client."""
    global _app
    _app = app
    with multiprocessing.get_context("fork").Pool(4) as workers:
        workers.map(_record_in_pool, range(0, ENTRIES, 2), chunksize=1)
        app.record_all(range(1, ENTRIES, 8))
        workers.close()
        workers.join()


_app: App


def _record_in_pool(entry: int) -> None:
    _app.record(entry)


def greenlets(app: App) -> None:
    """100 greenlets record, under gevent's patches, as the client tries its server."""
    import gevent

    gevent.joinall([gevent.spawn(app.record_all, range(n, ENTRIES, 100)) for n in range(100)], raise_error=True)


def signals(app: App) -> None:
    """A storm of alarms, whose handler records, interrupts record(), flush() and itself."""
    waiting = iter(range(0, ENTRIES, 2))

    def handler(*_: object) -> None:
        entry = next(waiting, None)
        if entry is not None:
            app.record(entry)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0007)
    app.record_all(range(1, ENTRIES, 2))
    app.client.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)


def shutdown(app: App) -> None:
    """The interpreter ends while eight threads record and the client reports; nothing was closed."""
    with beside(app.record_all, *eighths(ENTRIES), waits=False):
        time.sleep(0.1)
        sys.exit(0)


def shutdown_joined(app: App) -> None:
    """The same with threads that the interpreter waits for, of which one closes the client meanwhile."""

    def until_closed(entries: Iterable[int]) -> None:
        with suppress(ClientClosed):
            app.record_all(entries)

    with beside(until_closed, *eighths(ENTRIES)):
        time.sleep(0.1)
        threading.Thread(target=app.client.close).start()
        sys.exit(0)


CASES: dict[str, Callable[[App], None]] = {
    each.__name__: each
    for each in (forks, forks_at_once, fork_in_transaction, pool, greenlets, signals, shutdown, shutdown_joined)
}


def _must(holds: bool) -> None:
    if not holds:
        raise ArithmeticError("a child has failed")


pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"), pytest.mark.heavy]
SECONDS = 100.0
"""A case that takes longer has stopped for good."""
_UNDER_GEVENT = (
    "from gevent import monkey; monkey.patch_all(); import sys; from tests.client_sdk.test_forks import main;"
    " main(*sys.argv[1:])"
)


@pytest.mark.parametrize("case", CASES)
def test_no_record_is_lost_and_nothing_stands_still(tmp_path, case):
    """Every record that has returned is found, and the process ends well."""
    start = ["-c", _UNDER_GEVENT] if case == "greenlets" else ["-m", "tests.client_sdk.test_forks"]
    run = [sys.executable, *start, case, str(tmp_path)]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, told = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"{case} stood still")
    assert process.returncode == 0, told.decode(errors="replace")
    made = {int(line) for line in (tmp_path / "made").read_text().splitlines()}
    app = App(tmp_path, background=False)
    assert made
    assert made <= app.found()
    app.client.close()


@pytest.mark.parametrize("call", ["record", "ledger"])
def test_reporting_goes_on_in_a_process_that_became_a_daemon(tmp_path, call):
    """It forks, its parent ends, and joins nothing again: any call of a handle that it had begins the thread."""
    clock, heard = Clock(), threading.Event()

    def behave(connection, _stop):
        if connection.request().startswith(b"GET /v1/keys"):
            heard.set()

    def app(url):
        client = Client(**options(path=tmp_path / "store.db", server=url, clock=clock, background=True))
        handle = client.join(PLAIN.id, signed=PLAIN.signed_by(AUTHORITY))
        calls = {"record": lambda: handle.record("tea"), "ledger": handle.ledger}
        client.flush()

        def goes_on():
            os.setsid()
            clock.now = START + 80  # only now is anything due
            calls[call]()
            time.sleep(10)

        forked(goes_on)

    with serving(behave) as server:
        assert ended(forked(lambda: app(server.url))) == 0
        assert heard.wait(9), "nobody asked for the keys"


def main(case: str, folder: str) -> NoReturn:
    app = App(Path(folder))
    CASES[case](app)
    app.client.close()
    sys.exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
