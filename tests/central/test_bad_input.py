"""Bad input of a curator, each kind once: named, nothing drawn, nothing charged, no output."""

import pytest
from changeling_central import BadState, CentralError, ConstraintBroken, release

from .examples import DAY, forbid_draws, ledger_of, release_of

GIVEN = {**DAY, "epsilon": 1}


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"query": "price == 'tea'"}, CentralError, "the columns must be entry,time,price"),
        ({"query": "answer == 'Tea'", "answers": ["tea"]}, ValueError, "names 'Tea', which is none of the answers"),
        ({"person": "nobody"}, CentralError, "there must be a column 'nobody'"),
        ({"mechanism": "square-root"}, ValueError, "needs a delta above 0: --delta 1e-6, or --rho"),
        ({"mechanism": "hdcr", "law": "gaussian"}, ValueError, "Gaussian noise needs a delta above 0"),
        ({"mechanism": "swcr", "window": "8h", "law": "gaussian"}, ValueError, "Gaussian noise needs a delta above 0"),
        ({"epsilon": None, "rho": "1/2"}, ValueError, "a budget of epsilon alone holds nothing at rho"),
        ({"changelog_id": "flights"}, BadState, "of the changelog 'tea', not of 'flights'"),
        ({"person": "user", "per_person": 1}, ConstraintBroken, "its user has more than 1 entry"),
        ({"at_most": 1, "start": "2026-01-01T08:00"}, ConstraintBroken, "breaks at most 1 mutation"),
    ],
)
def test_bad_input_is_named_and_nothing_is_drawn(log, monkeypatch, given, kind, said):
    """The column, the value, the delta, the ledger, the person; nothing of it is charged."""
    release_of(log, "first.csv", budget=2, changelog_id="tea")
    forbid_draws(monkeypatch)
    asked = {"query": "any answer", "mechanism": "dcr", **GIVEN, **given}
    if kind is ConstraintBroken:
        asked["every"] = "1d"
        asked["start"] = "2026-01-01"
    with pytest.raises(kind, match=said):
        release(log, asked.pop("query"), **asked, output=log.parent / "second.csv")
    assert ledger_of(log).spent == (1, 0)
    rows = log.parent / "second.csv"
    assert not rows.exists() or rows.read_text().splitlines()[-1].startswith("period,")
