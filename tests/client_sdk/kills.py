"""What is on disk at each step of a device's life, as a SIGKILL there leaves it, and what was sent in all."""

import os
import shutil
import signal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from changeling_client import witness
from changeling_protocol import (
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    decode,
)

from .device import PRIVATE, TRUTHFUL, Clock, FakeServer, answers_in, asking

CHANGES = MutationSpace(3)
NOISE = Odds(1, 1)
"""A symbol that says nothing: one drawn anew would differ in 12 cases of 13."""
NOISY = asking(
    Track(1, KaryResponse(CHANGES, NOISE), 0, 4),
    Track(2, KaryResponse(CHANGES, NOISE), 0, 4),
    Track(1, KaryResponse(CHANGES, TRUTHFUL), 0, 4),
)
JOINT = Joint(Odds(3, 1), 5, (3, 2, 1), (3, 2, 9))
TOGETHER = asking(
    Group.jointly(
        (
            Track(1, SignedSubset(CHANGES, TRUTHFUL), 0, 4),
            Track(2, KaryChange(CHANGES, TRUTHFUL), 0, 4),
            Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 4),
        ),
        JOINT,
    )
)
"""A joint group, with more slots of states than there are reports, so that its counts are kept until the end."""
Symbols = dict[tuple[int, object], dict[object, set[int]]]
"""By track and node, and by closing: the symbols that were sent."""


class Steps:
    """Counts SQL statements that change something, and both ends of requests and of a witness's writes.

    act: called at each of them, with its number. reads: whether statements that change nothing count as well.
    """

    def __init__(self, act: Callable[[int], object] = lambda _: None, reads: bool = False) -> None:
        self.count, self._act, self._reads = 0, act, reads

    @classmethod
    def killed_at(cls, last: int) -> "Steps":
        """The process kills itself at this step."""
        return cls(lambda count: count == last and os.kill(os.getpid(), signal.SIGKILL))

    def step(self, statement: str = "") -> None:
        if self._reads or not statement.startswith(("SELECT", "PRAGMA", "SET ")):
            self.count += 1
            self._act(self.count)


@contextmanager
def counting(steps: Steps) -> Iterator[None]:
    """What connections that are opened meanwhile change, and both sides of a witness's writes, are steps."""
    connect, write = sqlite3.connect, witness._write_through
    execute, many = psycopg.Connection.execute, psycopg.RawCursor.executemany

    def connected(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(steps.step)
        return connection

    def written(*args, **options):
        steps.step()
        write(*args, **options)
        steps.step()

    def executed(connection, statement, *given, **options):
        steps.step(statement if isinstance(statement, str) else statement.decode())
        return execute(connection, statement, *given, **options)

    def executed_many(cursor, statement, given):
        for each in given:
            steps.step()
            many(cursor, statement, [each])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connected)
        patch.setattr(witness, "_write_through", written)
        patch.setattr(psycopg.Connection, "execute", executed)
        patch.setattr(psycopg.RawCursor, "executemany", executed_many)
        yield


def copies_of_each_step(root: Path, live: Callable[[Path, Steps], object], every: int = 1) -> Iterator[Path]:
    """Lives once in a new folder; then gives that folder as it was at every so manieth step, and at the end."""
    whole = root / "whole"
    whole.mkdir()
    steps = Steps(lambda count: count % every or _copy(whole, root / str(count)))
    live(whole, steps)
    for count in range(every, steps.count + 1, every):  # one that could not be copied is missed here
        yield root / str(count)
        shutil.rmtree(root / str(count))
    yield whole


def _copy(whole: Path, copy: Path) -> None:
    """A witness, which is never written in place, keeps the number by which it knows its file."""
    for folder, _, files in os.walk(whole):
        to = copy / Path(folder).relative_to(whole)
        to.mkdir()
        for name in files:
            (os.link if to.name.endswith("witness") else shutil.copyfile)(Path(folder) / name, to / name)


def once_each(root: Path, clock: Clock, actions: Sequence[tuple[float, Callable[[], object]]]) -> None:
    """Does each action at its time, but for those that a process which was killed has finished."""
    done = root / "done"
    for number, (now, act) in enumerate(actions):
        if done.exists() and number < int(done.read_text()):
            continue
        clock.now = now
        act()
        (root / "next").write_text(str(number + 1))
        (root / "next").rename(done)


def noted(file: Path, server: FakeServer, steps: Steps | None = None) -> httpx.MockTransport:
    """A transport to the server, which keeps the body of every upload in a file, whether it arrives or not."""
    steps = steps or Steps()

    def serve(request: httpx.Request) -> httpx.Response:
        steps.step()
        if request.method == "POST":
            with file.open("ab") as sent:
                sent.write(len(request.content).to_bytes(4) + request.content)
        steps.step()
        response = server._serve(request)
        steps.step()
        return response

    return httpx.MockTransport(serve)


def sent_reports(folder: Path, asked: Survey) -> Symbols:
    """All reports in all bodies that any process tried to send, from all files of the folder that begin with `sent`."""
    content = b"".join(file.read_bytes() for file in folder.glob("sent*"))
    symbols: Symbols = defaultdict(lambda: defaultdict(set))
    while content:
        size = int.from_bytes(content[:4])
        for envelope in decode(content[4 : 4 + size])["envelopes"]:
            for answered, reports in answers_in(envelope, {asked.id: asked}, PRIVATE):
                for report in reports:
                    node = asked.plan.tracks[report.track].node(report.node)
                    symbols[report.track, node][answered].add(report.symbol)
        content = content[4 + size :]
    return symbols


def assert_each_node_is_answered_once(symbols: Symbols, asked: Survey, fewest: int, most: int | None = None) -> None:
    """By at least and at most so many entries; by as many where `most` is not told."""
    assert set(symbols) == {(at, node) for at, track in enumerate(asked.plan.tracks) for node in track.nodes()}
    for ids in symbols.values():
        assert fewest <= len(ids) <= (most or fewest), "an entry answered a closing twice, or under two ids, or never"
        assert all(len(drawn) == 1 for drawn in ids.values()), "a node was answered with two symbols"
