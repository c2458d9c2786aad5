"""The ledger of a changelog: releases add up; what is too much, damaged or a stranger's is refused before drawing."""

import gzip
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from threading import Barrier

import polars as pl
import pytest
from changeling_central import BadState, BudgetExhausted, Charge, ReleaseCost, TimeReversed, release
from changeling_central.ledger import ReleaseLedger

from .examples import DCR, TEA, forbid_draws, ledger_of, release_of


def test_releases_of_a_changelog_add_up_beside_it_and_each_is_charged_once(log):
    """In exact fractions, each by its output and query; gone on with or run again, a release costs no more."""
    first = release_of(log, epsilon="1/3", through="2026-01-01T08:00", budget=(1, 1e-5))
    assert first.ledger.spent == (Fraction(1, 3), 0)
    for _ in range(2):
        assert release_of(log, epsilon="1/3").ledger.spent == (Fraction(1, 3), 0)
    both = release_of(log, "two.csv", 0.1, delta=1e-6, law="gaussian", query="answer == 'tea'").ledger
    assert both.spent == (Fraction(13, 30), Fraction(1, 10**6))
    assert [charge.query for charge in both.charges] == ["any answer", "answer == 'tea'"]
    assert both.changelog == first.ledger.changelog
    assert "2 releases of the changelog" in both.said()


def test_what_is_more_than_the_budget_is_refused_before_anything_is_drawn_or_written(log, monkeypatch):
    """The first may go, the second is too much; no file of it is left, and the ledger is as it was."""
    release_of(log, budget=2, epsilon="1.5")
    forbid_draws(monkeypatch)
    before = log.with_name("log.csv.ledger").read_bytes()
    with pytest.raises(BudgetExhausted, match=r"costs epsilon 1, delta 0; left are 0.5"):
        release_of(log, "two.csv")
    assert not list(log.parent.glob("two.*csv")) + list(log.parent.glob("two.csv.state"))
    assert log.with_name("log.csv.ledger").read_bytes() == before


def test_a_budget_is_set_once_and_lowered_at_most(log):
    """What would raise it is refused, and what is less than is spent already."""
    release_of(log, budget=(3, 1e-6))
    with pytest.raises(ValueError, match="never raised"):
        release_of(log, "two.csv", budget=4)
    assert release_of(log, budget=2).ledger.budget == ReleaseCost(Fraction(2))
    with pytest.raises(BudgetExhausted, match="more than the budget"):
        release_of(log, budget="1/2")
    for bad in (0, -1, (1, 1)):
        with pytest.raises(ValueError, match="a budget of all releases"):
            release_of(log, "two.csv", budget=bad)


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "no ledger", "of another version"])
def test_a_damaged_ledger_is_refused_and_nothing_is_drawn(log, damage, monkeypatch):
    """Named, whatever was done to it, for the release that it holds and for any other."""
    release_of(log, through="2026-01-01T08:00")
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
            release_of(log, name)


def test_a_ledger_that_is_gone_or_of_another_changelog_is_refused(log, monkeypatch):
    """By what it is called; a new release under a wrong id, and a begun one beside a stranger's ledger or none."""
    release_of(log, changelog_id="tickets", through="2026-01-01T08:00")
    assert ledger_of(log).changelog == "tickets"
    forbid_draws(monkeypatch)
    with pytest.raises(BadState, match="of the changelog 'tickets', not of 'flights'"):
        release_of(log, "two.csv", changelog_id="flights")
    path = log.with_name("log.csv.ledger")
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(BadState, match="is gone: put it back"):
        release_of(log)
    assert not path.exists()
    monkeypatch.undo()
    release_of(log, "three.csv", changelog_id="strangers")
    with pytest.raises(BadState, match="'strangers', not of 'tickets'"):
        release_of(log)
    path.write_bytes(kept)
    assert release_of(log).ledger.changelog == "tickets"
    with pytest.raises(BadState, match="charged to the ledger of the changelog 'tickets'"):
        release_of(log, frame=pl.read_csv(log))


def test_a_release_killed_before_it_was_charged_is_charged_when_it_goes_on(log, monkeypatch):
    """The state is kept, the ledger not yet: nothing was drawn, and the next run charges it once."""

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("changeling_central.ledger.ReleaseAccount.settled", killed)
    forbid_draws(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        release_of(log)
    assert (log.parent / "one.csv.state").exists()
    assert ledger_of(log).charges == ()
    monkeypatch.undo()
    assert release_of(log).ledger.spent == (1, 0)


def test_what_an_entry_loses_does_not_bound_what_a_person_loses(log):
    """A ledger of persons takes no release that protects entries; a ledger of entries takes both."""
    release_of(log, person="user", per_person=2)
    with pytest.raises(ValueError, match="person by user loses, which a release that protects an entry"):
        release_of(log, "two.csv")
    other = log.with_name("other.csv")
    other.write_bytes(log.read_bytes())
    release_of(other, "three.csv", budget=2)
    assert release_of(other, "four.csv", person="user", per_person=2).ledger.spent == (2, 0)


def test_a_frame_has_a_ledger_only_where_one_is_named(log):
    """Then it adds up like any other; asked for a budget without one, it says so."""
    frame = pl.read_csv(log)
    assert release_of(log, frame=frame).ledger is None
    assert release_of(log, "two.csv", frame=frame, ledger=log.parent / "frame.ledger").ledger.spent == (1, 0)
    with pytest.raises(ValueError, match="a frame has no ledger"):
        release_of(log, "three.csv", frame=frame, budget=3)


def test_a_ledger_reads_as_json_and_holds_what_a_person_can_check(log):
    """Names, fractions and outputs."""
    release_of(log)
    written = json.loads(log.with_name("log.csv.ledger").read_text())
    assert written["ledger"]["charges"][0] | {"release": "", "drawn": {}} == {
        "release": "", "output": str(log.parent / "one.csv"), "query": "any answer", "epsilon": "1", "delta": "0",
        "rho": None, "drawn": {}, "periods": "6 of 4h from 2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z",
    }  # fmt: skip


def test_the_first_release_sets_the_budget_unless_the_curator_did(log, monkeypatch):
    """To what it costs, in its own kind; then a second is refused until somebody says what all may cost, once."""
    for name, cost, more in (
        ("log.csv", {"epsilon": 1}, "epsilon 1"),
        ("rho.csv", {"epsilon": None, "rho": "1/2"}, "rho 0.5"),
    ):
        path = log.with_name(name)
        path.write_bytes(log.read_bytes())
        made = release_of(path, f"{name}.one.csv", **cost)
        assert made.ledger.budget.said() == more
        with pytest.raises(BudgetExhausted, match="so the first release set it: --budget"):
            release_of(path, f"{name}.two.csv", **cost)
        with monkeypatch.context() as patch:
            forbid_draws(patch)
            with pytest.raises(BudgetExhausted):
                release_of(path, f"{name}.two.csv", epsilon="1/1000")
    assert release_of(log, "two.csv", budget="2").ledger.asked
    with pytest.raises(ValueError, match="never raised"):
        release_of(log, "three.csv", budget=4)


def test_a_ledger_is_that_of_the_file_behind_a_link(log, tmp_path):
    """By another name, and from another folder: one budget, one id. A ledger that is a link stays one ledger, too."""
    release_of(log, budget=2)
    link = tmp_path / "elsewhere.csv"
    link.symlink_to(log)
    assert release_of(link, "two.csv").ledger.spent == (2, 0)
    with pytest.raises(BudgetExhausted):
        release_of(link, "three.csv")
    assert not tmp_path.joinpath("elsewhere.csv.ledger").exists()
    real, alias = tmp_path / "real.ledger", tmp_path / "alias.ledger"
    release_of(log, "a.csv", ledger=real, budget=2)
    alias.symlink_to(real)
    assert release_of(log, "b.csv", ledger=alias).ledger.spent == (2, 0)
    assert alias.is_symlink()
    with pytest.raises(BudgetExhausted):
        release_of(log, "c.csv", ledger=real)


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
    assert release_of(first, "first.out.csv").asides == ()
    write(
        copy,
        {
            name: [*values, values[0] if name == "user" else new]
            for (name, values), new in zip(TEA.items(), ["new", "2026-01-01T23:00:00Z", "tea", ""], strict=True)
        },
    )
    made = release_of(copy, "copy.out.csv")
    assert any(f"begins as the data of {first}.ledger do, by which 1 release of the" in said for said in made.asides)
    assert "begins as" not in made.output.read_text()
    write(first, {name: values[3:20] for name, values in TEA.items()})
    with pytest.raises(TimeReversed):
        release_of(first, "first.out.csv")
    other = release_of(first, "second.out.csv", budget=2)
    assert any(f"does not begin as the data did that {first}.ledger was made for" in said for said in other.asides)


@pytest.mark.parametrize("mechanism", ["ahead", None])
@pytest.mark.parametrize("delta", ["-1e-6", "1", "2"])
def test_a_delta_that_is_none_is_refused_by_mechanisms_that_need_none_too(log, mechanism, delta, monkeypatch):
    """Below 0 it would give back what other releases have cost; nothing is drawn, and no ledger is written."""
    forbid_draws(monkeypatch)
    with pytest.raises(ValueError, match="0 <= delta < 1"):
        release_of(log, "one.csv", delta=delta, mechanism=mechanism)
    assert not log.with_name("log.csv.ledger").exists()
    for cost in (("1", "-1/9"), ("-1", "0")):
        with pytest.raises(ValueError, match="not negative"):
            ReleaseLedger("x", "entry").charged(Charge("a", "o", "q", *cost))


@pytest.mark.parametrize("mechanism", ["fresh", "dcr", None])
def test_noise_that_no_sampler_draws_is_refused_before_it_is_charged(log, mechanism):
    """A scale of 2^56 and more: neither a ledger nor an output is written, and no budget is gone."""
    far = {"epsilon": "1/1000000000", "output": log.parent / "far.csv", **DCR, "mechanism": mechanism}
    with pytest.raises(ValueError, match=r"at most 2\^56"):
        release(log, f"sum of answer from 0 to {9 * 10**15}", **far)
    assert sorted(path.suffix for path in log.parent.iterdir()) == [".csv"]


def test_a_copy_of_a_state_does_not_draw_for_what_is_charged_once(log, monkeypatch):
    """Beside the original it is refused before drawing; moved, even where another release took the old name, it goes
    on."""
    release_of(log, "a.csv", through="2026-01-01T04:00", budget=2)
    for end in ("", ".state"):
        shutil.copy(log.parent / f"a.csv{end}", log.parent / f"b.csv{end}")
    with monkeypatch.context() as patch:
        forbid_draws(patch)
        with pytest.raises(BadState, match="a copy of the state"):
            release_of(log, "b.csv")
    for end in ("", ".state"):
        os.remove(log.parent / f"a.csv{end}")
    release_of(log, "a.csv", through="2026-01-01T04:00")
    assert release_of(log, "b.csv").published == 5
    assert ledger_of(log).spent == (2, 0)


def test_of_two_releases_at_once_that_are_too_much_together_one_draws(log):
    """Both see that there is enough before either is charged."""
    release_of(log, "first.csv", budget=2)
    start = Barrier(2)

    def published(name):
        start.wait()
        try:
            return len(release_of(log, name).rows())
        except BudgetExhausted:
            return 0

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(published, ["a.csv", "b.csv"])) == [0, 6]
    assert ledger_of(log).spent == (2, 0)
