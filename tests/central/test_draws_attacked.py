"""What mechanisms publish, followed draw by draw: no entry is told from nobody by more than is stated, reacting or not.

A mechanism is asked for by its name, and run on draws that are given to it; nothing of its own account is believed.
Noise owes nothing to the data, so at an outcome o an entry that reacts fed a fixed stream x(o), and the ratio of o's
chances is law(o - A x₀(o)) / law(o - A x₁(o)): the largest over outcomes and over all that an entry may do holds for
reacting streams, too. Where noise is Gaussian, the worst reaction is searched, period after period.
"""

from fractions import Fraction
from math import log, sqrt

import numpy as np
import pytest
from changeling_central import Blocks, Shape, drawn_ahead
from changeling_central.testing import RecordedNoise
from changeling_protocol import AtMost, AtMostWithin, Calendar
from scipy.special import ndtr

from .examples import QUERIES, Listed, histories, made_for, promised, quiet_levels

MOST, TAIL = 2**16, 1e-2
"""So many combinations of draws are followed; looked at are outcomes of which at most such a part lies beyond."""
LEAST = 1e-280
"""Chances above this are floating point's to ten places."""


def published(mechanism, rows):
    """The levels where nothing ever changes, shape (T, columns). rows: of draws, a column each."""
    noise = Listed(rows)
    levels = quiet_levels(mechanism, rows.shape[1], noise)
    assert noise.handed == rows.size
    return levels


def scales_of(mechanism):
    """Of all draws for a column, in the order in which they are asked for."""
    quiet_levels(mechanism, 1, noise := RecordedNoise())
    return np.concatenate([np.full(size, scale) for _, scale, size in noise.asked])


def lives(query, periods, k):
    """What an entry counts for at the end of each period, shape (w, T), for all that one may do."""
    table, fixed = QUERIES[query].table, QUERIES[query].fixed
    for states in histories(len(table) - 1, promised(k), periods, fixed):
        yield np.array(table)[list(states)].T


class OutcomeLaw:
    """The law of a column's noise, from every combination of draws up to the same distance."""

    def __init__(self, mechanism, most=MOST):
        scales = scales_of(mechanism)
        reach = (int(most ** (1 / len(scales))) - 1) // 2
        z = np.indices((2 * reach + 1,) * len(scales)).reshape(len(scales), -1) - reach
        ratios = np.exp(-1 / scales)[:, None]
        chances = ((1 - ratios) / (1 + ratios) * ratios ** np.abs(z)).prod(0)
        self.beyond = float((2 * ratios ** (reach + 1) / (1 + ratios)).sum())
        self.marks = np.random.default_rng(1).integers(1, 2**62, mechanism.calendar.periods) * 2 + 1
        self.noise, self.of_draws = published(mechanism, z), chances
        self.keys, self.chances = self.outcomes(self.noise)

    def key(self, levels):
        """A number for what is published, which adds up as levels do; parts of a level are whole in 2^-20."""
        return self.marks @ np.ldexp(levels, 20).astype(np.int64)

    def outcomes(self, levels):
        """The keys of all that these levels, one for each combination of draws, may be, and their chances."""
        keys, which = np.unique(self.key(levels), return_inverse=True)
        return keys, np.bincount(which, self.of_draws)

    def told_apart(self, level):
        """The most that the logarithm of a chance changes by where levels are moved."""
        moved = self.keys + self.key(np.asarray(level, np.float64))
        at = np.minimum(np.searchsorted(self.keys, moved), len(self.keys) - 1)
        both = np.minimum(self.chances, self.chances[at]) * (self.keys[at] == moved) > max(self.beyond / TAIL, LEAST)
        return float(np.abs(np.log(self.chances[both] / self.chances[at[both]])).max(initial=0.0))


ENUMERATED = [
    ("ahead", "count", 3, 2, 16), ("ahead", "fixed", 3, 3, 16), ("ahead", "sum", 2, 1, 12), ("ahead", "sum", 2, 2, 16),
    ("ahead", "histogram", 4, 2, 24), ("fresh", "count", 3, 3, 16), ("fresh", "histogram", 3, 3, 12),
    ("fresh", "fixed", 2, 2, 8), ("fresh", "sum", 3, 3, 40), ("fresh", "mean", 2, 2, 24),
]  # fmt: skip


@pytest.mark.parametrize(("name", "query", "periods", "k", "epsilon"), ENUMERATED)
def test_no_outcome_of_laplace_noise_tells_more_than_epsilon(name, query, periods, k, epsilon):
    """Every outcome of every combination of draws; columns draw by themselves, so what they tell adds up. It is nearly
    attained but for a draw in common, which moves by half of what is counted: that is no whole number."""
    mechanism = made_for(name, query, periods, k, epsilon)
    law = OutcomeLaw(mechanism)
    told = {column: law.told_apart(column) for life in lives(query, periods, k) for column in map(tuple, life)}
    most = max(sum(told[column] for column in map(tuple, life)) for life in lives(query, periods, k))
    assert 0.75 * epsilon < most <= epsilon + 2 * TAIL


@pytest.mark.parametrize("share", [-1.0, 0.0, 1.0, "fresh levels"])
def test_who_reacts_to_what_is_published_learns_no_more(share):
    """Everything that can be published of three periods, where the entry and all others decide by it. Of trees, where
    their one block of all periods keeps little of the budget, half of it, or much."""
    if share == "fresh levels":
        mechanism = made_for("fresh", "count", 3, 2, 24)
    else:
        shape = Shape(Blocks(3, (1, 3)), ((share, 0.0, 0.0),))
        mechanism = drawn_ahead(QUERIES["count"], Calendar(0, 1, 3), AtMost(2), Fraction(24), shape)
    law, worlds = OutcomeLaw(mechanism), []
    for entry in (0, 1):
        level, there, gone, published, seen = *(np.zeros(len(law.of_draws), np.int64) for _ in range(4)), []
        for noise in law.noise:
            comes = entry * (1 - there) * (1 - gone) * (published >= 0)
            goes = there * (published < 0)
            there, gone = there + comes - goes, gone + goes
            level = level + comes - goes + (published < 1)
            published = level + noise
            seen.append(published)
        worlds.append(dict(zip(*(each.tolist() for each in law.outcomes(np.array(seen))), strict=True)))
    pairs = [(chance, worlds[1].get(outcome, 0)) for outcome, chance in worlds[0].items()]
    ratios = [abs(log(one / other)) for one, other in pairs if min(one, other) > law.beyond / TAIL]
    assert len(ratios) > 40
    assert 24 * 0.5 < max(ratios) <= 24 + 2 * TAIL


FAR = 1024
"""In scales, so that the rounding of what is published to parts of a unit does not show."""


def response(mechanism):
    """What is published for a draw of one scale, and of nothing else: shape (T, draws)."""
    scales = scales_of(mechanism)
    return published(mechanism, np.diag(np.rint(FAR * scales).astype(np.int64))) / FAR


def moves(query, periods, k, inverse):
    """What entries move the draws by, in scales, shape (w, draws) each. inverse: of `response`."""
    return [life @ inverse.T for life in lives(query, periods, k)]


@pytest.mark.parametrize(
    ("query", "periods", "k"),
    [("count", 3, 2), ("histogram", 3, 3), ("sum", 4, 3), ("fixed", 2, 2), ("sum", 5, AtMostWithin(3, 2))],
    ids=str,
)
def test_no_draw_of_a_searched_matrix_tells_more_than_epsilon(query, periods, k):
    """Draws follow from levels one to one, so an outcome's chance is that of its draws, whose scales are in thousands;
    one that is moved by a scale tells 1."""
    mechanism = made_for("optimised", query, periods, k, law="laplace")
    inverse = np.linalg.inv(response(mechanism))
    most = max(float(np.abs(moved).sum()) for moved in moves(query, periods, k, inverse))
    assert 0.999 < most <= 1 + 1e-6


GAUSSIAN = [
    (name, query, periods, k)
    for name in ("square-root", "optimised", "fresh")
    for query, periods, k in (("count", 3, 2), ("histogram", 3, 3), ("fixed", 4, 4), ("mean", 2, 2))
] + [("optimised", "histogram", 4, AtMostWithin(3, 2))]


def whitened(name, query, periods, k, **budget):
    """What each life moves by, period after period, once it is known what was published before, in scales: (w, T)."""
    response_ = response(made_for(name, query, periods, k, law="gaussian", **budget))
    known = np.linalg.cholesky(response_ @ response_.T)
    return moves(query, periods, k, np.linalg.inv(known))


LOSSES = np.linspace(-8, 8, 3201)
DRAWS = np.linspace(-7, 7, 281)
CHANCES = np.exp(-(DRAWS**2) / 2) / np.exp(-(DRAWS**2) / 2).sum()


def told_at_worst(lives_, epsilon):
    """The most that E max(0, 1 - e^(epsilon - loss)) can be made for each loss so far, by choosing life as it goes.

    lives_: what those that are still possible move by in the periods to come, shape (w, T), in scales.
    """
    beyond = epsilon - LOSSES
    if lives_[0].shape[1] == 1:
        length = max(float(np.sqrt((life**2).sum())) for life in lives_)
        if length < 1e-6:
            return np.maximum(0.0, -np.expm1(beyond))
        return ndtr(length / 2 - beyond / length) - np.exp(beyond) * ndtr(-length / 2 - beyond / length)
    ways = {}
    for life in lives_:
        ways.setdefault(tuple(life[:, 0].round(9)), []).append(life[:, 1:])
    found = []
    for first, later in ways.items():
        after, length = told_at_worst(later, epsilon), sqrt(sum(part * part for part in first))
        reached = LOSSES[:, None] + length * length / 2 + length * DRAWS
        found.append(np.interp(reached, LOSSES, after) @ CHANCES)
    return np.max(found, axis=0)


@pytest.mark.parametrize(("name", "query", "periods", "k"), GAUSSIAN, ids=str)
def test_gaussian_noise_at_rho_tells_no_reacting_entry_apart(name, query, periods, k):
    """What a period's outcome is moved by, once the earlier ones are known, is at most 2 rho in squares over all
    periods, whatever an entry does: so the Rényi divergence of order a is at most a rho for one that reacts, too."""
    rho = Fraction(1, 2)
    lengths = whitened(name, query, periods, k, rho=rho)
    most = max(float((moved**2).sum()) / 2 for moved in lengths)
    assert 0.97 * float(rho) < most <= float(rho) * (1 + 1e-9)


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "query", "periods", "k"), GAUSSIAN, ids=str)
def test_gaussian_noise_at_delta_tells_no_reacting_entry_apart(name, query, periods, k):
    """An entry that sees every release, and knows what is told of it by then, chooses what to do next so as to be told
    apart as much as can be: the chances beyond e^epsilon add up to at most delta."""
    epsilon, delta = Fraction(1), Fraction(1, 1000)
    moved = whitened(name, query, periods, k, epsilon=epsilon, delta=delta)
    told = float(np.interp(0.0, LOSSES, told_at_worst(moved, float(epsilon))))
    assert 0.85 * float(delta) < told <= 1.001 * float(delta)
