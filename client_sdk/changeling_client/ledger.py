"""What a survey has asked of an entry so far, and what it can cost the entry at most."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Ledger:
    """One entry's account with one survey.

    epsilon: over the survey's whole calendar, no reports of the entry are more than e^epsilon times likelier under
    one changelog than under another.
    answered: every node that ends by this period, numbered from 1, is answered or dropped.
    waiting: how many closings are answered and not yet acknowledged by the server.
    dropped: how many closings came too late, and never reached the server.
    """

    epsilon: Decimal
    answered: int
    waiting: int
    dropped: int
