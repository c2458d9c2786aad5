"""Histograms, and their changes over windows, from all published nodes of a survey.

Each is a least-squares solution of the release graph, unbiased and with its covariance. Online, which is the default,
an estimate uses the nodes that have closed by the period it is about; retrospective, it uses all. They are about the
entries that are enrolled by then; those who are silent are taken to be like those who are heard, and `basis` says
what holds whatever they are like. docs/mathematics.md, "The release graph" and "Who is missing".

Smoothed by the belief that they drift slowly, histograms have less noise and some bias; that is never the default. Each
answer's count is taken to do a random walk of variance τ² a period, as if there were an edge of resistance τ² between
every two neighbouring times, on which no change was measured. τ² is estimated from the published nodes by marginal
likelihood. The published covariance is that of the noise; it says nothing of the bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Node, Survey

from ..estimate import Estimate, Floats, Tallies
from .figures import Basis
from .gaps import Gap, check_period, first_missing, not_estimable
from .network import Network, with_drift
from .releases import Releases, UsedNode, releases
from .solution import Solution

FLATTEST, WILDEST = 1e-8, 1e4
"""τ² is sought between these multiples of the nodes' median planned variance."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """The histogram at the end of a period.

    period: its number, 0 to T.
    estimate: the entries that hold each answer 1..z, with their covariance. It is unbiased for what entries report; one
    that has used up the changes its survey allows goes on reporting its last answer (docs/reading.md, "Freezing").
    basis: the nodes that the estimate is made of, who of the entries was heard, and what holds whatever the others are
    like.
    """

    period: int
    estimate: Estimate
    basis: Basis

    @property
    def nodes(self) -> Sequence[UsedNode]:
        """The nodes that the estimate is made of, by the time of their end."""
        return self.basis.nodes


@dataclass(frozen=True, slots=True)
class Change:
    """The change of the histogram over a window of periods.

    span: the window (start, end].
    estimate: by how many entries each answer 1..z changed, with their covariance.
    basis: as of a histogram.
    """

    span: Node
    estimate: Estimate
    basis: Basis

    @property
    def nodes(self) -> Sequence[UsedNode]:
        """The nodes that the estimate is made of, by the time of their end."""
        return self.basis.nodes


def histogram(survey: Survey, tallies: Tallies, period: int, *, retrospective: bool = False) -> Histogram:
    """Estimates the histogram at the end of a period.

    tallies: those that may be published, by track and node.
    period: 0 to T; at 0 nobody has an answer.
    retrospective: whether to use every tally; if not, only those of nodes that have closed by the period.
    Raises NotEstimable, which names the node that is missing, if the tallies do not connect the period with the
    start of the calendar; ValueError outside 0..T.
    """
    check_period(survey, period)
    solution, z = Solution(releases(survey, tallies), retrospective), len(survey.answers)
    estimate = solution.estimate(period) if period else Estimate(np.zeros(z), np.zeros((z, z)))
    return Histogram(period, estimate, Basis(solution, period))


def series(survey: Survey, tallies: Tallies, until: int, *, retrospective: bool = False) -> list[Histogram | Gap]:
    """Estimates the histograms at the ends of periods 1 to `until`, faster than one by one.

    tallies, retrospective: as for `histogram`.
    until: 0 to T.
    Returns one for each period; a gap for a period that the nodes do not identify.
    """
    check_period(survey, until)
    known = releases(survey, tallies)
    solution = Solution(known, retrospective)
    estimates = solution.estimates(until)
    missing = first_missing(known, until, retrospective=retrospective) if None in estimates else [None] * until
    return [
        Gap(Node(0, period), missing[period - 1])
        if estimate is None
        else Histogram(period, estimate, Basis(solution, period))
        for period, estimate in enumerate(estimates, 1)
    ]


def change(survey: Survey, tallies: Tallies, window: Node, *, retrospective: bool = False) -> Change:
    """Estimates the change of the histogram over a window (l, r] of periods: v̂_r - v̂_l.

    tallies: as for `histogram`.
    window: (l, r].
    retrospective: whether to use every tally; if not, only those of nodes that have closed by r.
    Raises NotEstimable, which names the node that is missing, if the tallies do not connect l and r (they need not
    reach back to the start); ValueError outside the calendar.
    """
    check_period(survey, window.end)
    solution = Solution(releases(survey, tallies), retrospective)
    return Change(window, solution.estimate(window.end, window.start), Basis(solution, window.end, window.start))


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Smoothed histograms at the ends of periods 1, 2, ….

    drift: τ², in entries squared a period.
    histograms: one for each period.
    biased: True, always. If a histogram drifts faster than believed, its estimates lag behind and its peaks are cut.
    """

    drift: float
    histograms: tuple[Histogram, ...]
    biased: bool = True


def smoothed_series(
    survey: Survey, tallies: Tallies, until: int, *, retrospective: bool = False, drift: float | None = None
) -> Smoothed:
    """The smoothed histograms at the ends of periods 1 to `until`. They are biased.

    tallies, retrospective: as for `histogram`.
    drift: τ², in entries squared a period; if not given, the likeliest for the nodes that have closed by `until`, or
    for all nodes if retrospective.
    Raises NotEstimable as `series` does; ValueError for a drift of 0 or less.
    """
    check_period(survey, until)
    known = releases(survey, tallies)
    network = known.network if retrospective else known.network.closed_by(until)
    if drift is None:
        drift = likely_drift(network, known.changes[: len(network.start)])
    solution = Solution(known, retrospective, drift)
    histograms = []
    for period, estimate in enumerate(solution.estimates(until), 1):
        if estimate is None:
            raise not_estimable(known, period, network.periods if retrospective else period)
        histograms.append(Histogram(period, estimate, Basis(solution, period)))
    return Smoothed(drift, tuple(histograms))


def smoothing(releases: Releases) -> Solution:
    """The solution that smooths all nodes with the drift that is likeliest for them. Raises ValueError for too few."""
    return Solution(releases, True, likely_drift(releases.network, releases.changes))


def likely_drift(network: Network, changes: Floats) -> float:
    """The τ² under which the changes measured on the edges are likeliest, in entries squared a period.

        -2 ln p = z·{ln det L(τ²) + (T-1) ln τ²} + Σ_answers min_v Σ_e r_e²/σ_e² + constant

    where the edges e include those of the drift. Answers are taken to be independent, and nothing is known of the
    histogram at the first time.

    changes: shape (E, z), in entries. Raises ValueError if fewer than two periods have closed.
    """
    from scipy.optimize import minimize_scalar

    last = int(network.end.max(initial=0))
    if last < 2:
        raise ValueError("a drift takes at least two periods that have closed")
    used = Network(last, network.start, network.end, network.variance)
    typical = float(np.median(network.variance))
    bounds = (np.log(FLATTEST * typical), np.log(WILDEST * typical))
    least = minimize_scalar(lambda x: _surprise(used, changes, float(np.exp(x))), bounds=bounds, method="bounded")
    return float(np.exp(least.x))


def _surprise(network: Network, changes: Floats, drift: float) -> float:
    """-2 ln p of the changes for one τ², but for a constant."""
    drifting = with_drift(network, drift)
    measured = np.concatenate([changes, np.zeros((network.periods - 1, changes.shape[1]))])
    v = drifting.fit(measured)
    residuals = measured - v[drifting.end] + v[drifting.start]
    misfit = float((residuals**2 / drifting.variance[:, None]).sum())
    z, steps = changes.shape[1], network.periods - 1
    return float(z * (drifting.log_determinant + steps * np.log(drift)) + misfit)
