"""What the servers of one store tell each other of the time, through the one row in which the store remembers it.

Each server whose clock is believed writes its time there every minute, and at once where what stands there is later
than its own. So a time that is new there, and that this server has not written, comes from another one that runs. The
earliest decides: a server whose clock is ahead of it is in doubt, neither seals nor destroys, and is soon overwritten.
"""

from threading import Lock

from changeling_protocol import UnixMilliseconds, UnixSeconds

from ..store import Store
from ..store.clock import KeptTime, keep_time, kept_time
from .guarded_clock import MOST_STEP, TOLD_FOR_SECONDS, GuardedClock

KEEP_TIME_SECONDS = 60


class ToldTime:
    """A server's part of it. Threads may share it. clock: its own."""

    def __init__(self, store: Store, clock: GuardedClock) -> None:
        self._store, self._clock = store, clock
        self._one_at_a_time = Lock()
        self._stands: KeptTime | None = None
        """What stood there when this server looked last, or wrote."""
        self._mine: KeptTime | None = None
        """What it wrote last."""
        self._looked = clock.steady()
        self._heard: float | None = None

    def listen(self) -> None:
        """Hear what another server wrote since the last time. Raises what the store raises."""
        with self._one_at_a_time:
            self._listen()

    def tell(self) -> None:
        """Write this clock's time every minute, and at once when it jumped, was set right, or is before what stands.

        A clock that is in doubt leaves there what another server tells. Raises what the store raises.
        """
        with self._one_at_a_time:
            self._tell()

    def _listen(self) -> None:
        with self._store.reading() as connection:
            kept = kept_time(connection)
        before, self._stands = self._stands, kept
        now = self._clock.steady()  # which runs on while the machine sleeps, and what the others told grows old
        ago, self._looked = now - self._looked, now
        if before is None or kept == before or kept.jumped:
            return
        self._heard = now
        self._clock.hear(UnixSeconds(kept.told / 1000), ago)

    def _tell(self) -> None:
        time = self._clock.kept()
        if time is None or (time.jumped and self._heard and self._clock.steady() - self._heard < TOLD_FOR_SECONDS):
            return
        if self._told_lately(time) and not self._stands_later(time):
            return
        with self._store.writing() as connection:
            keep_time(connection, time)
        self._mine = self._stands = time

    def _told_lately(self, time: KeptTime) -> bool:
        mine = self._mine
        return bool(mine and mine.jumped == time.jumped and 0 <= time.told - mine.told < _ms(KEEP_TIME_SECONDS))

    def _stands_later(self, time: KeptTime) -> bool:
        stands = self._stands
        return bool(stands and not time.jumped and stands.told > time.told + _ms(MOST_STEP))


def _ms(seconds: float) -> UnixMilliseconds:
    return UnixMilliseconds(int(1000 * seconds))
