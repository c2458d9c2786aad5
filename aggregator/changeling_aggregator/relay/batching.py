"""When waiting envelopes are forwarded, and how many. Pure; the caller brings the round.

Time is cut into rounds of equal length, the same for every survey and never begun by an arrival. All that is known of
when an envelope came is its round. At the start of each round those of the rounds before it go, if they are enough, or
if one of them could not wait for another round.
"""

from collections.abc import Collection
from dataclasses import dataclass

from changeling_protocol import Survey, UnixSeconds
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES

_FRAME_BYTES = 32
"""More than MessagePack needs around the envelopes of a body."""
_PACKING_BYTES = 5
"""More than it needs before each of them."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How a relay batches what it forwards.

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
        """How many envelopes, of at most so many bytes each, one body carries."""
        fitting = (MOST_BODY_BYTES - _FRAME_BYTES) // (most_bytes + _PACKING_BYTES)
        return max(1, min(MOST_ENVELOPES, self.batch, fitting))

    def due(self, rounds: Collection[int], now: int, longest: int, at_once: int) -> int:
        """How many of these envelopes are to be forwarded, drawn from all of them.

        rounds: in which each of them came; none in the present one. now: the present one. longest: as `longest` says.
        at_once: how many a body carries. Bodies are full; only where one envelope cannot wait do all go. One that came
        longer than that in the future cannot wait either: the clock, or the length of rounds, was another.
        """
        if rounds and max(now + 1 - min(rounds), max(rounds) - now) * self.wait > longest:
            return len(rounds)
        return len(rounds) // at_once * at_once if len(rounds) >= self.batch else 0
