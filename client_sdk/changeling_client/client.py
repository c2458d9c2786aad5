"""The client an app embeds, and its hold on each survey: one store, one server, and the most that surveys may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from changeling_protocol import Survey, SurveyId

    from .device import Device
    from .entries import Answer, Known, Status
    from .explanation import Explanation
    from .flushing import Flushed
    from .ledger import Account, Ledger
    from .recording import FirstAnswers, Recorded
    from .reports import SurveyReports
    from .settings import ClientOptions


class Client:
    """Joins surveys, records answers through the handles it gives, and reports in the background.

    server: the server's base URL. It must be HTTPS; plain HTTP is allowed on loopback only.
    authority: the Ed25519 public keys of the survey authority, 32 bytes each: the current one, and the next.
    max_epsilon: the most that the epsilons of all surveys in this store may add up to, above 0.
    app: the app's name, such as "org.example.tea"; the store is then in the data folder of that name.
    path: the store's own path, instead; one SQLite file, made with its folder if there is none.
    database: a PostgreSQL database that pods share, instead, such as "postgresql://USER@HOST/DATABASE". The tables are
    made in the first schema of its search path, which must be the store's own. Its witness is none, or one that all
    pods share (`SharedCallbacks`).
    key: 32 bytes under which the store encrypts what it keeps of answers; always the same ones.
    witness: sees that a backup of the store was put back, or a copy made: a sidecar in its usual place, or in the
    folder named here, or what the host app keeps (`Callbacks`); with None nothing does.
    consent: whether the person takes part. Without, whatever was kept is wiped, and nothing is recorded or sent.
    strict: whether a wrong answer raises ValueError, as tests and development want it, or is dropped and counted. By a
    real clock a strict client warns as well where the app gives away by its calls when an answer was given: `record`
    within a second of the first `join`, or `flush`, `leave` or `stratum` within a tenth of one after `record`.
    silent: whether the app runs on where nothing can be kept, on a full disk, say, or without a home: what its calls
    would raise is told to `on_error`, and they return as if nothing were known. Only `leave`, `set_consent` and the
    calls of a hand-over still raise, as an app has to know what became of them.
    background: whether a thread reports by itself; else the app calls `flush` whenever it runs.
    development: surveys that go to loopback do not count against max_epsilon; for servers on loopback only.
    upload_token: names the app to a server that asks for it, with each upload: the same in all copies of the app, never
    a person's or a device's. Relays that surveys declare are not shown it.
    on_error: called, from any thread, with what cannot be raised into the app; the logger "changeling" tells it too.
    proxy, verify, transport: as httpx takes them.
    clock: gives the time in Unix seconds.

    Threads may share a client, and processes a store; a client lives on in a forked child.
    Raises StoreUnusable for a file that is no sound store, StoreFull, StoreReadOnly, StoreBusy, or ValueError for a bad
    argument. Nothing here but `flush` waits for a network.

    In an app's tests a server without a network stands in for the real one:

    >>> from tempfile import TemporaryDirectory
    >>> from changeling_client.testing import FakeServer, make_client, make_survey
    >>> server = FakeServer()
    >>> survey_id = server.publish(make_survey(periods=7))
    >>> with TemporaryDirectory() as folder, make_client(folder, server) as client:
    ...     survey = client.join(survey_id)
    ...     recorded = survey.record("tea")
    ...     server.clock.advance(days=2)
    ...     client.flush()
    Flushed(sent=2, waiting=0, dropped=0, trouble=None)
    >>> [report.says for report in server.reports]
    ['from no answer to tea', 'no change']
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        from .device import Device, Reporter
        from .settings import ClientSettings

        self._device = Device(ClientSettings.of(options), options.get("consent", True))
        self._reporter = Reporter(self._device)
        self._device.keep_reporting = self._reporter.ensure
        if options.get("background", True):
            self._reporter.start()

    def join(
        self,
        survey_id: bytes | str,
        *,
        entries: int = 1,
        one_person: bool = False,
        signed: bytes | None = None,
        answers: Sequence[FirstAnswers] | None = None,
        stratum: Mapping[str, str] | None = None,
    ) -> SurveyHandle:
        """Takes part in the survey with this id from now on, if it has not done so before.

        The survey need not be known yet: it is fetched in the background, and what was recorded meanwhile is judged,
        counted and reported then. The handle's `status` says how it stands; a survey that may not be joined is told to
        `on_error`.

        survey_id: 16 bytes, or 32 hex digits.
        entries: how many answers the app has held for this survey, numbered from 0. If there are fewer, the others are
        added; `add_entries` adds some whose numbers it tells.
        one_person: whether all entries are one person's, who then spends the survey's epsilon for each of them.
        signed: the signed survey, if the app brings it; then it is joined before this returns.
        answers: the first answer of each entry. A closed cohort needs them; later calls pass over them.
        stratum: a value for each of the survey's breakdowns, such as {"platform": "linux"}: the stratum of all entries.
        It is public, so it must not hang on an answer. A survey with breakdowns needs it; later calls pass over it.

        Returns the handle through which answers are recorded.
        Raises CannotJoin for signed bytes that may not be joined, a store's errors, or ValueError for a bad argument.
        """
        from .entries import Known

        id_ = _id(survey_id)
        asked = Known(id_, entries=entries, one_person=one_person, stratum=dict(stratum or {}))
        self._device.quietly(lambda: self._device.join(asked, answers, signed), None)
        self._reporter.wake()
        return SurveyHandle(id_, self._device)

    def flush(self, timeout: float = 30.0) -> Flushed:
        """Joins what was asked for, answers every node that is due, then sends all reports that wait.

        timeout: how long the network may take in all, in seconds.
        Returns what became of the reports. Trouble with the server is told there, and loses none of them.
        Raises a store's errors, or ClientClosed.
        """
        from .device import NO_STORE
        from .flushing import Flushed

        self._device.doubt("flush")
        return self._device.quietly(lambda: self._device.flush(timeout), Flushed(0, 0, 0, NO_STORE))

    def leave(self, survey_id: bytes | str) -> None:
        """Leaves a survey: all it knew is wiped at once, nothing more is sent, and it is never joined again."""
        self._device.doubt("leave")
        self._device.leave(_id(survey_id))

    def hand_over_key(self) -> bytes:
        """The public key of this store, 32 bytes, to be carried to the device that shall take over."""
        from .handover import own_key

        return own_key(self._device.store)

    def invite(self, key: bytes | None) -> bytes:
        """Invites the store with this key to hand over to this one; the same invitation, as long as it is open.

        Until then nothing is joined or answered here. None withdraws the invitation; what was packed for it is lost.
        key: the other store's `hand_over_key()`, as it was carried here.
        Returns 33 bytes, to be carried to the other device in a way that nobody can change.
        Raises ValueError for a bad key, or where this store has itself answered; a store's errors.
        """
        from .handover import invite

        return invite(self._device.store, key)

    def hand_over(self, invitation: bytes) -> bytes:
        """Moves all surveys of this store, with what they know and have spent, to the store that invites it.

        They are MOVED here from then on, for good. Returns the parcel for `take_over` of the other store: encrypted, so
        that it may be carried any way; kept here as well, so that the same call gives it again.
        Raises ValueError for what is no invitation; WitnessTrouble, or StoreBusy while another process reports, after
        which the same call goes on.
        """
        return self._device.hand_over(invitation)

    def take_over(self, parcel: bytes) -> tuple[SurveyId, ...]:
        """Goes on with the surveys that another store has handed over to this one, from where they were.

        What was asked for here, and not answered, gives way to what is handed over; an answer that has changed
        meanwhile is recorded again. Returns the ids of the surveys that go on here; join them as ever for a handle.
        Raises ValueError for a parcel that is not for this store's invitation, WitnessTrouble, Silenced, StoreBusy.
        """
        surveys = self._device.take_over(parcel)
        self._reporter.wake()
        return surveys

    @property
    def consent(self) -> bool:
        """True if the person takes part."""
        return self._device.consent

    def set_consent(self, given: bool) -> None:
        """Takes part from now on; or leaves all surveys, and wipes all that was kept before this returns.

        A survey that was left is never joined again, whatever is consented to later.
        """
        self._device.set_consent(given)
        self._reporter.wake()

    def ledger(self) -> Account:
        """The cost of all surveys of this store so far, and at most; `str` of it is in plain words."""
        return self._device.quietly(self._device.account, self._device.no_account(unread=True))

    def reports(self) -> tuple[SurveyReports, ...]:
        """Each survey's reports: those sent, those that wait, and a preview of the next; `str` of each is in words.

        The last 1,024 answers of an entry are kept, until the survey ends. Raises a store's errors.
        """
        from .reports import reports

        return self._device.quietly(lambda: reports(self._device), ())

    def explain(self, survey_id: bytes | str) -> Explanation:
        """The most that somebody who sees everything ever sent for a survey could conclude; `str` is in words.

        Raises ValueError for a survey that is not known yet, or that the store does not take part in; a store's errors.
        """
        from .entries import why_not
        from .explanation import explain

        known = self._device.find(_id(survey_id))
        if known is None or not known.payload:
            raise ValueError(why_not(known, _id(survey_id)))
        return explain(known.survey)

    def close(self) -> None:
        """Closes the store and ends what is being sent, within a second; what waits is sent after the next start."""
        self._device.interrupt()
        self._reporter.stop()
        self._device.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SurveyHandle:
    """A survey that was asked for: records the answers of its entries. Comes from `Client.join`.

    id: the survey's, 16 bytes.
    """

    __slots__ = ("_device", "_question", "id")

    def __init__(self, id_: SurveyId, device: Device, question: str = "") -> None:
        self.id = id_
        self._device, self._question = device, question

    def question(self, name: str) -> SurveyHandle:
        """The same handle for one of several questions, by its name: `record`, `retract` and `answer` are about it.

        Whichever question is answered, as much is written, and nothing else is sent.
        """
        return SurveyHandle(self.id, self._device, name)

    @property
    def survey(self) -> Survey | None:
        """The survey, with its question, answers and calendar; None until it is known, and after it was left."""
        known = self._known()
        return known.survey if known is not None and known.payload else None

    @property
    def status(self) -> Status:
        """The survey's standing: ASKED until it is known, then JOINED, or REFUSED for a `reason`."""
        from .entries import Status

        known = self._known()
        return Status.NOT_JOINED if known is None else known.status

    @property
    def reason(self) -> str:
        """The reason why nothing is recorded or sent any more, in words: it was refused, left, moved or silenced."""
        from .entries import Status, why_not

        known = self._known()
        return "" if known is None or known.status <= Status.ENDED else known.reason or why_not(known, self.id)

    def record(self, answer: Answer, entry: int = 0) -> Recorded:
        """Records the entry's answer from now on; it is on disk when this returns.

        answer: one of the survey's, or the number where it asks for one: what lies beyond its levels is taken for the
        first or last level, and counted in the ledger. entry: the entry's number, from 0.
        If the survey asks several questions, `question` says which one.
        Returns whether the answer stands; the survey's constraint may have frozen the one before.
        An answer or an entry that the survey does not have is DROPPED and counted; of a strict client it raises
        ValueError. Raises ClientClosed, StoreBusy, StoreFull, StoreReadOnly or StoreUnusable: then it is not kept.
        None is taken for `retract`; a strict client raises ValueError, as a None is more often a mistake.
        """
        if answer is None and self._device.settings.strict:
            raise ValueError("None is no answer: `retract` records that the entry has none from now on")
        return self._record(answer, entry)

    def retract(self, entry: int = 0) -> Recorded:
        """Records that the entry has no answer from now on, as `record` does.

        Returns whether that stands: in a closed cohort an entry keeps its answer.
        """
        return self._record(None, entry)

    def add_entries(
        self, count: int = 1, *, answers: Sequence[FirstAnswers] | None = None, stratum: Mapping[str, str] | None = None
    ) -> range:
        """Adds entries, which take part from now on: accounts of a web backend, as their owners consent.

        Taking part is public: add an entry when somebody consents, never because an answer is given.
        answers, stratum: as `Client.join` takes them, of the entries that are added.
        Returns their numbers, which no other process is given. Raises CannotJoin, a store's errors, or ValueError.
        """
        return self._device.add_entries(self.id, count, answers, stratum)

    def leave(self, entry: int) -> None:
        """Withdraws one entry: what it knew is wiped at once, what waits of it as well, and it never comes back.

        Nothing more of it is sent; what another process is sending just now may still arrive. Its number is given to
        nobody else, its epsilon stays spent, and what is recorded for it is dropped. The other entries go on.
        Raises ValueError for an entry that the survey never had; a store's errors.
        """
        from changeling_protocol import EntryNumber

        entries = 2**31 if (known := self._known()) is None else known.entries
        if type(entry) is not int or entry not in range(entries):
            raise ValueError(f"entries are numbered 0 to {entries - 1}, got {entry!r}")
        self._device.leave(self.id, EntryNumber(entry))

    def answer(self, entry: int = 0) -> Answer | None:
        """The entry's answer as it was last recorded; None if there is none, or the survey has ended.

        Of a number it is the level that it was rounded to.

        Raises ValueError if the survey has no such entry; a store's errors.
        """
        return self._device.quietly(lambda: self._device.answer(self.id, entry, self._question), None)

    def stratum(self, told: Mapping[str, str], entry: int = 0) -> None:
        """Changes the entry's stratum; what it answers from now on is counted there.

        told: a value for each of the survey's breakdowns. It is public, so it must not hang on an answer. The one
        that the entry has already is no change.
        Raises ValueError for a stratum that the survey does not declare, a change more than it allows, an entry that
        it does not have, or a survey that is not known yet; then nothing is changed. Raises a store's errors.
        """
        self._device.doubt("stratum")
        self._device.quietly(lambda: self._device.change_stratum(self.id, entry, told), None)

    def ledger(self, entry: int = 0) -> Ledger | None:
        """The entry's progress and its cost, in words if printed; None until the survey is known.

        Raises ValueError if the survey has no such entry; a store's errors.
        """
        return self._device.quietly(lambda: self._device.ledger(self.id, entry), None)

    def _record(self, answer: Answer | None, entry: int) -> Recorded:
        from .recording import Recorded

        self._device.doubt("record")
        recorded = lambda: self._device.record(self.id, answer, entry, self._question)  # noqa: E731
        return self._device.quietly(recorded, Recorded.DROPPED)

    def _known(self) -> Known | None:
        return self._device.quietly(lambda: self._device.find(self.id), None)


def _id(named: bytes | str) -> SurveyId:
    from .entries import survey_id

    return survey_id(named)
