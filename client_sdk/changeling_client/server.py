"""A server as a device knows it: what it is asked for and how often, the time there, its keys, and how it has failed.

Whatever goes wrong is ServerTrouble, whose words hold nothing but where the server is, a status, a survey's id or what
the operating system says of a connection. **Whatever stands in the way, what waits is kept**: a device cannot tell a
wrong request from a wrong server, so no status of an answer, and no missing answer, ever drops a report.

Pauses after failures, and the budget for requests that come to nothing, go by the device's clock in whole milliseconds;
a clock that is set back ends a wait and never prolongs it. A server's clock can only delay answers: a device that is
behind the server goes by its own. Each server has a time of its own, so that none can delay what goes to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from changeling_protocol import (
    LAST_INSTANT,
    Calendar,
    Coins,
    EarlyEnd,
    MalformedBytes,
    ProtocolError,
    SealingKey,
    SurveyId,
    SystemCoins,
    UnixMilliseconds,
    UnixSeconds,
)
from changeling_protocol.wire import (
    END,
    KEYS,
    MOST_BODY_BYTES,
    UPLOADS,
    decode_acknowledgement,
    decode_key_list,
    encode_upload_request,
    survey_path,
)

from .errors import ServerTrouble
from .transport import Endpoint, Exchanges, NetworkTime, Response, is_loopback

if TYPE_CHECKING:
    from .settings import ClientSettings
    from .store import ClientStore, StoreConnection


MOST_SILENCE_MS = 86_400_000
"""A server that asks for more silence than a day is asked again after a day."""
FIRST_PAUSE_MS = 10_000
"""The longest pause after a first failure; after each further one it is twice as long, up to MOST_PAUSE_MS."""
MOST_PAUSE_MS = 3_600_000
MOST_IN_VAIN = 12
"""The most requests in a row that come to nothing."""
REGAIN_MS = 3_600_000
"""After so long there may be one more. So there are at most MOST_IN_VAIN + 24 in any 24 hours."""
_MOST_OWED_MS = MOST_IN_VAIN * REGAIN_MS
_APART_MS = 3_600_000
"""The clocks of processes that share a store differ by less. If more is owed than this and all that there is, the clock
was set back, and nothing is."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """A server's failures, the time for which it is left in peace for them, and the requests that may come to nothing.

    What the server asked for binds everybody, and so does the budget of requests in vain: each is paid for before it is
    made, and paid back if something came of it. A pause of our own after that silence is for whoever asks unbidden,
    such as a background thread: a person who wants to send now may.
    failed_ms: the device's time at the last failure, in Unix milliseconds.
    silence_ms: for how long from then on the server asked not to be asked.
    pause_ms: for how long after that silence nobody asks unbidden.
    failures: how many there were in a row.
    whole_ms: the device's time when the budget is whole again, in Unix milliseconds; of an hour each that is owed.
    """

    failed_ms: UnixMilliseconds = UnixMilliseconds(0)  # noqa: RUF009
    silence_ms: int = 0
    pause_ms: int = 0
    failures: int = 0
    whole_ms: UnixMilliseconds = UnixMilliseconds(0)  # noqa: RUF009

    def wait_ms(self, now_ms: UnixMilliseconds, unbidden: bool = True) -> int:
        """For how many milliseconds from now on the server is left in peace for its failures; 0 if it may be asked now.

        now_ms: the device's time, in Unix milliseconds. unbidden: whether nobody wants it to be asked just now.
        """
        length_ms = self.silence_ms + (self.pause_ms if unbidden else 0)
        passed_ms = now_ms - self.failed_ms
        return length_ms - passed_ms if 0 <= passed_ms < length_ms else 0

    def after_failure(self, now_ms: UnixMilliseconds, silence_ms: int, coins: Coins) -> Attempts:
        """The same after one more failure.

        now_ms: the device's time, in Unix milliseconds.
        silence_ms: for how long the server asked not to be asked; 0 if it did not.
        coins: draw the pause, uniform over the upper half of what it may be: 5 to 10 seconds the first time, half an
        hour to an hour at last.
        """
        doublings = min(self.failures, MOST_PAUSE_MS.bit_length())  # a number of any size would be shifted otherwise
        most = min(FIRST_PAUSE_MS << doublings, MOST_PAUSE_MS)
        pause_ms, silence_ms = most - coins.below(most // 2 + 1), min(max(silence_ms, 0), MOST_SILENCE_MS)
        return Attempts(now_ms, silence_ms, pause_ms, self.failures + 1, self.whole_ms)

    def unpaid_ms(self, now_ms: UnixMilliseconds, left: int = 0) -> int:
        """For how many milliseconds from now on no request can be paid for; 0 if one can now.

        left: how many more must be left after it.
        """
        return max(0, self._owed_ms(now_ms) - (MOST_IN_VAIN - 1 - left) * REGAIN_MS)

    def paying(self, now_ms: UnixMilliseconds) -> Attempts:
        """The same once a request is paid for at this time."""
        return replace(self, whole_ms=UnixMilliseconds(now_ms + self._owed_ms(now_ms) + REGAIN_MS))

    def _owed_ms(self, now_ms: UnixMilliseconds) -> int:
        owed_ms = self.whole_ms - now_ms
        was_set_back = owed_ms > _MOST_OWED_MS + _APART_MS  # else the device would not ask for as long
        return 0 if was_set_back else min(max(owed_ms, 0), _MOST_OWED_MS)


MOST_KEYS = 64
"""The most sealing keys of a list that are looked at: each costs a signature, and a server has a few."""
_Wanted = TypeVar("_Wanted")
_DATE_RESOLUTION_MS = 1000
_STEP_MS = 60_000
"""Clocks are set back by up to so much every day. If one was set back by more, the lead that we knew is out of date."""
_FORGET_KEYS = "DELETE FROM sealing_keys WHERE url = ?"
_ATTEMPTS = "failed_ms, silence_ms, pause_ms, failures, whole_ms"
_RESERVED = 2
"""Requests of the budget that are left for keys and an upload when the server is asked for the time alone."""


@dataclass(frozen=True, slots=True)
class HeardTime:
    """The time that a server told.

    server_ms: its time, rounded down to whole seconds. asked_ms: the device's when it asked. Both Unix milliseconds.
    """

    server_ms: UnixMilliseconds
    asked_ms: UnixMilliseconds


@dataclass(frozen=True, slots=True)
class KnownTime:
    """The time as the store knows it. A device's `now_ms` is what its clock shows, in Unix milliseconds.

    seen_ms: the latest time, without the lead that was known then, that an enrolment or a flush has seen. A record
    changes nothing of this, so that nothing hangs on whether there was one.
    lead_ms: how far the device was ahead when the server last answered, in milliseconds.
    """

    seen_ms: UnixMilliseconds
    lead_ms: int

    def delayed(self, now_ms: UnixMilliseconds) -> UnixMilliseconds:
        """The device's time without its lead. It decides whether a node is due."""
        return UnixMilliseconds(now_ms - self.lead_ms)

    def stamp(self, now_ms: UnixMilliseconds) -> UnixMilliseconds:
        """The time that a record is stamped with: the device's without its lead, but never before what was seen.

        If the time without the lead is well before that, the clock has been set back meanwhile. Then the lead is out
        of date, and the device's own time counts.
        """
        delayed = self.delayed(now_ms)
        return max(self.seen_ms, delayed if delayed >= self.seen_ms - _STEP_MS else now_ms)

    def seeing(self, now_ms: UnixMilliseconds) -> KnownTime:
        """The knowledge once the present is seen as well. Whoever asks for it must not do so because of an answer."""
        return replace(self, seen_ms=self.stamp(now_ms))

    def hearing(self, heard: HeardTime, now_ms: UnixMilliseconds) -> KnownTime:
        """The knowledge once a server has told its time: times beyond both clocks are forgotten.

        Otherwise the store's time would stand still until they come. Only the lead that is certain counts, so that
        clocks which agree have none.
        """
        lead = max(0, heard.asked_ms - heard.server_ms - _DATE_RESOLUTION_MS)
        passed = UnixMilliseconds(max(heard.server_ms + _DATE_RESOLUTION_MS, now_ms - lead))
        return KnownTime(min(self.seen_ms, passed), lead)


def ms_of(seconds: float) -> UnixMilliseconds:
    """A clock's time in Unix milliseconds: the nearest of all times whose year has four digits, 0 for NaN."""
    if seconds != seconds:
        return UnixMilliseconds(0)
    return UnixMilliseconds(int(1000 * min(max(seconds, -LAST_INSTANT), LAST_INSTANT)))


def close_ms(calendar: Calendar, period: int) -> UnixMilliseconds:
    """The last millisecond of a period, in Unix milliseconds; of period 0, the last before the calendar."""
    return UnixMilliseconds(calendar.time(period) * 1000)


def known_time(db: StoreConnection, url: str) -> KnownTime:
    """The store's knowledge of the time at the server of this URL."""
    row = db.execute("SELECT seen_ms, lead_ms FROM servers WHERE url = ?", (url,)).fetchone()
    return KnownTime(UnixMilliseconds(0), 0) if row is None else KnownTime(*row)


def keep_time(db: StoreConnection, url: str, time: KnownTime) -> None:
    """Keeps what is known of the time there."""
    db.execute(
        "INSERT INTO servers VALUES (?, ?, ?, 0, 0, 0, 0, 0)"
        " ON CONFLICT (url) DO UPDATE SET seen_ms = excluded.seen_ms, lead_ms = excluded.lead_ms",
        (url, time.seen_ms, time.lead_ms),
    )


class Server:
    """A server, or a relay that stands before it, as the surveys of one store use it.

    authority: the pinned Ed25519 public keys, 32 bytes each. clock: the device's, in Unix seconds.
    """

    def __init__(
        self, store: ClientStore, endpoint: Endpoint, authority: Sequence[bytes], clock: Callable[[], float]
    ) -> None:
        self.url = endpoint.url
        self.heard: HeardTime | None = None
        """The time that an answer told last, also if the exchange failed otherwise."""
        self.unknown: set[SurveyId] = set()
        """Surveys that the server did not know, of which the app has been told: once is enough."""
        self.most_body_bytes = MOST_BODY_BYTES
        """The most bytes of an upload request that the server, or a proxy before it, was seen to take."""
        self.in_development = False
        """True if its answers are nobody's, so that no budget binds who tries it again and again."""
        self._resting = False
        self._lent = 0
        """How many requests were answered since `begin`, and nothing has come of them yet."""
        self._store, self._authority, self._clock = store, authority, clock
        self._origin, self._exchanges = endpoint.origin, Exchanges(endpoint)
        self._time, self._coins = KnownTime(UnixMilliseconds(0), 0), SystemCoins()

    def survey(self, survey: SurveyId, network: NetworkTime) -> bytes:
        """The signed survey that the server has under this id; nothing of it is checked. Raises ServerTrouble."""
        try:
            return self._ask("GET", survey_path(survey.hex()), None, network, bytes)
        except ServerTrouble as error:
            if not error.is_missing:
                raise
            words = f"{self._origin} does not know the survey {survey.hex()}: {error}"
            raise ServerTrouble(words, error.status) from None

    def upload(self, envelopes: Sequence[bytes], network: NetworkTime) -> dict[int, str]:
        """Hands envelopes over, at most MOST_ENVELOPES of them.

        Returns the reasons of those that were refused, by place; all others are on the server's disk.
        Raises ServerTrouble; then any of them may have arrived.
        """
        decode = partial(decode_acknowledgement, envelopes=len(envelopes))
        return self._ask("POST", UPLOADS, encode_upload_request(envelopes), network, decode)

    def sealing_key(self, network: NetworkTime) -> SealingKey:
        """The newest sealing key that is valid now; the server is asked if none is kept.

        Raises ServerTrouble if it has none that the authority signed.
        """
        with self._store.transaction() as db:
            rows = db.execute("SELECT signed FROM sealing_keys WHERE url = ?", (self.url,))
            kept = [signed for (signed,) in rows]
        now_ms = self.delayed_ms()
        key = _newest(self._verified(kept).values(), now_ms) or _newest(self.fetch_keys(network), now_ms)
        if key is None:
            self.fail()
            raise ServerTrouble("the server has no sealing key that is valid now and signed by the authority")
        return key

    def ask_the_time(self, network: NetworkTime) -> None:
        """Asks the server for anything, as an answer holds a date. Raises ServerTrouble, also if it tells no time."""
        self.fetch_keys(network, left=_RESERVED)
        if not self.has_told_time:
            self.fail()
            raise ServerTrouble("the server told no time")

    def early_end(self, survey: SurveyId, network: NetworkTime) -> EarlyEnd | None:
        """The survey's early end, as the authority signed it; None if the server has none. Raises ServerTrouble."""
        try:
            signed = self._ask("GET", survey_path(survey.hex()) + END, None, network, bytes)
            end = EarlyEnd.from_signed(signed, self._authority)
        except ProtocolError:
            self.fail()
            raise ServerTrouble("the server's early end of a survey is none that the authority signed") from None
        except ServerTrouble as error:
            if not error.is_missing:
                raise
            return None
        return end if end.survey == survey else None

    def fetch_keys(self, network: NetworkTime, left: int = 0) -> list[SealingKey]:
        """Asks the server for its sealing keys, and keeps those the authority signed in place of the old.

        left: how many requests must be left of the budget. Raises ServerTrouble.
        """
        keys = self._verified(self._ask("GET", KEYS, None, network, decode_key_list, left))
        with self._store.transaction() as db:
            db.execute(_FORGET_KEYS, (self.url,))
            db.executemany("INSERT INTO sealing_keys VALUES (?, ?)", [(self.url, signed) for signed in keys])
        return list(keys.values())

    def forget_keys(self) -> None:
        """Drops the kept sealing keys, so that the next use asks the server."""
        with self._store.transaction() as db:
            db.execute(_FORGET_KEYS, (self.url,))

    def now_ms(self) -> UnixMilliseconds:
        """The device's time, in Unix milliseconds."""
        return ms_of(self._clock())

    def delayed_ms(self) -> UnixMilliseconds:
        """The device's time without the lead that was last kept, in Unix milliseconds."""
        return self._time.delayed(self.now_ms())

    @property
    def has_told_time(self) -> bool:
        """True if the server has told the time since `begin`."""
        return self.heard is not None

    def begin(self, db: StoreConnection) -> None:
        """Forgets the time that the server told before, as a clock may have been set since."""
        self.heard, self._time, self._lent = None, known_time(db, self.url), 0

    def rest(self, unbidden: bool) -> None:
        """Asks nothing until the next flush, if that one is unbidden and the server has failed a short while ago."""
        with self._store.transaction() as db:
            self._resting = unbidden and self._attempts(db).wait_ms(self.now_ms()) > 0

    def keep(self, db: StoreConnection) -> None:
        """Keeps the time that the server told, if it told it."""
        self._time = known_time(db, self.url)
        if self.heard is not None:
            self._time = self._time.hearing(self.heard, self.now_ms())
        keep_time(db, self.url, self._time)

    def fail(self, silence_ms: int = 0) -> None:
        """Counts a failure: what was asked for was not given, or what was sent not taken.

        silence_ms: for how long the server asked not to be asked.
        """
        with self._store.transaction() as db:
            self._keep_attempts(db, self._attempts(db).after_failure(self.now_ms(), silence_ms, self._coins))

    def succeed(self, db: StoreConnection) -> None:
        """Ends the backoff, and pays back the requests that led to this: something was taken, or given for good."""
        whole_ms, self._lent = self._attempts(db).whole_ms - self._lent * REGAIN_MS, 0
        self._keep_attempts(db, Attempts(whole_ms=UnixMilliseconds(whole_ms)))

    def waste(self) -> None:
        """Notes that nothing came of the requests so far: whatever is taken later does not pay them back."""
        self._lent = 0

    def wait_ms(self, now_ms: UnixMilliseconds) -> int:
        """For how many milliseconds nobody should ask unbidden. now_ms: the device's time."""
        with self._store.transaction() as db:
            attempts = self._attempts(db)
        return max(attempts.wait_ms(now_ms), 0 if self.in_development else attempts.unpaid_ms(now_ms))

    def close(self) -> None:
        """Ends the exchange under way; from now on each fails at once. Returns within a tenth of a second."""
        self._exchanges.close()

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        network: NetworkTime,
        decode: Callable[[bytes], _Wanted],
        left: int = 0,
    ) -> _Wanted:
        asked_ms, silence_ms = self.now_ms(), 0
        try:
            with network.spent() as deadline:
                answer = self._exchanges.ask(method, path, body, deadline, lambda: self._pay(asked_ms, left))
            date_ms = self._hear(answer, asked_ms)
            if answer.status != 200:
                silence_ms = _silence_ms(answer, asked_ms if date_ms is None else date_ms)
                raise ServerTrouble(f"the server answered with status {answer.status}", answer.status)
            try:
                wanted = decode(answer.body)
            except MalformedBytes:
                raise ServerTrouble("the server's answer cannot be read") from None
        except ServerTrouble as trouble:
            if trouble.is_failure:
                self.fail(silence_ms)
            raise
        self._lent += 1
        return wanted

    def _pay(self, now_ms: UnixMilliseconds, left: int) -> None:
        """Pays for a request, on disk before it is made: a process that is killed by what follows has paid as well.

        Raises ServerTrouble where none may be made now.
        """
        with self._store.transaction() as db:
            attempts, why_not = self._attempts(db), ""
            if attempts.wait_ms(now_ms, unbidden=False):
                why_not = "the server asked to be left alone for a while"
            elif self._resting:
                why_not = "the server failed, and is left alone for a while"
            elif attempts.unpaid_ms(now_ms, left) and not self.in_development:
                why_not = "the server was asked in vain too often, and is left alone"
            if why_not:
                raise ServerTrouble(why_not, is_failure=False)
            self._keep_attempts(db, attempts.paying(now_ms))

    def _attempts(self, db: StoreConnection) -> Attempts:
        """What is known of them, as another process may have made some."""
        row = db.execute(f"SELECT {_ATTEMPTS} FROM servers WHERE url = ?", (self.url,)).fetchone()  # noqa: S608
        return Attempts() if row is None else Attempts(*row)

    def _keep_attempts(self, db: StoreConnection, attempts: Attempts) -> None:
        keep_time(db, self.url, known_time(db, self.url))  # the row, if there is none
        row = (*astuple(attempts), self.url)
        db.execute(f"UPDATE servers SET ({_ATTEMPTS}) = (?, ?, ?, ?, ?) WHERE url = ?", row)  # noqa: S608

    def _hear(self, answer: Response, asked_ms: UnixMilliseconds) -> UnixMilliseconds | None:
        """Takes in the time that an answer tells. Returns it, None if it tells none, or an old one from a cache."""
        date_ms = _unix_ms(answer.headers.get("date", ""))
        if date_ms is None or answer.headers.get("age", "0").strip("0") != "":
            return None
        asked_ms = min(asked_ms, self.now_ms())  # the clock may have been set back meanwhile
        self.heard = HeardTime(date_ms, asked_ms)
        return date_ms

    def _verified(self, signed: Iterable[bytes]) -> dict[bytes, SealingKey]:
        """The keys among these that the authority signed, by their signed bytes."""
        verified = {}
        for encoded in islice(signed, MOST_KEYS):
            with suppress(ProtocolError):
                verified[encoded] = SealingKey.from_signed(encoded, self._authority)
        return verified


class Servers:
    """The servers that a store's answers go to: the app's own, and the relays that its surveys declare."""

    def __init__(self, store: ClientStore, settings: ClientSettings) -> None:
        self._store, self._settings = store, settings
        self._servers: dict[str, Server] = {}
        self._closed = False
        self._unbidden = False

    def begin(self, unbidden: bool) -> None:
        """Begins a flush. unbidden: whether nobody asked for it, so that servers that have failed are left in peace."""
        self._unbidden = unbidden
        for server in self._servers.values():
            server.rest(unbidden)

    def at(self, url: str) -> Server:
        """The server of this base URL. Raises ValueError for a URL that will not do; a store's errors."""
        if url not in self._servers:
            own = self._settings.endpoint
            token = own.upload_token if url == own.url else None  # what a relay forwards is under its own
            endpoint = replace(own, url=url, upload_token=token)
            server = Server(self._store, endpoint, self._settings.authority, self._settings.clock)
            server.in_development = self._settings.development and is_loopback(url)
            server.rest(self._unbidden)
            self._servers[url] = server
        if self._closed:  # while a flush goes from one server to the next
            self._servers[url].close()
        return self._servers[url]

    def wait_ms(self, now_ms: UnixMilliseconds) -> int:
        """For how many milliseconds nobody should ask any of them unbidden. now_ms: the device's time."""
        return max((server.wait_ms(now_ms) for server in self._servers.values()), default=0)

    def close(self) -> None:
        """Ends what is being asked, at once; from now on nothing is asked, of servers yet to be met neither."""
        self._closed = True
        for server in list(self._servers.values()):
            server.close()


def _newest(keys: Iterable[SealingKey], now_ms: UnixMilliseconds) -> SealingKey | None:
    valid = [key for key in keys if key.valid_at(UnixSeconds(now_ms / 1000))]
    return max(valid, key=lambda key: (key.begins, key.expires), default=None)


def _silence_ms(answer: Response, now_ms: UnixMilliseconds) -> int:
    """For how long an answer asks not to be asked again, in milliseconds; 0 if it does not say.

    now_ms: the server's time where it told one, else the device's: what a date is measured from.
    """
    after = answer.headers.get("retry-after", "").strip()
    if after.isascii() and after.isdigit():
        return 1000 * int(after[:9])
    until_ms = _unix_ms(after)
    return 0 if until_ms is None else max(0, until_ms - now_ms)


def _unix_ms(date: str) -> UnixMilliseconds | None:
    """The Unix milliseconds of an HTTP date; None if it is none."""
    from datetime import UTC
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:  # "-0000": nothing to do with the zone the device is in
            moment = moment.replace(tzinfo=UTC)
        return UnixMilliseconds(int(moment.timestamp()) * 1000)
    except (ValueError, TypeError, OverflowError):
        return None
