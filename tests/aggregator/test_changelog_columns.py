"""Changelogs of tables that hold more: other columns, any number of answers, and whose the entries are."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_statistics import BadChangelog, Columns, read_csv, read_frame, read_parquet

ROWS = {
    "entry": ["a", "b", "a", "c", "a"],
    "price": ["3", "4", "3", "", "5"],
    "time": ["1", "2", "3", "4", "5"],
    "answer": ["x", "y", "y", "x", ""],
    "user": ["u", "v", "u", "u", "u"],
}
SOURCES = ["csv", "quoted", "parquet", "polars", "pandas"]


def changelog_of(source, folder, rows=ROWS, **columns):
    frame, asked = pl.DataFrame(rows), Columns(**columns)
    match source:
        case "csv" | "quoted":
            frame.write_csv(folder / "log.csv", quote_style="always" if source == "quoted" else "necessary")
            return read_csv(folder / "log.csv", columns=asked)
        case "parquet":
            frame.write_parquet(folder / "log.parquet")
            return read_parquet(folder / "log.parquet", columns=asked)
    return read_frame(frame if source == "polars" else pd.DataFrame(rows), columns=asked)


@pytest.mark.parametrize("source", SOURCES)
def test_other_columns_are_left_alone(tmp_path, source):
    """The same changelog as without them, from every source."""
    log = changelog_of(source, tmp_path)
    assert (log.answers, log.entries) == (("x", "y"), ("a", "b", "c"))
    assert log.state.tolist() == [1, 2, 0, 2, 1]
    assert log.owner is None


@pytest.mark.parametrize("source", SOURCES)
def test_another_column_can_be_read_and_rows_that_leave_it_as_it_was_are_no_mutations(tmp_path, source):
    """Row 3 tells of something else, and c never has a price."""
    log = changelog_of(source, tmp_path, answer="price")
    assert log.answers == ("3", "4", "5")
    assert [(log.entries[e], int(s)) for e, s in zip(log.entry, log.state, strict=True)] == [
        ("a", 1),
        ("a", 3),
        ("b", 2),
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_whose_the_entries_are_is_read_and_contradictions_are_named(tmp_path, source):
    """A number for each entry; the row that says otherwise than an earlier one, and the row that says nothing."""
    log = changelog_of(source, tmp_path, owner="user")
    assert log.owner.tolist() == [0, 1, 0]
    for users, said in ((["u", "v", "w", "u", "u"], "an earlier row of its entry has another user"),
                        (["u", "v", "", "u", "u"], "it has no user")):  # fmt: skip
        where = "line 4: " if source in ("csv", "quoted") else "row 3: "
        with pytest.raises(BadChangelog, match=where + said):
            changelog_of(source, tmp_path, {**ROWS, "user": users}, owner="user")


@pytest.mark.parametrize("source", SOURCES)
def test_a_column_that_is_missing_is_named(tmp_path, source):
    """With what there is, as a header may be repeated."""
    for columns, said in (({"answer": "cost"}, "entry,time,cost"), ({"owner": "person"}, "a column 'person'")):
        with pytest.raises(BadChangelog, match=said):
            changelog_of(source, tmp_path, **columns)


@pytest.mark.parametrize("source", ["csv", "polars"])
def test_there_may_be_any_number_of_answers(tmp_path, source):
    """Also more than 16 bits tell apart; each is replayed as it was written."""
    n = 70_000
    rows = {"entry": list(range(n)), "time": list(range(n)), "answer": [f"{i}.5" for i in range(n)]}
    log = changelog_of(source, tmp_path, rows)
    assert len(log.answers) == n
    assert [log.answers[state - 1] for state in log.state[-3:]] == [f"{i}.5" for i in range(n - 3, n)]
    assert np.array_equal(log.states_at([n])[:, 0], log.state)
