"""How often a server is asked: the pauses after failures, and a budget for requests that come to nothing.

Both go by the device's clock in whole milliseconds, and a clock that is set back ends a wait and never prolongs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from changeling_protocol import Coins, UnixMilliseconds

MOST_SILENCE_MS = 86_400_000
"""A server that asks for more silence than a day is asked again after a day."""
FIRST_PAUSE_MS = 10_000
"""The longest pause after a first failure; after each further one it is twice as long, up to MOST_PAUSE_MS."""
MOST_PAUSE_MS = 3_600_000
MOST_IN_VAIN = 12
"""So many requests that come to nothing may follow each other."""
REGAIN_MS = 3_600_000
"""After so long there may be one more. So there are at most MOST_IN_VAIN + 24 in any 24 hours."""
_MOST_OWED_MS = MOST_IN_VAIN * REGAIN_MS


@dataclass(frozen=True, slots=True)
class Backoff:
    """The time for which a server that failed is left in peace: as long as it asked for, then a pause of our own.

    What the server asked for binds everybody. Our own pause is for whoever asks unbidden, such as a background thread:
    a person who wants to send now may.
    failed_ms: the device's time at the last failure, in Unix milliseconds.
    silence_ms: for how long from then on the server asked not to be asked.
    pause_ms: for how long after that silence nobody asks unbidden.
    failures: how many there were in a row.
    """

    failed_ms: UnixMilliseconds
    silence_ms: int
    pause_ms: int
    failures: int

    def wait_ms(self, now_ms: UnixMilliseconds, unbidden: bool = True) -> int:
        """For how many milliseconds from now on the server is not asked; 0 if it may be now.

        now_ms: the device's time, in Unix milliseconds. unbidden: whether nobody wants it to be asked just now.
        """
        length_ms = self.silence_ms + (self.pause_ms if unbidden else 0)
        passed_ms = now_ms - self.failed_ms
        return length_ms - passed_ms if 0 <= passed_ms < length_ms else 0

    def after_failure(self, now_ms: UnixMilliseconds, silence_ms: int, coins: Coins) -> Backoff:
        """The backoff after one more failure.

        now_ms: the device's time, in Unix milliseconds.
        silence_ms: for how long the server asked not to be asked; 0 if it did not.
        coins: draw the pause, uniform over the upper half of what it may be: 5 to 10 seconds the first time, half an
        hour to an hour at last.
        """
        doublings = min(self.failures, MOST_PAUSE_MS.bit_length())  # a number of any size would be shifted otherwise
        most = min(FIRST_PAUSE_MS << doublings, MOST_PAUSE_MS)
        pause_ms = most - coins.below(most // 2 + 1)
        return Backoff(now_ms, min(max(silence_ms, 0), MOST_SILENCE_MS), pause_ms, self.failures + 1)


NEVER_FAILED = Backoff(UnixMilliseconds(0), 0, 0, 0)
"""What holds of a server that was not asked yet, or took what it was sent."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The requests that a server may still be asked in vain. It binds everybody, whoever wants what.

    A request is paid for before it is made, and paid back if something came of it.
    whole_ms: the device's time when the budget is whole again, in Unix milliseconds; of an hour each that is owed.
    """

    whole_ms: UnixMilliseconds

    def wait_ms(self, now_ms: UnixMilliseconds, left: int = 0) -> int:
        """For how many milliseconds from now on no request can be paid for; 0 if one can now.

        left: how many more must be left after it.
        """
        return max(0, self._owed_ms(now_ms) - (MOST_IN_VAIN - 1 - left) * REGAIN_MS)

    def paying(self, now_ms: UnixMilliseconds) -> Budget:
        """The budget once a request is paid for at this time."""
        return Budget(UnixMilliseconds(now_ms + self._owed_ms(now_ms) + REGAIN_MS))

    def paid_back(self, requests: int) -> Budget:
        """The budget once so many requests are paid back."""
        return Budget(UnixMilliseconds(self.whole_ms - requests * REGAIN_MS))

    def _owed_ms(self, now_ms: UnixMilliseconds) -> int:
        owed_ms = self.whole_ms - now_ms
        return owed_ms if 0 <= owed_ms <= _MOST_OWED_MS else 0  # more is owed only if the clock was set back
