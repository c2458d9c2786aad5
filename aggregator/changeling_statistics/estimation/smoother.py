"""Histograms smoothed by the belief that they drift slowly: less noise, some bias; never the default.

Each answer's count is taken to do a random walk of variance τ² a period, as if there were an edge of resistance τ²
between every two neighbouring times, on which no change was measured. τ² is estimated from the published nodes by
marginal likelihood. The published covariance is that of the noise; it says nothing of the bias.
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey

from ..estimate import Floats
from ..tallies import Tallies
from .histograms import Histogram, Nodes
from .network import Network, with_drift
from .reach import check_period, not_estimable
from .releases import Releases, releases
from .silence import Silence
from .solution import Solution

FLATTEST, WILDEST = 1e-8, 1e4
"""τ² is sought between these multiples of the nodes' median planned variance."""


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
        histograms.append(Histogram(period, estimate, Nodes(solution, period, 0), Silence(solution, period, 0)))
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
