"""Changelogs: replayed as a dictionary would be, and refused by line where they contradict themselves."""

import gzip
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from changeling_statistics import BadChangelog, read_csv, read_rows

HEADER = "entry,time,answer\n"


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str | bytes, name: str = "log.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def random_rows(seed: int) -> list[tuple[str, int, str]]:
    """Rows of 30 entries over 200 seconds, mixed as they come in, every one of them a mutation."""
    random = np.random.default_rng(seed)
    now: dict[str, str] = {}
    rows = []
    for second in range(1, 201):
        for entry in sorted({f"entry {i}" for i in random.integers(0, 30, 4)}):
            answer = str(random.choice([a for a in ("", "yes", "no", "perhaps") if a != now.get(entry, "")]))
            now[entry] = answer
            rows.append((entry, second, answer))
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_equals_a_dictionary_that_is_updated_row_by_row(seed):
    """At every time, with the mutations at the time itself."""
    rows = random_rows(seed)
    changelog = read_rows(rows)
    times = [0, 0.5, 1, 17, 17.5, 100, 199, 200, 201]
    states = changelog.states_at(times)
    assert states.shape == (len(changelog.entries), len(times))
    for column, time in enumerate(times):
        now = {entry: answer for entry, second, answer in rows if second <= time}
        expected = [now.get(entry, "") for entry in changelog.entries]
        assert [("", *changelog.answers)[state] for state in states[:, column]] == expected


@pytest.mark.parametrize("start", [0, 3, 100, 500])
def test_a_changelog_since_a_time_replays_the_same_from_then_on_and_is_empty_before(start):
    """What is held at the time becomes an insertion at it."""
    changelog = read_rows(random_rows(7))
    later = changelog.since(start)
    times = [start, start + 1, start + 50.5, start + 300]
    assert np.array_equal(later.states_at(times), changelog.states_at(times))
    assert not later.states_at([start - 0.001]).any()


def test_a_file_and_its_rows_are_the_same_changelog(written):
    """Numbers, ISO times with and without an offset, gzip, quotes, blank lines, a byte order mark, any column order."""
    text = (
        '\ufeffanswer,entry,time\r\n"a, b",x,1970-01-01T00:00:10Z\r\n\r\nc,y,10.5\r\n,x,1970-01-01T02:00:11+02:00\r\n'
    )
    expected = read_rows([("x", 10, "a, b"), ("y", 10.5, "c"), ("x", datetime(1970, 1, 1, 0, 0, 11), None)])
    for path in (written(text), written(gzip.compress(text.encode()), "log.csv.gz")):
        changelog = read_csv(path)
        assert (
            (changelog.answers, changelog.entries)
            == (("a, b", "c"), ("x", "y"))
            == (
                expected.answers,
                expected.entries,
            )
        )
        for column in ("entry", "time", "state"):
            assert np.array_equal(getattr(changelog, column), getattr(expected, column))


def test_answers_are_sorted_whatever_the_order_of_the_rows_unless_they_are_given():
    """The states of two halves of a population mean the same."""
    rows = [("1", 1, "b"), ("2", 2, "a")]
    assert read_rows(rows).answers == read_rows(rows[::-1]).answers == ("a", "b")
    given = read_rows(rows, ["c", "b", "a"])
    assert given.answers == ("c", "b", "a")
    assert given.state.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("rows", "line", "fault"),
    [
        ("1,5,a\n2,4,a\n1,4,b\n", 4, "before the entry's previous row"),
        ("1,5,a\n2,5,a\n1,5,b\n", 4, "same entry and time"),
        ("1,5,a\n2,5,\n", 3, "deletes an entry that has no answer"),
        ("1,5,a\n1,6,\n1,7,\n", 4, "deletes an entry that has no answer"),
        ("1,5,a\n1,6,a\n", 3, "repeats the entry's answer"),
        ("1,5,a\n2,6,d\n", 3, "unknown answer; the answers are a, b, c"),
        ("1,5,a\n2,noon,b\n", 3, "its time is neither in ISO 8601 nor in Unix seconds$"),
        ("1,5,a\n2,1993-02-30,b\n", 3, "its time is neither"),
        ("1,5,a\n2,,b\n", 3, "its time is neither"),
        ("1,5,a\n2,nan,b\n", 3, "its time is neither"),
        ("1,a,b\n", 2, "its time is neither in ISO 8601 nor in Unix seconds$"),
        ("1,,\n", 2, "its time is neither"),
        ("1,5,\n", 2, "deletes an entry that has no answer"),
        ("1,741484800000,a\n", 2, "milliseconds"),
        ("1,5,a\n,5,a\n", 3, "the entry has no name"),
        ("1,5,a\n2,5\n", 3, "a row has 3 columns, this one 2"),
        ("1,5,a\n2,5,b,c\n", 3, "a row has 3 columns, this one 4"),
        ('1,5,a\n2,5,"b\n', 3, "not CSV"),
        ('"1\n1",5,a\n\n2,5,x\n', 5, "unknown answer"),
        ("", 1, "there is not one mutation"),
    ],
)
def test_a_bad_row_is_refused_by_its_line(written, rows, line, fault):
    """Contradictions, unsorted times, unknown answers, unreadable fields, torn rows."""
    path = written(HEADER + rows)
    with pytest.raises(BadChangelog, match=rf"^log\.csv, line {line}: .*{fault}"):
        read_csv(path, ["a", "b", "c"])


def test_of_many_bad_rows_the_first_is_named(written):
    """Whichever check it fails."""
    with pytest.raises(BadChangelog, match="line 3: it repeats"):
        read_csv(written(HEADER + "2,5,a\n2,6,a\n1,5,a\n1,4,b\n"))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "line 1: the file is empty"),
        (
            b"entry,when,answer\n1,5,a\n",
            "line 1: the columns must be entry,time,answer or entry,time,old,new, got 'entry,when,answer'",
        ),
        (b"entry,answer\n1,a\n", "line 1: the columns must be"),
        (b"entry,time,answer\n1,5,a\n2,5,\xe9\n", "line 3: not UTF-8"),
    ],
)
def test_a_file_that_is_no_changelog_is_refused(written, content, fault):
    """Empty, other columns, another encoding."""
    with pytest.raises(BadChangelog, match=fault):
        read_csv(written(content))


def test_a_cut_or_false_gzip_is_refused(written):
    """Never read as a shorter changelog."""
    whole = gzip.compress((HEADER + "".join(f"{i},5,a\n" for i in range(20_000))).encode())
    for content in (whole[: len(whole) // 2], b"entry,time,answer\n1,5,a\n"):
        with pytest.raises(BadChangelog, match=r"line \d+: the compressed file is cut or damaged"):
            read_csv(written(content, "log.csv.gz"))


def test_rows_in_memory_are_refused_by_their_number():
    """They have no lines."""
    with pytest.raises(BadChangelog, match="row 2: it repeats"):
        read_rows([("1", 5, "a"), ("1", 6, "a")])


def test_a_replay_asks_for_times_that_rise():
    """Anything else is a mistake of the caller."""
    with pytest.raises(ValueError, match="must rise"):
        read_rows([("1", 5, "a")]).states_at([5, 5])


@pytest.mark.parametrize("others", ["", ",note"])
def test_a_quote_that_is_not_closed_is_named_and_takes_no_rows_with_it(tmp_path, others):
    """Closed by chance, rows later or one line later, in a column that is read or in another; named by its line."""
    rows = [f"{n},{n},tea{',fine' * bool(others)}" for n in range(1, 9)]
    for last in (3, 7):
        broken = [*rows]
        at = broken[2].rindex(",") + 1
        broken[2] = broken[2][:at] + '"' + broken[2][at:]
        broken[last] += '"'
        path = tmp_path / "log.csv"
        path.write_text("\n".join([f"entry,time,answer{others}", *broken]) + "\n")
        with pytest.raises(
            BadChangelog, match=rf"line 4: a quote that opens here goes on over rows, until line {last + 2}"
        ):
            read_csv(path)
    path.write_text('entry,time,answer,note\n1,5,tea,"of two, or\nthree, lines, with commas, too"\n2,6,tea,""\n')
    assert len(read_csv(path)) == 2
