"""A server on loopback, set up as an operator would type it, and real clients, which live through a changelog.

Each person has a client with a store of its own. All go by a clock that we move.
"""

import json
import os
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from changeling_aggregator.cli.access import read_public_key
from changeling_client import Client, SurveyHandle
from changeling_protocol import Survey
from changeling_protocol.wire import CLOCK, FOLD, JSON, SERIES, survey_path
from changeling_reader import ServerClient
from changeling_statistics import MICROSECONDS, Changelog, read_survey

COMMAND = (sys.executable, "-m", "changeling_commands")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running server, the survey it publishes, and what its clients pin."""

    url: str
    survey: Survey
    authority: bytes
    admin: ServerClient

    def move_clock(self, time: float) -> None:
        """Sets the server's clock, in Unix seconds."""
        body = json.dumps({"time": time}).encode()
        self.admin.request("PUT", CLOCK, body=body, headers={"content-type": JSON})

    def fold(self) -> dict[str, Any]:
        """Fold now; what was folded."""
        folded: dict[str, Any] = self.admin.request("POST", FOLD).json()
        return folded

    def seal(self) -> None:
        """Lets the grace of the last period pass, and folds: from then on nothing that is published changes."""
        survey = self.survey
        self.fold()
        self.move_clock(survey.calendar.time(survey.calendar.periods) + survey.grace + 1)
        self.fold()

    def series(self) -> list[dict[str, Any]]:
        """The published histograms of all periods."""
        query = (("until", self.survey.calendar.periods), ("covariance", "true"), ("confidence", "0.95"))
        published: list[dict[str, Any]] = self.admin.json(survey_path(self.survey.id.hex()) + SERIES, query)["series"]
        return published


@contextmanager
def deployed(folder: Path, survey_file: Path) -> Iterator[Deployment]:
    """Authority and sealing key made, the survey signed and published; the server stopped at the end."""
    environment = dict(os.environ)

    def changeling(*words: str) -> None:
        command = [*COMMAND, *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"changeling {' '.join(words)}: {done.stderr.strip()}")

    scopes = [word for scope in ("survey:write", "fold", "read") for word in ("--scope", scope)]
    changeling("token", "new", "--store", "server.db", "--name", "demo", *scopes, "-o", "operator.token")
    token = environment["CHANGELING_TOKEN"] = (folder / "operator.token").read_text().strip()
    changeling("authority", "new", "-o", "authority")
    private, public = (folder / "authority" / f"authority.{suffix}" for suffix in ("key", "pub"))
    with _serving(folder, environment, public) as url:
        changeling("keys", "new", "--store", "server.db", "-o", "key.request")
        dates = ("--begins", "1970-01-02", "--expires", "2100-01-01")
        changeling("keys", "sign", "key.request", "--key", str(private), *dates, "-o", "key.signed")
        changeling("keys", "publish", "key.signed", "--server", url)
        changeling("survey", "sign", str(survey_file), "--key", str(private), "-o", "survey.signed")
        changeling("survey", "publish", "survey.signed", "--server", url)
        survey = read_survey(folder / "survey.signed")
        with ServerClient(url, token=token, timeout=60) as admin:
            yield Deployment(url, survey, read_public_key(public), admin)


@contextmanager
def _serving(folder: Path, environment: dict[str, str], authority: Path) -> Iterator[str]:
    serve = ("serve", "--store", "server.db", "--authority", str(authority), "--port", "0", "--movable-clock")
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(  # noqa: S603
            [*COMMAND, *serve], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as server,
    ):
        try:
            yield _url_of(server, folder / "server.log")
        finally:
            server.terminate()


def _url_of(server: "subprocess.Popen[str]", log: Path) -> str:
    """The address that the server prints once it listens."""
    line = server.stdout.readline() if server.stdout else ""
    if "http" not in line:
        raise RuntimeError(f"the server did not start: {log.read_text().strip() or line.strip()}")
    return line[line.index("http") :].strip()


FILES_A_CLIENT = 4
AT_ONCE = 4
"""How many clients flush at the same time."""


class Clock:
    """Unix time in seconds, as everybody in the demo is told."""

    def __init__(self, time: float) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time


@dataclass(frozen=True, slots=True)
class People:
    """The clients and their surveys, by entry of the changelog."""

    clients: list[Client]
    handles: list[SurveyHandle]
    clock: Clock


@contextmanager
def joined(changelog: Changelog, deployment: Deployment, folder: Path) -> Iterator[People]:
    """A client for every entry, joined as the calendar starts. They share connections, and have no witness."""
    count = len(changelog.entries)
    _allow_open_files(count * FILES_A_CLIENT)
    clock = Clock(deployment.survey.calendar.start + 1)
    deployment.move_clock(clock())
    with ExitStack() as stack:
        transport = stack.enter_context(httpx.HTTPTransport())
        clients = [
            stack.enter_context(device(folder / f"device-{i}.db", deployment, transport, clock)) for i in range(count)
        ]
        first = _first_answers(changelog) if deployment.survey.closed else [None] * count
        handles = [
            client.join(deployment.survey.id, answers=None if answer is None else [answer])
            for client, answer in zip(clients, first, strict=True)
        ]
        flush(clients)
        yield People(clients, handles, clock)


def device(store: Path, deployment: Deployment, transport: httpx.BaseTransport, clock: Clock) -> Client:
    """One client, which reports when it is told to. Its store is thrown away, so nothing witnesses it."""
    return Client(
        path=store,
        server=deployment.url,
        authority=[deployment.authority],
        max_epsilon=deployment.survey.epsilon,
        witness=None,
        strict=True,
        background=False,
        transport=transport,
        clock=clock,
    )


def flush(clients: Sequence[Client]) -> int:
    """Flushes all of them, a few at the same time. Returns how many closings were acknowledged."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(flushed.sent for flushed in pool.map(Client.flush, clients))


def replay(changelog: Changelog, deployment: Deployment, people: People) -> Iterator[int]:
    """Period after period: everybody records what happened, the period closes, everybody flushes.

    Yields how many closings were acknowledged in each period.
    """
    survey, clock = deployment.survey, people.clock
    calendar = survey.calendar
    happened = defaultdict(list)
    rows = zip(changelog.time.tolist(), changelog.entry.tolist(), changelog.state.tolist(), strict=True)
    for time, entry, state in sorted(rows):
        happened[calendar.period_of(time / MICROSECONDS)].append((time / MICROSECONDS, entry, state))
    for period in range(1, calendar.periods + 1):
        for time, entry, state in happened[period]:
            clock.time = time
            handle = people.handles[entry]
            if state:
                handle.record(survey.answers[state - 1])
            else:
                handle.retract()
        clock.time = calendar.time(period) + survey.skew + survey.spread + 1
        deployment.move_clock(clock())
        yield flush(people.clients)


def _first_answers(changelog: Changelog) -> list[str]:
    """The first answer of every entry, which those of a closed cohort have from the start."""
    first = np.unique(changelog.entry, return_index=True)[1]
    return [changelog.answers[state - 1] for state in changelog.state[first].tolist()]


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
