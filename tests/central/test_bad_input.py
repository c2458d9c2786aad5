"""Bad input of a curator, each kind once: named, nothing drawn, nothing charged, no output."""

import polars as pl
import pytest
from changeling_central import (
    BadState,
    BudgetExhausted,
    CentralError,
    ConstraintBroken,
    OpenDPNoise,
    read_ledger,
    release,
)
from changeling_central.testing import Forbidden

ROWS = {
    "entry": [str(n % 20) for n in range(30)],
    "time": [f"2026-01-01T{n // 2:02d}:30:00Z" for n in range(30)],
    "answer": ["tea" if n < 20 else "" for n in range(30)],
    "user": [str(n % 20 // 3) for n in range(30)],
}
GIVEN = {"every": "4h", "at_most": 2, "epsilon": 1, "start": "2026-01-01", "until": "2026-01-02"}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A changelog of which a release was made; from then on any draw fails the test."""
    path = tmp_path / "log.csv"
    pl.DataFrame(ROWS).write_csv(path)
    release(path, "any answer", **GIVEN, mechanism="dcr", output=tmp_path / "first.csv", budget=2, changelog_id="tea")
    monkeypatch.setattr(OpenDPNoise, "laplace", Forbidden().laplace)
    monkeypatch.setattr(OpenDPNoise, "gaussian", Forbidden().laplace)
    return path


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"query": "price == 'tea'"}, CentralError, "the columns must be entry,time,price"),
        ({"query": "answer == 'Tea'", "answers": ["tea"]}, ValueError, "names 'Tea', which is none of the answers"),
        ({"person": "nobody"}, CentralError, "there must be a column 'nobody'"),
        ({"mechanism": "square-root"}, ValueError, "needs a delta above 0: --delta 1e-6, or --rho"),
        ({"mechanism": "hdcr", "law": "gaussian"}, ValueError, "Gaussian noise needs a delta above 0"),
        ({"mechanism": "swcr", "window": "8h", "law": "gaussian"}, ValueError, "Gaussian noise needs a delta above 0"),
        ({"epsilon": "1.5"}, BudgetExhausted, "costs epsilon 1.5, delta 0; left are 1 and 0"),
        ({"epsilon": None, "rho": "1/2"}, ValueError, "a budget of epsilon alone holds nothing at rho"),
        ({"changelog_id": "flights"}, BadState, "of the changelog 'tea', not of 'flights'"),
        ({"person": "user", "per_person": 2}, ConstraintBroken, "its user has more than 2 entries"),
        ({"at_most": 1, "start": "2026-01-01T08:00"}, ConstraintBroken, "breaks at most 1 mutation"),
    ],
)
def test_bad_input_is_named_and_nothing_is_drawn(log, given, kind, said):
    """The column, the value, the delta, the ledger, the person; nothing of it is charged."""
    asked = {"query": "any answer", "mechanism": "dcr", **GIVEN, **given}
    if kind is ConstraintBroken:
        asked["every"] = "1d"
        asked["start"] = "2026-01-01"
    with pytest.raises(kind, match=said):
        release(log, asked.pop("query"), **asked, output=log.parent / "second.csv")
    ledger = read_ledger(log.with_name("log.csv.ledger"))
    assert ledger.spent == (1, 0)
    rows = log.parent / "second.csv"
    assert not rows.exists() or rows.read_text().splitlines()[-1].startswith("period,")
