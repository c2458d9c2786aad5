"""Kills a fold, or a server that writes segments, with SIGKILL at each of its writes in turn, and looks what it left.

A program of its own: it forks before anything starts a thread. Arguments: `fold` or `segments`, a folder with
`server.db` to copy, the time to fold or to upload at. Prints a line per kill, as Python reads it. What only reads
changes nothing that a kill leaves, and is not counted.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet  # noqa: F401
from changeling_aggregator.fold import fold
from changeling_aggregator.ingest import writer_for
from changeling_aggregator.segments import Folder
from changeling_aggregator.store import Store
from changeling_protocol import SealingKey
from sqlalchemy import Connection, event

from .devices import Log, content_of, split, upload

with suppress(ModuleNotFoundError):
    import pandas  # noqa: F401  # which pyarrow asks for where it is there: once, and not in each child

BATCH = 2
REQUESTS = (b"1", b"2" * 50, b"3")
LATER, KEY = 10**10, SealingKey(bytes(32), 0, 1)
SYSTEM_CALLS = ("open", "fsync", "rename", "unlink")


def main(what: str, folder: Path, now: float) -> None:
    act, show = {"fold": (fold_some, show_fold), "segments": (serve, show_segments)}[what]
    at, killed = 0, True
    while killed:
        at += 1
        copy = folder / f"kill-{at}"
        copy.mkdir()
        shutil.copy(folder / "server.db", copy)
        killed = in_child(partial(act, copy, now, at)) == -signal.SIGKILL
        in_child(partial(show, copy, now))


def in_child(act: Callable[[], None]) -> int:
    """Runs `act` in a process of its own; the exit code."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(at: int, store: Store) -> Callable[[], None]:
    """Have the process killed before its write number `at`, a statement or commit; a call of what this gives is one."""
    left = at

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left <= 0:  # also where threads count at once
            os.kill(os.getpid(), signal.SIGKILL)

    def executes(_: object, __: object, statement: str, *___: object) -> None:
        if not statement.startswith(("SELECT", "BEGIN")):
            count()

    def commits(connection: Connection) -> None:
        if connection.get_execution_options().get("writer"):
            count()

    event.listen(store._database.engine, "before_cursor_execute", executes)
    event.listen(store._database.engine, "commit", commits)
    return count


def fold_some(folder: Path, now: float, at: int) -> None:
    store = Store.open(folder / "server.db")
    killed_at(at, store)
    fold(store, now, BATCH)


def show_fold(folder: Path, now: float) -> None:
    """What the store held right after, and what it holds once folded to the end."""
    store = Store.open(folder / "server.db")
    after_kill = contents(store)
    fold(store, now, BATCH)
    print([after_kill, contents(store)], flush=True)


def contents(store: Store) -> dict[str, object]:
    """How much is unfolded, how many runs of ids there are, all tallies and attendance, and refusals."""
    with store.view() as view:
        (stored,), runs = view.surveys().values(), sum(map(len, view.runs().values()))
    log = Log(store, stored.survey, KEY, 0)
    counts = {"tallies": log.tallies(), "attendance": log.attendance(), "refused": log.refused()}
    return {"unfolded": log.unfolded(), "runs": runs} | counts


def serve(folder: Path, now: float, at: int) -> None:
    """Writes a request, then two at once."""
    store = Store.open(folder / "server.db")
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count = killed_at(at, store)
    for name in SYSTEM_CALLS:
        setattr(os, name, counted(getattr(os, name), count))
    writer = writer_for(store, str(folder / "segments"))

    def write(body: bytes) -> None:
        writer.write(split(upload(body)), {}, int(now * 1000))
        os.write(acknowledged, body[:1])

    write(REQUESTS[0])
    threads = [Thread(target=write, args=(body,)) for body in REQUESTS[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def counted(call: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def counting(*arguments: Any, **named: Any) -> Any:
        count()
        return call(*arguments, **named)

    return counting


def show_segments(folder: Path, _: float) -> None:
    """What was acknowledged, what the log holds, and the files that no catalogue names once they were swept."""
    store = Store.open(folder / "server.db")
    with store.turn_to_fold() as turn:
        assert turn
        turn.sweep(LATER)
    acknowledged = folder / "acknowledged"
    with store.view() as view:
        named = {each.name for each in view.segments()}
        kept = [content[:1].decode() for each in view.unread(100, 2**30) for content in content_of(each.body)]
    unnamed = [each.name for each in Folder(folder / "segments", make=True).list("") if each.name not in named]
    print((acknowledged.read_text() if acknowledged.exists() else "", kept, unnamed), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
