"""Numbers: what is fitted to the points that strata of offsets show, and the figures that follow."""

import numpy as np
import pytest
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_simulations import Population, sample_tallies
from changeling_statistics import Solution, number_series, releases
from changeling_statistics.estimation.of_shares import fits

LEVELS = ("0", "10", "20", "40", "80")
MINUTES = Question.of_number("minutes", "How long?", LEVELS, AtMost(1), unit="min")


def survey(odds):
    plan = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(5, null=False), odds), 0, 1),)),))
    return Survey.at_cost(
        questions=(MINUTES,),
        calendar=Calendar(0, "1d", 1),
        plan=plan,
        closed=True,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
    )


def people(asked, numbers, generator):
    """The entries of each offset, which they draw."""
    offset, by_offset = generator.integers(OFFSETS, size=len(numbers)), []
    for j in range(OFFSETS):
        states = [MINUTES.rounded(float(x), j).answer + 1 for x in numbers[offset == j]]
        histories, counts = np.unique(states, return_counts=True)
        rows = np.stack([np.zeros_like(histories), histories], axis=1).astype(np.uint16)
        by_offset.append(Population(asked.answers, rows, rows, counts))
    return by_offset


def answered(asked, by_offset, generator):
    """The solutions of everybody, and of each offset."""
    tallies = [sample_tallies(each, asked, generator) for each in by_offset]
    everybody = tallies[0]
    for each in tallies[1:]:
        everybody = everybody + each
    return [Solution(releases(asked, each)) for each in (everybody, *tallies)]


def test_a_share_that_falls_in_a_straight_line_is_fitted_exactly():
    """At every point, near the ends too; a parabola in steps of levels as well."""
    levels, points = np.arange(6.0), np.linspace(0, 5, 41)
    weights = fits(levels, OFFSETS, points)
    at = np.arange(5)[:, None] + (2 * np.arange(OFFSETS) + 1) / (2 * OFFSETS)
    for shares in (lambda x: 1 - x / 5, lambda x: (1 - x / 5) ** 2):
        assert np.einsum("pij,ij->p", weights, shares(at)) == pytest.approx(shares(points))


def test_figures_without_noise_are_those_of_the_numbers():
    """At odds of 2e9 to 1, of 8,000 entries: the mean, quantiles and shares within what rounding may move them."""
    generator = np.random.default_rng(3)
    numbers = np.exp(np.log(20) + 0.5 * generator.standard_normal(8_000))
    asked = survey(Odds(2**31, 1))
    one, *others = answered(asked, people(asked, numbers, generator), generator)
    (found,) = number_series(MINUTES.values, one, others, 1, quantiles=(0.25, 0.5, 0.9), above=(15.0, 50.0))
    clipped = np.clip(numbers, 0, 80)
    assert found.mean.value == pytest.approx(clipped.mean(), abs=0.4)
    for q, figure in found.quantiles.items():
        assert figure.value == pytest.approx(np.quantile(clipped, q), rel=0.05)
        assert figure.low <= figure.value <= figure.high
    for x, figure in found.above.items():
        assert figure.value == pytest.approx((clipped >= x).mean(), abs=0.02)
    assert found.rounding == 40 / 16


@pytest.mark.heavy
def test_intervals_of_mean_and_median_hold_the_truth():
    """At epsilon 2, of 4,000 entries, in 93 to 97.5% of 150 surveys, but for chance: 4.1 standard errors, 5e-5."""
    generator, surveys = np.random.default_rng(4), 150
    asked = survey(Odds(7, 1))
    numbers = np.exp(np.log(20) + 0.5 * generator.standard_normal(4_000))
    clipped = np.clip(numbers, 0, 80)
    held, by_offset = np.zeros(2), people(asked, numbers, generator)
    for _ in range(surveys):
        one, *others = answered(asked, by_offset, generator)
        (found,) = number_series(MINUTES.values, one, others, 1)
        pairs = ((found.mean, clipped.mean()), (found.quantiles[0.5], np.median(clipped)))
        held += [figure.low <= truth <= figure.high for figure, truth in pairs]
    off = 4.1 * np.sqrt(0.05 * 0.95 / surveys)
    assert ((held / surveys > 0.93 - off) & (held / surveys < 0.975 + off)).all()


def test_what_is_no_quantile_or_has_other_levels_is_refused():
    generator = np.random.default_rng(5)
    asked = survey(Odds(7, 1))
    one, *others = answered(asked, people(asked, np.full(200, 12.0), generator), generator)
    with pytest.raises(ValueError, match="between 0 and 1"):
        number_series(MINUTES.values, one, others, 1, quantiles=(1.0,))
    with pytest.raises(ValueError, match="3 levels"):
        number_series((0, 1, 2), one, others, 1)
