"""Uploads to a folder: acknowledged once they are in a journal, which is made a segment of about every second.

A commit is one write to a file that nobody else writes, so servers beside each other do not wait for each other. The
stream's frontier is the time from which on uploads may be in the journal and not yet in the catalogue; a server whose
uploads are all in the catalogue has no frontier.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from threading import Event, Lock, Thread
from time import monotonic

from changeling_protocol import RefusalCounts, UnixMilliseconds, UnixSeconds

from ..errors import Overloaded, Unwritable
from ..segments.folder import Folder
from ..segments.form import Row
from ..segments.journal import Journal
from ..segments.ownership import Owned
from ..store import Store
from ..store.catalogue import move_frontier, wake
from ..store.counted import add_refusals
from ..store.log import open_stream
from ..store.rolling import Written, roll, segment_name, write_segment
from .writing import LogWriter

ROLL_SECONDS = 1.0
ROLL_BYTES = 8 * 2**20
MOST_UNROLLED_BYTES = 64 * 2**20
"""While no segment can be written, or the store takes none, so much is acknowledged; it is kept in memory as well."""
_log = logging.getLogger("changeling")


@dataclass(slots=True)
class _Part:
    """What was journaled, to become one segment.

    start, end: Unix milliseconds. No arrival in it is before `start`, and none after `end`.
    """

    journal: Journal
    rows: list[Row]
    size: int
    start: UnixMilliseconds
    end: UnixMilliseconds
    written: Written | None = None


class JournalWriter(LogWriter):
    """Has a thread that rolls. clock: Unix seconds. Raises OSError where the folder cannot be used."""

    def __init__(self, store: Store, folder: Folder, clock: Callable[[], UnixSeconds]) -> None:
        self._store, self._folder, self._clock, self._files = store, Folder(folder.path, make=True), clock, token_hex(8)
        self._owned = Owned(self._folder, self._files, make=True)
        with store.writing() as connection:
            self._stream = open_stream(connection, folder.name, self._files)
        self._rolling = Lock()  # taken before the next, where both are
        self._changing = Lock()
        self._awake = self._restless = False
        self._journal: Journal | None = None
        self._rows: list[Row] = []
        self._size = self._length = self._unrolled = 0
        self._opened = 0.0
        self._start = self._last = UnixMilliseconds(0)
        self._parts: list[_Part] = []
        self._refused: RefusalCounts = Counter()
        self._failed = False
        self._due, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name="roller", daemon=True)
        self._thread.start()

    def write(self, bodies: Sequence[bytes], refused: RefusalCounts, now: UnixMilliseconds) -> None:
        """Append to the journal. Refusals are counted with the next segment; a crash may lose them."""
        if self._unrolled > MOST_UNROLLED_BYTES and bodies:
            raise Overloaded("more uploads wait to become segments than this server keeps: come again later")
        while True:
            if not self._awake:
                self._wake(now)
            with self._changing:
                if self._awake:
                    self._append(bodies, now)
                    self._refused.update(refused)
                    break
        if self._size >= ROLL_BYTES or monotonic() >= self._opened + ROLL_SECONDS:
            with self._changing:
                self._end_part()
            self._due.set()

    def trouble(self) -> str | None:
        """What the folder tells."""
        return self._folder.trouble()

    def flush(self) -> None:
        """Make a segment of what the journal has now."""
        with self._changing:
            self._end_part()
        self._roll()

    def close(self) -> None:
        """Make a segment of what the journal has; where that fails it stays, for whoever recovers it."""
        self._stop.set()
        self._due.set()
        self._thread.join()
        done = False
        try:
            self.flush()
            done = True
        except Exception:
            _log.exception("journals are left, and recovered by the next server on the folder")
        finally:
            if self._journal is not None:
                self._journal.close()
            self._owned.let_go(done=done)

    def _wake(self, now: UnixMilliseconds) -> None:
        with self._rolling, self._store.writing() as connection:
            frontier = wake(connection, self._stream, now)
        with self._changing:
            if not self._awake and not self._parts:
                self._start, self._last = frontier, frontier
            self._awake, self._restless = True, False

    def _append(self, bodies: Sequence[bytes], now: UnixMilliseconds) -> None:
        try:
            if self._journal is None or not self._journal.in_place():
                self._end_part()
                if self._folder.path.is_dir() and not self._owned.in_place():  # nobody would look for a journal there
                    raise Unwritable(f"the folder {self._folder.name} is not the one that this server began with")
                self._journal = Journal(self._folder, self._files, self._length + 1, self._start)
                self._opened = monotonic()
            arrival = UnixMilliseconds(max(now, self._last))  # which is later where a part has just ended
            if bodies:
                self._journal.append(arrival, bodies)
        except OSError as error:
            self._end_part()  # what is kept of it is rolled, and nothing more goes to a file with a torn end
            raise Unwritable(f"no upload can be written to {self._folder.name}: {error.strerror}") from error
        self._rows += [Row(at, arrival, body) for at, body in enumerate(bodies, self._length + 1)]
        added = sum(map(len, bodies))
        self._length += len(bodies)
        self._size, self._unrolled, self._last = self._size + added, self._unrolled + added, arrival

    def _end_part(self) -> None:
        """What was journaled so far is one segment; called with `_changing`."""
        if self._journal is None:
            return
        self._journal.close()
        if self._rows:
            end = UnixMilliseconds(max(int(self._clock() * 1000), self._last + 1))
            self._parts.append(_Part(self._journal, self._rows, self._size, self._start, end))
            self._start = self._last = end
        else:
            self._journal.remove()
        self._journal, self._rows, self._size = None, [], 0

    def _roll(self) -> None:
        """Roll every part, one after the other; then the stream rests, if nothing was appended meanwhile."""
        with self._rolling:
            while self._parts:
                self._roll_part(self._parts[0])
            with self._changing:
                rests = (self._awake or self._restless) and not self._parts and self._journal is None
                refused, self._refused = self._refused, Counter()
                self._awake = self._awake and not rests
            if rests or refused:
                try:
                    with self._store.writing() as connection:
                        if rests:
                            move_frontier(connection, self._stream, None)
                        add_refusals(connection, refused)
                except BaseException:
                    with self._changing:
                        self._refused.update(refused)
                        self._restless |= rests  # it may have its frontier still, or not: waking asks
                    raise

    def _roll_part(self, part: _Part) -> None:
        if part.written is None:
            part.written = write_segment(
                self._folder, self._stream, segment_name(self._files, part.rows[0].position), part.rows
            )
        now = UnixMilliseconds(int(self._clock() * 1000))
        with self._store.writing() as connection:
            frontier = roll(connection, self._folder, part.written, part.start, part.end, now)
        with self._changing:
            self._parts.pop(0)
            self._unrolled -= part.size
            if frontier < part.end:  # arrivals were set back
                self._last = frontier
                if not self._rows and not self._parts:
                    self._start = frontier
        part.journal.remove()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._due.wait(ROLL_SECONDS)
            self._due.clear()
            try:
                if not self._parts and monotonic() >= self._opened + ROLL_SECONDS:
                    with self._changing:
                        self._end_part()
                self._roll()
                self._failed = False
            except Exception:  # whatever is wrong, the journal has it, and it is tried again
                if not self._failed:
                    _log.exception("a journal cannot be made a segment of, and will be tried again")
                self._failed = True
                self._stop.wait(ROLL_SECONDS)
