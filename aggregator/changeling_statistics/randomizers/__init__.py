"""The statistics of each randomizer: one room for each kind, which registers it.

Such a room holds the randomizer's counterpart (tallies, decoder, covariances, likelihoods, sampler) and what it offers
the planner, and none of them imports another. What several share is in `counted`: tallies of small alphabets, and of
symbols that say something of every state.
"""

from . import custom, histories, kary, named_states, signed_subset

__all__ = ["custom", "histories", "kary", "named_states", "signed_subset"]
