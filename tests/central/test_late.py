"""Rows that come late: stopped, dropped or shifted, counted and told; what is published stays as it was."""

import random
from contextlib import suppress
from itertools import count

import polars as pl
import pytest
from changeling_central import BadState, ConstraintBroken, TimeReversed, read_about, read_rows, release
from changeling_central.guard import Late, SeenRows, arrived
from changeling_central.testing import NoNoise
from changeling_statistics import Columns, read_frame

from .test_release import Killed
from .test_release_lives import spy


def log_of(rows):
    frame = pl.DataFrame(rows, schema=["entry", "time", "answer"], orient="row")
    return read_frame(frame, columns=Columns(late=True))


def states(log, second):
    """Which answer each entry holds by then."""
    held = log.states_at([second])[:, 0].tolist()
    return {name: log.answers[state - 1] for name, state in zip(log.entries, held, strict=True) if state}


def replayed(rows, second):
    held = {}
    for entry, time, answer in sorted(rows, key=lambda row: row[1]):
        if time <= second:
            held[entry] = answer
    return {entry: answer for entry, answer in held.items() if answer}


@pytest.mark.parametrize("late", [Late.DROP, Late.SHIFT])
def test_late_rows_count_as_they_are_said_to_whatever_comes_when(late):
    """40 made-up lives of a file, seed 5, rows shuffled before every run: shifted, the counts of a period that is
    published next are those of the whole file as it is; dropped, those of the rows that were in time. What was
    published stays, and no entry mutates more often than its rows do."""
    chance = random.Random(5)
    for _ in range(40):
        times = chance.sample(range(1, 40), 14)
        rows = [(chance.choice("abc"), time, chance.choice(["x", "y", ""])) for time in times]
        arrival = {row: row[1] + chance.choice([0, 0, 0, chance.randrange(25)]) for row in rows}
        seen, until, in_time, before = SeenRows(), None, [], {}
        for end in (10, 20, 30, 40):
            there = [row for row in rows if arrival[row] <= end]
            chance.shuffle(there)
            if not there:
                continue
            arrivals = arrived(log_of(there), late, until, seen)
            in_time += [row for row in there if row not in in_time and (until is None or row[1] * 10**6 > until)]
            now = states(arrivals.counted, end)
            assert now == replayed(there if late == Late.SHIFT else in_time, end)
            assert all(states(arrivals.counted, then) == held for then, held in before.items())
            raw = log_of(there).mutating()
            for entry, name in enumerate(raw.entries):
                counted = arrivals.counted.entries.index(name)
                assert (arrivals.counted.entry == counted).sum() <= (raw.entry == entry).sum()
            before[end] = now
            until = end * 10**6
            seen = arrivals.seen(until)


MONTHS = {"every": "1mo", "zone": "Europe/Berlin", "start": "2026-01-01", "until": "2026-05-01", "at_most": 3}
EARLY = [("a", "2026-01-10", "tea"), ("b", "2026-01-11", "tea"), ("b", "2026-01-25", ""), ("c", "2026-02-10", "tea")]
LATE = [("d", "2026-01-20", "tea"), ("b", "2026-01-12", "soup"), ("a", "2026-02-20", "")]


def written(path, rows):
    pl.DataFrame(rows, schema=["entry", "time", "answer"], orient="row").write_csv(path)
    return path


def released(path, late, through="2026-05-02", **more):
    options = {**MONTHS, "mechanism": "fresh", "epsilon": 1000, "late": late, "through": through, **more}
    return release(path, "any answer", output=path.with_name("out.csv"), **options)


@pytest.mark.parametrize(
    ("late", "expected", "told"),
    [
        ("drop", [1, 2, 2, 2], "3 rows come late, for periods that are published: left out (--late drop)"),
        ("shift", [1, 2, 2, 2], "counted from 2026-03-01T00:00:00+01:00 on (--late shift); 1 of them nowhere"),
    ],
)
@pytest.mark.parametrize("order", ["appended", "sorted"])
def test_late_rows_are_counted_and_told_to_the_curator_alone(tmp_path, late, expected, told, order):
    """Whether they stand at the file's end or where they belong; once, and never in what is published."""
    path = written(tmp_path / "log.csv", EARLY)
    assert released(path, late, "2026-03-02").published == 2
    published = (tmp_path / "out.csv").read_bytes()
    rows = [*EARLY, *LATE, ("e", "2026-04-20", "tea")]
    written(path, rows if order == "appended" else sorted(rows, key=lambda row: (row[0], row[1])))
    made = released(path, late, "2026-04-02")
    assert made.published == 1
    assert [said for said in made.asides if "come late" in said]
    assert told in " ".join(made.asides)
    ended = released(path, late)
    assert not [said for said in ended.asides if "come late" in said]
    assert [round(row.estimate) for row in ended.rows()] == [*expected[:3], expected[3] + 1]
    text = (tmp_path / "out.csv").read_bytes()
    assert text.startswith(published)
    assert b"come late" not in text
    assert read_about(made.output)["late rows"].startswith("rows that come after their period was published")


def test_late_rows_stop_a_release_unless_it_began_otherwise(tmp_path):
    """And a release that began with one way never goes on with another."""
    path = written(tmp_path / "log.csv", EARLY)
    released(path, "stop", "2026-03-02")
    written(path, [*EARLY, LATE[0]])
    with pytest.raises(TimeReversed, match="unless a release began with --late drop or shift"):
        released(path, "stop")
    with pytest.raises(BadState, match="another late"):
        released(path, "shift")
    with pytest.raises(ValueError, match="--late is stop, drop or shift, got 'ignore'"):
        released(path, "ignore")


def test_what_counts_keeps_to_the_constraint_or_stops(tmp_path):
    """A deletion that is shifted lies further from the insertion than it was: beyond --within, the guard says so."""
    path = written(tmp_path / "log.csv", EARLY)
    more = {"within": "20d"}
    released(path, "shift", "2026-03-02", **more)
    written(path, [*EARLY, ("a", "2026-01-15", "")])
    with pytest.raises(ConstraintBroken, match=r"line 6, at 2026-02-28T23:00:00\.000001"):
        released(path, "shift", **more)
    assert released(path, "shift", "2026-03-02", **more).published == 0


def test_rows_taken_away_are_told_from_late_ones(tmp_path):
    """Gone, or with another answer: what was published can no longer be made of the file."""
    path = written(tmp_path / "log.csv", EARLY)
    released(path, "drop", "2026-03-02")
    for rows in (EARLY[1:], [("a", "2026-01-10", "soup"), *EARLY[1:]]):
        written(path, rows)
        with pytest.raises(TimeReversed):
            released(path, "drop")


@pytest.mark.parametrize("late", ["drop", "shift"])
def test_killed_at_any_write_a_release_of_months_with_late_rows_resumes_to_the_same_bytes(tmp_path, late, monkeypatch):
    """Before and after each write. Without noise, so that all bytes can be compared; every period is drawn for the rows
    as they came in."""
    monkeypatch.setattr("changeling_central.api.OpenDPNoise", NoNoise)
    whole = set()
    for write in count():
        folder = tmp_path / str(write)
        folder.mkdir()
        path = written(folder / "log.csv", EARLY)
        released(path, late, "2026-03-02")
        written(path, [*EARLY, *LATE])
        done, left = False, iter(range(write))

        def ends(_, left=left):
            if next(left, None) is None:
                raise Killed

        with monkeypatch.context() as patch, suppress(Killed):
            spy(patch, ends)
            released(path, late)
            done = True
        released(path, late)
        whole.add((folder / "out.csv").read_bytes())
        if done:
            break
    assert len(whole) == 1
    assert write >= 8, "the ledger, the state, the ledger again and the rows, each before and after"
    assert [row.period for row in read_rows(folder / "out.csv")] == [1, 2, 3, 4]
