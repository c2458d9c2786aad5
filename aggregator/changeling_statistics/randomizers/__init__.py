"""What the statistics know of each randomizer: one file or folder for each kind, which registers it.

Such a file holds the randomizer's counterpart (tallies, decoder, covariances, likelihoods, sampler) and what it offers
the planner, and none of them imports another. What several share stands beside them: `counted` and `listed` for small
alphabets, `symbol_contents` and `named_states` for symbols that say something of every state.
"""

from . import custom, kary, kary_change, signed_subset, subset_selection, unary_encoding
from .counterpart import Blanket, Counterpart
from .decoded_nodes import DecodedNodes
from .likelihoods import Likelihoods, PairKind
from .offers import ChangeOffers, Offer, Variances
from .registry import agreeing_offers, change_offers, counterpart_of, register, state_offers
from .variances import class_variances, offer_of

__all__ = [
    "Blanket",
    "ChangeOffers",
    "Counterpart",
    "DecodedNodes",
    "Likelihoods",
    "Offer",
    "PairKind",
    "Variances",
    "agreeing_offers",
    "change_offers",
    "class_variances",
    "counterpart_of",
    "custom",
    "kary",
    "kary_change",
    "offer_of",
    "register",
    "signed_subset",
    "state_offers",
    "subset_selection",
    "unary_encoding",
]
