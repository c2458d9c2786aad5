"""Kills a server in front of a folder of segments with SIGKILL at each of its writes in turn; recovers what it left.

A program of its own: it forks before anything starts a thread. Arguments: a folder with `server.db` to copy, the time
to upload at, the time to recover at, and three requests in hex, separated by commas. Prints a JSON line per kill: how
many requests were acknowledged, and what the log holds.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from changeling_aggregator.ingest.journaled import JournalWriter
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.store.catalogue import frontier_of_all
from changeling_aggregator.store.log import unread
from changeling_aggregator.store.recovery import recover

from .fold_killer import in_child, killed_at

SYSTEM_CALLS = ("open", "write", "fdatasync", "fsync", "rename", "unlink")


def main(folder: Path, uploading: float, folding: float, bodies: list[bytes]) -> None:
    for recovering in (False, True):
        at, killed = 0, True
        while killed:
            at += 1
            copy = folder / f"kill-{recovering}-{at}"
            copy.mkdir()
            shutil.copy(folder / "server.db", copy)
            if recovering:
                assert in_child(lambda: serve(copy, uploading, bodies, 0, kill_at_end=True)) == -signal.SIGKILL  # noqa: B023
                ended = in_child(lambda: recover_and_die(copy, folding, at))  # noqa: B023
            else:
                ended = in_child(lambda: serve(copy, uploading, bodies, at))  # noqa: B023
            killed = ended == -signal.SIGKILL
            in_child(lambda: show(copy, folding))  # noqa: B023


def die_at(at: int, store: Store) -> None:
    """The process is killed before write number `at`: a system call of Python's, an SQL statement, or a commit."""
    count = killed_at(at, store)
    for name in SYSTEM_CALLS:
        setattr(os, name, counted(getattr(os, name), count))
    torn = os.write

    def write(file: int, content: Any) -> int:
        """In two parts, so that it is killed in the middle, too."""
        half = len(content) // 2
        return torn(file, content[:half]) + torn(file, content[half:])

    os.write = write


def counted(call: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def counting(*arguments: Any, **named: Any) -> Any:
        count()
        return call(*arguments, **named)

    return counting


def serve(folder: Path, now: float, bodies: list[bytes], at: int, kill_at_end: bool = False) -> None:
    """Takes a request and rolls it, then takes two that share no segment, and ends."""
    store = Store.open(folder / "server.db")
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    note = os.write
    if at:
        die_at(at, store)
    writer = JournalWriter(store, Folder(folder / "segments", make=True), lambda: now)
    writer._stop.set()
    writer._due.set()
    writer._thread.join()
    for number, body in enumerate(bodies, 1):
        writer.write([body], {}, int(now * 1000))
        note(acknowledged, b"x")
        if number == 2:
            writer._end_part()
        if number == 1:
            writer.flush()
    if kill_at_end:
        os.kill(os.getpid(), signal.SIGKILL)
    writer.close()


def recover_and_die(folder: Path, now: float, at: int) -> None:
    store = Store.open(folder / "server.db")
    die_at(at, store)
    recover(store, int(now * 1000))


def show(folder: Path, now: float) -> None:
    store = Store.open(folder / "server.db")
    recover(store, int(now * 1000))
    acknowledged = folder / "acknowledged"
    with store.reading() as connection:
        said = {
            "acknowledged": acknowledged.stat().st_size if acknowledged.exists() else 0,
            "bodies": [each.body.hex() for each in unread(connection, 100, 2**30)],
            "latest": max((each.arrival for each in unread(connection, 100, 2**30)), default=0),
            "frontier": frontier_of_all(connection),
            "left": [each.name for each in (folder / "segments").glob("*.journal")],
        }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        float(sys.argv[2]),
        float(sys.argv[3]),
        [bytes.fromhex(each) for each in sys.argv[4].split(",")],
    )
