"""The servers that a store's answers go to: the app's own, and the relays that its surveys declare."""

import sqlite3
from collections.abc import Callable, Sequence

from changeling_protocol import SurveyId, UnixMilliseconds

from .clock import KnownTime, keep_time, known_time, ms_of
from .delivery import Server
from .patience import NEVER_FAILED, Patience
from .sealing_keys import SealingKeys
from .store import Store

_PATIENCE = "failed_ms, silence_ms, pause_ms, failures"


class Line:
    """All that is needed to speak with one server: its URL, the server, its sealing keys, and the time there."""

    def __init__(
        self, store: Store, server: Server, url: str, authority: Sequence[bytes], clock: Callable[[], float]
    ) -> None:
        self.url, self.server = url, server
        self.keys = SealingKeys(store, server, url, authority)
        self.unknown: set[SurveyId] = set()
        """Surveys that the server did not know, of which the app has been told: once is enough."""
        self._clock, self._time = clock, KnownTime(UnixMilliseconds(0), 0)

    def now_ms(self) -> UnixMilliseconds:
        """The device's time, in Unix milliseconds."""
        return ms_of(self._clock())

    def delayed_ms(self) -> UnixMilliseconds:
        """The device's time without the lead that was last kept, in Unix milliseconds."""
        return self._time.delayed(self.now_ms())

    @property
    def has_heard(self) -> bool:
        """Whether the server has told the time since `begin`."""
        return self.server.heard is not None

    def begin(self, db: sqlite3.Connection) -> None:
        """Forgets the time that the server told before, as a clock may have been set since, and looks what is known of
        its failures, which another process may have met."""
        self.server.heard, self._time = None, known_time(db, self.url)
        row = db.execute(f"SELECT {_PATIENCE} FROM servers WHERE url = ?", (self.url,)).fetchone()  # noqa: S608
        self.server.patience = NEVER_FAILED if row is None else Patience(*row)

    def keep(self, db: sqlite3.Connection) -> None:
        """Keeps the time that the server told, if it told it, and what is known of its failures."""
        self._time = known_time(db, self.url)
        if self.server.heard is not None:
            self._time = self._time.hearing(self.server.heard, self.now_ms())
        keep_time(db, self.url, self._time)
        row = (*self.server.patience.as_row(), self.url)
        db.execute(f"UPDATE servers SET ({_PATIENCE}) = (?, ?, ?, ?) WHERE url = ?", row)  # noqa: S608


class Lines:
    """The lines of one client, made as they are needed."""

    def __init__(
        self, store: Store, connect: Callable[[str], Server], authority: Sequence[bytes], clock: Callable[[], float]
    ) -> None:
        self._store, self._connect, self._authority, self._clock = store, connect, authority, clock
        self._lines: dict[str, Line] = {}
        self._closed = False

    def to(self, url: str) -> Line:
        """The line to the server of this base URL. Raises ValueError for a URL that will not do."""
        if url not in self._lines:
            self._lines[url] = Line(self._store, self._connect(url), url, self._authority, self._clock)
        if self._closed:  # while a flush goes from one line to the next
            self._lines[url].server.close()
        return self._lines[url]

    def wait_ms(self, now_ms: UnixMilliseconds) -> int:
        """For how many milliseconds nobody should ask any of them unbidden. now_ms: the device's time."""
        return max((line.server.patience.wait_ms(now_ms) for line in self._lines.values()), default=0)

    def close(self) -> None:
        """Ends what is being asked, at once; from now on nothing is asked, on lines that are yet to be made neither."""
        self._closed = True
        lines = list(self._lines.values())
        for line in lines:  # all of them, before the first is waited for
            line.server.interrupt()
        for line in lines:
            line.server.close()
