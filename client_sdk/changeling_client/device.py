"""The work of a client on its device, however the app calls it. Nothing here waits for a network but a flush."""

import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from math import inf
from typing import TypeVar

from changeling_protocol import Coins, EntryNumber, SurveyId, SystemCoins, UnixMilliseconds, from_micro

from . import enrolment, entries, witness
from .enrolment import Enroller
from .entries import Answer, Known, Pending, Status
from .errors import ClientClosed, ClientError, StoreBusy, StoreUnusable, WitnessTrouble
from .flushing import ANOTHER_REPORTS, Flush, Flushed, next_due_ms
from .ledger import Account, Ledger, account, ledger
from .recording import NULL, FirstAnswers, Recorded, check_first, current, place_of, record_in, waiting_for_time
from .server import Servers, known_time, ms_of
from .settings import ClientSettings
from .store import ClientStore, Forks, StoreConnection, reading, survive
from .transport import NetworkTime

LONGEST_WAIT_SECONDS = 900.0
"""A device looks at its clock again after so long: it may have slept, or been set."""
SOONEST_SECONDS = 1.0
RETRY_SECONDS, LONGEST_BUSY_SECONDS = 5.0, 60.0
"""Another process that reports may have ended after so long; each wait for it is longer by as much as the first, up to
a minute, as it may hang. After trouble that no server is to blame for each is twice the one before, as a witness is
asked each time."""
FLUSH_SECONDS = 60.0
NO_STORE = "the store cannot be used"
JOINED_JUST_NOW_SECONDS, RECORDED_JUST_NOW_SECONDS = 1.0, 0.1
"""A call so soon after another was made because of it, most likely."""
STOP_SECONDS = 0.5
"""How long to wait for a flush that was told to end."""
_Given = TypeVar("_Given")
_log = logging.getLogger("changeling")


class Device(Forks):
    """One store and what is done with it. settings: checked. consent: whether the person takes part."""

    def __init__(self, settings: ClientSettings, consent: bool) -> None:
        self.settings, self.consent = settings, consent
        self.coins: Coins = SystemCoins()
        self._opened: ClientStore | None = None
        self._servers: Servers | None = None
        self._sending, self._deciding = threading.RLock(), threading.RLock()
        self.keep_reporting: Callable[[], None] = lambda: None
        """Called whenever the app does something, so that the background thread goes on after a fork."""
        self._first_join, self._last_record = -inf, (-inf, 0)
        """By the monotonic clock, in seconds; and of the record, which thread made it."""
        survive(self)
        if consent:
            try:
                self.quietly(self._open, None)
            except ClientError:
                self.close()  # nobody else can: there is no client
                raise
        else:
            self._wipe()

    def doubt(self, call: str) -> None:
        """Warns where a call tells when an answer was given, of a strict client by a real clock. call: the method."""
        if not self.settings.strict or self.settings.clock is not time.time:
            return
        now, here = time.monotonic(), threading.get_ident()
        when, where = self._last_record
        words = ""
        if call == "record":
            self._last_record = now, here
            if now - self._first_join < JOINED_JUST_NOW_SECONDS:
                words = (
                    "`record` follows the first `join` at once: join at the app's first launch, or the server learns"
                )
        elif where == here and now - when < RECORDED_JUST_NOW_SECONDS:
            words = (
                f"`{call}` follows `record` at once: call it by a timer, or at the app's start, or the server may learn"
            )
        if words:
            warnings.warn(f"{words} when the answer was given", stacklevel=4 if call == "record" else 3)

    def quietly(self, act: Callable[[], _Given], otherwise: _Given) -> _Given:
        """Acts, and returns what that gives. If the app is silent, it is told what is raised, and `otherwise` returned.

        A bad argument is raised all the same.
        """
        try:
            return act()
        except ClientError as error:
            if not self.settings.silent:
                raise
            self.tell(error)
            return otherwise

    @property
    def store(self) -> ClientStore:
        """The open store. Raises StoreUnusable where there is none, as there is no consent."""
        if self._opened is None:
            raise StoreUnusable("nothing is kept without consent")
        return self._opened

    def join(self, asked: Known, answers: Sequence[FirstAnswers] | None, signed: bytes | None) -> None:
        """Notes that the app wants to join a survey, and joins it if its signed bytes are at hand.

        Does nothing if it was asked for before, or without consent.
        Raises ValueError for a bad argument; CannotJoin; a store's errors.
        """
        store = self._opened
        if store is None:
            return
        asked = asked._replace(asked_ms=self.now_ms(), url=self.settings.endpoint.url)
        enrolment.check(asked, answers)
        survey = None if signed is None else enrolment.verified(asked.id, signed, self.settings.authority)
        if survey is not None and answers is not None and self.settings.strict:
            for answer in answers:
                check_first(survey, answer)
        refused: ClientError | None = None
        try:
            with store.transaction() as db:
                if not self.consent:
                    return
                enroller = Enroller(store, self.settings, self.coins)
                known = enroller.ask(db, asked, answers)
                first = known is asked and answers is None
                self._first_join = time.monotonic() if first else self._first_join
                if survey is not None and known.status is Status.ASKED:
                    refused = enroller.enrol_or_refuse(db, known, survey, time_known=False)
            if survey is not None and known.status is Status.ASKED:
                store.erase_past()  # the answers that waited for it, and when they were given
        except ClientClosed:
            if self._opened is store:
                raise
        if refused is not None:
            raise refused

    def add_entries(
        self, id_: SurveyId, count: int, answers: Sequence[FirstAnswers] | None, stratum: Mapping[str, str] | None
    ) -> range:
        """Adds entries to a survey as `Enroller.add` does. Raises StoreUnusable without consent."""
        with self.store.transaction() as db:
            return Enroller(self.store, self.settings, self.coins).add(db, id_, count, answers, stratum)

    def record(self, id_: SurveyId, answer: Answer | None, number: int, question: str = "") -> Recorded:
        """Records an entry's answer as `recording.record_in` does; DROPPED without consent."""
        self.keep_reporting()
        store = self._opened
        if store is None or not self.consent:
            return Recorded.DROPPED
        pending = Pending(self.now_ms(), answer, question)
        try:
            return record_in(store, id_, number, pending, self.settings.strict, self.tell)
        except ClientClosed:
            if self.consent and self._opened is store:  # else consent was withdrawn meanwhile
                raise
            return Recorded.DROPPED

    def answer(self, id_: SurveyId, number: int, question: str) -> Answer | None:
        """The answer of an entry to a question as it was last recorded; None if there is none, or the survey has ended.

        Raises ValueError for an entry or a question that there is not.
        """
        known = self.find(id_)
        if known is None or known.status not in (Status.ASKED, Status.JOINED):
            return None
        with self.store.transaction() as db:
            kept = entries.load(db, self.store.wrapping, id_, number)
        if known.status is Status.ASKED:
            about = kept.waiting_about(question)
            return about[-1].answer if about else None
        place = place_of(known.survey, question)
        if waiting := waiting_for_time(known.survey, kept, place):
            return waiting[-1]
        state = current(kept.held[place].states)
        return None if state == NULL else known.survey.questions[place].answers[state - 1]

    def change_stratum(self, id_: SurveyId, number: int, told: Mapping[str, str]) -> None:
        """Changes an entry's stratum as `enrolment.change_stratum` does. Raises ValueError, unless the app is silent,
        for a survey that is not known yet."""
        known = self.find(id_)
        if known is not None and known.payload:
            with self.store.transaction() as db:
                enrolment.change_stratum(db, self.store.wrapping, known.survey, number, told)
        elif not self.settings.silent:
            raise ValueError(f"no stratum: {entries.why_not(known, id_)}; `join` takes the first one")

    def ledger(self, id_: SurveyId, number: int) -> Ledger | None:
        """An entry's progress and its cost; None until the survey is known. Raises ValueError for an unknown entry."""
        known = self.find(id_)
        if known is None or not known.payload:
            return None
        with self.store.transaction() as db:
            return ledger(db, self.store.wrapping, known.survey, number)

    def flush(self, timeout: float, unbidden: bool = False) -> Flushed:
        """Joins what was asked for, answers what is due, sends what waits; nothing without consent.

        unbidden: whether nobody asked for it, so that servers which have failed a short while ago are not asked.
        """
        self.keep_reporting()
        if not self.consent:
            return Flushed(0, 0, 0, None)
        if self._servers is None:
            return Flushed(0, 0, 0, NO_STORE)
        try:
            flush = Flush(self.store, self._servers, self.settings, self._sending, NetworkTime(timeout), self.coins)
            flushed, told = flush.run(unbidden)
        except (ClientClosed, StoreUnusable):
            if self.consent:
                raise
            return Flushed(0, 0, 0, "there is no consent any more")
        for error in told:
            self.tell(error)
        return replace(flushed, trouble=flushed.trouble or str(told[0])) if told else flushed

    @reading
    def leave(self, id_: SurveyId, number: EntryNumber | None = None) -> None:
        """Leaves a survey for good: what it knew and what waits is wiped, and it is never joined again.

        number: of the one entry that leaves; None for all of the survey.
        """
        if self._opened is None:
            return
        with self.store.transaction() as db:
            witness.outdate(db)
            if number is None:
                enrolment.leave(db, entries.find_survey(db, id_) or Known(id_))
            else:
                entries.leave(db, id_, number)
        self._stop_sending()
        self._check_witness(self.store)
        self._servers = Servers(self.store, self.settings)
        self._tell_unless(wiped=self.store.erase_past())

    def hand_over(self, invitation: bytes) -> bytes:
        """Packs the parcel for an invitation, and retires the store. Raises ValueError, WitnessTrouble, a store's."""
        from .handover import pack

        self._stop_sending()
        try:
            with self._alone() as store:
                parcel = pack(store, invitation)
                witness.check(store, self.settings.witness)
        finally:
            self._servers = Servers(self.store, self.settings)
        self._tell_unless(wiped=self.store.erase_past())
        return parcel

    def take_over(self, parcel: bytes) -> tuple[SurveyId, ...]:
        """Takes over what is in a parcel. Returns the surveys. Raises ValueError, WitnessTrouble, a store's errors."""
        from .handover import unpack

        with self._alone() as store:
            surveys = unpack(store, parcel, self.settings.max_epsilon)
            with store.transaction() as db:
                entries.follow_server(db, self.settings.endpoint.url)
            witness.check(store, self.settings.witness)
        self._tell_unless(wiped=self.store.erase_past())
        return surveys

    @contextmanager
    def _alone(self) -> Iterator[ClientStore]:
        """The store, which is the one that was witnessed, while nobody reports. Raises StoreBusy, or Silenced."""
        with self.store.reporting.tried() as alone:
            if not alone:
                raise StoreBusy(ANOTHER_REPORTS)
            if (silenced := witness.check(self.store, self.settings.witness)) is not None:
                raise silenced
            yield self.store

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

    @reading
    def account(self) -> Account:
        """The cost of all surveys; without consent too, as what was spent stays so."""
        self.keep_reporting()
        at_most, witnessed = self.settings.max_epsilon, self.settings.witness is not None
        with self._looking() as db:
            return self.no_account(unread=self.consent) if db is None else account(db, at_most, witnessed)

    def no_account(self, unread: bool) -> Account:
        """The account of a store in which there is nothing, or that cannot be read."""
        return Account(from_micro(0), self.settings.max_epsilon, (), {}, self.settings.witness is not None, unread)

    @reading
    def find(self, id_: SurveyId) -> Known | None:
        """The survey as the store knows it, without consent too; None if it has not heard of it."""
        self.keep_reporting()
        with self._looking() as db:
            return None if db is None else entries.find_survey(db, id_)

    @contextmanager
    def _looking(self) -> Iterator[StoreConnection | None]:
        """A transaction to look at what is left of the store, also where it is closed without consent; None of none."""
        opened, place = self._opened, self.settings.place
        if opened is None and not place.exists():
            yield None
            return
        store = nullcontext(opened) if opened is not None else closing(place.open(self.settings.key))
        with store as found, found.transaction() as db:
            yield db

    @reading
    def next_due_ms(self) -> UnixMilliseconds | None:
        """When something is to be answered next by the device's clock, in Unix milliseconds; None if nothing is."""
        if self._opened is None:
            return None
        due = []
        with self.store.transaction() as db:
            for known in entries.find_surveys(db, Status.JOINED):
                if (survey := known.readable) is None:
                    continue
                lead = known_time(db, known.url).lead_ms
                for entry in entries.next_delays(db, known.id):
                    if (at_ms := next_due_ms(survey, entry)) is not None:
                        due.append(at_ms + lead)
        return UnixMilliseconds(min(due)) if due else None

    def pause_ms(self) -> int:
        """For how many milliseconds nobody should ask the servers unbidden, after failures."""
        return 0 if self._servers is None else self._servers.wait_ms(self.now_ms())

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
        if self._servers is not None:
            self._servers.close()

    def close(self) -> None:
        """Closes the store; what waits is sent after the next start."""
        self.interrupt()
        if self._opened is not None:
            self._opened.close()

    def after_fork(self, in_child: bool) -> None:
        """A child waits for no thread that it does not have."""
        if in_child:
            self._sending, self._deciding = threading.RLock(), threading.RLock()

    def _open(self) -> None:
        store = self.settings.place.open(self.settings.key)
        with store.transaction() as db:
            entries.follow_server(db, self.settings.endpoint.url)
        self._opened = store
        self._servers = Servers(store, self.settings)
        self._opened.erase_past(changed=self._check_witness(self._opened))

    def _wipe(self) -> None:
        """Wipes what the store holds. One for which that fails is destroyed: nobody knows what is in it.

        Raises StoreUnusable for a file that never was a store, and ClientClosed, StoreBusy or StoreReadOnly.
        """
        self._stop_sending()
        self._servers = None
        place, store = self.settings.place, self._opened
        try:
            if store is None and place.exists():
                store = place.open(self.settings.key)
            if store is not None:
                self._leave_all(store)
                return
        except (ClientClosed, StoreBusy):  # nothing was changed, and it can be tried again
            raise
        except Exception:
            if not place.is_ours():
                raise
            self._opened = None
            if store is not None:
                store.abandon()
            place.destroy()
        try:
            witness.disown(self.settings.witness)
        except WitnessTrouble as error:
            self.tell(error)

    def _leave_all(self, store: ClientStore) -> None:
        """Leaves every survey of a store, and closes it when nothing is left in it."""
        with store.transaction() as db:
            witness.outdate(db)
            enrolment.leave_all(db)
        self._check_witness(store)
        wiped = store.erase_past()
        store.close()
        self._opened = None
        self._tell_unless(wiped)

    def _stop_sending(self) -> None:
        """Ends what is being sent, and waits until it has ended. A flush that runs can send nothing more."""
        self.interrupt()
        with self._sending:
            return

    def _check_witness(self, store: ClientStore) -> bool:
        """Looks whether the store is the one that was witnessed, unless somebody reports: who does looks as well.

        It is not waited for long, as it may wait for a witness of the app's that waits for this very thread.
        Returns whether there was anything to tell the app.
        """
        told: ClientError | None = None
        with store.reporting.tried(STOP_SECONDS) as alone:
            try:
                told = witness.check(store, self.settings.witness) if alone else None
            except WitnessTrouble as error:
                told = error  # looked at again before anything is answered
        if told is not None:
            self.tell(told)
        return told is not None

    def _tell_unless(self, wiped: bool) -> None:
        if not wiped:
            sentence = "another process reads the store: its old pages are erased when this app next starts"
            self.tell(ClientError(sentence))


class Reporter(Forks):
    """A daemon thread that flushes a device when something is due, and again after trouble, until it is stopped.

    When it flushes depends on the calendar, on chance and on how the server does, never on what is recorded. It raises
    nothing into the app: errors go to the device's `on_error`.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wanted = False
        self._told = False
        """True if the app was told that there is no thread."""
        self._busy = 0
        """How many flushes in a row have found another process at work."""
        self._vain = 0
        """How many flushes in a row have met trouble, or have left due what was."""
        self._due_ms: UnixMilliseconds | None = None
        """What was due next after the last flush."""
        self._thread: threading.Thread | None = None
        self._wake, self._stopped = threading.Event(), threading.Event()
        survive(self)

    def start(self) -> None:
        """Starts reporting; does nothing if it is started, or was stopped."""
        self._wanted = True
        self.ensure()

    def ensure(self) -> None:
        """Starts the thread where there is none that lives: in a child that was forked, or where there was no room."""
        if not self._wanted or self._stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        thread = threading.Thread(target=self._run, name="changeling", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:  # the interpreter ends, or there are threads enough
            if not self._told:
                self._told = True
                self._device.tell(ClientError("no thread can be started to report in the background"))

    def wake(self) -> None:
        """Flushes soon: a survey was asked for, or consent was given."""
        self.ensure()
        self._wake.set()

    def stop(self) -> None:
        """Stops for good; waits for a flush to end, but not for a network."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def after_fork(self, in_child: bool) -> None:
        """In a child, forgets the parent's thread; `ensure` starts another when the app next calls."""
        if in_child:
            stopped = self._stopped.is_set()
            self._thread = None
            self._wake, self._stopped = threading.Event(), threading.Event()
            if stopped:
                self._stopped.set()

    def step(self) -> float:
        """Flushes once. What goes wrong is told to the app, and never raised.

        Returns how long to wait, in seconds: until something is due or, after trouble, until it may be over.
        """
        try:
            flushed = self._device.flush(FLUSH_SECONDS, unbidden=True)
            self._busy = self._busy + 1 if flushed.trouble == ANOTHER_REPORTS else 0
            return min(RETRY_SECONDS * self._busy, LONGEST_BUSY_SECONDS) if self._busy else self._until_next(flushed)
        except ClientClosed:  # or without consent, until it is given again
            pass
        except ClientError as error:
            self._device.tell(error)
        except Exception:
            _log.exception("reporting has failed")
        return LONGEST_WAIT_SECONDS

    def _until_next(self, flushed: Flushed) -> float:
        due_ms, now_ms = self._device.next_due_ms(), self._device.now_ms()
        is_due = due_ms is not None and due_ms < now_ms
        in_vain = flushed.trouble is not None or (is_due and due_ms == self._due_ms)  # it waits for a server
        self._due_ms = due_ms
        self._vain = self._vain + 1 if in_vain else 0
        if is_due and not in_vain:  # it fell due meanwhile
            return SOONEST_SECONDS
        wait = LONGEST_WAIT_SECONDS
        if due_ms is not None and not is_due:
            wait = min(wait, max((due_ms - now_ms) / 1000 + 0.001, SOONEST_SECONDS))
        retry = RETRY_SECONDS * 2.0 ** min(self._vain - 1, 10)
        return min(wait, max(self._device.pause_ms() / 1000 + 0.001, retry)) if in_vain else wait

    def _run(self) -> None:
        wake, stopped = self._wake, self._stopped
        while not stopped.is_set():
            wake.clear()
            wake.wait(self.step())
