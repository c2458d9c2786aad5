"""Changelogs from Parquet, polars and pandas, and old/new columns: the same as rows, and refused by row."""

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_statistics import BadChangelog, Columns, read_csv, read_frame, read_parquet, read_rows
from changeling_statistics import changelog_columns as csv_files
from hypothesis import given
from hypothesis import strategies as st

from .test_changelog import random_rows


def same(one, other):
    columns = ("entry", "time", "state", "row")
    return (one.answers, one.entries) == (other.answers, other.entries) and all(
        np.array_equal(getattr(one, column), getattr(other, column)) for column in columns
    )


def columns_of(rows):
    entry, time, answer = zip(*rows, strict=True)
    return {"entry": entry, "time": time, "answer": answer}


@pytest.fixture
def rows():
    return random_rows(3)


def test_every_source_gives_the_changelog_of_the_rows(rows, tmp_path):
    """polars eager and lazy, pandas of several kinds, Parquet, CSV; NULL as null or as an empty text."""
    expected, columns = read_rows(rows), columns_of(rows)
    frame = pl.DataFrame(columns)
    nulls = frame.with_columns(pl.col("answer").replace("", None))
    dated = frame.with_columns(pl.from_epoch("time"))
    panda = pd.DataFrame(columns)
    categories = panda.assign(answer=panda["answer"].astype("category"), entry=panda["entry"].astype("string"))
    moments = panda.assign(
        time=pd.to_datetime(panda["time"], unit="s", utc=True), answer=panda["answer"].replace("", None)
    )
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    for source in (frame, frame.lazy(), nulls, dated, panda, categories, moments):
        assert same(read_frame(source), expected)
    assert same(read_parquet(tmp_path / "log.parquet"), expected)
    from_csv = read_csv(tmp_path / "log.csv")
    assert np.array_equal(from_csv.row, expected.row + 1)
    assert same(read_frame(frame, ["yes", "no", "perhaps"]), read_rows(rows, ["yes", "no", "perhaps"]))


def test_numbers_dates_and_times_with_zones_are_read():
    """Entries and answers of any kind count as their text; a date is its midnight."""
    frame = pl.DataFrame({"entry": [1, 1], "time": [date(1970, 1, 2), date(1970, 1, 3)], "answer": [7, 8]})
    changelog = read_frame(frame)
    assert (changelog.entries, changelog.answers) == (("1",), ("7", "8"))
    assert changelog.time.tolist() == [86_400 * 10**6, 2 * 86_400 * 10**6]
    zoned = pd.DataFrame({"entry": ["a"], "time": pd.to_datetime(["1970-01-01T02:00+02:00"]), "answer": ["x"]})
    assert read_frame(zoned).time.tolist() == [0]
    objects = pd.DataFrame(
        {"entry": ["a"], "time": [datetime(1970, 1, 1, 1, tzinfo=UTC)], "answer": ["x"]}, dtype=object
    )
    assert read_frame(objects).time.tolist() == [3600 * 10**6]


BAD = [
    ([("1", 5, "a"), ("2", 4, "a"), ("1", 4, "b")], 3, "before the entry's previous row"),
    ([("1", 5, "a"), ("2", 5, "")], 2, "deletes an entry that has no answer"),
    ([("1", 5, "a"), ("1", 6, "a")], 2, "repeats the entry's answer"),
    ([("1", 5, "a"), ("2", 6, "d")], 2, "unknown answer"),
    ([("1", 5, "a"), ("2", float("nan"), "b")], 2, "its time is neither in ISO 8601 nor in Unix seconds$"),
    ([("1", 5, "a"), ("", 6, "b")], 2, "has no name"),
    ([("1", 741484800000, "a")], 1, "milliseconds"),
]


@pytest.mark.parametrize(("rows", "number", "fault"), BAD)
def test_a_bad_row_of_a_frame_is_refused_by_its_number(rows, number, fault, tmp_path):
    """In the words of the row reader, whatever the frame."""
    for source in (pl.DataFrame(columns_of(rows), strict=False), pd.DataFrame(columns_of(rows))):
        with pytest.raises(BadChangelog, match=f"row {number}: .*{fault}"):
            read_frame(source, ["a", "b", "c"])
    pl.DataFrame(columns_of(rows), strict=False).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(BadChangelog, match=rf"^log\.parquet, row {number}: .*{fault}"):
        read_parquet(tmp_path / "log.parquet", ["a", "b", "c"])


def test_what_is_no_changelog_is_refused(tmp_path):
    """Other columns, an empty frame, bytes that are no Parquet."""
    with pytest.raises(BadChangelog, match="columns must be entry,time,answer or entry,time,old,new"):
        read_frame(pl.DataFrame({"entry": [1], "when": [1], "answer": ["a"]}))
    with pytest.raises(BadChangelog, match="not one mutation"):
        read_frame(pl.DataFrame({"entry": [], "time": [], "answer": []}))
    (tmp_path / "log.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(BadChangelog, match=r"log\.parquet, row 1: not a Parquet file"):
        read_parquet(tmp_path / "log.parquet")


def test_swapped_columns_do_not_show_a_field_in_a_frame():
    """Where the answer stands for the time, the error names the row alone: text, a number."""
    for secret in ("secret", 9e99, "9e99", "nan"):
        frame = pl.DataFrame({"entry": ["1"], "time": [secret], "answer": ["2020-01-01"]})
        with pytest.raises(BadChangelog, match=r"^row 1: its time is") as error:
            read_frame(frame)
        assert "secret" not in str(error.value)
        assert "9e" not in str(error.value)


@pytest.mark.parametrize("secret", [["secret"], {"x": "secret"}, b"secret\xff"])
@pytest.mark.parametrize("column", ["entry", "time", "answer"])
def test_columns_that_are_no_text_are_refused_without_showing_a_field(secret, column):
    """Lists, structs and bytes of Parquet; a struct became an answer, a list a traceback."""
    frame = pl.DataFrame({"entry": ["1"], "time": [5], "answer": ["a"]}).with_columns(pl.Series(column, [secret]))
    with pytest.raises(BadChangelog, match=rf"^row 1: the column '{column}' holds (List|Struct|Binary)") as error:
        read_frame(frame)
    assert "secret" not in str(error.value)


def test_a_file_without_a_header_does_not_give_its_first_row_away(tmp_path):
    """That row holds an answer; a header that is one is repeated, as it says what is wrong."""
    (tmp_path / "log.csv").write_text("1,2020-01-01,secret\n2,2020-01-01,other\n")
    headerless = pl.DataFrame({"1": [2], "2020-01-01": ["2020-01-01"], "secret": ["other"]})
    for read in (lambda: read_csv(tmp_path / "log.csv"), lambda: read_frame(headerless)):
        with pytest.raises(BadChangelog, match="there is no such header") as error:
            read()
        assert "secret" not in str(error.value)
    with pytest.raises(BadChangelog, match="got 'entry,when,answer'"):
        read_frame(pl.DataFrame({"entry": [1], "when": [1], "answer": ["a"]}))


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("ticks", [2**62, -(2**63), 2**63 - 1])
def test_a_datetime_beyond_the_calendar_is_refused_and_never_wraps_around(unit, ticks):
    """2^62 ms, in microseconds, is 0 modulo 2^64: it was read as 1970."""
    times = pl.Series([0, ticks], dtype=pl.Int64).cast(pl.Datetime(unit))
    with pytest.raises(BadChangelog, match=r"row 2: its datetime is beyond the year 9999$"):
        read_frame(pl.DataFrame({"entry": ["a", "b"], "time": times, "answer": ["x", "y"]}))


def test_old_and_new_columns_say_the_same_and_an_old_that_is_not_current_is_refused(rows, tmp_path):
    """In frames and in CSV, plain and quoted; also an old answer that no row ever sets."""
    now: dict[str, str] = {}
    changes = []
    for entry, time, answer in rows:
        changes.append({"entry": entry, "time": time, "old": now.get(entry, ""), "new": answer})
        now[entry] = answer
    assert same(read_frame(pl.DataFrame(changes)), read_rows(rows))
    for wrong in ("perhaps" if changes[50]["old"] != "perhaps" else "no", "never"):
        bad = [dict(change) for change in changes]
        bad[50]["old"] = wrong
        with pytest.raises(BadChangelog, match="row 51: its old answer is not what the entry holds"):
            read_frame(pl.DataFrame(bad))
        for style in ("necessary", "always"):
            pl.DataFrame(bad).write_csv(tmp_path / "log.csv", quote_style=style)
            with pytest.raises(BadChangelog, match="line 52: its old answer is not what the entry holds"):
                read_csv(tmp_path / "log.csv")


FIELD = st.sampled_from(
    ["a", "b", "", "1", "2", "é", " a", "1.5", "nan", "1970-01-02", "1_0", '""', '"', '"a"', "x\ry"]
)
LINE = st.lists(FIELD, min_size=1, max_size=4).map(",".join)
FILE = st.tuples(st.lists(LINE, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())


@given(FILE)
def test_the_fast_reader_gives_what_the_row_reader_gives(tmp_path_factory, parts):
    """On files of every oddity: the same changelog, or the same refusal."""
    lines, end, ends = parts
    path = tmp_path_factory.mktemp("fuzz") / "log.csv"
    path.write_bytes((end.join(["entry,time,answer", *lines]) + (end if ends else "")).encode())

    def outcome(read):
        try:
            found = read()
            return found.answers, found.entries, found.entry.tolist(), found.time.tolist(), found.row.tolist()
        except BadChangelog as error:
            return str(error).removeprefix("log.csv, ")

    def row_reader():
        with csv_files._opened(path) as file:
            return csv_files.changelog_of_rows(csv_files._rows(file, Columns()), "line", None)

    assert outcome(lambda: read_csv(path)) == outcome(row_reader)


@pytest.mark.parametrize("seed", range(3))
def test_mutations_have_their_old_states_and_add_up_to_the_replay(seed):
    """Changes of the histogram over nodes are differences of replays."""
    changelog = read_rows(random_rows(seed))
    mutations = changelog.mutations()
    assert np.all(np.diff(mutations.time) >= 0)
    states = changelog.states_at(list(range(202)))
    seconds = mutations.time // 10**6
    assert np.array_equal(mutations.old, states[mutations.entry, seconds - 1])
    assert np.array_equal(mutations.new, states[mutations.entry, seconds])
    bounds = [20, 21, 60, 200]
    before = np.array([np.bincount(column, minlength=4) for column in states[:, bounds].T])
    expected = np.diff(np.vstack([[len(changelog.entries), 0, 0, 0], before[1:]]), axis=0)
    assert np.array_equal(mutations.histogram_changes(3, bounds), expected)


def test_periods_split_the_mutations_and_the_first_holds_all_before():
    """Each in one period, at its end included; what is after the last in none."""
    mutations = read_rows([("1", 5, "a"), ("2", 20, "a"), ("3", 21, "a"), ("4", 41, "a")]).mutations()
    parts = list(mutations.by_period(10, 10, 3))
    assert [part.entry.tolist() for part in parts] == [[0, 1], [2], []]
