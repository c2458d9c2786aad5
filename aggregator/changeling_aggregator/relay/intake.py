"""Taking envelopes in: checked from outside, kept in the spool, acknowledged when they are on disk.

The answer depends on the envelope, the relay's clock and its copies, the same for all devices; never on what the server
said of others, nor on who sends, but that a network may have its share of the room already. Requests that come at the
same time share a write to the disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from changeling_protocol import VERSION, MalformedBytes, Refusal, SurveyId, UnixSeconds, head_of
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


@dataclass(frozen=True, slots=True)
class _Placed:
    """Envelopes of one survey with the slots that are reserved for them. network, round: whose share they are of."""

    copy: Copy
    slots: list[int]
    envelopes: list[bytes]
    network: str | None
    round: int

    def give_back(self) -> None:
        """Free what was not written."""
        self.copy.spool.release(self.slots)
        if self.network is not None:
            self.copy.spool.shares.give_back(self.network, len(self.slots), self.round)


class Intake:
    """Keeps envelopes. clock: Unix seconds."""

    def __init__(self, copies: Copies, batching: Batching, clock: Callable[[], UnixSeconds]) -> None:
        self._copies, self._batching, self._clock = copies, batching, clock
        self._pending: list[tuple[list[_Placed], asyncio.Future[None]]] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def take(self, envelopes: Sequence[bytes], network: str | None = None) -> Mapping[int, Refusal]:
        """Keep the envelopes of one request; returns why any were refused, by place, when all others are on disk.

        network: that they came from, as `network_of` names it; None for one that may have all the room.
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
            await self._keep(accepted, network)
        return refused

    async def close(self) -> None:
        """Finish what is being written."""
        if self._writing is not None:
            await self._writing

    async def _keep(self, accepted: Mapping[SurveyId, list[bytes]], network: str | None) -> None:
        size = sum(len(envelope) for envelopes in accepted.values() for envelope in envelopes)
        if self._pending_bytes + size > MOST_PENDING_BYTES:
            raise Overloaded("more envelopes wait for the disk than this relay keeps: come again later")
        placed: list[_Placed] = []
        try:
            for id_, envelopes in accepted.items():
                placed.append(self._place(self._copies.surveys[id_], envelopes, network))
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

    def _place(self, copy: Copy, envelopes: list[bytes], network: str | None) -> _Placed:
        round_ = self._batching.round_at(self._clock())
        if network is not None and not copy.spool.shares.take(network, len(envelopes), round_):
            raise Overloaded("more envelopes of your network wait here than this relay keeps of one: come again later")
        try:
            slots = copy.spool.reserve(len(envelopes))
        except Overloaded:
            if network is not None:
                copy.spool.shares.give_back(network, len(envelopes), round_)
            raise
        return _Placed(copy, slots, envelopes, network, round_)

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

    def _put(self, placed: Sequence[_Placed]) -> None:
        round_ = self._batching.round_at(self._clock())
        for each in placed:
            each.copy.spool.write(each.slots, each.envelopes, round_)
        for spool in {id(each.copy.spool): each.copy.spool for each in placed}.values():
            spool.flush()
        for each in placed:
            each.copy.spool.admit(each.slots, each.envelopes, round_)


def _give_back(placed: Sequence[_Placed]) -> None:
    for each in placed:
        each.give_back()
