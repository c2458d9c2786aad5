"""A survey that an app takes part in, as the app holds it."""

from __future__ import annotations

from collections.abc import Mapping

from changeling_protocol import EntryNumber, Survey, SurveyId, stratum_of, stratum_values

from . import entries, outbox, states
from .device import Device
from .ledger import Ledger, cost_if_restored
from .recording import Recorded
from .surveys import Status, why_not


class SurveyHandle:
    """A survey that was asked for: records the answers of its entries. Comes from `Client.join`.

    id: the survey's, 16 bytes.
    """

    __slots__ = ("_device", "id")

    def __init__(self, id_: SurveyId, device: Device) -> None:
        self.id = id_
        self._device = device

    @property
    def survey(self) -> Survey | None:
        """The survey, with its question, answers and calendar; None until it is known, and after it was left."""
        known = self._device.find(self.id)
        return known.survey if known is not None and known.payload else None

    @property
    def status(self) -> Status:
        """How the survey stands: ASKED until it is known, then JOINED, or REFUSED for a `reason`."""
        known = self._device.find(self.id)
        return Status.NOT_JOINED if known is None else known.status

    @property
    def reason(self) -> str:
        """Why the survey was refused, in words; empty if it was not."""
        known = self._device.find(self.id)
        return "" if known is None else known.reason

    def record(self, answer: str, entry: int = 0) -> Recorded:
        """Records the entry's answer from now on; it is on disk when this returns.

        answer: one of the survey's. entry: the entry's number, from 0.
        Returns whether the answer stands; the survey's constraint may have frozen the one before.
        An answer or an entry that the survey does not have is DROPPED and counted; of a strict client it raises
        ValueError. Raises ClientClosed, StoreBusy, StoreFull, StoreReadOnly or StoreUnusable: then it is not kept.
        None is taken for `retract`; a strict client raises ValueError, as a None is more often a mistake.
        """
        if answer is None and self._device.settings.strict:
            raise ValueError("None is no answer: `retract` records that the entry has none from now on")
        return self._device.record(self.id, answer, entry)

    def retract(self, entry: int = 0) -> Recorded:
        """Records that the entry has no answer from now on, as `record` does.

        Returns whether that stands: in a closed cohort an entry keeps its answer.
        """
        return self._device.record(self.id, None, entry)

    def answer(self, entry: int = 0) -> str | None:
        """The entry's answer as it was last recorded; None if there is none, or the survey has ended.

        Raises ValueError if the survey has no such entry; a store's errors.
        """
        known = self._device.find(self.id)
        if known is None or known.status not in (Status.ASKED, Status.JOINED):
            return None
        with self._device.store.transaction() as db:
            kept = entries.load(db, self._device.store.wrapping, self.id, EntryNumber(entry))
        if kept.pending:
            return kept.pending[-1].answer
        state = states.current(kept.states)
        return None if state == states.NULL else known.survey.answers[state - 1]

    def stratum(self, told: Mapping[str, str], entry: int = 0) -> None:
        """Changes the entry's stratum; what it answers from now on is counted there.

        told: a value for each of the survey's breakdowns. It is public, so it must not hang on an answer. The one
        that the entry has already is no change.
        Raises ValueError for a stratum that the survey does not declare, a change more than it allows, an entry that
        it does not have, or a survey that is not known yet; then nothing is changed. Raises a store's errors.
        """
        survey = self.survey
        if survey is None:
            raise ValueError(f"no stratum: {why_not(self._device.find(self.id), self.id)}; `join` takes the first one")
        number = stratum_of(survey.breakdowns, told)
        wrapping = self._device.store.wrapping
        with self._device.store.transaction() as db:
            kept = entries.load(db, wrapping, self.id, EntryNumber(entry))
            if number == kept.stratum:
                return
            if kept.stratum_changes >= (most := survey.stratum_changes):
                raise ValueError(f"an entry may change its stratum {most} times in this survey, and has done so")
            entries.update(db, wrapping, kept._replace(stratum=number, stratum_changes=kept.stratum_changes + 1))

    def ledger(self, entry: int = 0) -> Ledger | None:
        """How far the entry has answered, and what it costs, in words if printed; None until the survey is known.

        Raises ValueError if the survey has no such entry; a store's errors.
        """
        survey = self.survey
        if survey is None:
            return None
        with self._device.store.transaction() as db:
            kept = entries.load(db, self._device.store.wrapping, self.id, EntryNumber(entry))
            waiting = len(outbox.waiting(db, self.id, kept.number))
        costs = survey.epsilon, survey.per_week, cost_if_restored(survey)
        return Ledger(*costs, kept.answered, waiting, kept.dropped, stratum_values(survey.breakdowns, kept.stratum))
