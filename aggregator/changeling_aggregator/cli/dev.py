"""`changeling dev`: everything an app developer needs on one machine, thrown away at the end unless it is kept."""

import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import typer
from changeling_protocol import Survey, UnixSeconds
from changeling_protocol.wire import HISTOGRAM, ErrorCode, survey_path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ServerAnswered
from .development import (
    FLEET_ODDS,
    ODDS,
    fleet_survey,
    keep_port,
    kept_authority,
    kept_port,
    kept_survey,
    publish,
)
from .remote import get_json
from .serve import interrupt
from .tables import shown_error

_THROWN_AWAY = "Everything here is thrown away at the end, so begin with a new device.db; --store FOLDER keeps it."
_INSTRUCTIONS = """\
changeling dev: {question} ({answers})
{kept}
The odds of the truth are {odds:,} : 1, so that one device shows through: FOR DEVELOPMENT ONLY, never for people.

Save this as device.py and run it:

    import time
    from changeling_client import Client

    client = Client(
        server="{url}",
        authority=[bytes.fromhex("{authority}")],
        path="device.db",
        max_epsilon=10,
        strict=True,  # a wrong answer is an error, and not a drop that is counted
        development=True,  # what this survey costs does not count
        background=False,  # nothing is sent but in flush()
    )
    entry = client.join("{survey}")
    print(entry.record("{answer}"))
    while True:
        print(client.flush())
        time.sleep(1)

A period closes every {period} seconds; what it brought shows here about four seconds later: how many devices were heard
of all that ever were, and how many hold each answer. Run the device again with another answer, or with another
file instead of device.db for a second device. Stop with Ctrl-C.
"""
_OF_FLEET = """\
changeling dev: a fleet of simulated devices, each a client of its own, and a survey that is a toy: epsilon {epsilon}
for life, as a device reports its answer every {period} seconds with odds of {odds} : 1. FOR DEVELOPMENT ONLY.
The devices report what they have lived through so far."""


@dataclass(frozen=True, slots=True)
class Development:
    """What devices need to know of a development server. authority: its public key. folder: theirs, thrown away."""

    url: str
    survey: Survey
    signed: bytes
    authority: bytes
    folder: Path


Fleet: TypeAlias = Callable[[Development], AbstractContextManager[None]]
"""Devices that live while the context lasts; it is entered once they have reported their past."""


def develop(answers: str, port: int | None, store: Path | None, fleet: Fleet | None) -> None:
    """Run a server on loopback with a survey of ten-second periods, and print its estimates, until interrupted.

    answers: with commas between them. port: on loopback; None for the last one, or a free one.
    store: the folder that keeps everything; None for one that is thrown away. fleet: simulated devices, if any.
    """
    named = tuple(answer.strip() for answer in answers.split(","))
    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory(prefix="changeling-dev-") if store is None else nullcontext(store) as place:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            listening, url = _listen(folder, port)  # before anything is changed that another server may be using
            authority = kept_authority(folder)
            now = time.time()
            survey = kept_survey(folder, authority, named, now) if fleet is None else fleet_survey(named, now)
            with listening, _serving(folder, authority, survey, listening):
                if fleet is None:
                    _print_instructions(survey, authority, url, store)
                    _watch(survey, url, _wait(survey))
                    return
                typer.echo(
                    _OF_FLEET.format(epsilon=survey.epsilon, odds=FLEET_ODDS.favoured, period=survey.calendar.period)
                )
                public = authority.public_key().public_bytes_raw()
                with fleet(Development(url, survey, survey.signed_by(authority), public, folder)):
                    typer.echo(f"Look at {url}/ for the estimates with their bands. Stop with Ctrl-C.")
                    _watch(survey, url, _wait(survey) + survey.calendar.period // 2)
        except KeyboardInterrupt:
            typer.echo("stopped; everything is " + ("thrown away" if store is None else f"kept in {store}"))


@contextmanager
def _serving(folder: Path, authority: Ed25519PrivateKey, survey: Survey, listening: socket.socket) -> Iterator[None]:
    """A server of this survey in a thread of its own."""
    from ..server import Service, Settings, make_app, make_server, real_time
    from ..store import Store

    store = Store.open(folder / "server.db")
    publish(store, authority, survey, time.time())
    service = Service(store, Settings([authority.public_key().public_bytes_raw()], real_time))
    server = make_server(make_app(service))
    thread = Thread(target=server.run, args=([listening],), name="server")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _listen(folder: Path, port: int | None) -> tuple[socket.socket, str]:
    """The port asked for, else the one that the folder's server had, so that an app finds it again."""
    from ..server import listen

    listening, url = listen("127.0.0.1", kept_port(folder) if port is None else port)
    keep_port(folder, listening.getsockname()[1])
    return listening, url


def _print_instructions(survey: Survey, authority: Ed25519PrivateKey, url: str, store: Path | None) -> None:
    typer.echo(
        _INSTRUCTIONS.format(
            question=survey.question,
            answers=", ".join(survey.answers),
            kept=_THROWN_AWAY if store is None else f"Everything is kept in {store}.",
            odds=ODDS.favoured,
            url=url,
            authority=authority.public_key().public_bytes_raw().hex(),
            survey=survey.id.hex(),
            answer=survey.answers[0],
            period=survey.calendar.period,
        )
    )


def _watch(survey: Survey, url: str, wait: int) -> None:
    """Print a line for each period, so many seconds after its close, until the survey ends."""
    width = max(14, *(len(answer) + 2 for answer in survey.answers))
    typer.echo("period         heard" + "".join(answer.rjust(width) for answer in survey.answers))
    shown = survey.calendar.closed(UnixSeconds(time.time() - wait))  # what came before is not shown again
    while shown < survey.calendar.periods:
        time.sleep(0.5)
        due = survey.calendar.closed(UnixSeconds(time.time() - wait))
        if due > shown:
            typer.echo(f"{due:>6}  " + _line(survey, url, due, width))
            shown = due


def _wait(survey: Survey) -> int:
    """How long after its close a period is shown: one second beyond the last answer's time, for the fold."""
    return 2 * survey.skew + survey.spread + 1


def _line(survey: Survey, url: str, period: int, width: int) -> str:
    try:
        answer = get_json(url, survey_path(survey.id.hex()) + HISTOGRAM, {"period": str(period)})
    except ServerAnswered as error:
        if error.code is not ErrorCode.NOT_ESTIMABLE:
            return f"{error}"
        return "nothing yet: no device was heard"
    pairs = zip(answer["values"], answer["standard_errors"], strict=True)
    cells = (f"{round(value, 2) + 0.0:.2f} ± {shown_error(error, 2)}".rjust(width) for value, error in pairs)
    return f"{answer['heard']:.0f} of {answer['enrolled']:.0f}".rjust(12) + "".join(cells)
