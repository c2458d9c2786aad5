"""`changeling dev`: everything an app developer needs on one machine, thrown away at the end unless it is kept.

Its folder keeps an authority, a survey, the server's store, and the port it had. Simulated devices are clients that
report over HTTP, in a process of their own. What they answer follows from their number and the period, so that a wave
goes through the population.
"""

import multiprocessing
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import pi, sin
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import typer
from changeling_aggregator.cli import (
    asking,
    interrupt,
    read_private_key,
    shown_error,
    write_private_key,
    write_public_key,
)
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    ExpectedChanges,
    Group,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    ResultsKey,
    SealingKey,
    StateSpace,
    Survey,
    Track,
    UnixSeconds,
)
from changeling_protocol.wire import HISTOGRAM, ErrorCode, survey_path
from changeling_statistics import read_survey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .survey_code import literal

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from changeling_aggregator.store import Store
    from changeling_client import SurveyHandle

PERIOD_SECONDS = 10
PERIODS = 2160
MOST_CHANGES = 1000
ODDS = Odds(1_000_000, 1)
"""Far too generous for people: one device's answer shows through."""
FLEET_ODDS = Odds(9, 1)
"""So that estimates of a simulated fleet have bands to be seen. Too generous too, as every period is reported."""
FLEET_PAST = 40
"""How many periods a simulated fleet has lived through when it begins: less than the grace allows."""
KEY_SECONDS = 10 * 365 * 86_400
"""How long a sealing key of development is good."""
AT_ONCE = 4
FILES_A_DEVICE = 5
WAVE_PERIODS = 36
GOLDEN = 0.6180339887498949
"""Its multiples spread evenly between whole numbers."""


class DevelopmentAsks(NamedTuple):
    """What a development survey asks, and the breakdowns of its results."""

    questions: tuple[Question, ...]
    breakdowns: tuple[Breakdown, ...] = ()

    @classmethod
    def alone(cls, answers: str) -> Self:
        """One question, with these answers, between which are commas. Raises ValueError for answers of no survey."""
        named = tuple(answer.strip() for answer in answers.split(","))
        return cls((Question("question", "What do you drink? (development only)", named, AtMost(MOST_CHANGES)),))

    @classmethod
    def like(cls, survey: Survey) -> Self:
        """The questions of a survey that apps answer, which may change as often as anybody likes."""
        often = (replace(each, constraint=AtMost(MOST_CHANGES), expected=ExpectedChanges()) for each in survey.asked)
        return cls(tuple(often), survey.breakdowns)


def development_survey(asked: DevelopmentAsks, now: float, odds: Odds = ODDS) -> Survey:
    """A survey that begins with the period that holds `now`, in Unix seconds.

    A device reports its answers at the end of every period, and not their change over it: so what it says does not hang
    on periods in which nobody was there.
    """
    calendar = Calendar(int(now) // PERIOD_SECONDS * PERIOD_SECONDS, PERIOD_SECONDS, PERIODS)
    tracks = (
        Track(1, KaryResponse(StateSpace(len(each.answers)), odds), 0, PERIODS, question=place)
        for place, each in enumerate(asked.questions)
    )
    return Survey.at_cost(
        questions=asked.questions,
        breakdowns=asked.breakdowns,
        calendar=calendar,
        plan=ReleasePlan((Group(tuple(tracks)),)),
        skew=1,
        spread=2,
        grace=600,
        minimum=1,
    )


def kept_authority(folder: Path) -> Ed25519PrivateKey:
    """The authority that signs in a folder, made the first time; `authority.pub` is what apps pin of it.

    Raises ValueError for a file that holds none.
    """
    file = folder / "authority.key"
    if not file.exists():
        write_private_key(file, Ed25519PrivateKey.generate())
    authority = read_private_key(file)
    write_public_key(folder / "authority.pub", authority.public_key().public_bytes_raw())
    return authority


def kept_survey(folder: Path, authority: Ed25519PrivateKey, asked: DevelopmentAsks, now: float) -> Survey:
    """The survey made in a folder last, if it asks the same and its calendar lasts; else a new one, kept there.

    now: Unix seconds. Raises ProtocolError for a file that holds no survey of this authority, or ValueError.
    """
    file = folder / "survey.signed"
    if file.exists():
        survey = Survey.from_signed(file.read_bytes(), [authority.public_key().public_bytes_raw()])
        same = (survey.questions, survey.breakdowns) == asked
        if same and now < survey.calendar.time(survey.calendar.periods):
            return survey
    survey = development_survey(asked, now)
    file.write_bytes(survey.signed_by(authority))
    return survey


def publish(store: "Store", authority: Ed25519PrivateKey, survey: Survey, now: float) -> None:
    """Put the survey into the server's store, and a sealing key if none is good as long as the survey is answered."""
    from changeling_aggregator.store import published

    until = survey.calendar.time(survey.calendar.periods) + survey.grace
    with store.transaction() as writing:
        writing.add_survey(survey.id, survey.signed_by(authority), public=True)
        keys = [each.key for each in published(writing.sealing_keys()).values()]
        if not any(key.begins <= now and key.expires > until for key in keys):
            begins = max([survey.calendar.start, *(key.expires for key in keys)])
            key = SealingKey(writing.make_key(), begins, until + KEY_SECONDS)
            writing.publish_key(key, key.signed_by(authority))
        if writing.signing_key(UnixSeconds(now)) is None:
            public = writing.make_results_key()
            results_key = ResultsKey(public, int(now), until + KEY_SECONDS)
            writing.publish_key(results_key, results_key.signed_by(authority))


_THROWN_AWAY = "Everything here is thrown away at the end, so begin with a new device.db; --store FOLDER keeps it."
_INSTRUCTIONS = """\
changeling dev: {asked}
{kept}
The odds of the truth are {odds:,} : 1, so that one device shows through: FOR DEVELOPMENT ONLY, never for people.
"""
_SCRIPT = """\
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
    entry = client.join({joined})
    time.sleep(2)  # an app joins at its first launch, and not when there is an answer
{recorded}
    while True:
        time.sleep(1)  # it reports by a timer, and not as it records
        print(client.flush())
"""
_WATCHED = """\
Look at {url}/ for the estimates with their bands.
A period closes every {period} seconds; what it brought shows here about four seconds later: how many devices were heard
of all that ever were, and how many hold each answer. Run the device again with another answer, or with another
file instead of device.db for a second device. Stop with Ctrl-C.
"""
_OF_FLEET = """\
changeling dev: a fleet of simulated devices, each a client of its own, and a survey that is a toy: epsilon {epsilon}
for life, as a device reports its answer every {period} seconds with odds of {odds} : 1. FOR DEVELOPMENT ONLY.
The devices report what they have lived through so far."""
_ONE_MORE = "You can be one device more. "


@dataclass(frozen=True, slots=True)
class Development:
    """The facts that devices need of a development server. authority: its public key. folder: theirs, thrown away."""

    url: str
    survey: Survey
    signed: bytes
    authority: bytes
    folder: Path


def dev(
    answers: Annotated[str, typer.Option(help="The answers, with commas between them.")] = "tea,coffee,neither",
    like: Annotated[
        Path | None,
        typer.Option(help="Survey, signed or not, whose questions and breakdowns are asked instead of --answers."),
    ] = None,
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
    the same folder and questions it goes on with the same survey while that lasts, else with a new one of the same
    authority. With --fleet, devices live and report by themselves, and there is a page to look at. The odds are for
    development only.
    """
    if fleet and store is not None:
        raise ValueError("a fleet is thrown away at the end: choose one of --fleet and --store")
    asked = DevelopmentAsks.alone(answers) if like is None else DevelopmentAsks.like(read_survey(like))
    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory(prefix="changeling-dev-") if store is None else nullcontext(store) as place:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            listening, url = _listen_again(folder, port)  # before anything is changed that another server may be using
            authority = kept_authority(folder)
            now = time.time()
            if fleet:
                survey = development_survey(asked, now - FLEET_PAST * PERIOD_SECONDS, FLEET_ODDS)
            else:
                survey = kept_survey(folder, authority, asked, now)
            with listening, _serving(folder, authority, survey, listening):
                if not fleet:
                    _print_instructions(survey, authority, url, store)
                    _watch(survey, url, _wait(survey))
                    return
                typer.echo(
                    _OF_FLEET.format(epsilon=survey.epsilon, odds=FLEET_ODDS.favoured, period=survey.calendar.period)
                )
                public = authority.public_key().public_bytes_raw()
                with living(fleet, Development(url, survey, survey.signed_by(authority), public, folder)):
                    typer.echo(_ONE_MORE + _script(survey, authority, url))
                    typer.echo(f"Look at {url}/ for the estimates with their bands. Stop with Ctrl-C.")
                    _watch(survey, url, _wait(survey) + survey.calendar.period // 2)
        except KeyboardInterrupt:
            typer.echo("stopped; everything is " + ("thrown away" if store is None else f"kept in {store}"))


@contextmanager
def _serving(folder: Path, authority: Ed25519PrivateKey, survey: Survey, listening: socket.socket) -> Iterator[None]:
    """A server of this survey in a thread of its own."""
    from changeling_aggregator.server import ServerSettings, Service, make_app, make_server, real_time
    from changeling_aggregator.store import Store

    store = Store.open(folder / "server.db")
    publish(store, authority, survey, time.time())
    service = Service(store, ServerSettings([authority.public_key().public_bytes_raw()], real_time))
    server = make_server(make_app(service))
    thread = Thread(target=server.run, args=([listening],), name="server")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _listen_again(folder: Path, port: int | None) -> tuple[socket.socket, str]:
    """The port asked for, else the one that the folder's server had, so that an app finds it again; or a free one."""
    from changeling_aggregator.server import listen

    file = folder / "port"
    listening, url = listen("127.0.0.1", port if port is not None else int(file.read_text()) if file.exists() else 0)
    file.write_text(f"{listening.getsockname()[1]}\n")
    return listening, url


def _print_instructions(survey: Survey, authority: Ed25519PrivateKey, url: str, store: Path | None) -> None:
    typer.echo(
        _INSTRUCTIONS.format(
            asked="; ".join(f"{each.text} ({', '.join(each.answers)})" for each in survey.questions),
            kept=_THROWN_AWAY if store is None else f"Everything is kept in {store}.",
            odds=ODDS.favoured,
        )
    )
    typer.echo(_script(survey, authority, url))
    typer.echo(_WATCHED.format(url=url, period=survey.calendar.period))


def _script(survey: Survey, authority: Ed25519PrivateKey, url: str) -> str:
    public = authority.public_key().public_bytes_raw().hex()
    stratum = {each.name: each.values[0] for each in survey.breakdowns}
    joined = literal(survey.id.hex()) + (f", stratum={stratum!r}" if stratum else "")
    recorded = (f"    print({_asked_of(survey, each)}.record({_first_answer(each)}))" for each in survey.questions)
    return _SCRIPT.format(url=url, authority=public, joined=joined, recorded="\n".join(recorded))


def _asked_of(survey: Survey, question: Question) -> str:
    return "entry" if len(survey.questions) == 1 else f"entry.question({literal(question.name)})"


def _first_answer(question: Question) -> str:
    return str(question.levels[0]) if question.is_number else literal(question.answers[0])


def _watch(survey: Survey, url: str, wait: int) -> None:
    """Print a line for each period, so many seconds after its close, until the survey ends."""
    for each in survey.questions:
        typer.echo(_row("period         heard", each.answers, survey, each))
    shown = survey.calendar.closed(UnixSeconds(time.time() - wait))  # what came before is not shown again
    while shown < survey.calendar.periods:
        time.sleep(0.5)
        due = survey.calendar.closed(UnixSeconds(time.time() - wait))
        if due > shown:
            for each in survey.questions:
                typer.echo(f"{due:>6}  " + _line(survey, each, url, due))
            shown = due


def _wait(survey: Survey) -> int:
    """How long after its close a period is shown: one second beyond the last answer's time, for the fold."""
    return 2 * survey.skew + survey.spread + 1


def _row(begun: str, cells: Iterable[str], survey: Survey, question: Question) -> str:
    """A line with a cell for each answer; the question's name follows where there are several."""
    width = max(14, *(len(answer) + 2 for answer in question.answers))
    name = f"  {question.name}" if len(survey.questions) > 1 else ""
    return begun + "".join(cell.rjust(width) for cell in cells) + name


def _line(survey: Survey, question: Question, url: str, period: int) -> str:
    from changeling_reader import ServerAnswered

    try:
        with asking(url) as client:
            path = survey_path(survey.id.hex()) + HISTOGRAM
            answer = client.json(path, [("period", period), ("question", question.name)])
    except ServerAnswered as error:
        if error.code is not ErrorCode.NOT_ESTIMABLE:
            return f"{error}"
        return "no estimate: no device was heard of it, or of a period before"
    pairs = zip(answer["values"], answer["standard_errors"], strict=True)
    cells = (f"{round(value, 2) + 0.0:.2f} ± {shown_error(error, 2)}" for value, error in pairs)
    return _row(f"{answer['heard']:.0f} of {answer['enrolled']:.0f}".rjust(12), cells, survey, question)


def answer_at(number: int, period: int, answers: int) -> int | None:
    """The answer that a device holds in a period, from 0 on; None for none, where there is only one to hold.

    The first answer's share goes up and down between 15% and 75%; the others share the rest.
    """
    if number * GOLDEN % 1 < 0.45 + 0.3 * sin(2 * pi * period / WAVE_PERIODS):
        return 0
    return 1 + number % (answers - 1) if answers > 1 else None


@contextmanager
def living(count: int, development: Development) -> Iterator[None]:
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


def _live(count: int, development: Development, told: "Event") -> None:
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

    def __init__(self, number: int, development: Development) -> None:
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
        stratum = {each.name: each.values[number % len(each.values)] for each in self._survey.breakdowns}
        self._handle: SurveyHandle = self._client.join(
            self._survey.id, signed=development.signed, stratum=stratum or None
        )
        self._held: dict[str, int | None] = {}
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
        for each in self._survey.questions:
            held = answer_at(self._number, period, len(each.answers))
            if held == self._held.get(each.name):
                continue
            self._held[each.name] = held
            handle = self._handle.question(each.name)
            if held is None:
                handle.retract()
            else:
                handle.record(float(each.levels[held]) if each.is_number else each.answers[held])


def _allow_open_files(count: int) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 256:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 256, hard), hard))
