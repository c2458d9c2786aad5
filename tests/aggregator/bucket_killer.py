"""Kills a server that writes objects with SIGKILL at each of its writes in turn, two of them on their way at once.

A program of its own: it forks before anything starts a thread. A folder is its object store, as its writes can be
counted. Arguments: a folder with `server.db` to copy, and the time to upload at. Prints a JSON line per kill: which
requests were acknowledged, what the log holds, and the files that no catalogue names once they were swept.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from threading import Thread

from changeling_aggregator.ingest.bucketed import BucketWriter
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.store.catalogue import segments_of
from changeling_aggregator.store.compaction import sweep
from changeling_aggregator.store.log import unread

from .fold_killer import in_child
from .journal_killer import die_at

REQUESTS = (b"1", b"2" * 50, b"3")
LATER = 10**10


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
    writer = BucketWriter(store, Folder(folder / "segments", make=True))

    def write(body: bytes) -> None:
        writer.write([body], {}, int(now * 1000))
        note(acknowledged, body[:1])

    write(REQUESTS[0])
    threads = [Thread(target=write, args=(body,)) for body in REQUESTS[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def show(folder: Path) -> None:
    store = Store.open(folder / "server.db")
    sweep(store, LATER)
    place, acknowledged = Folder(folder / "segments", make=True), folder / "acknowledged"
    with store.reading() as connection:
        named = {each.name for each in segments_of(connection)}
        said = {
            "acknowledged": acknowledged.read_text() if acknowledged.exists() else "",
            "kept": [each.body[:1].decode() for each in unread(connection, 100, 2**30)],
            "unnamed": [each.name for each in place.kept("") if each.name not in named],
        }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
