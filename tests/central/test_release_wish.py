"""The mechanism asked for: what is left open is chosen; of a begun release nothing is chosen or calibrated again."""

from dataclasses import replace
from fractions import Fraction

import pytest
from changeling_central.changes.hierarchy_choice import BRANCHINGS, best_hierarchy
from changeling_central.changes.linear_query import counting
from changeling_central.node_noise import Law
from changeling_central.releasing import MechanismChoice, hierarchies
from changeling_central.releasing.hierarchies import HierarchyRelease
from changeling_central.releasing.offer import Asked
from changeling_protocol import AtMost, Calendar

COUNT, CALENDAR, TWICE = counting(["a", "b"], ["a"], "a"), Calendar(0, 3600, 48), AtMost(2)
ONE, NONE, SMALL = Fraction(1), Fraction(0), Fraction(1, 10**6)


def chosen(**given):
    return best_hierarchy(COUNT, CALENDAR, TWICE, ONE, **given)


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
    monkeypatch.setattr(hierarchies, "best_hierarchy", None)
    monkeypatch.setattr(hierarchies, "hierarchy", None)
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
