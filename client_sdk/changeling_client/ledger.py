"""What a survey has asked of an entry so far, and what it can cost the entry at most."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from changeling_protocol import Survey
from changeling_protocol.cost import lives_cost
from changeling_protocol.millionths import from_micro, micro


@dataclass(frozen=True, slots=True)
class Ledger:
    """One entry's account with one survey.

    epsilon: over the survey's whole calendar, no reports of the entry are more than e^epsilon times likelier under
    one changelog than under another.
    per_week: that epsilon for each week of the survey's calendar, rounded up.
    epsilon_if_restored: the same of the reports of two lives together, if a backup of the store was put back once, so
    that nodes were answered again. Nothing on the device notices.
    answered: every node that ends by this period, numbered from 1, is answered or dropped.
    waiting: how many closings are answered and not yet acknowledged by the server.
    dropped: how many closings came too late, and never reached the server.
    public: what the server learns of the entry as it is, beside its reports: the value of each breakdown of the survey.
    No noise hides it, and epsilon does not count it.
    """

    epsilon: Decimal
    per_week: Decimal
    epsilon_if_restored: Decimal
    answered: int
    waiting: int
    dropped: int
    public: Mapping[str, str]


def cost_if_restored(survey: Survey) -> Decimal:
    """What two lives of one entry cost at most, rounded up to millionths."""
    return from_micro(micro(lives_cost(survey.plan, survey.calendar, survey.constraint, survey.closed, lives=2)))
