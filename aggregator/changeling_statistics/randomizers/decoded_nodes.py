"""The estimates of many nodes at once, and what their tallies say of who changed."""

from dataclasses import dataclass

from ..estimate import Floats


@dataclass(frozen=True, slots=True, eq=False)
class DecodedNodes:
    """The estimated changes of the histogram over several nodes that were reported through one randomizer.

    values: shape (nodes, z), in entries.
    covariances: shape (nodes, z, z), in entries squared, each as in `Estimate`.
    upper_bound: whether one of the covariances is an upper bound.
    products: Q̂ = M_δv diag(ŝ) M_δv', unbiased for Σ_i δ_i δ_i' over the entries i that reported, shape
    (nodes, z, z); sampling errors are computed from it. None if the tallies do not tell it.
    changed: unbiased for how many of those entries changed, shape (nodes,); nan if the tallies do not tell it.
    """

    values: Floats
    covariances: Floats
    upper_bound: bool
    products: Floats | None
    changed: Floats
