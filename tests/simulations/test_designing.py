"""Designing in a notebook: a wish in, a plan and simulations out, and what a notebook shows of them."""

import pytest
from changeling_simulations import design, synthetic_calendar, synthetic_changelog
from numpy.random import default_rng


@pytest.fixture(scope="module")
def wished():
    return design("<Tea>?", ["yes", "no"], periods=4, epsilon=6, devices=20_000, closed=True)


def test_a_design_is_short_as_text_and_a_table_as_html(wished):
    """No object of a notebook prints its plan; what people are asked is escaped."""
    assert len(repr(wished.survey)) < 200
    assert len(repr(wished.survey.plan)) < 100
    html = wished._repr_html_()
    assert "&lt;Tea&gt;?" in html
    assert "<Tea>" not in html
    assert f"{wished.devices_for(0.01):,} devices" in html


def test_a_run_repeats_by_its_seed_and_is_shown_and_reported(wished, tmp_path):
    """The error is about the predicted one: 8 estimates, so within a factor of 3 but for a chance below 1e-5."""
    run = wished.simulate(changes=0.5, seed=3)
    assert run.rms_error == wished.simulate(changes=0.5, seed=3).rms_error
    assert wished.error / 3 < run.rms_noise < 3 * wished.error
    assert "<table>" in run._repr_html_()
    run.report(tmp_path / "run.html")
    assert "<svg" in (tmp_path / "run.html").read_text()
    assert len(run.plot().axes) == 2


def test_a_pilot_is_what_is_simulated():
    """Its entries stand for all; changes beside it are refused."""
    calendar = synthetic_calendar(periods=4)
    pilot = synthetic_changelog(2, 500, 0.5, calendar, default_rng(1))
    wished = design("?", pilot.answers, periods=4, epsilon=6, devices=5_000, pilot=pilot)
    assert wished.simulate(seed=1).entries == 5_000
    with pytest.raises(ValueError, match="a pilot has changes of its own"):
        wished.simulate(changes=1)
