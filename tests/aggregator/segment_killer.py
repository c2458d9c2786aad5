"""Kills a server that writes segments with SIGKILL at each of its writes in turn, two of them on their way at once.

A program of its own: it forks before anything starts a thread. They lie in a folder, whose writes can be counted.
Arguments: a folder with `server.db` to copy, and the time to upload at. Prints a JSON line per kill: which
requests were acknowledged, what the log holds, and the files that no catalogue names once they were swept.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from changeling_aggregator.ingest import writer_for
from changeling_aggregator.segments import Folder
from changeling_aggregator.store import Store

from .fold_killer import in_child, killed_at
from .uploads import content_of, split, upload

REQUESTS = (b"1", b"2" * 50, b"3")
LATER = 10**10
SYSTEM_CALLS = ("open", "fsync", "rename", "unlink")


def main(folder: Path, now: float) -> None:
    at, killed = 0, True
    while killed:
        at += 1
        copy = folder / f"kill-{at}"
        copy.mkdir()
        shutil.copy(folder / "server.db", copy)
        killed = in_child(lambda: serve(copy, now, at)) == -signal.SIGKILL  # noqa: B023
        in_child(lambda: show(copy))  # noqa: B023


def serve(folder: Path, now: float, at: int) -> None:
    """Writes a request, then two at once."""
    store = Store.open(folder / "server.db")
    acknowledged = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    note = os.write
    die_at(at, store)
    writer = writer_for(store, str(folder / "segments"))

    def write(body: bytes) -> None:
        writer.write(split(upload(body)), {}, int(now * 1000))
        note(acknowledged, body[:1])

    write(REQUESTS[0])
    threads = [Thread(target=write, args=(body,)) for body in REQUESTS[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def die_at(at: int, store: Store) -> None:
    """The process is killed before write number `at`: a system call of Python's, an SQL statement, or a commit."""
    count = killed_at(at, store)
    for name in SYSTEM_CALLS:
        setattr(os, name, counted(getattr(os, name), count))


def counted(call: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def counting(*arguments: Any, **named: Any) -> Any:
        count()
        return call(*arguments, **named)

    return counting


def show(folder: Path) -> None:
    store = Store.open(folder / "server.db")
    with store.turn_to_fold() as turn:
        assert turn
        turn.sweep(LATER)
    place, acknowledged = Folder(folder / "segments", make=True), folder / "acknowledged"
    with store.view() as view:
        named = {each.name for each in view.segments()}
        said = {
            "acknowledged": acknowledged.read_text() if acknowledged.exists() else "",
            "kept": [content[:1].decode() for each in view.unread(100, 2**30) for content in content_of(each.body)],
            "unnamed": [each.name for each in place.list("") if each.name not in named],
        }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
