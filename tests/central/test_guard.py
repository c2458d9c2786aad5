"""The guard: what breaks a constraint is found, the first of it named by row; freezing keeps every entry within. Rows
that come late: stopped, dropped or shifted, counted and told; what is published stays as it was."""

import random
from contextlib import suppress
from fractions import Fraction
from itertools import count, product

import numpy as np
import polars as pl
import pytest
from changeling_central import (
    BadState,
    ConstraintBroken,
    TimeReversed,
    UnusableChangelog,
    counting,
    first_breach,
    frozen,
    histogram_query,
    read_about,
    read_rows,
    release,
)
from changeling_central.guard import Late, SeenRows, admitted, arrived, beyond, first_beyond
from changeling_central.testing import NoNoise, Unit
from changeling_papers import hierarchy
from changeling_protocol import AtMost, AtMostWithin, Hybrid, TimeBounded
from changeling_statistics import Changelog, Columns, read_frame
from changeling_statistics import read_rows as changelog_of

from ..statistics.test_changelog import random_rows
from .examples import CALENDAR, forbid_draws, histories, transcripts
from .test_release import Killed
from .test_release_lives import spy

CONSTRAINTS = [AtMostWithin(2, 20), AtMost(1), AtMost(3), TimeBounded(30), Hybrid((AtMost(2), TimeBounded(20)))]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fixed", [False, True])
def test_the_guard_admits_what_the_constraint_admits_row_by_row(constraint, seed, fixed):
    """Against the device's own rule, entry by entry; the earliest row refused is the one named."""
    rows = random_rows(seed)
    changelog = changelog_of(rows)
    seen: dict[str, list[int]] = {}
    answers: dict[str, str] = {}
    expected = {}
    for number, (entry, time, answer) in enumerate(rows, 1):
        times = seen.setdefault(entry, [])
        answers.setdefault(entry, answer)
        same = not fixed or not answer or answer == answers[entry]
        expected[number] = same and constraint.admits(len(times), time - times[0] if times else 0)
        times.append(time)
    found = dict(zip(changelog.row.tolist(), admitted(changelog, constraint, fixed).tolist(), strict=True))
    assert found == expected
    bad = [number for number, ok in expected.items() if not ok]
    breach = first_breach(changelog, constraint, fixed)
    assert breach.where in {f"row {n}" for n in bad if rows[n - 1][1] == rows[bad[0] - 1][1]}
    kept = frozen(changelog, constraint, fixed)
    assert first_breach(kept, constraint, fixed) is None
    gone = sorted(set(changelog.row.tolist()) - set(kept.row.tolist()))
    assert all(
        number in bad or any(b < number and rows[b - 1][0] == rows[number - 1][0] for b in bad) for number in gone
    )
    assert set(bad) <= set(gone)


def test_a_breach_says_which_row_when_and_why():
    """By line of a file, by entry where there is no row."""
    changelog = changelog_of([("x", 10, "a"), ("y", 11, "a"), ("x", 20, "b")])
    with pytest.raises(ConstraintBroken, match=r"row 3, at 1970-01-01T00:00:20\+00:00: the entry breaks at most 1 mut"):
        raise first_breach(changelog, AtMost(1)).error()
    assert "a second answer" in first_breach(changelog, AtMost(5), fixed=True).why
    assert first_breach(changelog.since(10), AtMost(1)).where == "row 3"
    nameless = Changelog(("a",), ("x",), np.zeros(2, np.int64), np.array([1, 2]), np.array([1, 0], np.uint16))
    assert first_breach(nameless, AtMost(1)).where == "entry 'x'"
    assert first_breach(changelog, AtMost(2)) is None


ROWS = {
    "entry": ["a", "b", "c", "a", "d", "b"],
    "time": ["2026-01-01T01:30", "2026-01-01T02:30", "2026-01-01T03:30", "2026-01-01T04:30", "2026-01-01T05:30",
             "2026-01-01T06:30"],
    "answer": ["tea", "tea", "tea", "", "tea", ""],
    "user": ["u", "u", "u", "u", "v", "u"],
}  # fmt: skip
DAY = {
    "every": "1h",
    "at_most": 2,
    "start": "2026-01-01",
    "until": "2026-01-01T08:00",
    "mechanism": "dcr",
    "epsilon": 1,
}


def log_of(rows=ROWS):
    return read_frame(pl.DataFrame(rows), columns=Columns(owner="user"))


def released(folder, source=None, name="out.csv", **more):
    return release(pl.DataFrame(ROWS) if source is None else source, "any answer", output=folder / name, **DAY | more)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("query", [counting("ab", "a", "a"), histogram_query("ab", "ab")])
def test_no_person_is_told_from_nobody_beyond_the_stated_loss(most, query):
    """Every person of so many entries, every history of each at 2 mutations: all nodes' laws together, and attained."""
    epsilon, constraint = Fraction(3), AtMost(2)
    each, _ = Unit("user", most).of_an_entry(epsilon, Fraction(0))
    mechanism = hierarchy(query, CALENDAR, constraint, each, shape=(2, 2))
    lives = list(histories(2, constraint, 8))[:: 1 if most == 1 else 7]

    values = lambda nodes: [value for node in nodes for value in node.values]  # noqa: E731
    changes = [0, *transcripts(mechanism, query, CALENDAR, lives, values)]
    worst = max(float(np.abs(sum(chosen)).sum()) for chosen in product(changes, repeat=most))
    loss = worst / mechanism.noise.scale
    assert loss <= epsilon
    if most == 1:
        assert loss > 0.5 * epsilon


def test_of_a_persons_entries_those_count_that_came_first():
    """By their first mutations, whatever the rest of them do."""
    log = log_of()
    for most, surplus in ((1, {"b", "c"}), (2, {"c"}), (3, set())):
        assert {log.entries[entry] for entry in log.entry[beyond(log, most)]} == surplus
    breach = first_beyond(log, 2, "user")
    assert (breach.where, breach.why) == ("row 3", "its user has more than 2 entries")
    assert first_beyond(log, 3, "user") is None


@pytest.mark.parametrize("late", [None, "drop", "shift"])
def test_which_of_a_persons_entries_count_is_the_same_however_a_file_is_sorted(tmp_path, late):
    """Two that came at once, or that came late and count from one moment: else a release would stop for nothing."""
    rows = [("z", "2026-01-01T00:10", "other", "ann"), ("a", "2026-01-01T00:10", "tea", "ann")]
    rows += [("y", "2026-01-01T00:20", "tea", "bob"), ("b", "2026-01-01T00:30", "other", "bob")] * (late is not None)
    kept = {"person": "user", "per_person": 1, "freeze": True, "late": late}
    for run, (first, through) in enumerate([(2, "01:00"), (4, "03:00"), (4, "05:00")]):
        frame = pl.DataFrame(rows[:first][:: -1 if run == 2 else 1], ["entry", "time", "answer", "user"], orient="row")
        given = {**DAY, **kept, "through": f"2026-01-01T{through}"}
        last = release(frame, "answer == 'tea'", output=tmp_path / "out.csv", **given)
    assert last.published == 2


def test_a_person_with_more_entries_than_stated_stops_the_release_before_that_period(tmp_path, monkeypatch):
    """Named by the row; what was published before stands. From the first period on, nothing is drawn at all."""
    with pytest.raises(ConstraintBroken, match=r"row 3, at 2026-01-01T03:30.*its user has more than 2 entries"):
        released(tmp_path, person="user", per_person=2)
    forbid_draws(monkeypatch)
    with pytest.raises(ConstraintBroken, match="more than 1 entry"):
        released(tmp_path, name="other.csv", person="user", per_person=1, start="2026-01-01T02:00")


def test_the_guarantee_speaks_of_persons_and_frozen_entries_are_told_to_the_curator(tmp_path):
    """In words, at the head of the output; another number of entries is another release. How many were left out, and
    how far off the count is, the curator hears alone."""
    one = released(tmp_path, person="user", freeze=True, per_person=2)
    assert one.published == 8
    assert "froze 1 entry of 4 and left out 1 mutation of 6: what is counted is off by up to -1" in one.asides[0]
    assert (one.guarantee.epsilon, one.guarantee.delta) == (1, 0)
    assert one.guarantee.neighbours.startswith("all entries of one person (column user), at most 2, in place of")
    head = (tmp_path / "out.csv").read_text()
    assert "# unit of privacy: a person, by the column user, with all of at most 2 entries\n" in head
    with pytest.raises(BadState, match="another budget, unit"):
        released(tmp_path, person="user", freeze=True, per_person=4)


def test_a_column_of_persons_that_is_missing_or_makes_no_sense_is_refused(tmp_path):
    """By its name; and a number of entries without it."""
    with pytest.raises(UnusableChangelog, match="a column 'nobody'"):
        released(tmp_path, person="nobody", per_person=2)
    with pytest.raises(UnusableChangelog, match="no column 'user'"):
        released(tmp_path, read_frame(pl.DataFrame(ROWS)), person="user")
    for bad in ({"per_person": 2}, {"person": "user", "per_person": 0}):
        with pytest.raises(ValueError, match="at least one entry at most"):
            released(tmp_path, **bad)
    assert not (tmp_path / "out.csv").exists()


def late_log(rows):
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
            arrivals = arrived(late_log(there), late, until, seen)
            in_time += [row for row in there if row not in in_time and (until is None or row[1] * 10**6 > until)]
            now = states(arrivals.counted, end)
            assert now == replayed(there if late == Late.SHIFT else in_time, end)
            assert all(states(arrivals.counted, then) == held for then, held in before.items())
            raw = late_log(there).mutating()
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


def released_months(path, late, through="2026-05-02", **more):
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
    assert released_months(path, late, "2026-03-02").published == 2
    published = (tmp_path / "out.csv").read_bytes()
    rows = [*EARLY, *LATE, ("e", "2026-04-20", "tea")]
    written(path, rows if order == "appended" else sorted(rows, key=lambda row: (row[0], row[1])))
    made = released_months(path, late, "2026-04-02")
    assert made.published == 1
    assert [said for said in made.asides if "come late" in said]
    assert told in " ".join(made.asides)
    ended = released_months(path, late)
    assert not [said for said in ended.asides if "come late" in said]
    assert [round(row.estimate) for row in ended.rows()] == [*expected[:3], expected[3] + 1]
    text = (tmp_path / "out.csv").read_bytes()
    assert text.startswith(published)
    assert b"come late" not in text
    assert read_about(made.output)["late rows"].startswith("rows that come after their period was published")


def test_late_rows_stop_a_release_unless_it_began_otherwise(tmp_path):
    """And a release that began with one way never goes on with another."""
    path = written(tmp_path / "log.csv", EARLY)
    released_months(path, "stop", "2026-03-02")
    written(path, [*EARLY, LATE[0]])
    with pytest.raises(TimeReversed, match="unless a release began with --late drop or shift"):
        released_months(path, "stop")
    with pytest.raises(BadState, match="another late"):
        released_months(path, "shift")
    with pytest.raises(ValueError, match="--late is stop, drop or shift, got 'ignore'"):
        released_months(path, "ignore")


def test_what_counts_keeps_to_the_constraint_or_stops(tmp_path):
    """A deletion that is shifted lies further from the insertion than it was: beyond --within, the guard says so."""
    path = written(tmp_path / "log.csv", EARLY)
    more = {"within": "20d"}
    released_months(path, "shift", "2026-03-02", **more)
    written(path, [*EARLY, ("a", "2026-01-15", "")])
    with pytest.raises(ConstraintBroken, match=r"line 6, at 2026-02-28T23:00:00\.000001"):
        released_months(path, "shift", **more)
    assert released_months(path, "shift", "2026-03-02", **more).published == 0


def test_rows_taken_away_are_told_from_late_ones(tmp_path):
    """Gone, or with another answer: what was published can no longer be made of the file."""
    path = written(tmp_path / "log.csv", EARLY)
    released_months(path, "drop", "2026-03-02")
    for rows in (EARLY[1:], [("a", "2026-01-10", "soup"), *EARLY[1:]]):
        written(path, rows)
        with pytest.raises(TimeReversed):
            released_months(path, "drop")


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
        released_months(path, late, "2026-03-02")
        written(path, [*EARLY, *LATE])
        done, left = False, iter(range(write))

        def ends(_, left=left):
            if next(left, None) is None:
                raise Killed

        with monkeypatch.context() as patch, suppress(Killed):
            spy(patch, ends)
            released_months(path, late)
            done = True
        released_months(path, late)
        whole.add((folder / "out.csv").read_bytes())
        if done:
            break
    assert len(whole) == 1
    assert write >= 8, "the ledger, the state, the ledger again and the rows, each before and after"
    assert [row.period for row in read_rows(folder / "out.csv")] == [1, 2, 3, 4]
