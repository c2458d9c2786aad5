"""Whatever is killed, at any write or under load: what was acknowledged counts exactly once, and nothing else does."""

import os
import shutil
import signal
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.ingest import writer_for
from changeling_aggregator.segments import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.testing.services import PostgreSQL, small_bucket
from changeling_aggregator.testing.serving import at_once, killed, restarted, terminated
from changeling_protocol import SealingKey
from sqlalchemy import Connection, event

from .devices import END, START, Log, content_of, report, split, upload

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def outcomes(what: str, store: Path, now: int) -> list[Any]:
    """What each kill left."""
    arguments = [sys.executable, "-m", __name__, what, str(store.parent), str(now)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return [literal_eval(line) for line in done.stdout.splitlines()]


def test_a_fold_killed_at_any_write_counts_each_closing_once(log: Log, tmp_path: Path) -> None:
    """For every SQL statement that writes, and every commit, of a fold of two batches and of the sealing after it:
    SIGKILL there, open again, fold. All agree with no kill; each leaves a whole number of batches."""
    same = bytes(16)
    log.append_reports(END, [report(1, 1)])
    log.append_reports(END, [report(1, 2, id_=same), report(2, 200)])
    log.append_reports(END, [report(1, 4, id_=same), report(8, 5)])
    log.store.close()
    found = outcomes("fold", tmp_path / "server.db", END + 10_000)
    final = found[-1][1]
    assert final["refused"] == {"duplicate": 1, "symbol-out-of-range": 1}
    assert {node: reports for node, (reports, _) in final["tallies"].items()} == {(0, 1): 2, (0, 8): 1}
    assert final["attendance"] == {(0, 1): (2, 2, 0), (0, 2): (1, 1, 0), (0, 8): (1, 1, 0)}
    assert final["runs"] == 0
    assert all(after_folding == final for _, after_folding in found)
    after_kills = [after_kill["unfolded"] for after_kill, _ in found]
    assert {left: after_kills.count(left) > 4 for left in after_kills} == {3: True, 1: True, 0: True}
    assert all(left["tallies"] == left["attendance"] == {} for left, _ in found if left["unfolded"] == 3)
    assert {left["runs"] for left, _ in found} == {0, 2, 3}


def test_a_server_killed_at_any_write_leaves_what_it_acknowledged_once(store: Store, tmp_path: Path) -> None:
    """For every SQL statement that writes, commit and write of a file, of one object and of two at once: SIGKILL there.

    All that was acknowledged is in the log, once; what was not may be, as a whole; and no file is left over.
    """
    store.close()
    found = outcomes("segments", tmp_path / "server.db", START)
    assert len(found) > 30
    for acknowledged, kept, unnamed in found:
        assert {*acknowledged} <= {*kept} <= {*"123"}
        assert (len({*kept}), unnamed) == (len(kept), [])
    assert {len(acknowledged) for acknowledged, _, _ in found} >= {0, 1, 3}


WRONG = ("lost", "counted_twice", "counted_besides", "differences_folded_again")


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a new store."""
    return str(request.getfixturevalue("postgresql").new() if "postgresql" in kind else tmp_path / "server.db")


@pytest.fixture
def options(kind: str, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Of its servers."""
    with small_bucket() if kind == "bucket" else nullcontext() as bucket:
        segments = tmp_path / "segments" if bucket is None else bucket.place
        yield ("--segments", str(segments)) if bucket or "segments" in kind else ()


def exact(figures: dict[str, float]) -> bool:
    """Whether something was sent, and all of it counted once."""
    return figures["acknowledged"] > 20 and not any(figures[each] for each in WRONG)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "bucket"])
def test_killed_servers_and_folds_lose_nothing_and_count_nothing_twice(
    tmp_path: Path, place: str, options: tuple[str, ...]
) -> None:
    """Six SIGKILLs, while four senders send, of two servers and of their folds, each of which was at work."""
    figures = killed(tmp_path, place, 6, options)
    assert min(figures["kills_of_server"], figures["kills_of_fold"]) >= 2
    assert figures["kills_of_server"] + figures["kills_of_fold"] >= 6
    assert exact(figures), figures


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["sqlite", "bucket"])
def test_sigterm_under_load_loses_nothing(tmp_path: Path, place: str, options: tuple[str, ...]) -> None:
    """Out within five seconds, with a backlog and senders, where all its processes are told to end."""
    figures = terminated(tmp_path, place, options, backlog=30_000)
    assert figures["left"] > 0
    assert figures["seconds"] < 5
    assert exact(figures), figures


@pytest.mark.timed
def test_a_database_that_is_restarted_under_load_is_used_again(tmp_path: Path) -> None:
    """By itself, within ten seconds each time."""
    with PostgreSQL() as postgresql:
        figures = restarted(tmp_path, postgresql)
    assert figures["seconds"] < 10
    assert exact(figures), figures


@pytest.mark.parametrize("kind", ["postgresql, segments"])
def test_what_is_sent_to_two_servers_at_once_counts_once(tmp_path: Path, place: str, options: tuple[str, ...]) -> None:
    """Each envelope to both, in transactions of either."""
    figures = at_once(tmp_path, place, 1.0, options)
    assert exact(figures), figures


# The program that is killed. It forks before anything starts a thread.

BATCH = 2
REQUESTS = (b"1", b"2" * 50, b"3")
LATER, KEY = 10**10, SealingKey(b"\x09" + bytes(31), 0, 1)
SYSTEM_CALLS = ("open", "fsync", "rename", "unlink")


def main(what: str, folder: Path, now: float) -> None:
    """Kill `fold` or `segments` in a folder with `server.db` to copy, at each of its writes; what only reads changes
    nothing that a kill leaves, and is not counted. Prints a line per kill, as Python reads it.

    now: the time to fold or to upload at.
    """
    import pyarrow.parquet  # noqa: F401

    with suppress(ModuleNotFoundError):
        import pandas  # noqa: F401  # which pyarrow asks for where it is there: once, and not in each child
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
