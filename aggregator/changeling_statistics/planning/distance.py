"""How far a plan is from the best of all ε-private reports, of whatever kind.

A plan is the best of groups that the planner knows. This asks what anything at all could do that sees an entry's whole
history and answers with ε, read by any estimator that is unbiased whatever the histories. The population is one that
the constraint admits, whole; the plan is judged by it, too. docs/mathematics.md, "The best of all reports".

How far a density of histories moves their mean is *certified* in two ways: E (ρ - 1)² ≤ sinh²(ε/2), and, for a single
time, by its symmetry. Both are loose once ε is a few units. A *searched* maximum is much closer: densities 1 and e^ε
are climbed from many starts, over a sample of histories. A better one may have been missed, so that bound is likely,
and not proven.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import exp, sinh
from typing import TYPE_CHECKING

import numpy as np
from changeling_protocol import MICRO, Odds, ReleasePlan, Survey
from changeling_protocol import MOST_EPSILON as MOST_PROTOCOL_EPSILON

from ..estimate import Floats, Indices
from ..estimation.entries import Moments, report_variances, shares_there
from .candidates import history_group
from .prediction import Wish, predict

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_JUDGED = 48
"""At so many times at most a plan is judged, evenly over the calendar."""
FULLEST = 0.9
"""Entries are expected to make this part of the changes that they may make, at most."""
LIKELY = 1e-100
"""Where fewer entries than that keep to the most changes by chance, the rate is too large."""
FLAT = 1e-9
"""A direction that varies less than this, beside the one that varies most, counts as known."""
SAMPLED, SEED = 8_000, 24
"""How many histories are sampled. A sample makes the maximum larger, if anything, so the bound smaller."""
POWERS = (0.5, 0.4, 0.25, 0.1, 0.0)
"""A is K to the power of minus one of these."""
TRIED, STARTS = 2, 6
"""From how many starts of each kind a maximum is climbed to at first, and where the bound is best."""
CLIMBED, SLOW = 20, 1e-3
"""The most steps of a climb, which ends where one gains less than this part."""
NEXT_TO_BEST = 1.005
"""A plan that takes fewer than so many times the devices is the best."""
TRUE = 0.5
"""With a larger chance to tell its whole history, an entry is taken to tell it."""
MOST_EPSILON = 300.0
"""Beyond such an ε reports are as good as exact."""


@dataclass(frozen=True, slots=True)
class Distance:
    """By how many times the devices that a plan takes are more than the best of all ε-private reports would take.

    certified: at most so many times; proven.
    searched: at most so many times, unless the search missed something; never above `certified`.
    Both are of estimates made from everything when all is over, which no estimate as a period closes can beat, and of
    the histograms alone: not of bridging a lost period, nor of the survey's minimum.
    loose: whether e^ε is more than the histories that an entry may have, so that it can tell its whole one, and most
    do so truly. Noise is then small beside what answers vary by, which both bounds subtract: neither is near.
    """

    certified: float
    searched: float
    loose: bool = False

    @property
    def words(self) -> str:
        """The two figures in a sentence."""
        if self.certified == float("inf"):
            return "How far the plan is from the best of all reports that keep epsilon is not known."
        if self.certified < NEXT_TO_BEST:
            return "No reports that keep epsilon, of any kind, need fewer devices (certified)."
        if self.loose:
            return (
                "How far the plan is from the best of all reports is not known: epsilon has room for an entry's whole "
                f"history, and no bound is near there (at most {self.searched:.3g} times fewer devices)."
            )
        best = "The best of all reports that keep epsilon, of any kind, would need at most"
        if self.searched > self.certified / NEXT_TO_BEST:
            return f"{best} {self.certified:.3g} times fewer devices (certified)."
        return (
            f"{best} {self.searched:.3g} times fewer devices (searched, so likely and not proven; "
            f"certified: {self.certified:.3g} times)."
        )


def distance_from_best(wish: Wish, plan: ReleasePlan) -> Distance:
    """Works out how far a plan for this wish is from the best of all reports that keep the wish's epsilon.

    Takes a few seconds over a long calendar. inf where a period has no estimate, or there is only one answer.
    """
    survey = wish.survey(plan)
    population = CountedChanges(survey)
    times = np.unique(np.linspace(1, wish.periods, MOST_JUDGED).round().astype(np.intp))
    predicted = predict(survey, wish.devices, retrospective=wish.retrospective, population=population)
    variances = predicted.errors[times - 1] ** 2 * wish.devices
    variance = float(variances.max() if wish.objective == "worst" else variances.mean())
    best = AnyReports(population, times, min(float(wish.epsilon), MOST_EPSILON))
    certified = max(best.by_moments, best.by_single_times)
    searched = max(certified, best.searched)
    times_more = [variance / bound if bound > 0 else float("inf") for bound in (certified, searched)]
    return Distance(times_more[0], times_more[1], _tells_histories(wish))


def _tells_histories(wish: Wish) -> bool:
    """True if at the wish's epsilon one response over all histories is true more often than not."""
    odds = Odds.within(min(wish.epsilon, Decimal(MOST_PROTOCOL_EPSILON)))
    group = history_group(wish, range(1, wish.periods + 1), odds) if wish.answers > 1 else None
    return group is not None and group.histories.told > TRUE


class CountedChanges:
    """The population that a survey's designer expects, without those whom the constraint would freeze.

    Of the changes after the first answer nobody makes more than are admitted: their number has a binomial distribution,
    cut there, with the expected mean, or FULLEST of the most. They lie at random among the periods in which they are
    admitted, and lead to another answer at random. Who comes later makes only those that are left then.

    survey: whose designer it is.
    """

    def __init__(self, survey: Survey) -> None:
        self.survey, self.answers = survey, len(survey.answers)
        admits, calendar = survey.constraint.admits, survey.calendar
        gaps = range(1, calendar.periods)
        self.gaps = max((gap for gap in gaps if admits(1, gap * calendar.period)), default=0)
        within = self.gaps * calendar.period
        self.most = max((number for number in range(1, self.gaps + 1) if admits(number, within)), default=0)
        mean = min(survey.expected.later / MICRO * (calendar.periods - 1), FULLEST * self.most)
        self.rate = _rate(self.gaps, self.most, mean) if mean > 0 else 0.0

    @cached_property
    def counts(self) -> Floats:
        """The chances that an entry makes 0, 1, … changes, shape (most + 1,)."""
        counts = _binomial(self.gaps, self.rate, self.most)
        whole: Floats = counts / counts.sum()
        return whole

    @cached_property
    def moments(self) -> Moments:
        """E x(τ)x(τ') at the times 0..T, mean over the answers."""
        times, z = np.arange(self.survey.calendar.periods + 1, dtype=np.intp), self.answers
        means = shares_there(self.survey.expected, times) / z
        products = means[np.minimum.outer(times, times)] * (1 / z + (1 - 1 / z) * self.kept(times))
        return Moments(products, products - np.outer(means, means), means)

    def kept(self, times: Indices) -> Floats:
        """How much of the correlation of an entry's answers is left between two times, shape (times, times)."""
        passed = np.minimum(np.maximum(times - 1, 0), self.gaps)
        apart = np.abs(np.subtract.outer(passed, passed))
        kept = np.zeros(self.gaps + 1)
        for lag in np.unique(apart).tolist():
            kept[lag] = self._kept(lag)
        return kept[apart]

    def _kept(self, lag: int) -> float:
        """The mean of (-1/(z-1))^changes over so many gaps."""
        if self.answers == 1 or not self.rate:
            return 1.0
        changed = _binomial(lag, self.rate, self.most)
        changed = changed * (-1.0 / (self.answers - 1)) ** np.arange(len(changed))
        together = np.convolve(changed, _binomial(self.gaps - lag, self.rate, self.most))[: self.most + 1]
        return float(together.sum() / _binomial(self.gaps, self.rate, self.most).sum())

    def report_variances(self, track: int, end: Indices) -> Floats:
        """The variance of one report on some nodes of a track, mean over the answers, in entries squared."""
        survey, reported = self.survey, self.survey.plan.tracks[track]
        start, moments, z = end - reported.width, self.moments, self.answers
        before, after = z * moments.means[start], z * moments.means[end]
        moved = np.maximum(0.0, before - z * moments.products[start, end])
        return report_variances(reported.randomizer, start, before, after, moved, survey.closed)

    def with_rarer(self, epsilon: float) -> Floats:
        """Counts of changes where rare histories are drawn more often: π(h) + 1/(e^ε - 1), for each history.

        Which is as k-RR over all histories, the best of reports at a large epsilon, has them among its answers.
        """
        from scipy.special import gammaln  # late, as below

        number, z = np.arange(len(self.counts)), self.answers
        ways = gammaln(self.gaps + 1) - gammaln(number + 1) - gammaln(self.gaps - number + 1)
        more = np.log(z) + ways + number * np.log(max(1, z - 1)) - np.log(np.expm1(epsilon))
        chances = np.exp(np.logaddexp(np.log(np.maximum(self.counts, LIKELY)), more) - max(0.0, float(more.max())))
        whole: Floats = np.maximum(chances, LIKELY) / np.maximum(chances, LIKELY).sum()
        return whole

    def sample(self, times: Indices, changes: Indices, generator: np.random.Generator) -> Indices:
        """The answers at some rising times of entries that make so many changes, z for none, (entries, times).

        changes: of each entry, shape (entries,).
        """
        z, expected, entries = self.answers, self.survey.expected, len(changes)
        drawn = generator.random(entries)
        left, gaps, passed = changes, self.gaps, 0
        answer = generator.integers(z, size=entries)
        answers = np.empty((entries, len(times)), np.intp)
        for at, time in enumerate(times.tolist()):
            more = min(time - 1, self.gaps) - passed
            if more:
                moved = generator.hypergeometric(left, gaps - left, more)
                left, gaps, passed = left - moved, gaps - more, passed + more
                stays = 1 / z + (1 - 1 / z) * (-1.0 / max(1, z - 1)) ** moved
                other = (answer + generator.integers(1, max(2, z), entries)) % z
                answer = np.where(generator.random(entries) < stays, answer, other)
            answers[:, at] = np.where(drawn < shares_there(expected, times[at : at + 1]), answer, z)
        return answers


def _binomial(n: int, rate: float, most: int) -> Floats:
    """The chances of 0 to `most` successes in n trials, each as likely as the rate."""
    from scipy.stats import binom  # late: it loads slowly, and the command line imports this

    chances: Floats = binom.pmf(np.arange(min(n, most) + 1), n, rate)
    return chances


def _rate(gaps: int, most: int, mean: float) -> float:
    """The rate at which a binomial distribution that is cut at the most has this mean."""
    from scipy.optimize import brentq  # late, as above

    def over(rate: float) -> float:
        chances = _binomial(gaps, rate, most)
        if chances.sum() < LIKELY:
            return FULLEST * most
        return float(chances @ np.arange(len(chances)) / chances.sum()) - mean

    return float(brentq(over, 0.0, 1.0 - 1e-12))


class AnyReports:
    """The least mean square error of any ε-private reports, bounded from below in three ways.

    population: of whom. times: which are judged, shape (m,). epsilon: the most that an entry may lose.
    Each bound is a variance of one entry, mean over the times and answers, less what the entries themselves vary by.
    """

    def __init__(self, population: CountedChanges, times: Indices, epsilon: float) -> None:
        self.population, self.times, self.epsilon, self.z = population, times, epsilon, population.answers
        self.there = shares_there(population.survey.expected, times)
        K = self.there[np.minimum.outer(range(len(times)), range(len(times)))] * population.kept(times) / self.z
        values, self.axes = np.linalg.eigh(K)
        self.values = np.where(values > FLAT * values[-1], values, 0.0)

    @property
    def by_moments(self) -> float:
        """Certified: E (ρ - 1)² <= sinh²(ε/2), so with A = K^(-1/2) no density moves the mean of A x̃ farther."""
        return self._bound((self.z - 1) * float(np.sqrt(self.values).sum()), sinh(self.epsilon / 2))

    @property
    def by_single_times(self) -> float:
        """Certified: the least error at each time for itself, which subsets of the answers of the best size have."""
        if self.z == 1:
            return 0.0
        sizes, gain = np.arange(1, self.z) / self.z, exp(self.epsilon) - 1
        farthest = float((gain**2 * sizes * (1 - sizes) / (1 + gain * sizes) ** 2).max())
        alone = (self.z - 1) / self.z**2 * ((self.z - 1) / farthest - 1)
        return float(max(0.0, alone * self.there.mean()))

    @property
    def searched(self) -> float:
        """Not certified: with the farthest density that was found."""
        bound = 0.0
        for sample in self._samples() if self.z > 1 else ():
            hoped = {power: self._reached(power, sample, TRIED) for power in POWERS}
            best = max(POWERS, key=lambda power: hoped[power])
            if hoped[best] > bound:  # more climbs find it smaller, if anything
                bound = max(bound, self._reached(best, sample, STARTS))
        return bound

    def _samples(self) -> "Iterator[_Sample]":
        """Histories as likely as they are; and with rare ones more often, which tells more at a large epsilon."""
        yield self._sample(self.population.counts)
        yield self._sample(self.population.with_rarer(self.epsilon))

    def _sample(self, counts: Floats) -> "_Sample":
        from scipy.sparse import csr_array  # late: it loads slowly

        m, z, generator = len(self.times), self.z, np.random.default_rng(SEED)
        changes = generator.choice(len(counts), SAMPLED, p=counts)
        answers = self.population.sample(self.times, changes, generator)
        entry, at = np.nonzero(answers < z)
        told = csr_array((np.ones(len(entry)), (entry, at * z + answers[entry, at])), shape=(SAMPLED, m * z))
        there = (answers < z)[:, :, None] & (answers < z)[:, None, :]
        same = there & (answers[:, :, None] == answers[:, None, :])
        contrasts = [sign * np.outer(axis, np.arange(z) == 0) for axis in self.axes.T[::-1] for sign in (1.0, -1.0)]
        starts = [
            told[:STARTS].toarray().reshape(-1, m, z),
            np.stack(contrasts[:STARTS]),
            generator.standard_normal((STARTS, m, z)),
        ]
        likely = (self.population.counts / counts)[changes]
        return _Sample(told, likely, same.mean(axis=0) - there.mean(axis=0) / z, starts)

    def _reached(self, power: float, sample: "_Sample", most: int) -> float:
        """The bound with A = K^-power, and the farthest mean that so many climbs of each kind find.

        Along a direction the mean moves farthest with the density that is e^ε on the histories that lie farthest
        along it, for their likelihood. The direction in which it has then moved is the next to try.
        """
        scaled = np.where(self.values > 0, np.maximum(self.values, 1e-300) ** -power, 0.0)
        A, told, likely = (self.axes * scaled) @ self.axes.T, sample.told, sample.likely
        gain = exp(self.epsilon) - 1
        directions = self._moved(A, np.concatenate([starts[:most] for starts in sample.starts]))
        farthest = np.zeros(len(directions))
        for _ in range(CLIMBED):
            along = np.ascontiguousarray((told @ self._moved(A, directions).reshape(len(directions), -1).T).T)
            ratio = along / likely
            order = np.argsort(-ratio, axis=1)
            sums, weights = (
                np.cumsum(np.take_along_axis(along, order, axis=1), axis=1),
                np.cumsum(likely[order], axis=1),
            )
            last = ((sums[:, -1:] + gain * sums) / (weights[:, -1:] + gain * weights)).argmax(axis=1)[:, None]
            least = np.take_along_axis(ratio, np.take_along_axis(order, last, axis=1), axis=1)
            density = np.where(ratio >= least, 1 + gain, 1.0)
            means = ((told.T @ density.T) / (density @ likely)).T.reshape(directions.shape)
            directions = self._moved(A, means)
            reached = np.sqrt((directions**2).sum(axis=(1, 2)))
            if (reached <= farthest * (1 + SLOW)).all():
                break
            farthest = np.maximum(farthest, reached)
        return self._bound(float((A * sample.moment).sum()), float(farthest.max()))

    def _moved(self, A: Floats, histories: Floats) -> Floats:
        """A x̃ of histories as matrices, shape (histories, m, z)."""
        moved: Floats = A @ (histories - histories.mean(axis=2, keepdims=True))
        return moved

    def _bound(self, told: float, farthest: float) -> float:
        """(told / farthest)², mean over times and answers, less what is the entries' own."""
        z, m = self.z, len(self.times)
        own = (z - 1) / z**2 * float(self.there.mean())
        return max(0.0, (told / farthest) ** 2 / (m * z) - own)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Histories of entries, drawn with some other counts of changes.

    told: what each answers, shape (entries, m·z). likely: how likely each is in the population, over how likely it was
    to be drawn, shape (entries,). moment: E x̃x̃', shape (m, m). starts: directions to climb from, by kinds.
    """

    told: "csr_array"
    likely: Floats
    moment: Floats
    starts: list[Floats]
