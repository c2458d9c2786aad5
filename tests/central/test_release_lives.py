"""The lives of a release that is charged to a ledger: killed, on a full disk, put back in parts, forked, enumerated.

Three files are written: output, state and ledger. Noise differs from life to life: a flush that was drawn twice shows.
"""

import errno
import os
import shutil
import signal
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, count
from multiprocessing import get_context
from pathlib import Path
from random import Random

import polars as pl
import pytest
from changeling_central import (
    ENTRY,
    BadState,
    Charge,
    OpenDPNoise,
    ReleaseAccount,
    ReleaseCost,
    read_ledger,
    read_rows,
    release,
)
from changeling_central.testing import Forbidden, Output, SeededNoise, begun, run

from .test_release import Killed, release_in

NAMES = ("out.csv", "out.csv.state", "ledger")
PERIODS = 4
SEEDS = count(1)


@pytest.fixture
def unflushed(monkeypatch):
    """Whose lives end within a process loses nothing that is not flushed."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # noqa: ARG005


def charged_in(folder, name="out.csv"):
    release = release_in(folder, name=name, periods=PERIODS)
    charge = Charge("", str(release.output.path), release.statement.text, "1", "0")
    return replace(release, account=ReleaseAccount(folder / "ledger", ENTRY, charge, budget=ReleaseCost(Fraction(9))))


def go_on(folder, until=None, noise=None, ledger=True, **more):
    release = charged_in(folder) if ledger else replace(charged_in(folder), account=None)
    return list(run(release, noise or SeededNoise(next(SEEDS)), until, **more))


def files(folder):
    return tuple((folder / name).read_bytes() if (folder / name).exists() else None for name in NAMES)


def whole(folder):
    """True if every period is there once, in its order."""
    return [row.period for row in read_rows(folder / "out.csv")] == [p for p in range(1, PERIODS + 1) for _ in "xy"]


def put(folder, contents):
    for name, content in zip(NAMES, contents, strict=True):
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)


def spy(monkeypatch, written):
    """Calls `written(moment)` before and after every write that stays: a file that is replaced, rows that are added."""

    def spied(write):
        def called(*arguments):
            written("before")
            end = write(*arguments)
            written("after")
            return end

        return called

    monkeypatch.setattr("changeling_central.files.os.replace", spied(os.replace))
    monkeypatch.setattr(Output, "append", spied(Output.append))


def a_life(folder, monkeypatch):
    """What the three files hold after every write, from the first on; another release is charged in the middle."""
    moments = []
    with monkeypatch.context() as patch:
        spy(patch, lambda moment: moments.append(files(folder)) if moment == "after" else None)
        go_on(folder, 2)
        other = Charge("another", "elsewhere.csv", "any answer", "1/2", "0")
        replace(charged_in(folder).account, charge=other).settled("another", read_ledger(folder / "ledger").changelog)
        go_on(folder)
    return list(dict.fromkeys(moments))


@pytest.mark.heavy
@pytest.mark.usefixtures("unflushed")
def test_only_what_is_put_back_together_is_not_told(tmp_path, monkeypatch):
    """From every moment of a life to every later one, every subset of the files put back, but for mixtures that are a
    moment of that life themselves: refused, or gone on with under the same rows and all charges, or charged anew."""
    moments = a_life(tmp_path, monkeypatch)
    refused, gone_on = 0, 0
    for (early, late), size in ((pair, n) for pair in combinations(range(len(moments)), 2) for n in (1, 2)):
        for back in combinations(range(3), size):
            mixture = tuple(moments[early if at in back else late][at] for at in range(3))
            if mixture in moments:
                continue
            put(tmp_path, mixture)
            published, charges = moments[late][0] or b"", moments[late][2].count(b'"release"')
            try:
                go_on(tmp_path)
            except BadState:
                refused += 1
                continue
            gone_on += 1
            charged = len(read_ledger(tmp_path / "ledger").charges)
            assert charged >= charges, (early, late, back)
            assert files(tmp_path)[0].startswith(published) or charged > charges, (early, late, back)
    assert refused > 150
    assert gone_on > 10, "an output alone that lacks its last rows is mended"


OLDER = {
    (0, 1): "this output is older than what the ledger says was drawn",
    (1, 2): "the state is an older one",
    (1,): "the state is an older one",
    (0, 2): "the ledger is older than this output",
    (2,): "the ledger is older than this output",
}


@pytest.mark.parametrize("back", [*OLDER, (0, 1, 2)])
def test_what_is_put_back_from_the_evening_before_is_named(tmp_path, back):
    """By what is older than what, and nothing is drawn; the newer files put back, the release goes on. All three put
    back draw again: what no file can tell, and what the documentation prices."""
    go_on(tmp_path, 1)
    early = files(tmp_path)
    go_on(tmp_path, 2)
    late = files(tmp_path)
    put(tmp_path, [early[at] if at in back else late[at] for at in range(3)])
    if back in OLDER:
        with pytest.raises(BadState, match=OLDER[back]):
            go_on(tmp_path, noise=Forbidden())
        put(tmp_path, late)
        assert [period for period, _ in go_on(tmp_path)] == [3, 4]
    else:
        assert [period for period, _ in go_on(tmp_path, 2)] == [2]
        assert files(tmp_path)[0] != late[0]


@pytest.mark.usefixtures("unflushed")
@pytest.mark.parametrize("ledger", [False, pytest.param(True, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("together", [1, 3])
def test_killed_before_or_after_any_write_a_release_goes_on_and_draws_no_flush_twice(
    tmp_path, monkeypatch, together, ledger
):
    """At each of them, and once more in the life that mends it: every period is there once and charged once, and what
    was saved is what is published."""
    writes, how = 0, {"together": together, "ledger": ledger}
    for first in count():
        folder, ends, seen = tmp_path / f"{first}", [], []
        folder.mkdir()
        for kill in (first, first % 5):
            ends.append(a_run(folder, monkeypatch, kill, **how)[0])
            there = begun(folder / "out.csv.state")
            seen.append((files(folder)[0] or b"", *((there.at, there.pending) if there else (0, b""))))
        go_on(folder, **how)
        final = files(folder)[0]
        assert all(final.startswith(part) and final[at:].startswith(rows) for part, at, rows in seen), first
        assert whole(folder)
        if ledger:
            book = read_ledger(folder / "ledger")
            assert (book.spent, len(book.charges), book.charges[0].drawn.period) == ((1, 0), 1, PERIODS)
        if ends[0] == "end":
            break
        writes += 1
    each = 4 if ledger else 2  # ledger, state, charge and head begin a release; then as many a flush
    assert writes == 2 * (each + each * -(-PERIODS // together))


def a_run(folder, monkeypatch, kill, until=None, seed=None, **more):
    """How a run ends that is killed at this write, and what the three files held after each write."""
    seen, left, end = [], iter(range(kill)), "end"

    def written(moment):
        if moment == "after":
            seen.append(files(folder))
        if next(left, None) is None:
            raise Killed

    with monkeypatch.context() as patch:
        spy(patch, written)
        try:
            go_on(folder, until, SeededNoise(next(SEEDS) if seed is None else seed), **more)
        except (Killed, BadState) as ended:
            end = "killed" if isinstance(ended, Killed) else "refused"
    return end, [*seen, files(folder)]


@pytest.mark.parametrize("name", ["ledger.new", "out.csv.state.new", "out.csv"])
def test_a_disk_that_is_full_for_a_while_loses_nothing_and_draws_nothing_twice(tmp_path, monkeypatch, name):
    """At every flush of each file."""
    flush, full = os.fsync, 0
    for number in count():
        folder = tmp_path / f"{number}"
        folder.mkdir()
        left = iter(range(number))

        def fails(descriptor, folder=folder, left=left):
            path = Path(f"/proc/self/fd/{descriptor}").resolve()
            if path == (folder / name).resolve() and next(left, None) is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            flush(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            try:
                go_on(folder)
            except OSError:
                full += 1
            else:
                break
        before = files(folder)[0] or b""
        go_on(folder)
        assert files(folder)[0].startswith(before)
        assert whole(folder)
        assert read_ledger(folder / "ledger").spent == (1, 0)
    assert full >= PERIODS


@pytest.mark.parametrize("step", ["announced", "drawn", "saved"])
def test_of_two_copies_that_draw_at_once_one_publishes(tmp_path, step):
    """The original is gone, both are charged to one ledger; the second lives between two steps of the first."""
    go_on(tmp_path, 1)
    for name in ("a.csv", "b.csv"):
        for end in ("", ".state"):
            shutil.copy(tmp_path / f"out.csv{end}", tmp_path / f"{name}{end}")
    for end in ("", ".state"):
        (tmp_path / f"out.csv{end}").unlink()
    before = (tmp_path / "a.csv").read_bytes()

    def other(reached):
        if reached == step and (tmp_path / "b.csv").read_bytes() == before:
            list(run(charged_in(tmp_path, "b.csv"), SeededNoise(7)))

    with pytest.raises(BadState, match="another process goes on with a copy"):
        list(run(charged_in(tmp_path, "a.csv"), SeededNoise(8), reached=other))
    assert (tmp_path / "a.csv").read_bytes() == before
    assert read_rows(tmp_path / "b.csv")[-1].period == PERIODS
    with pytest.raises(BadState, match=r"older than what the ledger says|others than this state's"):
        list(run(charged_in(tmp_path, "a.csv"), Forbidden()))


def test_a_release_that_was_begun_without_a_ledger_is_charged_and_followed_from_then_on(tmp_path):
    """Charged where it stands; from then on an older one is told."""
    list(run(replace(charged_in(tmp_path), account=None), SeededNoise(1), 1))
    early = files(tmp_path)
    go_on(tmp_path, 2)
    late = files(tmp_path)
    put(tmp_path, (*early[:2], late[2]))
    with pytest.raises(BadState, match="older than what the ledger says was drawn"):
        go_on(tmp_path, noise=Forbidden())
    put(tmp_path, late)
    (tmp_path / "ledger").unlink()
    with pytest.raises(BadState, match="is gone"):
        go_on(tmp_path, noise=Forbidden())


@pytest.mark.parametrize("step", ["announced", "drawn", "saved", "marked", "published"])
def test_a_charged_release_killed_by_the_system_at_any_step_goes_on(tmp_path, step):
    """A process gets SIGKILL in the second of its flushes, and OpenDP draws the noise of both lives."""
    release = charged_in(tmp_path)  # it reads its changelog here: polars does not survive a fork

    def life():
        names = []

        def reached(name):
            names.append(name)
            if name == step and names.count("drawn") == 2 - (step == "announced"):
                os.kill(os.getpid(), signal.SIGKILL)

        list(run(release, OpenDPNoise(), None, reached=reached))

    killed = get_context("fork").Process(target=life)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    before = files(tmp_path)[0]
    go_on(tmp_path, noise=OpenDPNoise())
    assert files(tmp_path)[0].startswith(before)
    assert whole(tmp_path)


def rows_of(output):
    """The rows of each period that is whole."""
    found = {}
    for line in (output or b"").split(b"\n")[:-1]:
        if line[:1].isdigit():
            found.setdefault(int(line.split(b",")[0]), []).append(line)
    return {period: tuple(lines) for period, lines in found.items() if len(lines) == 2}


@pytest.mark.heavy
@pytest.mark.usefixtures("unflushed")
def test_no_row_is_published_twice_however_often_files_are_put_back(tmp_path, monkeypatch):
    """40 lives of eight runs, each killed at some write or not; in between, any of the last versions of two files at
    most, the third as it was last written. On one charge, each period has one pair of rows in all that was ever there.
    """
    ends = Counter()
    for life in range(40):
        random, versions, published = Random(life), ([], [], []), {}
        put(tmp_path, (None, None, None))
        for turn in range(8):
            kill, until = random.choice([1000, *range(1, 22)]), random.randint(1, 3)
            end, seen = a_run(tmp_path, monkeypatch, kill, until, 8 * life + turn)
            ends[end] += 1
            there = begun(tmp_path / "out.csv.state")
            for moment in seen:
                for known, content in zip(versions, moment, strict=True):
                    if content is not None and content not in known:
                        known.append(content)
                for period, rows in rows_of(moment[0]).items():
                    assert published.setdefault((there.charge, period), rows) == rows, (life, turn)
            now = list(files(tmp_path))
            for at in random.choice([(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), ()]):
                now[at] = random.choice(versions[at][-6:] or [None])
            if not any(known and content == known[-1] for known, content in zip(versions, now, strict=True)):
                at = random.randrange(3)
                now[at] = versions[at][-1] if versions[at] else None
            put(tmp_path, now)
    assert min(ends["end"], ends["killed"], ends["refused"]) > 25, ends


def test_rows_of_a_flush_that_was_given_up_never_replace_those_that_took_their_place(tmp_path):
    """Killed before its rows are written, then state and ledger put back, gone on with, and put forward again: each
    time two files of three, and the rows there are those of the other flush."""
    go_on(tmp_path, 1)
    early = files(tmp_path)

    def killed(reached):
        if reached == "marked":
            raise Killed

    with pytest.raises(Killed):
        go_on(tmp_path, 2, reached=killed)
    given_up = files(tmp_path)
    put(tmp_path, early)
    go_on(tmp_path, 2, SeededNoise(99))
    late = files(tmp_path)
    assert len(rows_of(late[0])) == 2
    put(tmp_path, (late[0], *given_up[1:]))
    with pytest.raises(BadState, match=r"ends with other rows|holds more than"):
        go_on(tmp_path, noise=Forbidden())
    assert files(tmp_path) == (late[0], *given_up[1:])
    put(tmp_path, late)
    assert [period for period, _ in go_on(tmp_path)] == [3, 4]


@pytest.mark.parametrize("left", ["nothing", "a part", "zeros", "a part and zeros"])
def test_what_a_crash_leaves_of_the_last_rows_is_mended(tmp_path, left):
    """File systems may keep the length and lose the bytes."""
    go_on(tmp_path, 2)
    whole, size = files(tmp_path)[0], len(begun(tmp_path / "out.csv.state").pending)
    head, rows = whole[:-size], whole[-size:]
    torn = {"nothing": b"", "a part": rows[:9], "zeros": bytes(size), "a part and zeros": rows[:9] + bytes(7)}[left]
    (tmp_path / "out.csv").write_bytes(head + torn)
    go_on(tmp_path, 2, Forbidden())
    assert files(tmp_path)[0] == whole


DAY = {"every": "1d", "start": "2026-01-01", "until": "2026-01-09", "epsilon": 1}
# entry, day, answer, person
OTHERS = [("a", 1, "x", "p"), ("b", 2, "y", "q"), ("a", 3, "y", "p"), ("c", 4, "x", "r"), ("b", 5, "", "q")]
OTHERS += [("a", 7, "", "p")]
UNCOUNTED = {
    1: [("v", -9, "odd, new", "s")],
    2: [("v", 4, "#z", "s"), ("v", 2, "c", "s")],
    3: [("v", 5, "", "s"), ("v", 8, "ä", "s"), ("v", 99, "d", "s")],
}
ENDS = {1: 3, 2: 6, 3: 9}
STEMS = ("out", "table", "after")
AFTERWARDS = {"mechanism": "square-root", "delta": "1e-6", "window": "2d", "afterwards": "after.csv"}


@pytest.mark.parametrize("late", ["drop", "shift"])
@pytest.mark.parametrize(
    ("query", "given", "suffix"),
    [
        (
            "answer == 'x'",
            {"mechanism": "square-root", "delta": "1e-6", "window": "2d", "afterwards": "after.csv"},
            ".csv",
        ),
        ("each answer in ('x', 'y')", {"freeze": True, "person": "who", "at_most": 2}, ".jsonl"),
    ],
)
def test_an_entry_that_is_counted_nowhere_leaves_no_byte_in_what_is_published(
    tmp_path, monkeypatch, query, given, suffix, late
):
    """Its rows come late, before the start and after the end, hold answers that nobody else does, and are frozen: with
    the same draws output, table and estimates afterwards are the same bytes, run for run, and so are head and notes."""
    worlds = []
    for victim in (False, True):
        folder, seeds, seen = tmp_path / str(victim), count(), []
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr("changeling_central.api.OpenDPNoise", lambda seeds=seeds: SeededNoise(next(seeds)))
        for turn, end in ENDS.items():
            rows = [row for row in OTHERS if row[1] < end]
            rows += [row for when in range(1, turn + 1) for row in UNCOUNTED[when] if victim]
            frame = pl.DataFrame(rows, schema=["entry", "day", "answer", "who"], orient="row")
            noon = pl.datetime(2026, 1, 1) + pl.duration(days=pl.col("day") - 1, hours=12)
            frame.with_columns(time=noon).write_csv("log.csv")
            options = {"at_most": 6, "output": f"out{suffix}", "parquet": "table.parquet", "late": late, **DAY, **given}
            released = release("log.csv", query, through=f"2026-01-{end:02}", **options)
            files = {
                path.name: path.read_bytes() for path in folder.iterdir() if path.stem in ("out", "table", "after")
            }
            seen.append((files.keys() >= {f"out{suffix}", "table.parquet"}, files, released.notes, released.about))
        worlds.append(seen)
    assert worlds[0] == worlds[1]
