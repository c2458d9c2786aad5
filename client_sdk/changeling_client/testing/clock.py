"""A clock that stands still until a test moves it."""

FIRST_DAY = 1_798_761_600
"""The first midnight of 2027, in Unix seconds: when surveys of `make_survey` begin."""
_NOON = 43_200


class ManualClock:
    """Unix time in seconds, as a client takes it.

    now: what it shows first: noon of the first day, so that after a day the period before is over and answered.
    """

    def __init__(self, now: float = FIRST_DAY + _NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        """What it shows."""
        return self.now

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Moves it on; backwards if that is negative, as clocks of devices sometimes do."""
        self.now += ((days * 24 + hours) * 60 + minutes) * 60 + seconds
