"""Opening on all processors: processes that are given requests, surveys and keys through a pipe, and give columns back.

They take what time the processors have left, and none that anybody else wants; where that is nothing, whoever calls
opens meanwhile. Keys come through no argument, environment, file or log. A process ends when whoever started it has
ended.
"""

import gc
import os
import signal
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, count
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TypeAlias

from changeling_protocol import Survey, SurveyId
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .requests import Opened, Opener, open_requests

MOST_PIECE_BYTES, LEAST_PIECE_BYTES = 2**16, 2**12
"""About so many bytes of requests are given at a time; less towards the end, so that no processor waits for another."""
FEW_BYTES = 2**16
"""What is no more is opened here, without starting processes for it."""
IN_HAND = 2
"""So many pieces a process is given at once, so that it never waits for the next."""
PATIENCE_SECONDS = 0.25
"""Where no process has answered for so long, others keep the processors busy: then pieces are opened here, too."""

_Piece: TypeAlias = tuple[int, list[bytes]]
"""The number of the first request, and requests."""
_Pipe: TypeAlias = "Connection[object, object]"
_Told: TypeAlias = tuple[Mapping[SurveyId, Survey], Mapping[bytes, bytes]]


class OpeningProcesses:
    """Opens requests on so many processors; the processes start when they are first needed."""

    def __init__(self, processors: int | None = None) -> None:
        self._processors = processors or os.cpu_count() or 1
        self._in_hand: dict[_Pipe, int] = {}
        """How many pieces each process has not answered, perhaps of an earlier call that had no need of them."""
        self._numbers = count()

    def __call__(
        self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]
    ) -> Opened:
        """What is in these requests, numbered from 0 on. Raises OSError or EOFError where a process died.

        Whatever it raises, the next call starts new processes.
        """
        if self._processors == 1 or sum(map(len, requests)) <= FEW_BYTES:
            return open_requests(requests, surveys, keys)
        try:
            self._start()
            return self._opened(requests, surveys, keys)
        except BaseException:
            self._end()  # one is dead, or has not the surveys and keys that the next call takes it to have
            raise

    def _opened(
        self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]
    ) -> Opened:
        told: _Told = dict(surveys), {id_: key.private_bytes_raw() for id_, key in keys.items()}
        for pipe in self._in_hand:
            pipe.send(told)
        pieces = {next(self._numbers): piece for piece in _pieces(requests, self._processors)}
        waiting, done = deque(pieces), dict[int, Opened]()
        here, heard = Opener(surveys, keys), monotonic()
        while len(done) < len(pieces):
            self._give(waiting, pieces)
            answers = self._answers(max(0.0, heard + PATIENCE_SECONDS - monotonic()))
            for number, opened in answers:
                if isinstance(opened, Exception) and number in pieces:
                    raise opened
                if isinstance(opened, Opened) and number in pieces:
                    done[number] = opened
            if answers:
                heard = monotonic()
            else:
                number = waiting.popleft() if waiting else next(each for each in pieces if each not in done)
                done[number] = _open(here, *pieces[number])
        whole = Opened()
        for number in pieces:
            whole.extend(done[number])
        return whole

    def _give(self, waiting: deque[int], pieces: Mapping[int, _Piece]) -> None:
        """Gives what waits to processes with nothing in hand, then to those that have less than they may."""
        for most in range(IN_HAND):
            for pipe, in_hand in self._in_hand.items():
                if waiting and in_hand == most:
                    number = waiting.popleft()
                    self._in_hand[pipe] += 1
                    pipe.send((number, pieces[number]))

    def _answers(self, patience: float) -> list[tuple[int, object]]:
        """What processes have answered, with the numbers of the pieces; waits so many seconds for the first."""
        answers: list[tuple[int, object]] = []
        for pipe in wait([pipe for pipe, in_hand in self._in_hand.items() if in_hand], patience):
            assert isinstance(pipe, Connection)  # noqa: S101
            match pipe.recv():
                case (int() as number, opened):
                    answers.append((number, opened))
            self._in_hand[pipe] -= 1
        return answers

    def _start(self) -> None:
        context = get_context("spawn")
        while len(self._in_hand) < self._processors:
            ours, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs,), daemon=True, name="opening").start()
            theirs.close()
            self._in_hand[ours] = 0

    def _end(self) -> None:
        for pipe in self._in_hand:
            pipe.close()
        self._in_hand = {}


def _pieces(requests: Sequence[bytes], processors: int) -> Iterator[_Piece]:
    ends = [*accumulate(map(len, requests))]
    first, given = 0, 0
    while first < len(ends):
        size = min(max((ends[-1] - given) // (4 * processors), LEAST_PIECE_BYTES), MOST_PIECE_BYTES)
        last = min(bisect_left(ends, given + size, first), len(ends) - 1)
        yield first, [*requests[first : last + 1]]
        first, given = last + 1, ends[last]


def _open(opener: Opener, first: int, requests: Sequence[bytes]) -> Opened:
    return opener.open(enumerate(requests, first))


def _serve(pipe: _Pipe) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # whoever started it ends it
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # so whoever wakes up need not wait for its turn
    coming: SimpleQueue[object] = SimpleQueue()
    Thread(target=_read, args=(pipe, coming), daemon=True).start()
    opener = Opener({}, {})
    gc.freeze()
    with suppress(OSError):
        while True:
            match coming.get():
                case (dict() as surveys, dict() as raw):
                    keys = {id_: X25519PrivateKey.from_private_bytes(key) for id_, key in raw.items()}
                    opener = Opener(surveys, keys)
                case (int() as number, (int() as first, list() as requests)):
                    try:
                        opened: Opened | Exception = _open(opener, first, requests)
                    except Exception as error:
                        opened = error
                    pipe.send((number, opened))
                case _:
                    return


def _read(pipe: _Pipe, coming: "SimpleQueue[object]") -> None:
    """Takes what comes while the process opens, or answers: who gives it need not wait for that. None at the end."""
    with suppress(EOFError, OSError):
        while True:
            coming.put(pipe.recv())
    coming.put(None)
