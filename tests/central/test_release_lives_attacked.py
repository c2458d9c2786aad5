"""Lives in which files are put back again and again, never all three at once: no row is published with other noise."""

import os
from collections import Counter
from random import Random

import pytest
from changeling_central import BadState
from changeling_central.statement import begun
from changeling_central.testing import Forbidden, SeededNoise, run

from .test_release import Killed
from .test_release_lives import charged_in, files, go_on, put, spy


def a_run(folder, monkeypatch, kill, until, seed):
    """How a run ends that is killed at this write, and what the three files held after each write."""
    seen, left = [], iter(range(kill))

    def written(moment):
        if moment == "after":
            seen.append(files(folder))
        if next(left, None) is None:
            raise Killed

    end = "end"
    with monkeypatch.context() as patch:
        spy(patch, written)
        try:
            list(run(charged_in(folder), SeededNoise(seed), until))
        except Killed:
            end = "killed"
        except BadState:
            end = "refused"
    return end, [*seen, files(folder)]


def rows_of(output):
    """The rows of each period that is whole."""
    found = {}
    for line in (output or b"").split(b"\n")[:-1]:
        if line[:1].isdigit():
            found.setdefault(int(line.split(b",")[0]), []).append(line)
    return {period: tuple(lines) for period, lines in found.items() if len(lines) == 2}


@pytest.mark.heavy
def test_no_row_is_published_twice_however_often_files_are_put_back(tmp_path, monkeypatch):
    """150 lives of eight runs, each killed at some write or not; in between, any of the last versions of two files at
    most, the third as it was last written. On one charge, each period has one pair of rows in all that was ever there.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # noqa: ARG005
    ends = Counter()
    for life in range(150):
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
                    assert published.setdefault((there.saved.charge, period), rows) == rows, (life, turn)
            now = list(files(tmp_path))
            for at in random.choice([(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), ()]):
                now[at] = random.choice(versions[at][-6:] or [None])
            if not any(known and content == known[-1] for known, content in zip(versions, now, strict=True)):
                at = random.randrange(3)
                now[at] = versions[at][-1] if versions[at] else None
            put(tmp_path, now)
    assert min(ends["end"], ends["killed"], ends["refused"]) > 100, ends


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
    whole, size = files(tmp_path)[0], len(begun(tmp_path / "out.csv.state").saved.pending)
    head, rows = whole[:-size], whole[-size:]
    torn = {"nothing": b"", "a part": rows[:9], "zeros": bytes(size), "a part and zeros": rows[:9] + bytes(7)}[left]
    (tmp_path / "out.csv").write_bytes(head + torn)
    go_on(tmp_path, 2, Forbidden())
    assert files(tmp_path)[0] == whole
