"""The exact privacy region of a randomizer, and the closed forms that stand for long alphabets."""

from fractions import Fraction
from itertools import product
from math import inf, log

import pytest
from changeling_protocol import (
    CustomResponse,
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from changeling_statistics import PairKind, curve_of, randomizer_curve, worst_curve
from changeling_statistics.accounting import node_curve
from changeling_statistics.randomizers.counterpart import all_pairs, listed_likelihoods

from tests.enumeration import probability

from ..contracts.randomizers import RANDOMIZERS

RATIOS = [Fraction(1, 3), Fraction(1), Fraction(3, 2), Fraction(11, 2)]


def names(randomizer):
    return f"{type(randomizer).__name__}-{randomizer.symbols}"


def directly(randomizer, kind, ratio):
    """max over pairs of Σ_o max(0, P_ou - ratio·P_ov)."""
    symbols = range(randomizer.symbols)
    return max(
        (
            sum(
                max(Fraction(0), probability(randomizer, o, u) - ratio * probability(randomizer, o, v)) for o in symbols
            )
            for u, v in all_pairs(randomizer.space, kind)
        ),
        default=max(Fraction(0), 1 - ratio),
    )


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=names)
def test_the_curve_is_the_definitions_largest_sum(randomizer):
    """δ at every ratio, below one too, equals the sum over symbols of its definition, for the worst pair of a kind; and
    ε(δ) is its inverse."""
    for kind, ratio in product(PairKind, RATIOS):
        exact = max(directly(randomizer, kind, ratio), Fraction(0), 1 - ratio)
        assert node_curve(randomizer, kind).delta_at_ratio(ratio) == exact
    curve = randomizer_curve(randomizer)
    for delta in (1e-9, 1e-3, 0.05, 0.3):
        epsilon = curve.epsilon_at(delta)
        assert curve.delta_at(epsilon) <= delta
        assert epsilon == 0 or curve.delta_at(epsilon * (1 - 1e-9)) > delta * (1 - 1e-6)


@pytest.mark.parametrize(
    "randomizer",
    [
        SignedSubset(MutationSpace(15), Odds(7, 2), spoken=Fraction(1, 3)),
        SignedSubset(MutationSpace(24), Odds(7, 2), pluses=4),
        SubsetSelection(StateSpace(40), Odds(7, 2), 12),
        UnaryEncoding(StateSpace(40), Odds(7, 2)),
        KaryResponse(MutationSpace(900), Odds(7, 2)),
    ],
    ids=names,
)
def test_long_alphabets_have_a_curve_at_once(randomizer):
    """Their pure ends are the stated losses, without listing a symbol."""
    worst = max(randomizer.losses.mutations, randomizer.losses.appears, randomizer.losses.vanishes)
    assert randomizer_curve(randomizer).epsilon_at(0) == pytest.approx(float(worst), rel=1e-12)


def test_a_matrix_with_zeros_has_a_curve_and_no_pure_loss():
    """A symbol that one input never sends: ε(0) is infinite, and δ never falls below its probability."""
    curve = randomizer_curve(CustomResponse(StateSpace(1), ((9, 2), (1, 7), (0, 1))))
    assert curve.epsilon_at(0) == curve.epsilon_at(0.09) == inf
    assert curve.delta_at(inf) == curve.delta_at(50.0) == pytest.approx(0.1)
    assert curve.epsilon_at(Fraction(1, 10)) == pytest.approx(log(7))


def test_the_worst_of_curves_is_their_largest_delta_at_every_ratio():
    """The majorant of tests is the maximum of δ, exactly, and covers each."""
    one = curve_of([(Fraction(6, 10), Fraction(3, 10)), (Fraction(4, 10), Fraction(7, 10))])
    other = curve_of([(Fraction(2, 10), Fraction(1, 100)), (Fraction(8, 10), Fraction(99, 100))])
    both = worst_curve([one, other])
    for ratio in RATIOS:
        assert both.delta_at_ratio(ratio) == max(one.delta_at_ratio(ratio), other.delta_at_ratio(ratio))
    assert worst_curve([one, both]) == both


def test_an_alphabet_that_nobody_can_list_wants_a_closed_form():
    """It is refused before any symbol is looked at."""

    class Endless:
        symbols = 2**40

    with pytest.raises(ValueError, match=r"1099511627776 symbols are too many to list .* register a closed form"):
        listed_likelihoods(Endless(), 0, 1)
