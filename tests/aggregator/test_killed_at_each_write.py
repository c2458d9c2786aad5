"""Whatever is killed, at any write or under load: what was acknowledged counts exactly once, and nothing else does."""

import shutil
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from changeling_aggregator.store import Store
from changeling_aggregator.testing.services import PostgreSQL, small_bucket
from changeling_aggregator.testing.serving import at_once, killed, restarted, terminated

from .devices import END, START, Log, report

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


IN_MEMORY = Path("/dev/shm")
"""Where a process that is killed leaves the same as on a disk, and no write waits for one."""


def outcomes(what: str, store: Path, now: int) -> list[Any]:
    """What each kill left."""
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        shutil.copy(store, Path(folder, "server.db"))
        arguments = [sys.executable, "-m", "tests.aggregator.killers", what, folder, str(now)]
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
    assert {left: after_kills.count(left) > 5 for left in after_kills} == {3: True, 1: True, 0: True}
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
