"""The ledger: how far an app's entries have answered, and what surveys can cost at most."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from changeling_protocol import Survey, from_micro, lives_cost, micro, per_week, stratum_values

from . import entries, outbox
from .entries import Known, Status
from .errors import quoted, shown
from .store import StoreConnection, Wrapping


@dataclass(frozen=True, slots=True)
class Ledger:
    """One entry's account with one survey.

    epsilon: over the survey's whole calendar, no reports of the entry are more than e^epsilon times likelier under
    one changelog than under another.
    per_week: that epsilon on average over the weeks of the survey's calendar, rounded up; a bound on no single week.
    epsilon_if_restored: the same of the reports of two lives together, if a backup of the store was put back once, so
    that nodes were answered again. A store with a witness notices, and stays silent; one without does not.
    answered_period: every node that ends by this period, numbered from 1, is answered, dropped, or before the entry's
    time; no count of answers.
    waiting: how many closings are answered and not yet acknowledged by the server.
    dropped: how many closings came too late, and never reached the server.
    public: what the server learns of the entry as it is, beside its reports: the value of each breakdown of the survey.
    No noise hides it, and epsilon does not count it.
    clipped: how many numbers were recorded that lay beyond a question's levels; it stays on the device.
    """

    epsilon: Decimal
    per_week: Decimal
    epsilon_if_restored: Decimal
    answered_period: int
    waiting: int
    dropped: int
    public: Mapping[str, str]
    clipped: int = 0

    def __str__(self) -> str:
        lines = [
            f"At most {_plain(self.epsilon)} in all{_weekly(self.epsilon, self.per_week)}; "
            f"{_plain(self.epsilon_if_restored)} in all if a backup is put back once and nothing notices.",
            f"Done with up to period {self.answered_period:,}; {self.waiting:,} to be sent, {self.dropped:,} too late.",
        ]
        if self.public:
            lines.append(
                f"Told as it is: {', '.join(f'{shown(name)} {shown(value)}' for name, value in self.public.items())}."
            )
        if self.clipped:
            lines.append(f"Numbers beyond the levels, taken for the first or the last one: {self.clipped:,}.")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SurveyAccount:
    """The cost of one survey to the person, so far or still to come.

    id: the survey's, in hex. question: None if the survey is not known, or was left. status: how it stands.
    epsilon: what it counts against the budget. per_week: that on average over the weeks of its calendar, rounded up;
    None without a calendar. reason: why it was refused; empty if it was not.
    """

    id: str
    question: str | None
    status: Status
    epsilon: Decimal
    per_week: Decimal | None
    reason: str = ""

    def __str__(self) -> str:
        asked = quoted(self.question) if self.question else f"survey {self.id}"
        return f"{asked} ({self.status}): {self._cost()}"

    def _cost(self) -> str:
        if self.status is Status.ASKED:
            return "not known yet, so nothing is sent and nothing counts"
        if self.status is Status.REFUSED:
            return f"not joined, so nothing counts; {self.reason}"
        if not self.epsilon:
            return "counts nothing"
        return f"at most {_plain(self.epsilon)} in all{_weekly(self.epsilon, self.per_week)}"


@dataclass(frozen=True, slots=True)
class Account:
    """The cost of all surveys of a store.

    spent: the sum of what its surveys count; a survey counts whole from the moment it is joined.
    at_most: what the app lets it come to, for good. surveys: each survey. drops: what was not kept or sent, by reason.
    witnessed: whether the device would notice that a backup was put back.
    unread: True where the store cannot be read now, so that nothing else here says what was spent.
    """

    spent: Decimal
    at_most: Decimal
    surveys: tuple[SurveyAccount, ...]
    drops: Mapping[str, int]
    witnessed: bool
    unread: bool = False

    def __str__(self) -> str:
        if self.unread:
            return "What surveys have cost cannot be read at the moment."
        lines = [f"Privacy spent on surveys: {_plain(self.spent)} of at most {_plain(self.at_most)}."]
        lines += [f"- {survey}" for survey in self.surveys]
        if self.drops:
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.drops.items())
            lines.append(f"Not kept or not sent: {dropped}.")
        if not self.witnessed:
            lines.append(
                "If a backup of this app's data is put back, surveys may cost more: nothing here would notice."
            )
        return "\n".join(lines)


@lru_cache(maxsize=64)
def cost_if_restored(survey: Survey) -> Decimal:
    """The cost of two lives of one entry at most, rounded up to millionths."""
    return from_micro(micro(lives_cost(survey.plan, survey.calendar, survey.constraints, survey.closed, lives=2)))


def ledger(db: StoreConnection, wrapping: Wrapping, survey: Survey, number: int) -> Ledger:
    """The account of one entry of a survey. Raises ValueError for an entry that there is not."""
    kept = entries.load(db, wrapping, survey.id, number)
    waiting, public = len(outbox.waiting(db, survey.id, kept.number)), stratum_values(survey.public, kept.stratum)
    costs = survey.epsilon, survey.per_week, cost_if_restored(survey)
    return Ledger(*costs, kept.answered, waiting, kept.dropped, public, kept.clipped)


def account(db: StoreConnection, at_most: Decimal, witnessed: bool) -> Account:
    """The cost of all surveys of a store. at_most, witnessed: as the account says them."""
    each = tuple(_account(known) for known in entries.find_surveys(db))
    return Account(entries.spent(db), at_most, each, entries.counted_drops(db), witnessed)


def _account(known: Known) -> SurveyAccount:
    epsilon = from_micro(known.charge_micro)
    survey = known.readable
    if survey is None:
        return SurveyAccount(known.id.hex(), None, known.status, epsilon, None, known.reason)
    weekly = per_week(epsilon, survey.calendar.period * survey.calendar.periods)
    return SurveyAccount(known.id.hex(), survey.title, known.status, epsilon, weekly)


def _plain(number: Decimal) -> str:
    """Without zeros at its end, whatever the app's decimal context."""
    digits = f"{number:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _weekly(epsilon: Decimal, per_week: Decimal | None) -> str:
    """The average over its weeks; nothing of a survey that lasts less than one."""
    return f", on average {_plain(per_week)} a week" if per_week is not None and per_week < epsilon else ""
