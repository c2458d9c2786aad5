"""`changeling dev`: everything an app developer needs on one machine, thrown away at the end."""

import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer
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
)
from changeling_protocol.quantities import UnixSeconds
from changeling_protocol.wire import survey_path
from changeling_protocol.wire.paths import HISTOGRAM
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ServerAnswered
from .neighbour import QuietNeighbour
from .remote import get_json
from .serve import interrupt
from .tables import shown_error

if TYPE_CHECKING:
    from ..server import Service

PERIOD_SECONDS = 10
PERIODS = 2160
MOST_CHANGES = 1000
ODDS = Odds(1_000_000, 1)
"""Far too generous for people: one device's answer shows through."""

_INSTRUCTIONS = """\
changeling dev: {question} ({answers})
Everything here is thrown away at the end. The odds of the truth are {odds:,} : 1, so that one device shows
through: FOR DEVELOPMENT ONLY, never for people.

Save this as device.py and run it:

    import time
    from changeling_client import Client

    client = Client(
        "device.db",
        server="{url}",
        authority=[bytes.fromhex("{authority}")],
        max_epsilon={max_epsilon},
    )
    entry = client.join("{survey}")
    entry.record("{answer}")
    while True:
        client.flush()
        time.sleep(1)

A period closes every {period} seconds; what it brought shows here about four seconds later. A quiet neighbour
without an answer reports as well, so that no period is empty. Run the device again with another answer,
or with another file instead of device.db for a second device. Stop with Ctrl-C.
"""


def dev(
    answers: Annotated[str, typer.Option(help="The answers, with commas between them.")] = "tea,coffee,neither",
    port: Annotated[int, typer.Option(help="Port on loopback; 0 takes a free one.")] = 0,
) -> None:
    """Run a throwaway server on loopback with a survey of ten-second periods, and print its estimates.

    It makes an authority, a sealing key and a survey in a temporary folder, and prints a piece of Python that is
    a device. The odds are for development only.
    """
    authority = Ed25519PrivateKey.generate()
    survey = _survey(tuple(answer.strip() for answer in answers.split(",")), time.time())
    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory(prefix="changeling-dev-") as folder:
        try:
            with _serving(Path(folder) / "server.db", authority, survey, port) as (service, key, url):
                _print_instructions(survey, authority, url)
                _watch(survey, url, QuietNeighbour(survey, key, service))
        except KeyboardInterrupt:
            typer.echo("stopped; everything is thrown away")


def _survey(answers: Sequence[str], now: float) -> Survey:
    calendar = Calendar(int(now) // PERIOD_SECONDS * PERIOD_SECONDS, PERIOD_SECONDS, PERIODS)
    constraint = AtMost(MOST_CHANGES)
    track = Track(1, KaryResponse(MutationSpace(len(answers)), ODDS), 0, PERIODS)
    plan = ReleasePlan((Group((track,)),))
    return Survey.at_cost(
        question="What do you drink? (development only)",
        answers=answers,
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        skew=1,
        spread=2,
        grace=600,
        minimum=1,
    )


@contextmanager
def _serving(
    path: Path, authority: Ed25519PrivateKey, survey: Survey, port: int
) -> Iterator[tuple["Service", SealingKey, str]]:
    """A server of this survey in a thread of its own."""
    from ..server import Service, Settings, listen, make_server, real_time
    from ..store import Store
    from ..store.sealing_keys import make_key, publish_key
    from ..store.surveys import add_survey

    store = Store.open(path)
    with store.writing() as connection:
        begins, ends = survey.calendar.start, survey.calendar.time(PERIODS)
        key = SealingKey(make_key(connection), begins, ends + survey.grace)
        publish_key(connection, key, key.signed_by(authority))
        add_survey(connection, survey.id, survey.signed_by(authority))
    service = Service(store, Settings([authority.public_key().public_bytes_raw()], None, real_time))
    listening, url = listen("127.0.0.1", port)
    server = make_server(service)
    thread = Thread(target=server.run, args=([listening],), name="server")
    thread.start()
    try:
        yield service, key, url
    finally:
        server.should_exit = True
        thread.join()


def _print_instructions(survey: Survey, authority: Ed25519PrivateKey, url: str) -> None:
    typer.echo(
        _INSTRUCTIONS.format(
            question=survey.question,
            answers=", ".join(survey.answers),
            odds=ODDS.favoured,
            url=url,
            authority=authority.public_key().public_bytes_raw().hex(),
            max_epsilon=int(survey.epsilon) + 1,
            survey=survey.id.hex(),
            answer=survey.answers[0],
            period=PERIOD_SECONDS,
        )
    )


def _watch(survey: Survey, url: str, neighbour: QuietNeighbour) -> None:
    """Print a line for each period as its answers come in, until the survey ends."""
    width = max(14, *(len(answer) + 2 for answer in survey.answers))
    typer.echo("period  " + "".join(answer.rjust(width) for answer in survey.answers))
    shown = 0
    while shown < PERIODS:
        time.sleep(0.5)
        neighbour.answer(UnixSeconds(time.time()))
        # One second beyond the last answer's time, for the fold.
        due = survey.calendar.closed(UnixSeconds(time.time() - 2 * survey.skew - survey.spread - 1))
        if due == shown:
            continue
        try:
            answer = get_json(url, survey_path(survey.id.hex()) + HISTOGRAM, period=str(due))
        except ServerAnswered as error:
            typer.echo(f"{due:>6}  {error}")
        else:
            pairs = zip(answer["values"], answer["standard_errors"], strict=True)
            cells = (f"{value:.2f} ± {shown_error(error, 2)}".rjust(width) for value, error in pairs)
            typer.echo(f"{due:>6}  " + "".join(cells))
        shown = due
