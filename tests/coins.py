"""Coins that tests bring: the same ones every time, or just those that a test has written down."""

from collections.abc import Iterable

from changeling_client.testing import ForeseeableCoins as SeededCoins

__all__ = ["ListedCoins", "SeededCoins"]


class ListedCoins:
    """Integers from a list, one for each draw. `asked` keeps what each draw was to be below.

    The draws that a test does not care about it writes as None: they give 0.
    """

    def __init__(self, drawn: Iterable[int | None]) -> None:
        self._drawn = iter(drawn)
        self.asked: list[int] = []

    def below(self, n: int) -> int:
        self.asked.append(n)
        drawn = next(self._drawn) or 0
        assert 0 <= drawn < n, f"{drawn} is listed where an integer below {n} is drawn"
        return drawn
