"""A joined survey, as an app holds it."""

from __future__ import annotations

from decimal import Decimal

from changeling_protocol import Survey

from . import changelog, entries, outbox, recording
from .changelog import NULL
from .clock import DeviceClock
from .ledger import Ledger
from .recording import Recorded
from .store import Store


class SurveyHandle:
    """Records answers to one survey. Comes from `Client.join`."""

    __slots__ = ("_clock", "_store", "survey")

    def __init__(self, survey: Survey, store: Store, clock: DeviceClock) -> None:
        self.survey = survey
        self._store, self._clock = store, clock

    def record(self, answer: str, entry: int = 0) -> Recorded:
        """The entry's answer from now on; durable when this returns.

        Raises ValueError for an answer or an entry that the survey does not have.
        """
        return self._record(recording.state_of(self.survey, answer), entry)

    def delete(self, entry: int = 0) -> Recorded:
        """The entry has no answer from now on; durable when this returns. In a closed cohort it keeps it."""
        return self._record(NULL, entry)

    def answer(self, entry: int = 0) -> str | None:
        """The answer that stands, None if there is none."""
        with self._store.transaction() as db:
            state = changelog.current_state(db, entries.load(db, self.survey.id, entry))
        return None if state == NULL else self.survey.answers[state - 1]

    @property
    def spent(self) -> Decimal:
        """What the survey can cost each entry, in all: its stated epsilon, committed on joining."""
        return self.survey.epsilon

    def ledger(self, entry: int = 0) -> Ledger:
        """The entry's account. Raises ValueError for an entry that the survey does not have."""
        with self._store.transaction() as db:
            account = entries.load(db, self.survey.id, entry)
            waiting = len(outbox.waiting(db, self.survey.id, entry))
        return Ledger(self.survey.epsilon, account.answered, waiting, account.dropped)

    def _record(self, state: int, entry: int) -> Recorded:
        with self._store.transaction() as db:
            account = entries.load(db, self.survey.id, entry)
            return recording.record(db, self.survey, account, state, self._clock)
