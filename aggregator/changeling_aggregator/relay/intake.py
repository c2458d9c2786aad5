"""Taking envelopes in: checked from outside, kept in the spool, acknowledged when they are on disk.

The answer depends on the envelope, the relay's clock and its copies, the same for all devices; never on what the server
said of others, and never on who sends. Requests that come at the same time share a write to the disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from changeling_protocol import VERSION, MalformedBytes
from changeling_protocol.quantities import SurveyId, UnixSeconds
from changeling_protocol.refusal import Refusal
from changeling_protocol.sealing import head_of
from starlette.concurrency import run_in_threadpool

from ..errors import Overloaded
from .batching import Batching
from .copies import Copies, Copy

MOST_PENDING_BYTES = 64 * 2**20
"""The most bytes of envelopes that wait for the disk."""
_log = logging.getLogger(__name__)


def refusal_of(envelope: bytes, copies: Copies, now: UnixSeconds) -> Refusal | None:
    """Why an envelope is not taken; None where it is to be kept. now: Unix seconds."""
    try:
        head = head_of(envelope)
    except MalformedBytes:
        return Refusal.MALFORMED
    if head.version != VERSION:
        return Refusal.MALFORMED
    copy = copies.surveys.get(head.survey)
    if copy is None:
        return Refusal.UNKNOWN_SURVEY
    if not copy.is_open(now):
        return Refusal.CLOSED
    if head.key != copies.key_at(now):
        return Refusal.UNKNOWN_KEY
    return Refusal.TOO_LARGE if len(envelope) > copy.most_bytes else None


_Placed = list[tuple[Copy, list[int], list[bytes]]]


class Intake:
    """Keeps envelopes. clock: Unix seconds."""

    def __init__(self, copies: Copies, batching: Batching, clock: Callable[[], UnixSeconds]) -> None:
        self._copies, self._batching, self._clock = copies, batching, clock
        self._pending: list[tuple[_Placed, asyncio.Future[None]]] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def take(self, envelopes: Sequence[bytes]) -> Mapping[int, Refusal]:
        """Keep the envelopes of one request; returns why any were refused, by place, when all others are on disk.

        Raises Overloaded where there is no room or the disk fails; then any of them may have been kept.
        """
        now, refused = self._clock(), {}
        accepted: dict[SurveyId, list[bytes]] = defaultdict(list)
        for index, envelope in enumerate(envelopes):
            if (refusal := refusal_of(envelope, self._copies, now)) is not None:
                refused[index] = refusal
            else:
                accepted[head_of(envelope).survey].append(envelope)
        if accepted:
            await self._keep(accepted)
        return refused

    async def close(self) -> None:
        """Finish what is being written."""
        if self._writing is not None:
            await self._writing

    async def _keep(self, accepted: Mapping[SurveyId, list[bytes]]) -> None:
        size = sum(len(envelope) for envelopes in accepted.values() for envelope in envelopes)
        if self._pending_bytes + size > MOST_PENDING_BYTES:
            raise Overloaded("more envelopes wait for the disk than this relay keeps: come again later")
        placed: _Placed = []
        try:
            for id_, envelopes in accepted.items():
                copy = self._copies.surveys[id_]
                placed.append((copy, copy.spool.reserve(len(envelopes)), envelopes))
        except Overloaded:
            _give_back(placed)
            raise
        kept = asyncio.get_running_loop().create_future()
        self._pending.append((placed, kept))
        self._pending_bytes += size
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        try:
            await asyncio.shield(kept)
        finally:
            self._pending_bytes -= size

    async def _write(self) -> None:
        while self._pending:
            together, self._pending = self._pending, []
            try:
                await run_in_threadpool(self._put, [each for placed, _ in together for each in placed])
            except Exception:  # the disk fails: each sender hears it, and the next are tried again
                _log.exception("what came could not be kept")
                for placed, kept in together:
                    _give_back(placed)
                    kept.set_exception(Overloaded("the disk of this relay fails: come again later"))
                    kept.exception()  # whether or not its sender is still there to hear it
            else:
                for _, kept in together:
                    kept.set_result(None)

    def _put(self, placed: _Placed) -> None:
        round_ = self._batching.round_at(self._clock())
        for copy, slots, envelopes in placed:
            copy.spool.write(slots, envelopes, round_)
        for spool in {id(copy.spool): copy.spool for copy, _, _ in placed}.values():
            spool.flush()
        for copy, slots, envelopes in placed:
            copy.spool.admit(slots, envelopes, round_)


def _give_back(placed: _Placed) -> None:
    for copy, slots, _ in placed:
        copy.spool.release(slots)
