"""The statistics of each randomizer, which its room registers.

A room holds counterparts (tallies, decoder, covariances, likelihoods, sampler) and what they offer the planner. Those
of reports that name inputs are in `naming`, that of vectors of signs in `signed_subset`; what several share is in
`counted`, beside custom randomizers.
"""

from . import counted, naming, signed_subset

__all__ = ["counted", "naming", "signed_subset"]
