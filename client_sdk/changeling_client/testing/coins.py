"""Coins that fall the same in every run, so they hide nothing: whoever knows the seed reads every report."""

import random


class ForeseeableCoins:
    """Uniform integers from a seed, for tests only. No argument of a client takes them."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)  # noqa: S311

    def below(self, n: int) -> int:
        """An integer in [0, n). Raises ValueError for n < 1."""
        return self._generator.randrange(n)
