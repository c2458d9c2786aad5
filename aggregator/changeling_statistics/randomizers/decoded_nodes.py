"""Many nodes decoded at once: what `Estimate` is to one node, and what a tally says of who changed."""

from dataclasses import dataclass

from ..estimate import Floats


@dataclass(frozen=True, slots=True, eq=False)
class DecodedNodes:
    """The changes of the histogram over several nodes that were reported through one randomizer.

    values: shape (nodes, z), in entries.
    covariances: shape (nodes, z, z), in entries squared, each as `Estimate` has it.
    upper_bound: whether one of the covariances is a bound.
    products: Q̂ = M_δv diag(ŝ) M_δv', unbiased for Σ_i δ_i δ_i' over those who reported, shape (nodes, z, z): what
    sampling errors are made of. None where the tallies do not identify it.
    changed: unbiased for how many of those changed, shape (nodes,); nan where unknown.
    """

    values: Floats
    covariances: Floats
    upper_bound: bool
    products: Floats | None
    changed: Floats
