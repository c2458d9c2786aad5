"""In a closed cohort nobody comes or goes after the first period, so a change adds up to zero over the answers.

Its estimate need not: a device may also say that it lost its answer, or found one. The mean over the answers is
then noise alone, and taking it off is unbiased and never noisier: the constraint Σ_a Δv_a = 0 is the truth.
"""

from .estimate import Floats


def conserves(closed: bool, reports_changes: bool, start: int) -> bool:
    """Whether what a node (start, ...] measures adds up to zero."""
    return closed and reports_changes and start > 0


def without_sum(values: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Pv and PCP, P = I - 11'/z; values of shape (..., z), covariances (..., z, z)."""
    centred = covariances - covariances.mean(-1, keepdims=True)
    return values - values.mean(-1, keepdims=True), centred - centred.mean(-2, keepdims=True)
