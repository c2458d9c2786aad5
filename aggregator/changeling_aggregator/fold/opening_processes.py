"""Opening on all processors: processes that are given requests, surveys and keys through a pipe, and give columns back.

Keys come through no argument, environment, file or log. A process ends when whoever started it has ended.
"""

import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TypeAlias

from changeling_protocol import Survey
from changeling_protocol.quantities import SurveyId
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .opening import Opened, Opener, open_requests

PIECE_BYTES = 2**16
"""About so many bytes of requests are given at a time."""
FEW_BYTES = 2**16
"""What is no more is opened here, without starting processes for it."""

_Task: TypeAlias = Opener | list[tuple[int, bytes]]


class OpeningProcesses:
    """Opens requests on so many processors; the processes start when they are first needed."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count or os.cpu_count() or 1
        self._pipes: list[Connection[object, object]] = []

    def __call__(
        self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]
    ) -> Opened:
        """What is in these requests, numbered from 0 on. Raises OSError or EOFError where a process died.

        Whatever it raises, the next call starts new processes.
        """
        if self._count == 1 or sum(map(len, requests)) <= FEW_BYTES:
            return open_requests(requests, surveys, keys)
        try:
            self._start()
            return self._opened(requests, surveys, keys)
        except BaseException:
            self._end()  # one is dead, or what the others still answer would be taken for the next call's
            raise

    def _opened(
        self, requests: Sequence[bytes], surveys: Mapping[SurveyId, Survey], keys: Mapping[bytes, X25519PrivateKey]
    ) -> Opened:
        raw = {id_: key.private_bytes_raw() for id_, key in keys.items()}
        for pipe in self._pipes:
            pipe.send((dict(surveys), raw))
        pieces = deque(enumerate(_pieces(requests)))
        done: dict[int, Opened] = {}
        busy: dict[Connection[object, object], int] = {}
        idle = [*self._pipes]
        while pieces or busy:
            while pieces and idle:
                number, piece = pieces.popleft()
                pipe = idle.pop()
                busy[pipe] = number
                pipe.send(piece)
            for pipe in [each for each in wait([*busy]) if isinstance(each, Connection)]:
                opened = pipe.recv()
                if isinstance(opened, Exception):
                    raise opened
                assert isinstance(opened, Opened)  # noqa: S101
                done[busy.pop(pipe)] = opened
                idle.append(pipe)
        whole = Opened()
        for number in sorted(done):
            whole.extend(done[number])
        return whole

    def _start(self) -> None:
        context = get_context("spawn")
        while len(self._pipes) < self._count:
            ours, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs,), daemon=True, name="opening").start()
            theirs.close()
            self._pipes.append(ours)

    def _end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._pipes = []


def _pieces(requests: Sequence[bytes]) -> list[list[tuple[int, bytes]]]:
    pieces: list[list[tuple[int, bytes]]] = [[]]
    size = 0
    for number, body in enumerate(requests):
        if size > PIECE_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append((number, body))
        size += len(body)
    return pieces


def _serve(pipe: "Connection[object, object]") -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # whoever started it ends it
    opener = Opener({}, {})
    with suppress(EOFError, OSError):
        while True:
            match pipe.recv():
                case (dict() as surveys, dict() as raw):
                    keys = {id_: X25519PrivateKey.from_private_bytes(key) for id_, key in raw.items()}
                    opener = Opener(surveys, keys)
                case list() as requests:
                    try:
                        opened: Opened | Exception = opener.open(requests)
                    except Exception as error:
                        opened = error
                    pipe.send(opened)
