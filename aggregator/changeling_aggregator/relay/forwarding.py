"""Forwarding what waits, round by round: shuffled, in full bodies, again and again until the server has it.

Time is cut into rounds of equal length, the same for every survey and never begun by an arrival. All that is known of
when an envelope came is its round. At the start of each round those of the rounds before it go, if they are enough, or
if one of them could not wait for another round. What the server refuses is counted by reason and let go of: the device
was told that the relay has it, and nothing else.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from changeling_protocol import Coins, Refusal, Survey, UnixSeconds
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES
from starlette.concurrency import run_in_threadpool

from ..errors import UpstreamTrouble
from .copies import Copy
from .spool import WaitingEnvelope
from .upstream import Upstream

_FRAME_BYTES = 32
"""More than MessagePack needs around the envelopes of a body."""
_PACKING_BYTES = 5
"""More than it needs before each of them."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The rules by which a relay batches envelopes.

    batch: envelopes go once so many of one survey and one sealing key wait.
    wait: the length of a round, in seconds.
    most_wait: fewer than a batch go when the first of them would wait for longer than this, in seconds.
    Raises ValueError for numbers below 1, or a wait longer than most_wait.
    """

    batch: int
    wait: int
    most_wait: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"a batch has at least 1 envelope, got {self.batch}")
        if not 1 <= self.wait <= self.most_wait:
            raise ValueError(f"the wait is at least 1 s and at most the longest, got {self.wait} s, {self.most_wait} s")

    def round_at(self, time: UnixSeconds) -> int:
        """The round that a Unix time is in, in seconds."""
        return int(time // self.wait)

    def longest(self, survey: Survey) -> int:
        """For how many seconds an envelope of this survey may wait: half of what grace leaves to those who are late."""
        return min(self.most_wait, (survey.grace - survey.skew - survey.spread) // 2)

    def at_once(self, most_bytes: int) -> int:
        """The number of envelopes, of at most so many bytes each, that one body carries."""
        fitting = (MOST_BODY_BYTES - _FRAME_BYTES) // (most_bytes + _PACKING_BYTES)
        return max(1, min(MOST_ENVELOPES, self.batch, fitting))

    def due(self, rounds: Collection[int], now: int, longest: int, at_once: int) -> int:
        """The number of these envelopes to forward, drawn from all of them.

        rounds: in which each of them came; none in the present one. now: the present one. longest: as `longest` says.
        at_once: how many a body carries. Bodies are full; only where one envelope cannot wait do all go. One that came
        longer than that in the future cannot wait either: the clock, or the length of rounds, was another.
        """
        if rounds and max(now + 1 - min(rounds), max(rounds) - now) * self.wait > longest:
            return len(rounds)
        return len(rounds) // at_once * at_once if len(rounds) >= self.batch else 0


_Item = TypeVar("_Item")


def shuffled(items: Iterable[_Item], coins: Coins) -> list[_Item]:
    """The items in an order that is uniform over all orders, whatever the one they come in."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        drawn = coins.below(last + 1)
        order[last], order[drawn] = order[drawn], order[last]
    return order


FIRST_PAUSE_SECONDS = 2.0
"""The longest pause after a first failure; after each further one it is twice as long, up to MOST_PAUSE_SECONDS."""
MOST_PAUSE_SECONDS = 300.0
MOST_SILENCE_SECONDS = 3600
"""A server that asks for more silence than this is asked again after so many seconds."""
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Forwarding:
    """Forwards what one survey's devices sent. coins: for the order, and for pauses. clock: Unix seconds."""

    def __init__(
        self, copy: Copy, upstream: Upstream, batching: Batching, coins: Coins, clock: Callable[[], UnixSeconds]
    ) -> None:
        self._copy, self._upstream, self._batching = copy, upstream, batching
        self._coins, self._clock = coins, clock
        self.failures = 0
        """The number of attempts that failed since the server last took something."""
        self.refused: Counter[Refusal | None] = Counter()
        """Counts of the envelopes that the server refused, by its reason; None for reasons that we do not know."""

    async def run(self) -> None:
        """Forward whatever is due at the start of each round, until cancelled."""
        last = self._batching.round_at(self._clock())
        while True:
            now = self._batching.round_at(self._clock())
            if now != last:
                last = now
                try:
                    await self.forward_due(now)
                except Exception:  # a disk that fails today is no reason not to try again
                    self.failures += 1
                    _log.exception("survey %s: forwarding failed and will be tried again", self._copy.survey.id.hex())
            left = self._batching.wait - self._clock() % self._batching.wait
            await asyncio.sleep(min(left, _LOOK_SECONDS))

    async def forward_due(self, now: int) -> None:
        """Forward what is due in this round; returns when the server has all of it, and networks have room again."""
        for waiting in _by_key(self._copy.spool.waiting(), now):
            at_once = self._batching.at_once(self._copy.most_bytes)
            longest = self._batching.longest(self._copy.survey)
            count = self._batching.due([each.round for each in waiting], now, longest, at_once)
            order = shuffled([each.slot for each in waiting], self._coins)[:count]
            before = self.refused.copy()
            for first in range(0, count, at_once):
                await self._forward(order[first : first + at_once])
            if refused := self.refused - before:
                reasons = ", ".join(sorted(f"{number} {reason or 'otherwise'}" for reason, number in refused.items()))
                _log.warning("survey %s: of %d the server refused %s", self._copy.survey.id.hex(), count, reasons)
        self._copy.spool.shares.forget_gone((each.round for each in self._copy.spool.waiting()), now)

    async def _forward(self, slots: Sequence[int]) -> None:
        """Send one body until the server has answered for it, then erase it here."""
        envelopes = await run_in_threadpool(self._copy.spool.read, slots)
        while True:
            try:
                self.refused.update(await self._upstream.upload(envelopes))
            except UpstreamTrouble as trouble:
                if trouble.status == 413 and len(slots) > 1:
                    for half in (slots[: len(slots) // 2], slots[len(slots) // 2 :]):
                        await self._forward(half)
                    return
                await asyncio.sleep(self._pause(trouble))
            else:
                self.failures = 0
                break
        await run_in_threadpool(self._copy.spool.erase, slots)

    def _pause(self, trouble: UpstreamTrouble) -> float:
        if self.failures == 0:
            _log.warning("survey %s: %s; trying on", self._copy.survey.id.hex(), trouble)
        most = min(FIRST_PAUSE_SECONDS * 2 ** min(self.failures, 20), MOST_PAUSE_SECONDS)
        self.failures += 1
        drawn = most * (1 + self._coins.below(1000) / 1000) / 2
        return float(min(trouble.silence, MOST_SILENCE_SECONDS) + drawn)


def _by_key(waiting: Sequence[WaitingEnvelope], now: int) -> list[list[WaitingEnvelope]]:
    """Group by key all that came in an earlier round, or in one that a clock set back has yet to reach."""
    groups: dict[bytes, list[WaitingEnvelope]] = defaultdict(list)
    for each in waiting:
        if each.round != now:
            groups[each.key].append(each)
    return [groups[key] for key in sorted(groups)]
