"""Static mechanisms for proofs: a script says what they release, whatever the data; they remember data and price.

Two runs on one script release the same, so they differ in data alone, call by call: what neighbours are told apart by.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from changeling_central.testing import Forbidden
from changeling_papers import BasicCounting, LinearQueries

from tests.central.examples import stepped


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


def followed(made, values, seed=1, spread=40):
    """The calls of a run on a script, and the state that it ends in. made: the mechanism of a script."""
    script = Script(seed, spread)
    state, _ = stepped(made(script), values, Forbidden())
    return script.calls, state


def charged(one, other):
    """What two runs on one script cost the difference of their data: the sums of epsilon and of delta."""
    epsilon, delta = Fraction(0), Fraction(0)
    for (name, data, *price), (its_name, its_data, *its_price) in zip(one, other, strict=True):
        assert (name, price) == (its_name, its_price)
        moved = int(np.abs(data - its_data).sum())
        epsilon, delta = epsilon + moved * price[0], delta + moved * price[1]
    return epsilon, delta
