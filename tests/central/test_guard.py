"""The guard: what breaks a constraint is found, the first of it named by row; freezing keeps every entry within."""

from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
from changeling_central import (
    BadState,
    ConstraintBroken,
    UnusableChangelog,
    counting,
    first_breach,
    frozen,
    histogram_query,
    release,
)
from changeling_central.guard import admitted, beyond, first_beyond
from changeling_central.testing import Unit
from changeling_papers import hierarchy
from changeling_protocol import AtMost, AtMostWithin, Hybrid, TimeBounded
from changeling_statistics import Changelog, Columns, read_frame, read_rows

from ..statistics.test_changelog import random_rows
from .examples import CALENDAR, forbid_draws, histories, transcripts

CONSTRAINTS = [AtMostWithin(2, 20), AtMost(1), AtMost(3), TimeBounded(30), Hybrid((AtMost(2), TimeBounded(20)))]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fixed", [False, True])
def test_the_guard_admits_what_the_constraint_admits_row_by_row(constraint, seed, fixed):
    """Against the device's own rule, entry by entry; the earliest row refused is the one named."""
    rows = random_rows(seed)
    changelog = read_rows(rows)
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
    changelog = read_rows([("x", 10, "a"), ("y", 11, "a"), ("x", 20, "b")])
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
