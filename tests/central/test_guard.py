"""The guard: what breaks a constraint is found, the first of it named by row; freezing keeps every entry within."""

import numpy as np
import pytest
from changeling_central import ConstraintBroken, first_breach, frozen
from changeling_central.guard import admitted
from changeling_protocol import AtMost, AtMostWithin, Hybrid, TimeBounded
from changeling_statistics import Changelog, read_rows

from ..aggregator.test_changelog import random_rows

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
