"""Opening: from the requests that the log holds to the columns of uploads, on one processor or on all.

This is the one place where uploads are opened. What does not open, or does not have the columns that the survey's plan
asks for, is refused, envelope by envelope; what the columns hold is not looked at here. Uploads of one group over one
span have columns of the same lengths: these are laid end to end, so that nothing later is done upload by upload.

The processes that open take what time the processors have left, and none that anybody else wants; where that is
nothing, whoever calls opens meanwhile. Keys come to them through a pipe, no argument, environment, file or log. They
end when whoever started them has ended. This module knows nothing of a store or of tallies, so they import little.
"""

import gc
import os
import pickle
import signal
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import NamedTuple, TypeAlias

from changeling_protocol import (
    CannotOpen,
    MalformedBytes,
    Node,
    Refusal,
    RefusalCounts,
    Survey,
    SurveyId,
    column_bytes,
    decode_upload,
    head_of,
    open_envelope,
)
from changeling_protocol.wire import MOST_ENVELOPES_TAKEN, envelopes_in
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


class ColumnLayout(NamedTuple):
    """The key of uploads that have columns of the same lengths. The span is (start, end]."""

    survey: SurveyId
    group: int
    start: int
    end: int


@dataclass(slots=True)
class Sheaf:
    """The columns of some uploads of one kind, in the order of the log.

    numbers: of the uploads, as `upload_number` makes them. closings: their columns of closings. symbols: for each track
    of their group, their columns of symbols.
    """

    numbers: list[int]
    closings: list[bytes]
    symbols: list[list[bytes]]

    def joined(self) -> "Sheaf":
        """The same, each column as one piece of bytes."""
        return Sheaf(self.numbers, [b"".join(self.closings)], [[b"".join(column)] for column in self.symbols])

    def extend(self, other: "Sheaf") -> None:
        """Add the uploads of a later part of the log."""
        self.numbers += other.numbers
        self.closings += other.closings
        for column, more in zip(self.symbols, other.symbols, strict=True):
            column += more


@dataclass(slots=True)
class Opened:
    """The content of some requests.

    envelopes: how many. sheaves: the uploads, by kind. refused: how many envelopes, by survey id and reason.
    rubbish: the numbers of the requests with nothing in them that could ever be counted.
    """

    envelopes: int = 0
    sheaves: dict[ColumnLayout, Sheaf] = field(default_factory=dict)
    refused: RefusalCounts = field(default_factory=Counter)
    rubbish: list[int] = field(default_factory=list)

    def by_survey(self) -> dict[SurveyId, dict[ColumnLayout, Sheaf]]:
        """The sheaves of each survey."""
        surveys: dict[SurveyId, dict[ColumnLayout, Sheaf]] = {}
        for kind, sheaf in self.sheaves.items():
            surveys.setdefault(kind.survey, {})[kind] = sheaf
        return surveys

    def add(self, kind: ColumnLayout, sheaf: Sheaf) -> None:
        """Add the uploads of a sheaf, which is this one's from then on."""
        if kind in self.sheaves:
            self.sheaves[kind].extend(sheaf)
        else:
            self.sheaves[kind] = sheaf

    def extend(self, other: "Opened") -> None:
        """Add what was in the requests that follow in the log; what is added is this one's from then on."""
        self.envelopes += other.envelopes
        self.refused.update(other.refused)
        self.rubbish += other.rubbish
        for kind, sheaf in other.sheaves.items():
            self.add(kind, sheaf)


Open: TypeAlias = Callable[[Sequence[bytes], Mapping[SurveyId, Survey], Mapping[bytes, X25519PrivateKey]], Opened]
"""Called with requests, with surveys by id, and with private keys by key id; `open_requests`, or what does the same."""


def upload_number(request: int, place: int) -> int:
    """A number that rises in the order of the log.

    request: the request's number. place: the envelope's in it.
    """
    return request * MOST_ENVELOPES_TAKEN + place


def request_number(upload: int) -> int:
    """The number of the request that an upload came in."""
    return upload // MOST_ENVELOPES_TAKEN


class Opener:
    """Opens requests with the keys, and for the surveys, that it was given.

    surveys: by id. keys: the private keys that are not destroyed, by key id.
    """

    def __init__(self, surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]) -> None:
        self._surveys, self._keys = surveys, keys
        self._lengths: dict[ColumnLayout, tuple[int, ...] | None] = {}

    def open(self, requests: Iterable[tuple[int, bytes]]) -> Opened:
        """The uploads in these requests, each of which comes with its number."""
        opened = Opened()
        for request, body in requests:
            envelopes = envelopes_in(body)
            opened.envelopes += len(envelopes)
            counts = [self._add(opened, upload_number(request, at), each) for at, each in enumerate(envelopes)]
            if not any(counts):
                opened.rubbish.append(request)
        opened.sheaves = {kind: sheaf.joined() for kind, sheaf in opened.sheaves.items()}
        return opened

    def _add(self, opened: Opened, number: int, envelope: bytes) -> bool:
        """Add what is in an envelope; False where that can never be counted.

        Where the key or the survey is unknown it may be an upload to another program, one day.
        """
        survey, refusal = SurveyId(b""), Refusal.MALFORMED  # too short an envelope is of none
        try:
            head = head_of(envelope)
            survey, private = head.survey, self._keys.get(head.key)
            if survey not in self._surveys or private is None:
                opened.refused[survey, Refusal.UNOPENABLE] += 1
                return True
            columns = decode_upload(open_envelope(envelope, private))
            kind = ColumnLayout(survey, columns.group, columns.span.start, columns.span.end)
            if kind not in self._lengths:
                self._lengths[kind] = self._lengths_of(kind)
            if self._lengths[kind] == (len(columns.closings), *map(len, columns.symbols)):
                opened.add(kind, Sheaf([number], [columns.closings], [[each] for each in columns.symbols]))
                return True
        except CannotOpen:
            refusal = Refusal.UNOPENABLE
        except MalformedBytes:
            pass
        opened.refused[survey, refusal] += 1
        return False

    def _lengths_of(self, kind: ColumnLayout) -> tuple[int, ...] | None:
        """How long the columns of such uploads must be; None where the group is none of the plan's."""
        plan = self._surveys[kind.survey].plan
        if not 0 <= kind.group < len(plan.groups):
            return None
        return column_bytes(plan, kind.group, Node(kind.start, kind.end))


def opens(envelope: bytes, keys: Mapping[bytes, X25519PrivateKey]) -> bool:
    """Tell whether an envelope opens, whatever is in it; True where its key is not there. keys: by key id."""
    if (private := keys.get(head_of(envelope).key)) is not None:
        try:
            open_envelope(envelope, private)
        except CannotOpen:
            return False
    return True


def open_requests(
    requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]
) -> Opened:
    """The content of these requests, numbered from 0 on; opened in this process."""
    return Opener(surveys, keys).open(enumerate(requests))


MOST_PIECE_BYTES, LEAST_PIECE_BYTES = 2**16, 2**12
"""About so many bytes of requests are given at a time; less towards the end, so that no processor waits for another."""
FEW_BYTES, WORTH_STARTING_BYTES = 2**16, 2**19
"""Requests of no more bytes are opened here: FEW_BYTES where processes run, and more where they would have to be
started, which takes longer. Of a backlog each batch of the fold has more; a small server never starts any."""
MOST_SILENCE_SECONDS = 0.25
"""Where no process has answered for so long, others keep the processors busy: then pieces are opened here, too."""


class OpeningProcesses:
    """Opens requests on so many processors; the processes start when they are first needed."""

    def __init__(self, processors: int | None = None) -> None:
        self._processors = processors or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None

    def __call__(
        self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]
    ) -> Opened:
        """The uploads in these requests, numbered from 0 on. Raises OSError where a process died.

        Whatever it raises, the next call starts new processes.
        """
        few = WORTH_STARTING_BYTES if self._pool is None else FEW_BYTES
        if self._processors == 1 or sum(map(len, requests)) <= few:
            return open_requests(requests, surveys, keys)
        pool = self.start()
        try:
            return self._opened(pool, requests, surveys, keys)
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            if isinstance(error, BrokenExecutor):
                raise OSError("a process that opens uploads has died") from error
            raise

    def start(self) -> ProcessPoolExecutor:
        """Have processes open from now on, whatever it is worth."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._processors, get_context("spawn"), _stand_behind)
        return self._pool

    def close(self) -> None:
        """Wait until the processes have ended, and give back what they shared."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _opened(
        self,
        pool: ProcessPoolExecutor,
        requests: Sequence[bytes],
        surveys: Mapping[SurveyId, Survey],
        keys: Mapping[bytes, X25519PrivateKey],
    ) -> Opened:
        needs = pickle.dumps((dict(surveys), {id_: key.private_bytes_raw() for id_, key in keys.items()}))
        given = {pool.submit(_open, needs, *piece): piece for piece in _pieces(requests, self._processors)}
        here, done, patience = Opener(surveys, keys), dict[int, Opened](), MOST_SILENCE_SECONDS
        while given:
            answered, _ = wait(given, patience, FIRST_COMPLETED)
            for each in answered:
                first, _ = given.pop(each)
                done[first] = each.result()
            patience = MOST_SILENCE_SECONDS if answered else 0.0  # which is not waited for each piece again
            if not answered:
                unheard, (first, some) = given.popitem()
                unheard.cancel()
                done[first] = here.open(enumerate(some, first))
        whole = Opened()
        for first in sorted(done):
            whole.extend(done[first])
        return whole


def _pieces(requests: Sequence[bytes], processors: int) -> Iterator[tuple[int, list[bytes]]]:
    """Requests in pieces, each with the number of its first."""
    ends = [*accumulate(map(len, requests))]
    first, given = 0, 0
    while first < len(ends):
        size = min(max((ends[-1] - given) // (4 * processors), LEAST_PIECE_BYTES), MOST_PIECE_BYTES)
        last = min(bisect_left(ends, given + size, first), len(ends) - 1)
        yield first, [*requests[first : last + 1]]
        first, given = last + 1, ends[last]


def _stand_behind() -> None:
    """Have this process, which opens, give way to all others, and end with whoever started it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # whoever started it ends it
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # so whoever wakes up need not wait for its turn
    Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)


def _open(needs: bytes, first: int, requests: Sequence[bytes]) -> Opened:
    return _opener(needs).open(enumerate(requests, first))


@lru_cache(maxsize=1)
def _opener(needs: bytes) -> Opener:
    surveys, raw = pickle.loads(needs)  # noqa: S301  # from whoever started this process
    return Opener(surveys, {id_: X25519PrivateKey.from_private_bytes(key) for id_, key in raw.items()})
