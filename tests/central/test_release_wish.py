"""The mechanism asked for: what is left open is chosen; of a begun release nothing is chosen or calibrated again."""

from dataclasses import replace
from fractions import Fraction

import pytest
from changeling_central import (
    Asked,
    BadState,
    Law,
    MechanismChoice,
    best_hierarchy,
    compared,
    counting,
    release_mechanisms,
)
from changeling_central.nodes import BRANCHINGS
from changeling_central.release_mechanisms import HierarchyRelease, in_words
from changeling_protocol import AtMost, AtMostWithin, Calendar, TimeBounded

COUNT, CALENDAR, TWICE = counting(["a", "b"], ["a"], "a"), Calendar(0, 3600, 48), AtMost(2)
ONE, NONE, SMALL = Fraction(1), Fraction(0), Fraction(1, 10**6)


def chosen(branching=None, layers=None):
    return best_hierarchy(COUNT, CALENDAR, TWICE, ONE, shape=(branching, layers))


def test_a_shape_that_is_given_in_part_is_chosen_for_the_rest():
    """The best of all with that branching, or with that many layers."""
    every = [chosen(branching=c, layers=h) for c in BRANCHINGS for h in range(1, 7) if c ** (h - 1) <= 48]
    assert chosen() == min(every, key=lambda one: one.mean_variance)
    for layers in range(1, 7):
        best = min((one for one in every if one.layers == layers), key=lambda one: one.mean_variance)
        assert chosen(layers=layers) == best
    for branching in (2, 5, 7):
        assert chosen(branching=branching).branching == branching
    best = min((one for one in every if one.branching == 5), key=lambda one: one.mean_variance)
    assert chosen(branching=5) == best


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layers": 7}, "7 layers are too many for 48 periods"),
        ({"layers": 6, "branching": 3}, "6 layers with a branching of 3 are wider than 48 periods"),
        ({"layers": 0}, "layers >= 1"),
        ({"branching": 1}, "branching >= 2"),
        ({"branching": 0}, "branching >= 2"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(given, said):
    """In words of what was given."""
    with pytest.raises(ValueError, match=said):
        chosen(**given)


@pytest.mark.parametrize(("law", "delta"), [(Law.LAPLACE, NONE), (Law.LAPLACE, SMALL), (Law.GAUSSIAN, SMALL)])
def test_a_begun_release_keeps_its_shape_and_its_noise_whatever_would_be_chosen_today(monkeypatch, law, delta):
    """Nothing is chosen and nothing bisected: they take half a minute, and another library would differ by a bit."""
    wished = MechanismChoice("hdcr", law, layers=3)
    first = wished.made(COUNT, CALENDAR, TWICE, ONE, delta)
    wider = replace(first.mechanism.noise, scale=first.mechanism.noise.scale * (1 + 1e-15))
    begun = HierarchyRelease(replace(first.mechanism, noise=wider)).made_with()
    monkeypatch.setattr(release_mechanisms, "best_hierarchy", None)
    monkeypatch.setattr(release_mechanisms, "hierarchy", None)
    for asked in (
        wished,
        MechanismChoice("hdcr", law),
        MechanismChoice("hdcr", law, branching=first.mechanism.widths[1]),
    ):
        again = asked.made(COUNT, CALENDAR, TWICE, ONE, delta, begun)
        assert again.made_with() == begun
        assert again.covers(COUNT, CALENDAR, TWICE)
        assert (again.guarantee.epsilon, again.guarantee.delta) == (ONE, delta)
    narrow = HierarchyRelease.as_begun(
        Asked(COUNT, CALENDAR, TWICE, ONE, delta), {**begun, "scale": (wider.scale / 2).hex()}
    )
    assert not narrow.covers(COUNT, CALENDAR, TWICE), "noise that breaks the promise is taken from a state"


@pytest.mark.parametrize(
    "other",
    [
        MechanismChoice("hdcr", layers=2),
        MechanismChoice("hdcr", branching=5),
        MechanismChoice("dcr"),
        MechanismChoice("counter"),
        MechanismChoice("hdcr", Law.GAUSSIAN),
    ],
)
def test_another_wish_is_never_taken_for_the_begun_release(other):
    """It is made as it was asked for, and the state then refuses it by its name."""
    begun = MechanismChoice("hdcr", branching=2, layers=3).made(COUNT, CALENDAR, TWICE, ONE, NONE).made_with()
    delta = SMALL if other.law == Law.GAUSSIAN else NONE
    assert other.made(COUNT, CALENDAR, TWICE, ONE, delta, begun).made_with() != begun


def test_one_cadence_is_one_mechanism_by_either_name():
    """DCR is the hierarchy of one layer."""
    begun = MechanismChoice("dcr").made(COUNT, CALENDAR, TWICE, ONE, NONE).made_with()
    for asked in (MechanismChoice("dcr"), MechanismChoice("hdcr", layers=1)):
        assert asked.made(COUNT, CALENDAR, TWICE, ONE, NONE, begun).made_with() == begun


def asked(delta=NONE, periods=48, law=None, constraint=TWICE):
    return Asked(COUNT, Calendar(0, 3600, periods), constraint, ONE, delta, law)


@pytest.mark.parametrize("constraint", [AtMost(1), TWICE, AtMostWithin(2, 12 * 3600), TimeBounded(3600)], ids=str)
@pytest.mark.parametrize("periods", [1, 10, 48])
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


@pytest.mark.parametrize("periods", [3, 24])
@pytest.mark.parametrize("constraint", [AtMost(1), TWICE, AtMost(5), TimeBounded(3 * 3600)], ids=str)
def test_no_hierarchy_of_closed_nodes_errs_less_than_noise_drawn_ahead(periods, constraint):
    """So `best` does not look at them: the tree of one layer is the plain row of nodes."""
    best = compared(asked(periods=periods, constraint=constraint))[0]
    closed = best_hierarchy(COUNT, Calendar(0, 3600, periods), constraint, ONE).mean_variance
    assert best.error**2 <= closed * (1 + 1e-8)


def test_a_law_that_is_asked_for_is_kept_to():
    """Gaussian noise needs a delta, and is of three mechanisms; Laplace noise is the others'."""
    assert [one.name for one in compared(asked(SMALL, law=Law.GAUSSIAN))] == ["optimised", "square-root", "fresh"]
    assert {one.made.law for one in compared(asked(SMALL, 744, Law.LAPLACE))} == {Law.LAPLACE}
    with pytest.raises(ValueError, match="needs a delta"):
        compared(asked(NONE, law=Law.GAUSSIAN))


@pytest.mark.parametrize("delta", [NONE, SMALL])
def test_what_was_chosen_goes_on_as_it_began_without_choosing_again(monkeypatch, delta):
    """To the last bit, be it asked for by its name or left open; noise that breaks the promise is not taken."""
    first = compared(asked(delta, 744))[0]
    begun = first.made.made_with()
    monkeypatch.setattr("changeling_central.release_mechanisms.compared", None)
    calendar = Calendar(0, 3600, 744)
    for choice in (MechanismChoice(), MechanismChoice("best"), MechanismChoice(first.name)):
        again = choice.made(COUNT, calendar, TWICE, ONE, delta, begun)
        assert again.made_with() == begun
        assert again.covers(COUNT, calendar, TWICE)
        assert not again.covers(COUNT, calendar, AtMost(3))
        assert not again.covers(COUNT, CALENDAR, TWICE)
    with pytest.raises(BadState, match="--mechanism counter"):
        MechanismChoice().made(COUNT, calendar, TWICE, ONE, delta, {"kind": "counter"})
