"""How noisy one report is: figures worked out by hand, and how fast they come."""

from fractions import Fraction
from math import exp
from time import perf_counter

import numpy as np
import pytest
from changeling_protocol import (
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from changeling_statistics import counterpart_of

from tests.report_variances import (
    mean_report_variance,
    mean_report_variances,
    report_covariance,
)


def odds_of(loss: float) -> Odds:
    return Odds(round(exp(loss) * 10**9), 10**9)


@pytest.mark.parametrize(("loss", "k_rr", "signed"), [(1, "412", "8.6"), (3, "16", "0.70"), (8, "0.21", "0.0045")])
def test_an_unchanged_entry_is_as_noisy_as_the_design_says(loss, k_rr, signed):
    """z = 4, one change costing λ = 1, 3, 8: k-RR, which pays twice for a change, against balanced signed subsets
    with u = min(1, 1/K)."""
    plain = KaryResponse(MutationSpace(4), odds_of(loss / 2))
    share = Fraction(3, 10)  # of the 20 balanced vectors of 5 states, 6 are favoured by a mutation
    spoken = min(Fraction(1), 1 / (share * (Fraction(round(exp(loss) * 10**9), 10**9) - 1))).limit_denominator(10**9)
    ours = SignedSubset(MutationSpace(4), odds_of(loss), spoken=spoken)
    assert (ours.favoured, ours.vectors.count) == (6, 20)
    digits = {"412": ".0f", "16": ".0f", "0.21": ".2f", "8.6": ".1f", "0.70": ".2f", "0.0045": ".4f"}
    assert format(mean_report_variance(plain, 0), digits[k_rr]) == k_rr
    assert format(mean_report_variance(ours, 0), digits[signed]) == signed


@pytest.mark.parametrize("loss", [1, 3, 8])
def test_balanced_vectors_sent_with_the_best_chance_are_the_least_noisy(loss):
    """For an unchanged entry no number of pluses and no other u does better, and u = min(1, 1/K) is the best."""
    tried = {
        (pluses, u): mean_report_variance(SignedSubset(MutationSpace(4), odds_of(loss), pluses, Fraction(u, 1000)), 0)
        for pluses in (0, 1, 2)
        for u in [1, 2, 5, 10, 50, *range(100, 1001, 50)]
    }
    K = 0.3 * (exp(loss) - 1)
    best = mean_report_variance(
        SignedSubset(
            MutationSpace(4), odds_of(loss), spoken=min(Fraction(1), Fraction(1 / K)).limit_denominator(10**9)
        ),
        0,
    )
    assert best <= min(tried.values()) * (1 + 1e-9)


def test_k_rr_on_states_is_subset_selection_of_one():
    """Two closed forms of one randomizer agree."""
    for space in (StateSpace(5), StateSpace(5, null=False)):
        one, other = KaryResponse(space, Odds(7, 2)), SubsetSelection(space, Odds(7, 2), 1)
        assert mean_report_variance(one, 0.5) == pytest.approx(mean_report_variance(other, 0.5))
        for true in range(space.size):
            np.testing.assert_allclose(report_covariance(one, true), report_covariance(other, true), atol=1e-12)


def test_unary_encoding_has_its_published_variance():
    """n entries who mostly hold another answer: 4 e^ε / (e^ε - 1)² each (Wang et al. 2017, eq. 13)."""
    covariance = report_covariance(UnaryEncoding(StateSpace(3), Odds(7, 2)), 0)
    np.testing.assert_allclose(np.diag(covariance), 4 * 3.5 / 2.5**2)


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_a_share_is_a_share(share):
    """Between 0 and 1, and named if not."""
    with pytest.raises(ValueError, match=str(share)):
        mean_report_variance(KaryResponse(MutationSpace(2), Odds(3, 1)), share)


@pytest.mark.timed
@pytest.mark.parametrize(
    "randomizer",
    [
        KaryResponse(MutationSpace(99, repeats=True), Odds(20, 1)),
        SignedSubset(MutationSpace(16), Odds(20, 1), spoken=Fraction(1, 8)),
        SubsetSelection(StateSpace(16), Odds(20, 1), 5),
        UnaryEncoding(StateSpace(16), Odds(20, 1)),
    ],
    ids=lambda r: type(r).__name__,
)
def test_large_alphabets_are_quick(randomizer):
    """10,000 symbols, or 16 answers: averages and covariances in well under a second, from symmetry alone."""
    counterpart_of.cache_clear()
    started = perf_counter()
    unchanged, changed = mean_report_variances(randomizer)
    assert report_covariance(randomizer, 1).shape == (randomizer.space.answers,) * 2
    assert perf_counter() - started < 1
    assert unchanged > 0
    assert changed > 0
