"""How long a server is left in peace after it failed: as long as it asked for, and then some of our own accord.

Both are kept as lengths from the moment of the failure, so that a clock which is set back ends the wait and never
prolongs it. What the server asked for binds everybody. Our own pause is for whoever asks unbidden, such as a
background thread: a person who wants to send now may.
"""

from __future__ import annotations

from dataclasses import dataclass

from changeling_protocol import Coins, UnixMilliseconds

MOST_SILENCE_MS = 86_400_000
"""A server that asks for more silence than a day is asked again after a day."""
FIRST_PAUSE_MS = 10_000
"""The longest pause after a first failure; after each further one it is twice as long, up to MOST_PAUSE_MS."""
MOST_PAUSE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Patience:
    """What is known of a server's failures since it last did what it was asked for.

    failed_ms: the device's time at the last failure, in Unix milliseconds.
    silence_ms: for how long from then on the server asked not to be asked.
    pause_ms: for how long after that silence nobody asks unbidden.
    failures: how many there were in a row.
    Raises ValueError for a number below 0.
    """

    failed_ms: UnixMilliseconds
    silence_ms: int
    pause_ms: int
    failures: int

    def __post_init__(self) -> None:
        if min(self.silence_ms, self.pause_ms, self.failures) < 0:
            raise ValueError(f"lengths and counts are not below 0, got {self!r}")

    def allows(self, now_ms: UnixMilliseconds) -> bool:
        """Whether the server may be asked at this time of the device, in Unix milliseconds."""
        return self._left_ms(self.silence_ms, now_ms) == 0

    def wait_ms(self, now_ms: UnixMilliseconds) -> int:
        """For how many milliseconds from now on nobody should ask unbidden; 0 if one may now."""
        return self._left_ms(self.silence_ms + self.pause_ms, now_ms)

    def after_failure(self, now_ms: UnixMilliseconds, silence_ms: int, coins: Coins) -> Patience:
        """What holds after one more failure.

        now_ms: the device's time, in Unix milliseconds.
        silence_ms: for how long the server asked not to be asked; 0 if it did not.
        coins: draw the pause, uniform over the upper half of what it may be: 5 to 10 seconds the first time, half an
        hour to an hour at last.
        """
        doublings = min(self.failures, MOST_PAUSE_MS.bit_length())  # a number of any size would be shifted otherwise
        most = min(FIRST_PAUSE_MS << doublings, MOST_PAUSE_MS)
        pause_ms = most - coins.below(most // 2 + 1)
        return Patience(now_ms, min(max(silence_ms, 0), MOST_SILENCE_MS), pause_ms, self.failures + 1)

    def as_row(self) -> tuple[int, int, int, int]:
        """All of it in four integers, in the order of the fields; `Patience(*row)` gives it back."""
        return self.failed_ms, self.silence_ms, self.pause_ms, self.failures

    def _left_ms(self, length_ms: int, now_ms: UnixMilliseconds) -> int:
        passed_ms = now_ms - self.failed_ms
        return length_ms - passed_ms if 0 <= passed_ms < length_ms else 0


NEVER_FAILED = Patience(UnixMilliseconds(0), 0, 0, 0)
"""What holds of a server that was not asked yet, or did what it was asked for."""
