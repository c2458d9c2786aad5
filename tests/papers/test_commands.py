"""`changeling count`, whose memory may be seized, and `changeling ask`, of one table."""

import csv
import io
from fractions import Fraction

import pytest
from changeling_central import read_ledger
from changeling_central.testing import Forbidden
from changeling_commands import main as run
from changeling_papers import PanPrivateCounter, read_over


def count(folder, monkeypatch, lines, periods="8", epsilon="2", at_most="2"):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    options = ["--periods", periods, "--epsilon", epsilon, "--at-most", at_most]
    return run(["count", *options, "--memory", str(folder / "memory")])


def test_numbers_go_in_and_noisy_counts_come_out_run_after_run(tmp_path, monkeypatch, capsys):
    """Three numbers, then six, of which the last is beyond the guarantee; every estimate is near the truth."""
    assert count(tmp_path, monkeypatch, [300, -100, 50], epsilon="1000") == 0
    assert count(tmp_path, monkeypatch, [7] * 6, epsilon="1000") == 1
    out, said = capsys.readouterr()
    rows = [line.split(",") for line in out.splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, 9))
    assert [int(row[1]) for row in rows] == pytest.approx([300, 200, 250, 257, 264, 271, 278, 285], abs=1)
    assert "period 4 of 8 is next" in said
    assert "the guarantee covers 8 steps" in said
    assert "epsilon 1000 for an entry that changes at most 2 periods" in said


def test_between_two_numbers_there_is_one_file_and_it_is_the_counters_memory(tmp_path, monkeypatch, capsys):
    """Of 4096 bytes, written over in place, beside its lock; without its true count; another budget cannot read it."""
    assert count(tmp_path, monkeypatch, [10**6], epsilon="1") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory", "memory.lock"]
    before = (tmp_path / "memory").stat()
    assert count(tmp_path, monkeypatch, [1], epsilon="1") == 0
    after = (tmp_path / "memory").stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size) == (after.st_ino, 4096)
    counter = PanPrivateCounter(8, Fraction(1, 2))
    state = counter.resumed(read_over(tmp_path / "memory"))
    assert state.time == 2
    assert count(tmp_path, monkeypatch, [1], epsilon="2") == 1
    assert "the saved state is of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lines": ["x"]}, "period 1: not a whole number"),
        ({"lines": ["1.5"]}, "not a whole number"),
        ({"lines": [1], "epsilon": "0"}, "epsilon"),
        ({"lines": [1], "at_most": "0"}, "at least one period"),
        ({"lines": [1], "periods": "0"}, "at least one step"),
        ({"lines": [2**62 + 1]}, "a whole number of at most"),
    ],
)
def test_what_cannot_be_counted_is_refused_and_nothing_is_drawn(tmp_path, monkeypatch, capsys, given, said):
    """A line is never repeated; no memory is written."""
    monkeypatch.setattr("changeling_central.noise.OpenDPNoise.laplace", Forbidden().laplace)
    assert count(tmp_path, monkeypatch, **given) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "memory").exists()


TABLE = "age,city,member,name\n" + "".join(
    f"{n % 90},{('Rome', 'Paris', 'elsewhere')[n % 3]},{'true' if n % 2 else 'false'},x{n}\n" for n in range(900)
)
COLUMNS = ["--column", "age=-1..120", "--column", "city=Rome,Paris,elsewhere", "--column", "member=yes/no"]
QUERIES = ["age >= 18", "age >= 18 and city == 'Rome'", "age >= 18 and city == 'Rome' and member"]


def ask(folder, *more, columns=COLUMNS, queries=QUERIES, epsilon="1", output="out.csv"):
    (folder / "table.csv").write_text(TABLE)
    asked = [word for text in queries for word in ("--query", text)]
    words = [str(folder / "table.csv"), *columns, *asked, "--epsilon", epsilon, "-o", str(folder / output), *more]
    return run(["ask", *words])


def answers(folder, name="out.csv"):
    lines = (folder / name).read_text().splitlines()
    assert lines[0].startswith("# epsilon ")
    return list(csv.DictReader(lines[1:]))


@pytest.mark.parametrize("more", [[], ["--grouped"]])
def test_a_table_is_asked_and_nested_answers_are_in_order(tmp_path, more):
    """Within twelve standard errors of the truth; what is promised stands at the head."""
    assert ask(tmp_path, *more, epsilon="5") == 0
    found = answers(tmp_path)
    truth = [sum(n % 90 >= 18 and (q < 1 or n % 3 == 0) and (q < 2 or n % 2) for n in range(900)) for q in range(3)]
    for row, true, query in zip(found, truth, QUERIES, strict=True):
        assert row["query"] == query
        assert abs(float(row["estimate"]) - true) < 12 * float(row["standard_error"]) + 1
    if not more:
        values = [int(row["value"]) for row in found]
        assert values == sorted(values, reverse=True)


def test_what_is_asked_of_a_table_adds_up_and_is_refused_beyond_the_budget(tmp_path, capsys, monkeypatch):
    """In its ledger; nothing is drawn twice into one output."""
    assert ask(tmp_path, "--budget", "2") == 0
    assert "1 release of the changelog" in capsys.readouterr().err
    monkeypatch.setattr("changeling_central.noise.OpenDPNoise.laplace", Forbidden().laplace)
    assert ask(tmp_path) == 1
    assert "asking again would draw again" in capsys.readouterr().err
    assert ask(tmp_path, output="two.csv", epsilon="1.5") == 1
    assert "left are 1" in capsys.readouterr().err
    assert not (tmp_path / "two.csv").exists()
    assert read_ledger(tmp_path / "table.csv.ledger").spent == (1, 0)


@pytest.mark.parametrize(("output", "more"), [("table.csv.ledger", []), ("out.csv", ["--ledger", "out.csv"])])
def test_answers_are_never_written_over_their_own_ledger(tmp_path, capsys, monkeypatch, output, more):
    """What was charged would be gone; nothing is drawn, and nothing written."""
    monkeypatch.setattr("changeling_central.noise.OpenDPNoise.laplace", Forbidden().laplace)
    monkeypatch.chdir(tmp_path)
    assert ask(tmp_path, *more, output=output) == 1
    assert "is the ledger" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queries": ["wage >= 18"]}, "no column 'wage'"),
        ({"queries": ["city == 'Milan'"]}, "no declared value of city"),
        ({"columns": ["--column", "age"]}, "declared as age=0..120"),
        ({"columns": ["--column", "age=0..9", "--column", "age=0..9"]}, "declared twice"),
        ({"columns": ["--column", "age=0..50"]}, "column 'age' holds what is not declared"),
        ({"columns": ["--column", "height=0..50"], "queries": ["height > 3"]}, "no columns height"),
        ({"columns": ["--column", "name=0..50"], "queries": ["name > 3"]}, "not declared to hold"),
        ({"queries": ["member", "age > 200"]}, "'age > 200' is true of no row that the columns declare"),
        ({"epsilon": "0"}, "epsilon > 0"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words_and_nothing_is_drawn(tmp_path, capsys, monkeypatch, given, said):
    """No output, no ledger, and nothing that a row holds."""
    monkeypatch.setattr("changeling_central.noise.OpenDPNoise.laplace", Forbidden().laplace)
    given = {"queries": QUERIES[:1], **given}
    assert ask(tmp_path, **given) == 1
    error = capsys.readouterr().err
    assert said in error
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "table.csv.ledger").exists()


@pytest.mark.parametrize("close", ["x7", "x899"])
def test_a_quote_that_nobody_closed_takes_no_rows_out_of_a_table(tmp_path, capsys, monkeypatch, close):
    """In a column that nobody asks for, closed by chance: fewer rows would be counted."""
    monkeypatch.setattr("changeling_central.noise.OpenDPNoise.laplace", Forbidden().laplace)
    monkeypatch.setitem(globals(), "TABLE", TABLE.replace("x5\n", '"x5\n', 1).replace(f"{close}\n", f'{close}"\n', 1))
    assert ask(tmp_path) == 1
    assert "a quote is opened and not closed" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
