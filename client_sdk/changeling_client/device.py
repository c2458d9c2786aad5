"""What a client does on its device, however the app calls it. Nothing here waits for a network but `flush`."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from changeling_protocol import Coins, Survey, SurveyId, SystemCoins, UnixMilliseconds, from_micro

from . import consent, enrolment, entries, forks, migrations, recording, surveys, witnessing
from .answering import next_due_ms
from .clock import known_time, ms_of
from .delivery import Server
from .errors import ClientClosed, ClientError, StoreUnusable, WitnessTrouble
from .exchange import Deadline
from .flushing import Flushed, Flusher
from .joining import enrol_or_refuse
from .ledger import Account, account
from .recorder import Recorder
from .recording import Recorded
from .servers import Lines
from .settings import Settings
from .store import Store
from .surveys import Known, Status

_log = logging.getLogger("changeling")


class Device:
    """One store and what is done with it.

    url: the server's base URL. connect: makes what speaks with a server. consent: whether the person takes part.
    """

    def __init__(
        self,
        path: Path,
        key: bytes | None,
        url: str,
        settings: Settings,
        connect: Callable[[str], Server],
        consent: bool,
        coins: Coins | None = None,
    ) -> None:
        self.settings, self.url = settings, url
        self.coins: Coins = coins or SystemCoins()
        self.consent = consent
        self._path, self._key, self._connect = path, key, connect
        self._opened: Store | None = None
        self._recorder: Recorder | None = None
        self._lines: Lines | None = None
        self._sending, self._deciding = threading.RLock(), threading.RLock()
        forks.survive(self)
        if consent:
            self._open()
        else:
            self._wipe()

    @property
    def store(self) -> Store:
        """The open store. Raises StoreUnusable where there is none, as there is no consent."""
        if self._opened is None:
            raise StoreUnusable("nothing is kept without consent")
        return self._opened

    def join(self, asked: Known, answers: Sequence[str] | None, signed: bytes | None) -> None:
        """Notes that the app wants to join a survey, and joins it if its signed bytes are at hand.

        Does nothing if it was asked for before, or without consent.
        Raises ValueError for another number of entries than before, or a bad argument; CannotJoin; a store's errors.
        """
        store = self._opened
        if store is None:
            return
        enrolment.check(asked, answers)
        survey = None if signed is None else enrolment.verified(asked.id, signed, self.settings.authority)
        if survey is not None and answers is not None and self.settings.strict:
            for answer in answers:
                recording.state_of(survey, answer)
        try:
            self._join(store, asked, answers, survey)
        except ClientClosed:
            if self._opened is store:
                raise

    def _join(self, store: Store, asked: Known, answers: Sequence[str] | None, survey: Survey | None) -> None:
        with store.transaction() as db:
            if not self.consent:
                return
            known = surveys.find(db, asked.id)
            if known is not None and known.status is not Status.REFUSED:
                if known.entries != asked.entries and known.status in (Status.ASKED, Status.JOINED, Status.ENDED):
                    raise ValueError(
                        f"the survey was joined with {known.entries} entries, which is for good; got {asked.entries}"
                    )
            else:
                enrolment.ask(db, store.wrapping, asked, answers)
                known = asked
            told = []
            if survey is not None and known.status is Status.ASKED:
                now_ms = known_time(db, known.url).stamp(self.now_ms())
                told = enrol_or_refuse(db, store, self.settings, known, survey, now_ms, False, self.coins)
        if survey is not None and known.status is Status.ASKED:
            store.erase_past()  # the answers that waited for it, and when they were given
        for error in told:
            raise error

    def record(self, id_: SurveyId, answer: str | None, number: int) -> Recorded:
        """Records an entry's answer as `Recorder.record` does; DROPPED without consent."""
        recorder = self._recorder
        if recorder is None:
            return Recorded.DROPPED
        try:
            return recorder.record(id_, answer, number, self.now_ms())
        except ClientClosed:
            if self._recorder is recorder:
                raise
            return Recorded.DROPPED

    def flush(self, timeout: float) -> Flushed:
        """Joins what was asked for, answers what is due, sends what waits; nothing without consent."""
        if not self.consent or self._lines is None:
            return Flushed(0, 0, 0, None)
        try:
            flushed, told = Flusher(
                self.store, self._lines, self.settings, self._sending, Deadline.after(timeout)
            ).flush(self.coins)
        except (ClientClosed, StoreUnusable):
            if self.consent:
                raise
            return Flushed(0, 0, 0, "there is no consent any more")
        for error in told:
            self.tell(error)
        return replace(flushed, trouble=flushed.trouble or str(told[0])) if told else flushed

    def leave(self, id_: SurveyId) -> None:
        """Leaves a survey for good: what it knew and what waits is wiped, and it is never joined again."""
        if self._opened is None:
            return
        with self.store.transaction() as db:
            told = witnessing.outdate(db, self.settings.witness)
            consent.leave(db, surveys.find(db, id_) or surveys.unknown(id_))
        self._stop_sending()
        self._witness(self.store, told)
        self._connect_anew(self.store)
        self._tell_unless(wiped=self.store.erase_past())

    def set_consent(self, given: bool) -> None:
        """Takes part from now on, or wipes everything at once. A survey that was left so is never joined again."""
        with self._deciding:
            if given == self.consent and (given or self._opened is None):
                return
            self.consent = given
            if given:
                self._open()
            else:
                self._wipe()

    def account(self) -> Account:
        """What all surveys come to; without consent too, as what was spent stays so."""
        at_most, witnessed = self.settings.max_epsilon, self.settings.witness is not None
        with consent.looking(self._opened, self._path, self._key) as db:
            none = Account(from_micro(0), at_most, (), {}, witnessed)
            return none if db is None else account(db, at_most, witnessed)

    def find(self, id_: SurveyId) -> Known | None:
        """The survey as the store knows it, without consent too; None if it has not heard of it."""
        with consent.looking(self._opened, self._path, self._key) as db:
            return None if db is None else surveys.find(db, id_)

    def next_due_ms(self) -> UnixMilliseconds | None:
        """When something is to be answered next by the device's clock, in Unix milliseconds; None if nothing is."""
        if self._opened is None:
            return None
        due = []
        with self.store.transaction() as db:
            for known in surveys.find_all(db, Status.JOINED):
                if (survey := surveys.readable(known)) is None:
                    continue
                lead = known_time(db, known.url).lead_ms
                for entry in entries.load_all(db, self.store.wrapping, known.id):
                    if (at_ms := next_due_ms(survey, entry)) is not None:
                        due.append(at_ms + lead)
        return UnixMilliseconds(min(due)) if due else None

    def pause_ms(self) -> int:
        """For how many milliseconds nobody should ask the servers unbidden, after failures."""
        return 0 if self._lines is None else self._lines.wait_ms(self.now_ms())

    def now_ms(self) -> UnixMilliseconds:
        """The device's time, in Unix milliseconds."""
        return ms_of(self.settings.clock())

    def tell(self, error: ClientError) -> None:
        """Tells the app of an error that cannot be raised into it. No error holds an answer."""
        _log.warning("%s: %s", type(error).__name__, error)
        if self.settings.on_error is not None:
            try:
                self.settings.on_error(error)
            except Exception:
                _log.exception("the app's on_error has failed")

    def interrupt(self) -> None:
        """Ends what is being asked of servers, at once and for good."""
        if self._lines is not None:
            self._lines.close()

    def close(self) -> None:
        """Closes the store; what waits is sent after the next start."""
        self.interrupt()
        if self._opened is not None:
            self._opened.close()

    def _open(self) -> None:
        self._opened = Store(self._path, self._key)
        self._recorder = Recorder(self._opened, self.settings.strict, self.tell)
        self._connect_anew(self._opened)
        silenced: ClientError | None
        try:
            with self._opened.transaction() as db:
                migrations.address(db, self.url)
                silenced = witnessing.check(db, self.settings.witness)
        except WitnessTrouble as error:
            silenced = error  # looked at again before anything is answered
        if silenced is not None:
            self.tell(silenced)
        self._opened.erase_past(changed=silenced is not None)

    def _connect_anew(self, store: Store) -> None:
        self._lines = Lines(store, self._connect, self.settings.authority, self.settings.clock)

    def _stop_sending(self) -> None:
        """Ends what is being sent, and waits until it has ended. A flush that runs can send nothing more."""
        self.interrupt()
        with self._sending:
            return

    def _wipe(self) -> None:
        """Wipes what the store holds. One that cannot be opened is destroyed: nobody knows what is in it.

        Raises StoreUnusable for a file that never was a store.
        """
        self._recorder = None
        self._stop_sending()
        self._lines = None
        try:
            store = self._opened or (Store(self._path, self._key) if self._path.exists() else None)
        except StoreUnusable:
            if not consent.is_ours(self._path):
                raise
            consent.destroy(self._path)
            store = None
        if store is None:
            self._witness(None)
            return
        with store.transaction() as db:
            told = witnessing.outdate(db, self.settings.witness)
            consent.withdraw(db)
        self._opened = None
        self._witness(store, told)
        wiped = store.erase_past()
        store.close()
        self._tell_unless(wiped)

    def before_fork(self) -> None:
        """Nothing: what is being sent goes on in the parent."""

    def after_fork(self, in_child: bool) -> None:
        """A child waits for no thread that it does not have."""
        if in_child:
            self._sending, self._deciding = threading.RLock(), threading.RLock()

    def _witness(self, store: Store | None, told: ClientError | None = None) -> None:
        """Lets the witness know that surveys were left, or with None that there is no store any more.

        told: what came of asking it before, for the app.
        """
        if told is not None:
            self.tell(told)
        try:
            if store is None:
                witnessing.disown(self.settings.witness)
            else:
                with store.transaction() as db:
                    witnessing.check(db, self.settings.witness)
        except WitnessTrouble as error:
            self.tell(error)

    def _tell_unless(self, wiped: bool) -> None:
        if not wiped:
            sentence = "another process reads the store: its old pages are erased when this app next starts"
            self.tell(ClientError(sentence))
