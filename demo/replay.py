"""Real clients that live through a changelog: one a person, each with a store of its own, under a clock we move."""

import resource
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from changeling_client import Client, SurveyHandle
from changeling_statistics import MICROSECONDS, Changelog

from .deployment import Deployment

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
