"""CW privacy: two laws over databases are two rows, and their region is the definition's."""

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from changeling_papers import FiniteMechanism, cw_region, region_of

F = Fraction
HALF = F(1, 2)
RATIOS = [F(1), F(9, 8), F(3, 2), F(3), F(12)]
BITS = list(product((0, 1), repeat=4))


def count(noise):
    """The number of ones, moved up or down by one with probability `noise` each."""

    def outputs(bits):
        law = {sum(bits) + move: noise if move else 1 - 2 * noise for move in (-1, 0, 1)}
        return {y: p for y, p in law.items() if p}

    return FiniteMechanism.tabled(BITS, outputs, lambda x, y: sum(a != b for a, b in zip(x, y, strict=True)) == 1)


def given_first(bit, ones=HALF):
    """Independent bits that are one with probability `ones`, the first of them known."""
    return tuple(F(0) if x[0] != bit else ones ** sum(x[1:]) * (1 - ones) ** (3 - sum(x[1:])) for x in BITS)


@pytest.mark.parametrize("noise", [F(0), F(1, 8)])
@pytest.mark.parametrize("ones", [F(1, 2), F(1, 5)])
def test_delta_is_the_definitions_over_every_database(noise, ones):
    """max over sets and both orders of Pr[M(X) ∈ S | secret] - e^ε Pr[M(alt X) ∈ S | secret], summed by hand."""
    mechanism, worlds = count(noise), [given_first(bit, ones) for bit in (1, 0)]
    region = cw_region(mechanism, [worlds])
    laws = []
    for world in worlds:
        law = dict.fromkeys(range(-1, 6), F(0))
        for bits, chance in zip(BITS, world, strict=True):
            for move in (-1, 0, 1):
                law[sum(bits) + move] += chance * (noise if move else 1 - 2 * noise)
        laws.append(law)
    for ratio in RATIOS:
        assert region.delta_at_ratio(ratio) == max(
            sum(max(F(0), one[y] - ratio * other[y]) for y in one) for one, other in (laws, laws[::-1])
        )


def test_the_datas_randomness_protects_where_the_mechanism_draws_nothing():
    """An exact count is not private at any ε; of three fair bits unknown its CW loss is a shifted binomial's."""
    exact = count(F(0))
    assert region_of(exact).delta_at(100.0) == 1.0
    region = cw_region(exact, [(given_first(1), given_first(0))])
    assert [(corner.ratio, corner.delta) for corner in region.corners] == [
        (F(3), F(1, 8)),
        (F(1), F(comb(3, 1), 8)),
    ]


def test_certain_laws_give_differential_privacy():
    """One database each, over all neighbours: the region is the mechanism's own."""
    mechanism = count(F(1, 8))

    def certain(x):
        return tuple(F(int(x == i)) for i in range(len(BITS)))

    pairs = [(certain(x), certain(y)) for x, y in mechanism.neighbours]
    assert cw_region(mechanism, pairs) == region_of(mechanism)


def test_the_worst_pair_of_laws_counts():
    """An observer who may know the law to be either of two: at each ε the larger δ."""
    mechanism = count(F(1, 8))
    pairs = [(given_first(1, ones), given_first(0, ones)) for ones in (F(1, 2), F(1, 10))]
    both, alone = cw_region(mechanism, pairs), [cw_region(mechanism, [pair]) for pair in pairs]
    for ratio in RATIOS:
        assert both.delta_at_ratio(ratio) == max(each.delta_at_ratio(ratio) for each in alone)


def test_mixing_databases_never_tells_more_than_differential_privacy():
    """Laws that differ in one bit's value are a coupling of neighbours: δ is at most the mechanism's. Seeded laws."""
    mechanism, random = count(F(1, 8)), np.random.default_rng(3)
    central = region_of(mechanism)
    for _ in range(20):
        weights = [int(w) for w in random.integers(0, 9, 8)]
        weights[0] += 1
        rest = [F(w, sum(weights)) for w in weights]
        region = cw_region(mechanism, [((*[F(0)] * 8, *rest), (*rest, *[F(0)] * 8))])
        assert all(region.delta_at_ratio(r) <= central.delta_at_ratio(r) for r in RATIOS)


@pytest.mark.parametrize(
    ("laws", "named"),
    [
        ([], "at least one pair"),
        ([((F(1),), (F(1),))], "a law over 16 databases has as many probabilities, got 1"),
        ([((F(1, 2),) * 16, (F(1, 16),) * 16)], "adds up to 8"),
    ],
)
def test_what_is_no_law_is_named(laws, named):
    """None, too short, or not adding up to 1."""
    with pytest.raises(ValueError, match=named):
        cw_region(count(F(0)), laws)
