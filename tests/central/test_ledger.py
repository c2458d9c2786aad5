"""The ledger of a changelog: releases add up; what is too much, damaged or a stranger's is refused before drawing."""

import gzip
import json
from fractions import Fraction

import polars as pl
import pytest
from changeling_central import BadState, BudgetExhausted, Charge, ReleaseCost, TimeReversed
from changeling_central.ledger import ReleaseLedger
from changeling_commands.__main__ import main as run

from .examples import TEA, forbid_draws, ledger_of, release_of


def one(log, name="one.csv", epsilon=1, query="any answer", **more):
    return release_of(log, name, epsilon, query, **more)


def test_releases_of_a_changelog_add_up_beside_it_and_each_is_charged_once(log):
    """In exact fractions, each by its output and query; gone on with or run again, a release costs no more."""
    first = one(log, epsilon="1/3", through="2026-01-01T08:00", budget=(1, 1e-5))
    assert first.ledger.spent == (Fraction(1, 3), 0)
    for _ in range(2):
        assert one(log, epsilon="1/3").ledger.spent == (Fraction(1, 3), 0)
    both = one(log, "two.csv", 0.1, delta=1e-6, law="gaussian", query="answer == 'tea'").ledger
    assert both.spent == (Fraction(13, 30), Fraction(1, 10**6))
    assert [charge.query for charge in both.charges] == ["any answer", "answer == 'tea'"]
    assert both.changelog == first.ledger.changelog
    assert "2 releases of the changelog" in both.said()


def test_what_is_more_than_the_budget_is_refused_before_anything_is_drawn_or_written(log, monkeypatch):
    """The first may go, the second is too much; no file of it is left, and the ledger is as it was."""
    one(log, budget=2, epsilon="1.5")
    forbid_draws(monkeypatch)
    before = log.with_name("log.csv.ledger").read_bytes()
    with pytest.raises(BudgetExhausted, match=r"costs epsilon 1, delta 0; left are 0.5"):
        one(log, "two.csv")
    assert not list(log.parent.glob("two.*csv")) + list(log.parent.glob("two.csv.state"))
    assert log.with_name("log.csv.ledger").read_bytes() == before


def test_a_budget_is_set_once_and_lowered_at_most(log):
    """What would raise it is refused, and what is less than is spent already."""
    one(log, budget=(3, 1e-6))
    with pytest.raises(ValueError, match="never raised"):
        one(log, "two.csv", budget=4)
    assert one(log, budget=2).ledger.budget == ReleaseCost(Fraction(2))
    with pytest.raises(BudgetExhausted, match="more than the budget"):
        one(log, budget="1/2")
    for bad in (0, -1, (1, 1)):
        with pytest.raises(ValueError, match="a budget of all releases"):
            one(log, "two.csv", budget=bad)


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "no ledger", "of another version"])
def test_a_damaged_ledger_is_refused_and_nothing_is_drawn(log, damage, monkeypatch):
    """Named, whatever was done to it, for the release that it holds and for any other."""
    one(log, through="2026-01-01T08:00")
    path = log.with_name("log.csv.ledger")
    text = path.read_text()
    spoiled = {
        "cut": text[:-3],
        "changed": text.replace('"epsilon": "1"', '"epsilon": "0"'),
        "emptied": "",
        "no ledger": "[]",
        "of another version": text.replace('"version": 3', '"version": 1'),
    }[damage]
    assert spoiled != text
    path.write_text(spoiled)
    forbid_draws(monkeypatch)
    for name in ("one.csv", "two.csv"):
        with pytest.raises(BadState, match=r"log\.csv\.ledger (is not a whole ledger|was written by another version)"):
            one(log, name)


def test_a_ledger_that_is_gone_or_of_another_changelog_is_refused(log, monkeypatch):
    """By what it is called; a new release under a wrong id, and a begun one beside a stranger's ledger or none."""
    one(log, changelog_id="tickets", through="2026-01-01T08:00")
    assert ledger_of(log).changelog == "tickets"
    forbid_draws(monkeypatch)
    with pytest.raises(BadState, match="of the changelog 'tickets', not of 'flights'"):
        one(log, "two.csv", changelog_id="flights")
    path = log.with_name("log.csv.ledger")
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(BadState, match="is gone: put it back"):
        one(log)
    assert not path.exists()
    monkeypatch.undo()
    one(log, "three.csv", changelog_id="strangers")
    with pytest.raises(BadState, match="'strangers', not of 'tickets'"):
        one(log)
    path.write_bytes(kept)
    assert one(log).ledger.changelog == "tickets"
    frame = pl.read_csv(log)
    with pytest.raises(BadState, match="charged to the ledger of the changelog 'tickets'"):
        one(frame_in(frame, log))


class frame_in:  # noqa: N801 a frame that knows where its outputs go
    def __init__(self, frame, log):
        self.frame, self.parent = frame, log.parent
        self.columns = frame.columns

    def __getitem__(self, name):
        return self.frame[name]


def test_a_release_killed_before_it_was_charged_is_charged_when_it_goes_on(log, monkeypatch):
    """The state is kept, the ledger not yet: nothing was drawn, and the next run charges it once."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("changeling_central.ledger.ReleaseAccount.settled", killed)
    forbid_draws(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        one(log)
    assert (log.parent / "one.csv.state").exists()
    assert ledger_of(log).charges == ()
    monkeypatch.undo()
    assert one(log).ledger.spent == (1, 0)


def test_what_an_entry_loses_does_not_bound_what_a_person_loses(log):
    """A ledger of persons takes no release that protects entries; a ledger of entries takes both."""
    one(log, person="user", per_person=2)
    with pytest.raises(ValueError, match="person by user loses, which a release that protects an entry"):
        one(log, "two.csv")
    other = log.with_name("other.csv")
    other.write_bytes(log.read_bytes())
    one(other, "three.csv", budget=2)
    assert one(other, "four.csv", person="user", per_person=2).ledger.spent == (2, 0)


def test_a_frame_has_a_ledger_only_where_one_is_named(log):
    """Then it adds up like any other; asked for a budget without one, it says so."""
    frame = frame_in(pl.read_csv(log), log)
    assert one(frame).ledger is None
    assert one(frame, "two.csv", ledger=log.parent / "frame.ledger").ledger.spent == (1, 0)
    with pytest.raises(ValueError, match="a frame has no ledger"):
        one(frame, "three.csv", budget=3)


def test_the_command_says_what_all_releases_cost(log, capsys):
    """With the budget; one too many is a single line."""
    words = ["release", str(log), "--query", "any answer", "--every", "4h", "--epsilon", "2", "--at-most", "2"]
    words += ["--start", "2026-01-01", "--until", "2026-01-02", "--mechanism", "dcr", "--budget", "3,1e-6"]
    assert run([*words, "-o", str(log.parent / "a.csv"), "--changelog-id", "tea"]) == 0
    assert "1 release of the changelog tea cost an entry epsilon 2 of 3" in capsys.readouterr().err
    assert run([*words, "-o", str(log.parent / "b.csv")]) == 1
    assert "with it all would cost epsilon 4, delta 1e-06 by exact composition, of epsilon 3" in capsys.readouterr().err


def test_a_ledger_reads_as_json_and_holds_what_a_person_can_check(log):
    """Names, fractions and outputs; a ledger of no releases costs nothing."""
    one(log)
    written = json.loads(log.with_name("log.csv.ledger").read_text())
    assert written["ledger"]["charges"][0] | {"release": "", "drawn": {}} == {
        "release": "", "output": str(log.parent / "one.csv"), "query": "any answer", "epsilon": "1", "delta": "0",
        "rho": None, "drawn": {}, "periods": "6 of 4h from 2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z",
    }  # fmt: skip
    empty = ReleaseLedger("x", "entry")
    assert empty.spent == (0, 0)
    assert empty.charged(Charge("a", "o", "q", "1/3", "0")).spent == (Fraction(1, 3), 0)


def test_the_first_release_sets_the_budget_unless_the_curator_did(log, monkeypatch):
    """To what it costs, in its own kind; then a second is refused until somebody says what all may cost, once."""
    for name, cost, more in (
        ("log.csv", {"epsilon": 1}, "epsilon 1"),
        ("rho.csv", {"epsilon": None, "rho": "1/2"}, "rho 0.5"),
    ):
        path = log.with_name(name)
        path.write_bytes(log.read_bytes())
        made = one(path, f"{name}.one.csv", **cost)
        assert made.ledger.budget.said() == more
        with pytest.raises(BudgetExhausted, match="so the first release set it: --budget"):
            one(path, f"{name}.two.csv", **cost)
        with monkeypatch.context() as patch:
            forbid_draws(patch)
            with pytest.raises(BudgetExhausted):
                one(path, f"{name}.two.csv", epsilon="1/1000")
    assert one(log, "two.csv", budget="2").ledger.asked
    with pytest.raises(ValueError, match="never raised"):
        one(log, "three.csv", budget=4)


def test_a_ledger_is_that_of_the_file_behind_a_link(log, tmp_path):
    """By another name, and from another folder: one budget, one id."""
    one(log, budget=2)
    link = tmp_path / "elsewhere.csv"
    link.symlink_to(log)
    assert one(link, "two.csv").ledger.spent == (2, 0)
    with pytest.raises(BudgetExhausted):
        one(link, "three.csv")
    assert not tmp_path.joinpath("elsewhere.csv.ledger").exists()


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_a_new_ledger_beside_data_that_look_the_same_is_told_and_so_is_one_of_other_data(log, form):
    """Copied and grown since; the copy's ledger names itself no more. Nothing of it is published."""

    def write(path, rows):
        frame = pl.DataFrame(rows)
        if form == "parquet":
            frame.write_parquet(path)
        else:
            content = frame.write_csv().encode()
            path.write_bytes(gzip.compress(content) if form == "csv.gz" else content)

    first, copy = (log.with_name(f"{name}.{form}") for name in ("first", "copy"))
    write(first, TEA)
    assert one(first, "first.out.csv").asides == ()
    write(
        copy,
        {
            name: [*values, values[0] if name == "user" else new]
            for (name, values), new in zip(TEA.items(), ["new", "2026-01-01T23:00:00Z", "tea", ""], strict=True)
        },
    )
    made = one(copy, "copy.out.csv")
    assert any(f"begins as the data of {first}.ledger do, by which 1 release of the" in said for said in made.asides)
    assert "begins as" not in made.output.read_text()
    write(first, {name: values[3:20] for name, values in TEA.items()})
    with pytest.raises(TimeReversed):
        one(first, "first.out.csv")
    other = one(first, "second.out.csv", budget=2)
    assert any(f"does not begin as the data did that {first}.ledger was made for" in said for said in other.asides)
