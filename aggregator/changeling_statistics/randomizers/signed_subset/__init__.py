"""The counterpart of signed subset selection, whose reports are vectors of signs, and what it offers the planner."""

from changeling_protocol import SignedSubset

from ..offers import ONE_CHANGE, ChangeOffers
from ..registry import register
from .counterpart import SignedSubsetCounterpart
from .offers import agreeing, changes

register(SignedSubset, SignedSubsetCounterpart, changes=ChangeOffers(ONE_CHANGE, changes), agreeing=agreeing)
