"""The time of a survey of eight minutes, and a clock that a test moves."""

START, GRACE = 1_800_000_000, 600
END = START + 8 * 60


def closes(node: int) -> int:
    """When a period ends."""
    return START + node * 60


class Clock:
    """Unix seconds that a test moves."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
