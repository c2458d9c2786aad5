"""The mechanism asked for: what is left open is chosen; of a begun release nothing is chosen or calibrated again."""

from fractions import Fraction

import pytest
from changeling_central import (
    Asked,
    BadState,
    Law,
    compared,
    counting,
    offered,
)
from changeling_central.offers import in_words
from changeling_protocol import AtMost, AtMostWithin, Calendar, TimeBounded

COUNT, CALENDAR, TWICE = counting(["a", "b"], ["a"], "a"), Calendar(0, 3600, 48), AtMost(2)
ONE, NONE, SMALL = Fraction(1), Fraction(0), Fraction(1, 10**6)


def asked(delta=NONE, periods=48, law=None, constraint=TWICE):
    return Asked(COUNT, Calendar(0, 3600, periods), constraint, ONE, delta, law)


@pytest.mark.parametrize(
    ("periods", "constraint"),
    [(1, TWICE), (10, AtMost(1)), (10, TimeBounded(3600)), (48, TWICE), (48, AtMostWithin(2, 12 * 3600))],
    ids=str,
)
def test_a_delta_never_makes_a_release_worse(periods, constraint):
    """What can be had at a pure epsilon can be had with a delta beside it."""
    pure, with_delta = (compared(asked(delta, periods, constraint=constraint))[0] for delta in (NONE, SMALL))
    assert with_delta.error <= pure.error
    for one, delta in ((pure, NONE), (with_delta, SMALL)):
        assert (one.made.guarantee.epsilon, one.made.guarantee.delta) == (ONE, delta)
        assert one.made.covers(COUNT, Calendar(0, 3600, periods), constraint)


def test_what_is_chosen_is_the_least_of_the_predicted_errors_and_says_what_the_others_are():
    """By name, with figures."""
    pure, root = (compared(asked(delta, 168)) for delta in (NONE, SMALL))
    assert [one.name for one in pure] == ["ahead", "fresh"]
    assert [one.name for one in root] == ["ahead", "square-root", "fresh"]
    assert [one.error for one in root] == pytest.approx([11.2, 13.5, 29.5], abs=0.1)
    assert in_words(asked(SMALL, 168), root) == (
        "chosen: ahead, whose levels err by 11.2 (root mean square); instead would err square-root by 13.5, "
        "fresh by 29.5. It promises epsilon 1 alone."
    )


def test_a_law_that_is_asked_for_is_kept_to():
    """Gaussian noise needs a delta, and is of three mechanisms; Laplace noise is the others'."""
    assert [one.name for one in compared(asked(SMALL, 20, law=Law.GAUSSIAN))] == ["optimised", "square-root", "fresh"]
    assert {one.made.law for one in compared(asked(SMALL, 744, Law.LAPLACE))} == {Law.LAPLACE}
    with pytest.raises(ValueError, match="needs a delta"):
        compared(asked(NONE, law=Law.GAUSSIAN))


@pytest.mark.parametrize("delta", [NONE, SMALL])
def test_what_was_chosen_goes_on_as_it_began_without_choosing_again(monkeypatch, delta):
    """To the last bit, be it asked for by its name or left open; noise that breaks the promise is not taken."""
    first = compared(asked(delta, 744))[0]
    begun = first.made.made_with()
    monkeypatch.setattr("changeling_central.offers.compared", None)
    calendar = Calendar(0, 3600, 744)
    for name in (None, "best", first.name):
        again = offered(name).made(Asked(COUNT, calendar, TWICE, ONE, delta, None, begun))
        assert again.made_with() == begun
        assert again.covers(COUNT, calendar, TWICE)
        assert not again.covers(COUNT, calendar, AtMost(3))
        assert not again.covers(COUNT, CALENDAR, TWICE)
    with pytest.raises(BadState, match="--mechanism counter"):
        offered(None).made(Asked(COUNT, calendar, TWICE, ONE, delta, None, {"kind": "counter"}))
