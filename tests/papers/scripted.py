"""Static mechanisms for proofs: a script says what they release, whatever the data; they remember data and price.

Two runs on one script release the same, so they differ in data alone, call by call: what neighbours are told apart by.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from changeling_papers import BasicCounting, LinearQueries


@dataclass
class Script:
    """The k-th release is `seed`'s k-th number; calls: (name, data, epsilon, delta)."""

    seed: int
    spread: int = 40
    calls: list = field(default_factory=list)

    def __post_init__(self):
        self.random = np.random.default_rng(self.seed)

    def next(self, name, data, epsilon, delta):
        self.calls.append((name, np.array(data).copy(), epsilon, delta))
        return int(self.random.integers(-self.spread, self.spread))


@dataclass(frozen=True)
class ScriptedPrice:
    script: Script
    name: str
    epsilon: Fraction
    delta: Fraction
    variance: None = None

    def release(self, data, noise):  # noqa: ARG002
        return data * 0 + self.script.next(self.name, data, self.epsilon, self.delta)


class ScriptedQueries(LinearQueries):
    """One query per item."""

    def __init__(self, script, items):
        LinearQueries.__init__(self, np.eye(items, dtype=np.int64))
        object.__setattr__(self, "script", script)

    def under(self, epsilon, delta):
        return ScriptedPrice(self.script, "queries", epsilon, delta)


class ScriptedCounting(BasicCounting):
    def __init__(self, script):
        BasicCounting.__init__(self)
        object.__setattr__(self, "script", script)

    def under(self, epsilon, delta):
        return ScriptedPrice(self.script, "counting", epsilon, delta)


class Exact:
    """A static mechanism that releases the truth: for what is computed, not for what is protected."""

    def __init__(self, static):
        self.static = static

    def __getattr__(self, name):
        return getattr(self.static, name)

    def under(self, epsilon, delta):  # noqa: ARG002
        return self

    variance = 0.0

    def release(self, data, noise):  # noqa: ARG002
        return self.static.truth(data)


def charged(left, right):
    """What two runs on one script cost the difference of their data: the sums of epsilon and of delta."""
    assert [call[0] for call in left] == [call[0] for call in right]
    epsilon, delta = Fraction(0), Fraction(0)
    for (_, one, e, d), (_, other, e_, d_) in zip(left, right, strict=True):
        assert (e, d) == (e_, d_)
        moved = int(np.abs(one - other).sum())
        assert moved <= 1
        epsilon, delta = epsilon + moved * e, delta + moved * d
    return epsilon, delta
