"""Closed cohorts: nobody comes or goes after the first period, so a change adds up to zero over the answers.

Its estimate need not add up to zero, as some randomized reports say that an answer was deleted or inserted. So the mean
of the estimate over the answers is noise alone. Taking it off leaves the estimate unbiased, and never noisier.
"""

from .estimate import Floats


def conserves(closed: bool, reports_changes: bool, start: int) -> bool:
    """Whether the change over a node adds up to zero over the answers.

    closed: whether the cohort is closed.
    reports_changes: whether changes are reported on the node, and not states.
    start: the period after which the node starts.
    """
    return closed and reports_changes and start > 0


def without_sum(values: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Estimates with the mean over the answers taken off, and their covariances: Pv and PCP, P = I - 11'/z.

    values: v, shape (..., z). covariances: C, shape (..., z, z).
    """
    centred = covariances - covariances.mean(-1, keepdims=True)
    return values - values.mean(-1, keepdims=True), centred - centred.mean(-2, keepdims=True)
