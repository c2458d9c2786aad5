"""The charge of a release plan against every pair of changelogs and every transcript."""

from decimal import Decimal
from itertools import product

import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Track,
    plan_cost,
)
from changeling_protocol.cost import node_cost
from changeling_protocol.randomizers import Losses

from .enumeration import changelogs, literal_transcript_ratio, log_from_below, worst_transcript_ratio

ODDS = Odds(3, 1)
ROUNDING = Decimal("1e-40")


def hierarchy(z: int, T: int, c: int, h: int) -> Group:
    response = KaryResponse(MutationSpace(z), ODDS)
    return Group(tuple(Track(c**i, response, 0, T) for i in range(h)))


def worst_over_pairs(group: Group, z: int, T: int, k: int, closed: bool = False) -> Decimal:
    every = list(changelogs(z, T, k, closed))
    return log_from_below(max(worst_transcript_ratio(group, one, other) for one, other in product(every, every)))


GRID = [
    (z, T, k, c, h)
    for z, T, k, c, h in product((1, 2), (1, 2, 3, 4), (1, 2, 3), (2, 3), (1, 2, 3))
    if c ** (h - 1) <= T and (c == 2 or h > 1)
]

REACHED = [(1, 4, 1, 2, 1), (1, 4, 2, 2, 1), (2, 4, 2, 2, 1), (2, 3, 2, 2, 1), (2, 4, 1, 2, 2), (2, 4, 2, 2, 3)]
"""DCR with nodes enough (2κε₀) and with too few (Nε₀), and hierarchies whose layers are worst together."""


@pytest.mark.parametrize(("z", "T", "k", "c", "h"), GRID)
def test_no_pair_of_changelogs_is_told_apart_beyond_the_stated_loss(z, T, k, c, h):
    """Over every pair of changelogs and every transcript the log ratio stays within the stated loss."""
    group = hierarchy(z, T, c, h)
    stated = plan_cost(ReleasePlan((group,)), Calendar(0, 10, T), AtMost(k))
    assert worst_over_pairs(group, z, T, k) <= stated


@pytest.mark.parametrize(("z", "T", "k", "c", "h"), REACHED)
def test_the_stated_loss_is_reached(z, T, k, c, h):
    """On the named cases a pair of changelogs and a transcript have exactly the stated loss."""
    group = hierarchy(z, T, c, h)
    stated = plan_cost(ReleasePlan((group,)), Calendar(0, 10, T), AtMost(k))
    assert stated - worst_over_pairs(group, z, T, k) < ROUNDING


@pytest.mark.parametrize(("z", "T", "k"), [(1, 2, 1), (1, 3, 2), (2, 2, 2), (1, 4, 2)])
def test_the_worst_transcript_is_the_product_of_the_worst_symbols(z, T, k):
    """Listing every transcript literally gives the ratio the other tests multiply together."""
    group = hierarchy(z, T, 2, 1)
    every = list(changelogs(z, T, k))
    for one, other in product(every, every):
        assert literal_transcript_ratio(group, one, other) == worst_transcript_ratio(group, one, other)


@pytest.mark.parametrize(("z", "T", "k", "h"), [(2, 3, 2, 1), (2, 4, 3, 1), (2, 4, 2, 2), (3, 3, 2, 1)])
def test_a_closed_cohort_costs_one_pair_of_insertions_and_the_rest(z, T, k, h):
    """Where everybody has an answer from the first period, the enumerated loss stays within the smaller charge,
    and a flat release reaches it."""
    group = hierarchy(z, T, 2, h)
    plan = ReleasePlan((group,))
    stated = plan_cost(plan, Calendar(0, 10, T), AtMost(k), closed=True)
    worst = worst_over_pairs(group, z, T, k, closed=True)
    assert worst <= stated
    if h == 1:
        assert stated - worst < ROUNDING
        assert stated < plan_cost(plan, Calendar(0, 10, T), AtMost(k)) or 2 * k >= T


@pytest.mark.parametrize("losses", [(1, 1, 1), (5, 3, 2), (2, 3, 3), (4, 0, 4), (1, 7, 2)])
def test_the_cost_of_a_track_is_the_best_of_all_divisions_of_its_nodes(losses):
    """cost(κ, N) equals the maximum over every s, a, b that the constraint allows."""
    mm, m0, zm = map(Decimal, losses)
    named = Losses(mutations=mm, appears=m0, vanishes=zm, insertions=mm)
    for most, reports in product(range(6), range(7)):
        allowed = [
            s * mm + a * m0 + b * zm
            for s, a, b in product(range(most + 1), repeat=3)
            if s + a <= most and s + b <= most and s + a + b <= reports
        ]
        assert node_cost(named, most, reports) == max(allowed)


def test_the_papers_figure_is_attained_only_with_nodes_enough():
    """k-RR costs min(2κ, N)·ε₀."""
    response = KaryResponse(MutationSpace(2), ODDS)
    for k, T in product((1, 2, 3), (1, 2, 3, 5, 8)):
        plan = ReleasePlan((Group((Track(1, response, 0, T),)),))
        assert float(plan_cost(plan, Calendar(0, 1, T), AtMost(k))) == pytest.approx(
            min(2 * k, T) * float(ODDS.epsilon), rel=1e-15
        )


def test_groups_cost_the_most_expensive_one():
    """Drawn once and independently of the data, the groups cost their maximum, not their sum."""
    calendar, once = Calendar(0, 10, 4), AtMost(1)
    cheap, dear = hierarchy(2, 4, 2, 1), hierarchy(2, 4, 2, 2)
    assert plan_cost(ReleasePlan((cheap, dear)), calendar, once) == plan_cost(ReleasePlan((dear,)), calendar, once)
