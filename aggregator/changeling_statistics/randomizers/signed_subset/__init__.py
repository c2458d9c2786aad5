"""Signed subset selection: a change is told by a sign for every state, or by nothing."""

from changeling_protocol import SignedSubset

from ..offers import ChangeOffers
from ..registry import register
from .counterpart import SignedSubsetCounterpart
from .offers import UNIT_LOSSES, changes

register(SignedSubset, SignedSubsetCounterpart, changes=ChangeOffers(UNIT_LOSSES, changes))
