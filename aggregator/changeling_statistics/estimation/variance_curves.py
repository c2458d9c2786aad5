"""The variance of an estimate at every value that may be true, for intervals that hold at any count.

An unbiased variance is plugged in where the estimate happens to lie. With few entries the two err together: where by
chance nobody was asked who holds a rare answer, both are near zero, and the interval is too short just then. So an
interval holds those values θ that are not too far from the estimate, judged by the variance that θ itself would have
(Wilson 1927):

    V(θ) = max{known, R̂ + linear (θ - v̂) + flat + tied θ + bent θ (1 - θ/n)}

- R̂, what the coins of the randomizers add, is the tallies' own, and `linear` what one more entry with the answer adds.
  Where the tallies tell no more than a bound, it is what so many entries with the answer add;
- `known` is what they add whatever anybody answers;
- flat + tied θ + bent θ (1 - θ/n) is what the reports of one entry have in common, if entries change as the nodes that
  count changes say they do, all answers alike; where no node counts them, as ALLOWED times as often as the designer
  expects.
  The tallies' own figure for an answer, if it is no bound, counts the more the more entries there are.

So intervals do not use upper bounds, where a published covariance has to. docs/mathematics.md, "Intervals".
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from changeling_protocol import MICRO, Randomizer
from numpy.typing import NDArray

from ..estimate import Floats, Indices, VarianceCurve, conserves, without_sum
from ..randomizers.counterpart import counterpart_of
from .entries import SamplingDesign, forms, known_base, scatter
from .releases import Releases
from .sampling import Sampling

ALLOWED = 1.1
"""So many times the changes that a designer expects are allowed for, where no node counts changes."""
LEAST_CHURN, MOST_CHURN = 0.25, 4.0
"""Changes as they are counted, as multiples of those expected, are taken to lie between these."""
MOST_ALIKE = 0.95
"""Two entries are taken to have the same answer with this chance at most."""
MOST_LISTED = 256
"""The most symbols that are looked at where all answers are treated alike; each has the largest value somewhere."""
LEAST_PART = 0.1
"""A figure's variance is at least so large a part of what the coins of the randomizers add."""
STEADY = 25.0
"""An answer's own figure counts half where the estimate is so many times its variance, squared: √25 standard errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """k estimates of v_plus - v_minus, with what the tallies themselves say of their variances.

    rows: the weight of each node, shape (k, E). plus, minus, until: the two times, and how much is known, shape (k,).
    entries: how many entries each is about, shape (k,).
    values: shape (k, z). responses: what the randomizers add to the variances, and silence that strikes afresh,
    shape (k, z). common: what reports of one entry have in common adds, shape (k, z).
    bounded: whether that is an upper bound, shape (k,).
    of_heard: whether the estimates are about those alone who are heard.
    drawn: whether the entries count as drawn at random, and the draw as part of the error.
    """

    rows: Floats
    plus: Indices
    minus: Indices
    until: Indices
    entries: Floats
    values: Floats
    responses: Floats
    common: Floats
    bounded: NDArray[np.bool_]
    of_heard: bool = False
    drawn: bool = False


def variance_curves(known: Releases, weighed: Weighed, sampling: Sampling | None, *, everybody: bool) -> VarianceCurve:
    """The variances of k estimates on one release graph, as they hang on what is true; all of shape (k, z).

    sampling: what reports of one entry have in common; None if nothing.
    everybody: whether everybody reports everything, so that it does not hang on the weights of nodes.
    """
    until, network, enrolment = weighed.until, known.network, known.enrolment
    n = np.maximum(weighed.entries, 1.0)[:, None]
    scale = n / np.maximum(enrolment.stands_for[until], 1.0)[:, None]
    least, usual, aside, more, largest = _of_reports(known)
    phi, squares = _kept(known, until, _differing(weighed)), weighed.rows**2
    told = known.expansion[:, None]
    of_coins = told**2 * known.reports[:, None] * least
    floor = squares @ of_coins
    cubes, of_steps = squares * np.abs(weighed.rows), of_coins * told * largest
    up, down = (cubes @ each / np.maximum(floor, 1e-300) for each in (of_steps, known.later[:, None] * of_steps))
    touched = _touched(known, phi)
    on_answers = told * more
    linear = (squares * touched) @ on_answers / scale
    held = np.clip(_held(weighed, sampling, scale), 0.0, n)
    responses, loose, spare = weighed.responses, known.loose, np.zeros_like(weighed.values)
    if loose.any():
        changed = np.maximum(known.moved[0], 0.0)[:, None]
        lawful = told**2 * known.reports[:, None] * usual + told * changed * aside
        beyond = squares[:, loose] @ (known.response_variances - lawful)[loose]
        beyond -= (squares * touched)[:, loose] @ on_answers[loose] / scale * held
        responses, spare = responses - beyond, np.maximum(beyond, 0.0)
    flat, tied, bent = np.zeros_like(n), np.zeros_like(n), np.zeros_like(n)
    if everybody:
        per_entry = np.where(weighed.minus > 0, 2 * (1 - phi ** (weighed.plus - weighed.minus)), 1.0)
        m = enrolment.stands_for[until]
        bent = (per_entry * enrolment.lasting[until] * m / np.maximum(m - 1.0, 1.0))[:, None] * scale
    elif sampling is not None:
        design = sampling.design(until, of_heard=weighed.of_heard, drawn=weighed.drawn)
        said = _said_together(design, weighed.rows, network.periods, phi, touched)
        flat = (said.entries * (said.square + said.lone_square) + said.same)[:, None]
        tied = (said.mean - 2 * said.product + said.lone - 2 * said.lone_product)[:, None] / scale
        bent = (said.spread - said.mean)[:, None] / scale
    floor = np.maximum(floor + np.minimum(flat, 0.0), 0.0)
    histograms = (weighed.minus == 0)[:, None]
    law = flat + tied * held + bent * held * (1 - held / n)
    trusted = held**2 / np.maximum(held**2 + STEADY * (np.maximum(responses, floor) + np.maximum(law, 0)), 1e-9)
    level = responses + flat + np.where(weighed.bounded[:, None], 0.0, trusted * (weighed.common - law))
    return VarianceCurve(
        level=np.where(histograms, level - linear * weighed.values, level + law - flat),
        linear=np.where(histograms, linear + tied, 0.0),
        bent=np.where(histograms, bent, 0.0) + np.zeros_like(level),
        floor=floor,
        entries=n + np.zeros_like(level),
        up=up,
        down=down,
        spare=spare,
    )


def _held(weighed: Weighed, sampling: Sampling | None, scale: Floats) -> Floats:
    """How many entries are taken to have each answer; of a change, the mean of both times; shape (k, z)."""
    histograms = (weighed.minus == 0)[:, None]
    if sampling is None or histograms.all():
        return weighed.values
    V = sampling.known_histograms
    return np.where(histograms, weighed.values, scale * (V[weighed.plus] + V[weighed.minus]) / 2)


def _differing(weighed: Weighed) -> Floats:
    """1 - Σ p², how likely two entries differ, as each histogram itself says, shape (k,); of changes, if all p are 1/z.

    Of the squares of estimates their noise is taken off.
    """
    z = weighed.values.shape[1]
    squares = (weighed.values**2 - np.maximum(weighed.responses, 0.0)).sum(1)
    alike = squares / np.maximum(weighed.values.sum(1) ** 2, 1.0)
    differing: Floats = 1 - np.where(weighed.minus == 0, np.clip(alike, 1 / z, MOST_ALIKE), 1 / z)
    return differing


@dataclass(frozen=True, slots=True, eq=False)
class _SaidTogether:
    """Terms that one entry's reports share and that hang on what entries hold; of k estimates, shape (k,) each.

    With f = w'x a figure of an entry's answer x, of mean μ and variance s² over the entries, and W = Σ w, it adds

        n {spread s² + mean μ² - 2 product W μ + square W² + lone (s² + μ²) - 2 lone_product W μ + lone_square W²}
            + same Σ w² + other (W² - Σ w²)

    to the variance of the estimate of Σ_i f_i. w is 1 for one answer and 0 for all others, or the levels of a number.
    """

    entries: Floats
    spread: Floats
    mean: Floats
    product: Floats
    square: Floats
    lone: Floats
    lone_product: Floats
    lone_square: Floats
    same: Floats
    other: Floats

    def variances(self, figures: Floats, shares: Floats) -> Floats:
        """The sum above, of the first estimate. figures: w, shape (q, z). shares: of the answers, shape (z,)."""
        W, squares, mean = figures.sum(1), (figures**2).sum(1), figures @ shares
        second = figures**2 @ shares
        of_means = self.mean[0] * mean**2 - 2 * (self.product + self.lone_product)[0] * W * mean
        known = (self.square + self.lone_square)[0] * W**2
        each = self.spread[0] * (second - mean**2) + self.lone[0] * second + of_means + known
        variances: Floats = self.entries[0] * each + self.same[0] * squares + self.other[0] * (W**2 - squares)
        return variances


def _said_together(design: SamplingDesign, rows: Floats, periods: int, phi: Floats, touched: Floats) -> _SaidTogether:
    """How the reports of one entry hang together in some estimates.

    phi: how much of the correlation of an entry's answers is left after a period, for each estimate, shape (k,).
    touched: on how many changes of each edge an entry with an answer is expected to have a part, shape (k, E).
    With φ^|τ-τ'| s² the covariance of an entry's figures at one time and the other, of mean μ, it is

        Σ_j ω_j Σ_i (Σ_τ c_τ f_i(τ) - b W)² = Σ_j ω_j n {s² Σ_ττ' c_τ c_τ' φ^|τ-τ'| + (μ Σ_τ c_τ - b W)²}

    but for the second term in a sampling error, which is about the mean. The sum over ττ' is summed up in time.
    """
    many, lone = forms(design, rows, periods), scatter(design, rows)
    behind, sums = np.zeros(many.omega.shape), np.zeros(many.omega.shape)
    for time in range(1, periods + 1):
        now = many.c[:, :, time]
        sums += now * (now + 2 * behind)
        behind = phi[:, None] * (behind + now)
    level = np.where(np.arange(many.omega.shape[1]) < many.sampled, 0.0, many.c[:, :, 1:].sum(2))
    omega, base = many.omega * design.needed[:, None], many.base
    sampled, tied = (each * design.needed[:, None] for each in (lone.sampled, lone.tied))
    same, other = (each * design.needed for each in known_base(design, rows, periods))
    return _SaidTogether(
        entries=design.entries,
        spread=(omega * sums).sum(1) + (sampled * touched).sum(1),
        mean=(omega * level**2).sum(1),
        product=(omega * level * base).sum(1),
        square=(omega * base**2).sum(1),
        lone=(tied * touched).sum(1),
        lone_product=tied @ (lone.base * (design.start == 0)),
        lone_square=tied @ lone.base**2,
        same=same,
        other=other,
    )


def figure_variances(
    known: Releases, row: Floats, until: int, sampling: Sampling | None, figures: Floats, shares: Floats, *, drawn: bool
) -> Floats:
    """The variances of some figures w'v of one estimate, shape (q,), in entries squared.

    What the coins add is the tallies' own, what one entry's reports have in common as entries are expected to change.
    row: the weight of each node, shape (E,). until: how much is known. sampling: None if they have nothing in common.
    figures: w, shape (q, z). shares: those that the answers are estimated to have, shape (z,).
    """
    covariance = np.tensordot(row**2, known.covariances, axes=1)
    variances = np.einsum("qy,yz,qz->q", figures, covariance, figures)
    if sampling is not None:
        at, alike = np.array([until]), np.clip([float(shares @ shares)], 1 / len(shares), MOST_ALIKE)
        design, phi = sampling.design(at, drawn=drawn), _kept(known, at, 1 - alike)
        said = _said_together(design, row[None], known.network.periods, phi, _touched(known, phi))
        return np.asarray(np.maximum(variances + said.variances(figures, shares), LEAST_PART * np.abs(variances)))
    return np.asarray(np.maximum(variances, 0.0))


def _kept(known: Releases, until: Indices, differing: Floats) -> Floats:
    """φ, as it is known at some times, shape (k,): by how many changed on the nodes that tell, or else as expected.

    Who changes takes another answer as if drawn by the shares p, so it draws anew with the chance of a change over
    1 - Σ p². differing: that, shape (k,).
    """
    survey, network = known.survey, known.network
    rate = survey.expected.later / MICRO
    counted, told = known.moved
    told = told & known.later
    moved = 1 - (1 - min(rate, 1.0)) ** (network.end - network.start)
    expected = np.where(told, known.enrolment.stands_for[network.end] * moved, 0.0)
    closed = np.searchsorted(network.end, until, side="right")
    seen, awaited = (
        np.concatenate([[0.0], np.cumsum(each)])[closed] for each in (np.where(told, counted, 0.0), expected)
    )
    ratio = np.clip(seen / np.where(awaited > 0, awaited, 1.0), LEAST_CHURN, MOST_CHURN)
    churn = np.where(awaited > 0, ratio, ALLOWED)
    return np.maximum(0.0, 1 - churn * rate / np.maximum(differing, 1e-9))


def _touched(known: Releases, phi: Floats) -> Floats:
    """On how many changes over each edge an entry with an answer is expected to have a part, shape (k, E).

    Of reports of states and first answers it is one; of later changes it may be the start of one, or the end.
    """
    width = (known.network.end - known.network.start)[None]
    return np.where(known.later, 2 * (1 - phi[:, None] ** width), 1.0)


def _of_reports(known: Releases) -> Floats:
    """`answer_variances` and `largest_values` of every edge, shape (5, E, z)."""
    of_reports = np.empty((5, len(known), len(known.survey.answers)))
    for randomizer, edges in known.by_randomizer:
        later = known.network.start[edges] > 0
        for conserved in (False, True):
            at = edges[conserves(known.survey.closed, randomizer.space.reports_changes, 1) & later == conserved]
            of_reports[:, at] = np.array([*answer_variances(randomizer, conserved), largest_values(randomizer)])[
                :, None
            ]
    return of_reports


@lru_cache(maxsize=256)
def answer_variances(randomizer: Randomizer, conserved: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """The least variance of one report whatever it tells; that of one which tells nothing; how much more it is if it
    tells of a change of other answers, and beyond that if it tells of the answer itself; (z,) each.

    conserved: whether changes are known to add up to zero over the answers. In entries squared.
    """
    counterpart, space = counterpart_of(randomizer), randomizer.space
    inputs: dict[object, int] = {}
    for true in range(space.size):
        old, new = space.pair(true)
        inputs.setdefault((old == 0, new == 0, old == new) if counterpart.answers_alike else true, true)
    z, states = space.answers, np.arange(1, space.answers + 1)
    variances, tells = np.empty((len(inputs), z)), np.zeros((len(inputs), z), np.bool_)
    for row, true in enumerate(inputs.values()):
        covariance, (old, new) = counterpart.report_covariance(true), space.pair(true)
        if conserved:
            covariance = without_sum(np.zeros(z), covariance)[1]
        variances[row] = np.diag(covariance)
        tells[row] = ((states == old) | (states == new)) & (old != new or not space.reports_changes)
    if counterpart.answers_alike:
        quiet = variances[~tells] if not space.reports_changes else variances[[0]]
        base = float(quiet.mean()) if quiet.size else 0.0
        others = variances[~tells & tells.any(1, keepdims=True)] if space.reports_changes else variances[:0]
        aside = float(others.mean()) - base if others.size else 0.0
        more = float(variances[tells].mean()) - base - aside if tells.any() else 0.0
        return np.full(z, variances.min()), np.full(z, base), np.full(z, aside), np.full(z, more)
    count = np.maximum(tells.sum(0), 1), np.maximum((~tells).sum(0), 1)
    usual = (variances * ~tells).sum(0) / count[1]
    return variances.min(0), usual, np.zeros(z), (variances * tells).sum(0) / count[0] - usual


@lru_cache(maxsize=256)
def largest_values(randomizer: Randomizer) -> tuple[float, ...]:
    """The largest value, for each answer, that a single report decodes to, and in a closed cohort without its mean."""
    counterpart, symbols = counterpart_of(randomizer), randomizer.symbols
    listed = np.unique(np.linspace(0, symbols - 1, min(symbols, MOST_LISTED)).astype(np.uint64))
    values = np.array(
        [counterpart.estimate(counterpart.tally(listed[at : at + 1])).values for at in range(len(listed))]
    )
    values = np.maximum(np.abs(values), np.abs(values - values.mean(1, keepdims=True)))
    largest: Floats = values.max(0)
    if symbols > len(listed):
        largest = np.full_like(largest, largest.max())
    return tuple(largest.tolist())
