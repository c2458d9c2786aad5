"""What a survey has asked of an entry, and the most it can cost it."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Ledger:
    """One entry's account with one survey.

    epsilon: the most the survey can tell two of the entry's changelogs apart, over its whole calendar, ln of a
    ratio. answered: the entry is done with every node that ends by this period. waiting: closings answered
    and not yet acknowledged by the server. dropped: closings that were past grace and never reached it.
    """

    epsilon: Decimal
    answered: int
    waiting: int
    dropped: int
