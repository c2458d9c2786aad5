"""What every central mechanism must satisfy: guarantee, start, steps, saved states, refusals, and stated variances."""

from copy import deepcopy
from dataclasses import fields, is_dataclass
from fractions import Fraction
from math import sqrt
from typing import ClassVar

import numpy as np
import pytest
from changeling_central import BadState, BudgetExhausted, CentralError, written_state

from tests.central.stand_ins import Forbidden
from tests.seeded_noise import SeededNoise

from .mechanisms import Example

RUNS = 1500
REACH = 5.5
"""Standard errors of a variance of Laplace noise, √(5/runs): of all variances together a right one fails below 1e-4."""


class MechanismContract:
    """Inherit it, and name examples."""

    examples: ClassVar[list[Example]] = []

    def pytest_generate_tests(self, metafunc):
        if "example" in metafunc.fixturenames:
            metafunc.parametrize("example", self.examples, ids=lambda example: example.name)

    def test_the_guarantee_is_the_budget_exactly_with_its_neighbours_and_source(self, example):
        """In fractions, never rounded; and in words what it speaks of and where it is proved."""
        stated = example.mechanism.guarantee
        assert (type(stated.epsilon), type(stated.delta)) == (Fraction, Fraction)
        assert (stated.epsilon, stated.delta) == (example.epsilon, example.delta)
        assert "differ" in stated.neighbours or "lacks" in stated.neighbours
        assert stated.source

    def test_the_start_draws_nothing_and_is_always_the_same(self, example):
        """It takes no noise; what it holds is decided by the mechanism alone."""
        mechanism = example.mechanism
        assert mechanism.saved(mechanism.start()) == mechanism.saved(mechanism.start())
        mechanism.check(mechanism.start())

    def test_a_step_is_a_function_and_leaves_the_old_state(self, example):
        """The same state, input and draws give the same; only a mechanism that says so writes over its old state."""
        mechanism = example.mechanism
        state, noise = mechanism.start(), SeededNoise(1)
        for number, value in enumerate(example.values):
            before = mechanism.saved(state)
            first, again = (mechanism.step(mechanism.resumed(before), value, SeededNoise(number)) for _ in range(2))
            assert mechanism.saved(first[0]) == mechanism.saved(again[0])
            assert written_state("release", first[1]) == written_state("release", again[1])
            after, _ = mechanism.step(state, value, noise)
            assert (mechanism.saved(state) == before) != mechanism.overwrites
            mechanism.check(after)
            state = after

    def test_who_writes_over_an_input_or_a_release_changes_no_state(self, example):
        """As one does who clips what was released in place, or takes one array for every step's input."""
        mechanism, state, noise = example.mechanism, example.mechanism.start(), SeededNoise(4)
        for value in map(deepcopy, example.values):
            before = mechanism.saved(state)
            after, release = mechanism.step(state, value, noise)
            saved = mechanism.saved(after)
            assert (mechanism.saved(state) == before) != mechanism.overwrites
            for array in (*_arrays(value), *_arrays(release)):
                array[...] = 77
            assert mechanism.saved(after) == saved
            assert (mechanism.saved(state) == before) != mechanism.overwrites
            state = after

    def test_a_state_that_was_saved_goes_on_as_if_it_had_not_been(self, example):
        """At every step, with the same draws: the same releases, and nothing is drawn a second time."""
        mechanism = example.mechanism
        assert _released(example, SeededNoise(3)) == _released(example, SeededNoise(3), through=mechanism.saved)

    def test_damaged_bytes_are_refused_or_another_whole_state(self, example):
        """Cut anywhere, longer, or with any byte changed: what is taken reads exactly as those bytes."""
        mechanism, saved = example.mechanism, _last_saved(example)
        for cut in range(0, len(saved), max(1, len(saved) // 40)):
            with pytest.raises(BadState):
                mechanism.resumed(saved[:cut])
        for longer in (saved + b"\0", b"\0" + saved, saved + saved):
            with pytest.raises(BadState):
                mechanism.resumed(longer)
        random = np.random.default_rng(5)
        for at in random.integers(0, len(saved), 60).tolist():
            changed = saved[:at] + bytes([saved[at] ^ int(random.integers(1, 256))]) + saved[at + 1 :]
            try:
                state = mechanism.resumed(changed)
            except BadState:
                continue
            assert mechanism.saved(state) == changed

    def test_a_foreign_state_is_refused(self, example):
        """That of any other mechanism, and of the same one at another budget."""
        mechanism = example.mechanism
        others = [other.mechanism for other in self.examples if other.mechanism.identity() != mechanism.identity()]
        for other in [*others, *([example.other] if example.other else [])]:
            with pytest.raises(BadState):
                mechanism.resumed(other.saved(other.start()))

    def test_beyond_the_budget_nothing_is_drawn(self, example):
        """One step more is refused, and the state is as it was."""
        if not example.ends:
            pytest.skip("has no last step")
        mechanism = example.mechanism
        state = mechanism.resumed(_last_saved(example))
        with pytest.raises(BudgetExhausted):
            mechanism.step(state, example.values[-1] if example.beyond is None else example.beyond, Forbidden())
        assert mechanism.saved(state) == _last_saved(example)

    def test_what_is_no_input_is_refused_before_anything_is_drawn(self, example):
        """A ValueError or a CentralError, and the state is as it was."""
        mechanism = example.mechanism
        for bad in example.bad:
            state = mechanism.start()
            with pytest.raises((ValueError, CentralError)):
                mechanism.step(state, bad, Forbidden())
            assert mechanism.saved(state) == mechanism.saved(mechanism.start())

    def test_the_stated_variance_is_the_measured_one(self, example):
        """Of every number of every release, over 1,500 runs; or the mechanism says that it knows none."""
        mechanism, noise = example.mechanism, SeededNoise(7)
        stated = [mechanism.variance(step) for step in range(1, len(example.values) + 1)]
        if None in stated:
            assert stated == [None] * len(stated)
            return
        runs = np.array([np.concatenate([*_numbers(example, noise)]) for _ in range(RUNS)])
        sizes = [len(numbers) for numbers in _numbers(example, noise)]
        expected = np.repeat(np.array(stated, np.float64), sizes)
        assert np.all(np.abs(runs.var(0) - expected) <= expected * REACH * sqrt(5 / RUNS))


def _released(example, noise, through=None):
    """The releases as bytes; through: with the state saved and resumed before each step."""
    mechanism, releases = example.mechanism, []
    state = mechanism.start()
    for value in example.values:
        state, release = mechanism.step(mechanism.resumed(through(state)) if through else state, value, noise)
        releases.append(written_state("release", release))
    return releases


def _last_saved(example):
    state, noise = example.mechanism.start(), SeededNoise(2)
    for value in example.values:
        state, _ = example.mechanism.step(state, value, noise)
    return example.mechanism.saved(state)


def _numbers(example, noise):
    state = example.mechanism.start()
    for value in example.values:
        state, release = example.mechanism.step(state, value, noise)
        yield np.asarray(example.numbers(release), np.float64)


def _arrays(value):
    """Every array that can be written to in a value of dataclasses, tuples and lists."""
    if isinstance(value, np.ndarray):
        yield from [value] if value.flags.writeable else []
    elif is_dataclass(value) or isinstance(value, tuple | list):
        parts = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else value
        for part in parts:
            yield from _arrays(part)
