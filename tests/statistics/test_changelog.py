"""Changelogs from rows, CSV, Parquet, polars and pandas: replayed as a dictionary would be, and refused by the row."""

import gzip
from datetime import UTC, date, datetime
from unittest.mock import patch
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_statistics import BadChangelog, Columns, read_csv, read_frame, read_parquet, read_rows
from hypothesis import given
from hypothesis import strategies as st

HEADER = "entry,time,answer\n"
ROWS = {
    "entry": ["a", "b", "a", "c", "a"],
    "price": ["3", "4", "3", "", "5"],
    "time": ["1", "2", "3", "4", "5"],
    "answer": ["x", "y", "y", "x", ""],
    "user": ["u", "v", "u", "u", "u"],
}
SOURCES = ["csv", "quoted", "parquet", "polars", "pandas"]


@pytest.fixture
def written(tmp_path):
    def write(text, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def random_rows(seed):
    """Rows of 30 entries over 200 seconds, mixed as they come in, every one of them a mutation."""
    random = np.random.default_rng(seed)
    now, rows = {}, []
    for second in range(1, 201):
        for entry in sorted({f"entry {i}" for i in random.integers(0, 30, 4)}):
            answer = str(random.choice([a for a in ("", "yes", "no", "perhaps") if a != now.get(entry, "")]))
            now[entry] = answer
            rows.append((entry, second, answer))
    return rows


def columns_of(rows):
    return dict(zip(("entry", "time", "answer"), zip(*rows, strict=True), strict=True))


def changelog_of(source, folder, rows=ROWS, answers=None, **columns):
    """What a source says that holds these columns."""
    frame, asked = pl.DataFrame(rows, strict=False), Columns(**columns)
    match source:
        case "csv" | "quoted":
            frame.write_csv(folder / "log.csv", quote_style="always" if source == "quoted" else "necessary")
            return read_csv(folder / "log.csv", answers, columns=asked)
        case "parquet":
            frame.write_parquet(folder / "log.parquet")
            return read_parquet(folder / "log.parquet", answers, columns=asked)
    return read_frame(frame if source == "polars" else pd.DataFrame(rows), answers, columns=asked)


def assert_same(found, expected, columns=("entry", "time", "state", "row")):
    assert (found.answers, found.entries) == (expected.answers, expected.entries)
    for column in columns:
        assert np.array_equal(getattr(found, column), getattr(expected, column)), column


def said_by(read, *arguments, **options):
    """The times that are read, or the refusal by its row."""
    try:
        return read(*arguments, **options).time.tolist()
    except BadChangelog as error:
        said = str(error).replace("line 2", "row 1").replace("line 3", "row 2")
        return said[said.index("row ") :]


EDGES = [
    ("America/New_York", "9999-12-31T23:59:59"),
    ("Europe/Berlin", "0001-01-01"),
    ("Europe/Berlin", "2101-07-01T12:00:00"),
]


@pytest.mark.parametrize(("zone", "time"), EDGES)
def test_a_time_far_off_in_a_zone_is_the_same_as_text_and_as_a_datetime(tmp_path, zone, time):
    """Or is refused by its row: such dates stand for "for ever" and "never" in many a table."""
    said = []
    for source, when in [("csv", time), ("polars", time), ("polars", datetime.fromisoformat(time))]:
        rows = columns_of([("a", when, "x")])
        said.append(said_by(changelog_of, source, tmp_path, rows, zone=ZoneInfo(zone)))
    assert said[1:] == said[:1] * 2


def test_a_truth_value_is_no_time_in_a_row_as_it_is_none_in_a_frame():
    """Python takes True for 1; rows of it are refused as a column of it is."""
    rows = [("a", True, "x")]
    assert said_by(read_rows, rows) == said_by(read_frame, pl.DataFrame(columns_of(rows)))
    assert said_by(read_rows, [("a", None, "x")]) == said_by(read_rows, rows)
    assert said_by(read_rows, [("a", np.int64(20260131), "x")]) == said_by(read_rows, [("a", "2026-01-31", "x")])


ODD_TIMES = [
    *["nan", "-inf", "1_0", "1e400", "+5", "-0", ".5", "5.", "1e3", "0.0000005", "1.0000015", "0x10", "1d", " 5", "5 "],
    *["20260101", "20260101T00", "99999999", "00000005", "2026-W01-1", "2026-13-01", "2026-01-01 00:00", "12:00"],
    *["253402300799.9999999", "253402300800", "\uff11\uff12", "\u0663", "true", "None", "2026-01-01T00:00+01:00"],
]


@pytest.mark.parametrize("time", ODD_TIMES)
def test_an_odd_time_is_the_same_or_refused_alike_whatever_holds_it_and_stands_beside_it(tmp_path, time):
    """Columns of numbers are read at once, and others one by one."""
    for beside in ("7", "2026-02-01", "rubbish"):
        for first, second in ((time, beside), (beside, time)):
            rows = [("a", first, "x"), ("b", second, "x")]
            said = [said_by(changelog_of, source, tmp_path, columns_of(rows)) for source in SOURCES]
            assert said == [said_by(read_rows, rows)] * len(SOURCES)


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_equals_a_dictionary_that_is_updated_row_by_row(seed):
    """At every time, with the mutations at the time itself; mutations have their old states, and add up to it."""
    rows = random_rows(seed)
    changelog = read_rows(rows)
    times = [0, 0.5, 1, 17, 17.5, 100, 199, 200, 201]
    states = changelog.states_at(times)
    for column, time in enumerate(times):
        now = {entry: answer for entry, second, answer in rows if second <= time}
        expected = [now.get(entry, "") for entry in changelog.entries]
        assert [("", *changelog.answers)[state] for state in states[:, column]] == expected
    mutations, states = changelog.mutations(), changelog.states_at(list(range(202)))
    assert np.all(np.diff(mutations.time) >= 0)
    seconds = mutations.time // 10**6
    assert np.array_equal(mutations.old, states[mutations.entry, seconds - 1])
    assert np.array_equal(mutations.new, states[mutations.entry, seconds])
    bounds = [20, 21, 60, 200]
    held = np.array([np.bincount(column, minlength=4) for column in states[:, bounds].T])
    expected = np.diff(np.vstack([[len(changelog.entries), 0, 0, 0], held[1:]]), axis=0)
    assert np.array_equal(mutations.histogram_changes(3, bounds), expected)
    with pytest.raises(ValueError, match="must rise"):
        changelog.states_at([5, 5])


@pytest.mark.parametrize("start", [0, 3, 100, 500])
def test_a_changelog_since_a_time_replays_the_same_from_then_on_and_is_empty_before(start):
    """What is held at the time becomes an insertion at it."""
    changelog = read_rows(random_rows(7))
    later = changelog.since(start)
    times = [start, start + 1, start + 50.5, start + 300]
    assert np.array_equal(later.states_at(times), changelog.states_at(times))
    assert not later.states_at([start - 0.001]).any()


def test_periods_split_the_mutations_and_the_first_holds_all_before():
    """Each in one period, at its end included; what is after the last in none."""
    mutations = read_rows([("1", 5, "a"), ("2", 20, "a"), ("3", 21, "a"), ("4", 41, "a")]).mutations()
    assert [part.entry.tolist() for part in mutations.by_period(10, 10, 3)] == [[0, 1], [2], []]


def test_answers_are_sorted_whatever_the_order_of_the_rows_unless_they_are_given():
    """The states of two halves of a population mean the same."""
    rows = [("1", 1, "b"), ("2", 2, "a")]
    assert read_rows(rows).answers == read_rows(rows[::-1]).answers == ("a", "b")
    given = read_rows(rows, ["c", "b", "a"])
    assert (given.answers, given.state.tolist()) == (("c", "b", "a"), [2, 3])


def test_a_file_and_its_rows_are_the_same_changelog(written):
    """Numbers, ISO times with and without an offset, gzip, quotes, blank lines, a byte order mark, any column order."""
    text = (
        '\ufeffanswer,entry,time\r\n"a, b",x,1970-01-01T00:00:10Z\r\n\r\nc,y,10.5\r\n,x,1970-01-01T02:00:11+02:00\r\n'
    )
    expected = read_rows([("x", 10, "a, b"), ("y", 10.5, "c"), ("x", datetime(1970, 1, 1, 0, 0, 11), None)])
    for path in (written(text), written(gzip.compress(text.encode()), "log.csv.gz")):
        assert_same(read_csv(path), expected, ("entry", "time", "state"))


def test_every_source_gives_the_changelog_of_the_rows(tmp_path):
    """polars eager and lazy, pandas of several kinds, Parquet, CSV; NULL as null or as an empty text."""
    rows = random_rows(3)
    expected, columns = read_rows(rows), columns_of(rows)
    frame, panda = pl.DataFrame(columns), pd.DataFrame(columns)
    for source in (
        frame,
        frame.lazy(),
        frame.with_columns(pl.col("answer").replace("", None)),
        frame.with_columns(pl.from_epoch("time")),
        panda,
        panda.assign(answer=panda["answer"].astype("category"), entry=panda["entry"].astype("string")),
        panda.assign(time=pd.to_datetime(panda["time"], unit="s", utc=True), answer=panda["answer"].replace("", None)),
    ):
        assert_same(read_frame(source), expected)
    assert_same(changelog_of("parquet", tmp_path, columns), expected)
    from_csv = changelog_of("csv", tmp_path, columns)
    assert_same(from_csv, expected, ("entry", "time", "state"))
    assert np.array_equal(from_csv.row, expected.row + 1)
    given = ["yes", "no", "perhaps"]
    assert_same(read_frame(frame, given), read_rows(rows, given))


def test_numbers_dates_and_times_with_zones_are_read():
    """Entries and answers of any kind count as their text; a date is its midnight."""
    changelog = read_frame(
        pl.DataFrame({"entry": [1, 1], "time": [date(1970, 1, 2), date(1970, 1, 3)], "answer": [7, 8]})
    )
    assert (changelog.entries, changelog.answers) == (("1",), ("7", "8"))
    assert changelog.time.tolist() == [86_400 * 10**6, 2 * 86_400 * 10**6]
    zoned = pd.DataFrame({"entry": ["a"], "time": pd.to_datetime(["1970-01-01T02:00+02:00"]), "answer": ["x"]})
    assert read_frame(zoned).time.tolist() == [0]
    moment = {"entry": ["a"], "time": [datetime(1970, 1, 1, 1, tzinfo=UTC)], "answer": ["x"]}
    assert read_frame(pd.DataFrame(moment, dtype=object)).time.tolist() == [3600 * 10**6]


@pytest.mark.parametrize(
    ("rows", "number", "fault"),
    [
        ([("1", 5, "a"), ("2", 4, "a"), ("1", 4, "b")], 3, "before the entry's previous row"),
        ([("1", 9, ""), ("2", 5, "a"), ("1", 6, "a")], 3, "rows are out of order"),
        ([("1", 5, "a"), ("2", 5, "")], 2, "deletes an entry that has no answer"),
        ([("1", 5, "a"), ("1", 6, "a")], 2, "repeats the entry's answer"),
        ([("1", 5, "a"), ("2", 6, "d")], 2, "unknown answer; the answers are a, b, c"),
        ([("1", 5, "a"), ("2", float("nan"), "b")], 2, "its time is neither in ISO 8601, .* nor in Unix seconds$"),
        ([("1", 5, "a"), ("", 6, "b")], 2, "has no name"),
        ([("1", 741484800000, "a")], 1, "milliseconds"),
        ([("2", 5, "a"), ("2", 6, "a"), ("1", 5, "a"), ("1", 4, "b")], 2, "it repeats"),
    ],
)
def test_a_bad_row_is_refused_by_its_number_or_line_whatever_holds_it(tmp_path, rows, number, fault):
    """In the same words; of many the first."""
    with pytest.raises(BadChangelog, match=f"^row {number}: .*{fault}"):
        read_rows(rows, ["a", "b", "c"])
    for source in SOURCES:
        where = {"parquet": rf"^log\.parquet, row {number}", "polars": f"^row {number}", "pandas": f"^row {number}"}
        with pytest.raises(BadChangelog, match=where.get(source, rf"^log\.csv, line {number + 1}") + f": .*{fault}"):
            changelog_of(source, tmp_path, columns_of(rows), ["a", "b", "c"])


@pytest.mark.parametrize(
    ("content", "line", "fault"),
    [
        (HEADER + "1,5,a\n2,5,a\n1,5,b\n", 4, "same entry and time"),
        (HEADER + "1,5,a\n1,6,\n1,7,\n", 4, "deletes an entry that has no answer"),
        (HEADER + "1,5,a\n2,noon,b\n", 3, "its time is neither"),
        (HEADER + "1,5,a\n2,1993-02-30,b\n", 3, "its time is neither"),
        (HEADER + "1,5,a\n2,,b\n", 3, "its time is neither"),
        (HEADER + "1,a,b\n", 2, "its time is neither"),
        (HEADER + "1,,\n", 2, "its time is neither"),
        (HEADER + "1,5,\n", 2, "deletes an entry that has no answer"),
        (HEADER + "1,5,a\n2,5\n", 3, "a row has 3 columns, this one 2"),
        (HEADER + "1,5,a\n2,5,b,c\n", 3, "a row has 3 columns, this one 4"),
        (HEADER + '1,5,a\n2,5,"b\n', 3, "not CSV"),
        (HEADER + '"1\n1",5,a\n\n2,5,x\n', 5, "unknown answer"),
        (HEADER, 1, "there is not one mutation"),
        (b"", 1, "the file is empty"),
        ("entry,when,answer\n1,5,a\n", 1, "be entry,time,answer or entry,time,old,new, got 'entry,when,answer'"),
        ("entry,answer\n1,a\n", 1, "the columns must be"),
        (HEADER.encode() + b"1,5,a\n2,5,\xe9\n", 3, "not UTF-8"),
    ],
)
def test_a_file_that_is_no_changelog_is_refused_by_its_line(written, content, line, fault):
    """Torn rows, fields that cannot be read, other columns, another encoding, nothing at all."""
    with pytest.raises(BadChangelog, match=rf"^log\.csv, line {line}: .*{fault}"):
        read_csv(written(content), ["a", "b", "c"])


def test_a_frame_or_parquet_that_is_no_changelog_is_refused(written):
    """Other columns, nothing in it, bytes that are no Parquet."""
    with pytest.raises(BadChangelog, match="entry,time,answer or entry,time,old,new, got 'entry,when,answer'"):
        read_frame(pl.DataFrame({"entry": [1], "when": [1], "answer": ["a"]}))
    with pytest.raises(BadChangelog, match="not one mutation"):
        read_frame(pl.DataFrame({"entry": [], "time": [], "answer": []}))
    with pytest.raises(BadChangelog, match=r"log\.parquet, row 1: not a Parquet file"):
        read_parquet(written(b"PAR1 but no more", "log.parquet"))


def test_a_cut_or_false_gzip_is_refused(written):
    """Never read as a shorter changelog."""
    whole = gzip.compress((HEADER + "".join(f"{i},5,a\n" for i in range(20_000))).encode())
    for content in (whole[: len(whole) // 2], b"entry,time,answer\n1,5,a\n"):
        with pytest.raises(BadChangelog, match=r"line \d+: the compressed file is cut or damaged"):
            read_csv(written(content, "log.csv.gz"))


@pytest.mark.parametrize("others", ["", ",note"])
def test_a_quote_that_is_not_closed_is_named_and_takes_no_rows_with_it(written, others):
    """Closed by chance, rows later or one line later, in a column that is read or in another; named by its line."""
    rows = [f"{n},{n},tea{',fine' * bool(others)}" for n in range(1, 9)]
    for last in (3, 7):
        broken = [*rows]
        at = broken[2].rindex(",") + 1
        broken[2] = broken[2][:at] + '"' + broken[2][at:]
        broken[last] += '"'
        path = written("\n".join([f"entry,time,answer{others}", *broken]) + "\n")
        said = rf"line 4: a quote that opens here goes on over rows, until line {last + 2}"
        with pytest.raises(BadChangelog, match=said):
            read_csv(path)
    closed = 'entry,time,answer,note\n1,5,tea,"of two, or\nthree, lines, with commas, too"\n2,6,tea,""\n'
    assert len(read_csv(written(closed))) == 2


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("ticks", [2**62, -(2**63), 2**63 - 1])
def test_a_datetime_beyond_the_calendar_is_refused_and_never_wraps_around(unit, ticks):
    """2^62 ms, in microseconds, is 0 modulo 2^64: it was read as 1970."""
    times = pl.Series([0, ticks], dtype=pl.Int64).cast(pl.Datetime(unit))
    with pytest.raises(BadChangelog, match=r"row 2: its datetime is not within the years 1 to 9999$"):
        read_frame(pl.DataFrame({"entry": ["a", "b"], "time": times, "answer": ["x", "y"]}))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        *(({"time": [each]}, "its time is") for each in ("secret", 9e99, "9e99", "nan")),
        *(
            ({column: [each]}, f"the column '{column}' holds (List|Struct|Binary)")
            for column in ("entry", "time", "answer")
            for each in (["secret"], {"x": "secret"}, b"secret\xff")
        ),
    ],
    ids=str,
)
def test_no_refusal_shows_a_field(columns, said):
    """Where the answer stands for the time, or a column of Parquet is a list, a struct or bytes: the row alone."""
    frame = pl.DataFrame({"entry": ["1"], "time": ["5"], "answer": ["2020-01-01"]})
    with pytest.raises(BadChangelog, match=f"^row 1: {said}") as error:
        read_frame(frame.with_columns(*(pl.Series(name, values) for name, values in columns.items())))
    assert "secret" not in str(error.value)
    assert "9e" not in str(error.value)


def test_a_file_without_a_header_does_not_give_its_first_row_away(written):
    """That row holds an answer."""
    path = written("1,2020-01-01,secret\n2,2020-01-01,other\n")
    headerless = pl.DataFrame({"1": [2], "2020-01-01": ["2020-01-01"], "secret": ["other"]})
    for read in (lambda: read_csv(path), lambda: read_frame(headerless)):
        with pytest.raises(BadChangelog, match="there is no such header") as error:
            read()
        assert "secret" not in str(error.value)


def test_old_and_new_columns_say_the_same_and_an_old_that_is_not_current_is_refused(tmp_path):
    """Also an old answer that no row ever sets."""
    rows = random_rows(3)
    now, changes = {}, []
    for entry, time, answer in rows:
        changes.append({"entry": entry, "time": time, "old": now.get(entry, ""), "new": answer})
        now[entry] = answer
    assert_same(read_frame(pl.DataFrame(changes)), read_rows(rows))
    for wrong in ("perhaps" if changes[50]["old"] != "perhaps" else "no", "never"):
        bad = pl.DataFrame([*changes[:50], {**changes[50], "old": wrong}, *changes[51:]])
        for source, where in (("polars", "row 51"), ("csv", "line 52"), ("quoted", "line 52")):
            with pytest.raises(BadChangelog, match=f"{where}: its old answer is not what the entry holds"):
                changelog_of(source, tmp_path, bad)


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_may_hold_more_than_is_read(tmp_path, source):
    """Other columns are left alone; another can be read, and rows that leave it as it was are no mutations; whose the
    entries are is a number for each. Contradictions and columns that are missing are named."""
    log = changelog_of(source, tmp_path)
    assert (log.answers, log.entries, log.state.tolist()) == (("x", "y"), ("a", "b", "c"), [1, 2, 0, 2, 1])
    assert log.owner is None
    prices = changelog_of(source, tmp_path, answer="price")
    assert prices.answers == ("3", "4", "5")
    assert [prices.entries[each] for each in prices.entry] == ["a", "a", "b"]
    assert prices.state.tolist() == [1, 3, 2]
    assert changelog_of(source, tmp_path, owner="user").owner.tolist() == [0, 1, 0]
    where = "line 4: " if source in ("csv", "quoted") else "row 3: "
    for changed, columns, said in (
        (
            {"user": ["u", "v", "w", "u", "u"]},
            {"owner": "user"},
            f"{where}an earlier row of its entry has another user",
        ),
        ({"user": ["u", "v", "", "u", "u"]}, {"owner": "user"}, f"{where}it has no user"),
        ({}, {"answer": "cost"}, "entry,time,cost"),
        ({}, {"owner": "person"}, "a column 'person'"),
    ):
        with pytest.raises(BadChangelog, match=said):
            changelog_of(source, tmp_path, {**ROWS, **changed}, **columns)


@pytest.mark.parametrize("source", ["csv", "polars"])
def test_there_may_be_any_number_of_answers(tmp_path, source):
    """Also more than 16 bits tell apart; each is replayed as it was written."""
    n = 70_000
    rows = {"entry": list(range(n)), "time": list(range(n)), "answer": [f"{i}.5" for i in range(n)]}
    log = changelog_of(source, tmp_path, rows)
    assert len(log.answers) == n
    assert [log.answers[state - 1] for state in log.state[-3:]] == [f"{i}.5" for i in range(n - 3, n)]
    assert np.array_equal(log.states_at([n])[:, 0], log.state)


FIELD = st.sampled_from(
    ["a", "b", "", "1", "2", "é", " a", "1.5", "nan", "1970-01-02", "1_0", '""', '"', '"a"', "x\ry"]
)
LINE = st.lists(FIELD, min_size=1, max_size=4).map(",".join)


@given(st.lists(LINE, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_a_file_is_the_same_whether_polars_splits_it_or_rows_are_split_one_by_one(tmp_path_factory, lines, end, ends):
    """On files of every oddity: the same changelog, or the same refusal."""
    path = tmp_path_factory.mktemp("fuzz") / "log.csv"
    path.write_bytes((end.join(["entry,time,answer", *lines]) + (end if ends else "")).encode())

    def outcome(read):
        try:
            found = read()
            return found.answers, found.entries, found.entry.tolist(), found.time.tolist(), found.row.tolist()
        except BadChangelog as error:
            return str(error).removeprefix("log.csv, ")

    fast = outcome(lambda: read_csv(path))
    with patch("changeling_statistics.changelog_columns._plain_columns", return_value=None):
        assert outcome(lambda: read_csv(path)) == fast
