"""`changeling dev`: a server to play with, and where wished for devices of it, as apps have them.

Simulated devices are clients that report over HTTP, in a process of their own. What they answer follows from their
number and the period, so that a wave goes through the population.
"""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from math import pi, sin
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_protocol import Survey, UnixSeconds

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from changeling_aggregator.cli.dev import Development
    from changeling_client import SurveyHandle

AT_ONCE = 4
FILES_A_DEVICE = 5
WAVE_PERIODS = 36
GOLDEN = 0.6180339887498949
"""Its multiples spread evenly between whole numbers."""


def answer_at(number: int, period: int, answers: int) -> int | None:
    """The answer that a device holds in a period, from 0 on; None for none, where there is only one to hold.

    The first answer's share goes up and down between 15% and 75%; the others share the rest.
    """
    if number * GOLDEN % 1 < 0.45 + 0.3 * sin(2 * pi * period / WAVE_PERIODS):
        return 0
    return 1 + number % (answers - 1) if answers > 1 else None


@contextmanager
def living(count: int, development: "Development") -> Iterator[None]:
    """So many devices that report while the context lasts. It is entered once they have reported their past.

    Raises RuntimeError where they cannot.
    """
    spawning = multiprocessing.get_context("spawn")
    told = spawning.Event()
    process = spawning.Process(target=_live, args=(count, development, told), daemon=True)
    process.start()
    try:
        while not told.wait(0.2):
            if not process.is_alive():
                raise RuntimeError("the simulated devices could not live: what is above says why")
        yield
    finally:
        process.terminate()
        process.join()


def _live(count: int, development: "Development", told: "Event") -> None:
    """Devices that have lived since the survey began, and go on for as long as the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    _allow_open_files(count * FILES_A_DEVICE)
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        devices = list(pool.map(lambda number: _Device(number, development), range(count)))
        for device in devices:
            stack.callback(device.close)
        told.set()
        while True:
            time.sleep(_until_due(development.survey, time.time()))
            list(pool.map(_Device.go_on, devices))


def _until_due(survey: Survey, now: float) -> float:
    """How many seconds it is until every device has something to report of the period that closes next."""
    calendar, wait = survey.calendar, survey.skew + survey.spread + 1
    return calendar.time(calendar.closed(UnixSeconds(now - wait)) + 1) + wait - now


class _Device:
    """A client whose clock goes through the survey's past first."""

    def __init__(self, number: int, development: "Development") -> None:
        from changeling_client import Client

        self._number, self._survey = number, development.survey
        self._time = self._survey.calendar.start + 1.0
        self._client = Client(
            server=development.url,
            authority=[development.authority],
            path=development.folder / f"device-{number}.db",
            max_epsilon=1,
            witness=None,
            background=False,
            development=True,
            clock=lambda: self._time,
        )
        self._handle: SurveyHandle = self._client.join(self._survey.id, signed=development.signed)
        self._held: int | None = None
        calendar = self._survey.calendar
        for period in range(1, calendar.periods + 1):
            if (began := calendar.time(period - 1)) > time.time():
                break
            self._time = began + 1.0
            self._record(period)
        self.go_on()

    def go_on(self) -> None:
        """Record what is held now, and report what is due."""
        self._time = max(self._time, time.time())
        self._record(self._survey.calendar.period_of(UnixSeconds(self._time)))
        self._client.flush()

    def close(self) -> None:
        """Close its store."""
        self._client.close()

    def _record(self, period: int) -> None:
        held = answer_at(self._number, period, len(self._survey.answers))
        if held == self._held:
            return
        self._held = held
        if held is None:
            self._handle.retract()
        else:
            self._handle.record(self._survey.answers[held])


def _allow_open_files(count: int) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 256:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 256, hard), hard))


def dev(
    answers: Annotated[str, typer.Option(help="The answers, with commas between them.")] = "tea,coffee,neither",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port on loopback; by default the last one, or a free one.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder that keeps everything, to go on with; by default it is thrown away.")
    ] = None,
    fleet: Annotated[
        int,
        typer.Option(min=0, max=2000, help="So many simulated devices, each a client of its own; 200 is a picture."),
    ] = 0,
) -> None:
    """Run a server on loopback with a survey of ten-second periods, and print its estimates.

    It makes an authority, a sealing key and a survey, and prints a piece of Python that is a device. Started again with
    the same folder and answers it goes on with the same survey while that lasts, else with a new one of the same
    authority. With --fleet, devices live and report by themselves, and there is a page to look at. The odds are for
    development only.
    """
    from changeling_aggregator.cli.dev import develop

    if fleet and store is not None:
        raise ValueError("a fleet is thrown away at the end: choose one of --fleet and --store")
    develop(answers, port, store, partial(living, fleet) if fleet else None)
