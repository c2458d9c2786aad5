"""What surveys have asked of an app's entries so far, and what they can cost at most."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from changeling_protocol import Survey
from changeling_protocol.cost import lives_cost
from changeling_protocol.millionths import from_micro, micro

from . import drops, surveys
from .surveys import Known, Status


@dataclass(frozen=True, slots=True)
class Ledger:
    """One entry's account with one survey.

    epsilon: over the survey's whole calendar, no reports of the entry are more than e^epsilon times likelier under
    one changelog than under another.
    per_week: that epsilon for each week of the survey's calendar, rounded up.
    epsilon_if_restored: the same of the reports of two lives together, if a backup of the store was put back once, so
    that nodes were answered again. A store with a witness notices, and stays silent; one without does not.
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


@dataclass(frozen=True, slots=True)
class SurveyAccount:
    """What one survey has cost, or can still cost, the person.

    id: the survey's, in hex. question: None if the survey is not known, or was left. status: how it stands.
    epsilon: what it counts against the budget. per_week: that for each week of its calendar, rounded up; None without
    a calendar.
    """

    id: str
    question: str | None
    status: Status
    epsilon: Decimal
    per_week: Decimal | None

    def __str__(self) -> str:
        asked = f"“{self.question}”" if self.question else f"survey {self.id}"
        weekly = f", {self.per_week.normalize():f} a week" if self.per_week is not None else ""
        return f"{asked} ({self.status.name.lower()}): at most {self.epsilon.normalize():f}{weekly}"


@dataclass(frozen=True, slots=True)
class Account:
    """What all surveys of a store come to.

    spent: the sum of what its surveys count; a survey counts whole from the moment it is joined.
    at_most: what the app lets it come to, for good. surveys: each survey. drops: what was not kept or sent, by reason.
    witnessed: whether the device would notice that a backup was put back.
    """

    spent: Decimal
    at_most: Decimal
    surveys: tuple[SurveyAccount, ...]
    drops: Mapping[str, int]
    witnessed: bool

    def __str__(self) -> str:
        lines = [f"Privacy spent on surveys: {self.spent.normalize():f} of at most {self.at_most.normalize():f}."]
        lines += [f"- {survey}" for survey in self.surveys]
        if not self.witnessed:
            lines.append(
                "If a backup of this app's data is put back, surveys may cost more: nothing here would notice."
            )
        return "\n".join(lines)


@lru_cache(maxsize=64)
def cost_if_restored(survey: Survey) -> Decimal:
    """What two lives of one entry cost at most, rounded up to millionths."""
    return from_micro(micro(lives_cost(survey.plan, survey.calendar, survey.constraint, survey.closed, lives=2)))


def account(db: sqlite3.Connection, at_most: Decimal, witnessed: bool) -> Account:
    """What all surveys of a store come to. at_most, witnessed: as the account says them."""
    each = tuple(_account(known) for known in surveys.find_all(db))
    return Account(surveys.spent(db), at_most, each, drops.counted(db), witnessed)


def _account(known: Known) -> SurveyAccount:
    epsilon = from_micro(known.charge_micro)
    survey = surveys.readable(known) if known.payload else None
    if survey is None:
        return SurveyAccount(known.id.hex(), None, known.status, epsilon, None)
    return SurveyAccount(known.id.hex(), survey.question, known.status, epsilon, survey.per_week)
