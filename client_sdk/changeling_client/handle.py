"""A joined survey, as an app holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from changeling_protocol import Survey
from changeling_protocol.quantities import EntryNumber
from changeling_protocol.strata import stratum_of, told_by

from . import changelog, entries, outbox, recording
from .changelog import NULL
from .clock import DeviceClock, latest_seen
from .ledger import Ledger, cost_if_restored
from .recording import Recorded
from .store import Store


class SurveyHandle:
    """A joined survey: records the answers of its entries. Comes from `Client.join`.

    survey: the survey, with its question, answers and calendar.
    """

    __slots__ = ("_clock", "_store", "survey")

    def __init__(self, survey: Survey, store: Store, clock: DeviceClock) -> None:
        self.survey = survey
        self._store, self._clock = store, clock

    def record(self, answer: str, entry: int = 0) -> Recorded:
        """Records the entry's answer from now on; it is on disk when this returns.

        answer: one of the survey's. entry: the entry's number, from 0.
        Returns whether the answer stands; the survey's constraint may have frozen the one before.
        Raises ValueError for an answer or an entry that the survey does not have, StoreBusy or StoreUnusable.
        """
        return self._record(recording.state_of(self.survey, answer), entry)

    def delete(self, entry: int = 0) -> Recorded:
        """Records that the entry has no answer from now on; that is on disk when this returns.

        Returns whether that stands: in a closed cohort an entry keeps its answer.
        Raises ValueError for an entry that the survey does not have, StoreBusy or StoreUnusable.
        """
        return self._record(NULL, entry)

    def answer(self, entry: int = 0) -> str | None:
        """The entry's answer as it was last recorded; None if there is none, or the survey has ended."""
        with self._store.transaction() as db:
            state = changelog.current_state(db, entries.load(db, self.survey.id, EntryNumber(entry)))
        return None if state == NULL else self.survey.answers[state - 1]

    def tell_stratum(self, stratum: Mapping[str, str], entry: int = 0) -> None:
        """Changes the entry's stratum; what it answers from now on is counted there.

        stratum: a value for each of the survey's breakdowns. It is public, so it must not hang on an answer. The one
        that the entry has already is no change.
        Raises ValueError for a stratum that the survey does not declare, a change more than it allows, or an entry that
        it does not have; then nothing is changed. Raises StoreBusy or StoreUnusable.
        """
        told = stratum_of(self.survey.breakdowns, stratum)
        with self._store.transaction() as db:
            account = entries.load(db, self.survey.id, EntryNumber(entry))
            if told == account.stratum:
                return
            if account.stratum_changes >= (most := self.survey.stratum_changes):
                raise ValueError(f"an entry may change its stratum {most} times in this survey, and has done so")
            entries.update(db, replace(account, stratum=told, stratum_changes=account.stratum_changes + 1))

    @property
    def spent(self) -> Decimal:
        """The most that the survey can cost an entry in all: its stated epsilon, which counts from joining on."""
        return self.survey.epsilon

    def ledger(self, entry: int = 0) -> Ledger:
        """How far the entry has answered, and what it costs. Raises ValueError if the survey has no such entry."""
        with self._store.transaction() as db:
            account = entries.load(db, self.survey.id, EntryNumber(entry))
            waiting = len(outbox.waiting(db, self.survey.id, account.number))
        survey = self.survey
        costs = survey.epsilon, survey.per_week, cost_if_restored(survey)
        public = told_by(survey.breakdowns, account.stratum)
        return Ledger(*costs, account.answered, waiting, account.dropped, public)

    def _record(self, state: int, entry: int) -> Recorded:
        with self._store.transaction() as db:
            account = entries.load(db, self.survey.id, EntryNumber(entry))
            return recording.record(db, self.survey, account, state, latest_seen(db, self._clock))
