"""The door for tests of central mechanisms: the contract that each of them keeps, stand-ins for noise, and releases.

A mechanism proves itself by inheriting `MechanismContract` and naming examples. A release is run with noise of one's
own by `run(Release(…), noise)`. Needs pytest.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np
import pytest
from changeling_statistics import Counts, Floats
from numpy.typing import NDArray

from .budget import Unit, spending
from .errors import BadState, BudgetExhausted, CentralError
from .files import Output
from .mechanism import Mechanism, State, written_state
from .noise import Noise
from .offers import _OFFERS, Offer, register
from .run import Release, run
from .statement import Statement, begun

__all__ = [
    "Example",
    "Forbidden",
    "MechanismContract",
    "NoNoise",
    "Output",
    "RecordedNoise",
    "Release",
    "SeededNoise",
    "Statement",
    "Unit",
    "begun",
    "registered",
    "run",
    "spending",
]


@contextmanager
def registered(offer: Offer[State]) -> Iterator[None]:
    """Offer a mechanism to `changeling release` for a while."""
    register(offer)
    try:
        yield
    finally:
        del _OFFERS[offer.name]


AnyMechanism: TypeAlias = Mechanism[object, object, object]


class NoNoise:
    """Every draw is 0, so that a release is the truth."""

    def laplace(self, scale: float, size: int) -> Counts:  # noqa: ARG002
        """Nothing."""
        return np.zeros(size, np.int64)

    gaussian = laplace


class Forbidden:
    """Fails the test when anything is drawn."""

    def laplace(self, scale: float, size: int) -> Counts:
        """Never anything."""
        raise AssertionError(f"drew {size} at scale {scale}")

    gaussian = laplace


class RecordedNoise(NoNoise):
    """Remembers the laws, scales and numbers of draws that were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float, int]] = []

    @property
    def drawn(self) -> int:
        """How many draws were asked for."""
        return sum(size for _, _, size in self.asked)

    def laplace(self, scale: float, size: int) -> Counts:
        """Nothing, and remembered."""
        self.asked.append(("laplace", scale, size))
        return super().laplace(scale, size)

    def gaussian(self, scale: float, size: int) -> Counts:
        """Nothing, and remembered."""
        self.asked.append(("gaussian", scale, size))
        return super().laplace(scale, size)


class SeededNoise:
    """OpenDP's laws from a seeded generator, much faster and repeatable; never for releases.

    Discrete Laplace as a difference of two geometric variables; discrete Gaussian as a rounded normal one, whose law
    is the same to 1e-8 at scales of 2 and above.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def laplace(self, scale: float, size: int) -> Counts:
        """Draws of the discrete Laplace law."""
        stop = -np.expm1(-1 / scale)
        drawn: Counts = self._random.geometric(stop, size) - self._random.geometric(stop, size)
        return drawn

    def gaussian(self, scale: float, size: int) -> Counts:
        """Draws of the discrete Gaussian law, nearly."""
        variance = scale**2 - 1 / 12
        drawn: Counts = np.rint(self._random.normal(0, np.sqrt(variance), size)).astype(np.int64)
        return drawn


@dataclass(frozen=True)
class Example:
    """A mechanism and inputs for its steps.

    epsilon, delta: the budget it was made with. ends: whether one step more than `values` is beyond the budget.
    beyond: that step's input, if not the last one again. bad: inputs that are refused at the start. other: the same
    mechanism at another budget. numbers: those that a release holds, whose variance is the stated one.
    """

    name: str
    mechanism: AnyMechanism
    values: Sequence[object]
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(0)
    ends: bool = True
    beyond: object = None
    bad: Sequence[object] = ()
    other: AnyMechanism | None = None
    numbers: Callable[[object], Sequence[float]] = lambda release: np.ravel(release).tolist()  # type: ignore[call-overload]


ODD: tuple[object, ...] = (
    float("nan"),
    float("inf"),
    -1,
    0,
    1,
    7,
    10**5,
    2**63 - 1,
    2**64 - 1,
    -(2**63),
    1.5,
    True,
    None,
    "",
    "1/0",
    [],
)
"""What a damaged file may hold in place of a number."""
RUNS = 1000
REACH = 5.5
"""Standard errors of a variance of Laplace noise, √(5/runs): of all variances together a right one fails below 1e-4."""


class MechanismContract:
    """The suite that every mechanism passes: inherit it, and name examples.

    class TestMine(MechanismContract):
        examples = [Example("mine", mine(epsilon=1), values=[3, -1, 0])]
    """

    examples: ClassVar[list[Example]] = []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test is given every example."""
        if "example" in metafunc.fixturenames:
            metafunc.parametrize("example", self.examples, ids=lambda example: example.name)

    def test_the_guarantee_is_the_budget_exactly_with_its_neighbours_and_source(self, example: Example) -> None:
        """In fractions, never rounded; and in words what it speaks of and where it is proved."""
        stated = example.mechanism.guarantee
        assert (type(stated.epsilon), type(stated.delta)) == (Fraction, Fraction)
        assert (stated.epsilon, stated.delta) == (example.epsilon, example.delta)
        assert "differ" in stated.neighbours or "lacks" in stated.neighbours
        assert stated.source

    def test_the_start_draws_nothing_and_is_always_the_same(self, example: Example) -> None:
        """It takes no noise; what it holds is decided by the mechanism alone."""
        mechanism = example.mechanism
        assert mechanism.saved(mechanism.start()) == mechanism.saved(mechanism.start())
        mechanism.check(mechanism.start())

    def test_a_step_is_a_function_that_leaves_the_old_state_and_holds_nothing_of_its_callers(
        self, example: Example
    ) -> None:
        """The same state, input and draws give the same; only a mechanism that says so writes over its old state. Who
        writes over an input or a release, as one does who clips it in place, changes no state."""
        mechanism = example.mechanism
        state, noise = mechanism.start(), SeededNoise(1)
        for number, value in enumerate(map(deepcopy, example.values)):
            before = mechanism.saved(state)
            first, again = (mechanism.step(mechanism.resumed(before), value, SeededNoise(number)) for _ in range(2))
            assert mechanism.saved(first[0]) == mechanism.saved(again[0])
            assert written_state("release", first[1]) == written_state("release", again[1])
            after, release = mechanism.step(state, value, noise)
            mechanism.check(after)
            saved = mechanism.saved(after)
            for array in (*_arrays(value), *_arrays(release)):
                array[...] = 77
            assert mechanism.saved(after) == saved
            assert (mechanism.saved(state) == before) != mechanism.overwrites
            state = after

    def test_a_state_that_was_saved_goes_on_as_if_it_had_not_been(self, example: Example) -> None:
        """At every step, with the same draws: the same releases, and nothing is drawn a second time."""
        mechanism = example.mechanism
        _, whole = _run(example, SeededNoise(3))
        _, parts = _run(example, SeededNoise(3), through=lambda state: mechanism.resumed(mechanism.saved(state)))
        assert [written_state("release", each) for each in parts] == [written_state("release", each) for each in whole]

    def test_damaged_bytes_are_refused_or_another_whole_state(self, example: Example) -> None:
        """Cut anywhere, longer, or with any byte changed: what is taken reads exactly as those bytes."""
        mechanism, saved = example.mechanism, example.mechanism.saved(_run(example, SeededNoise(2))[0])
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

    def test_a_state_with_a_part_that_is_none_is_refused_or_steps_as_any_other(self, example: Example) -> None:
        """Each number of a state that is under way, changed to what a file may hold: refused, or a release."""
        mechanism, half = example.mechanism, max(1, len(example.values) // 2)
        value = example.values[min(half, len(example.values) - 1)]
        identity, plain = msgspec.msgpack.decode(mechanism.saved(_run(example, SeededNoise(2), half)[0]))
        for held, at in [*_scalars(plain)][:40]:
            kept = held[at]
            for odd in ODD:
                held[at] = odd
                try:
                    resumed = mechanism.resumed(msgspec.msgpack.encode((identity, plain)))
                    mechanism.saved(mechanism.step(resumed, value, SeededNoise(9))[0])
                except (CentralError, ValueError):
                    continue
            held[at] = kept

    def test_a_foreign_state_is_refused(self, example: Example) -> None:
        """That of any other mechanism, and of the same one at another budget."""
        mechanism = example.mechanism
        others = [other.mechanism for other in self.examples if other.mechanism.identity() != mechanism.identity()]
        for other in [*others, *([example.other] if example.other else [])]:
            with pytest.raises(BadState):
                mechanism.resumed(other.saved(other.start()))

    def test_beyond_the_budget_nothing_is_drawn(self, example: Example) -> None:
        """One step more is refused, and the state is as it was."""
        if not example.ends:
            pytest.skip("has no last step")
        mechanism = example.mechanism
        state, _ = _run(example, SeededNoise(2))
        saved = mechanism.saved(state)
        with pytest.raises(BudgetExhausted):
            mechanism.step(state, example.values[-1] if example.beyond is None else example.beyond, Forbidden())
        assert mechanism.saved(state) == saved

    def test_what_is_no_input_is_refused_before_anything_is_drawn(self, example: Example) -> None:
        """A ValueError or a CentralError, and the state is as it was."""
        mechanism = example.mechanism
        for bad in example.bad:
            state = mechanism.start()
            with pytest.raises((ValueError, CentralError)):
                mechanism.step(state, bad, Forbidden())
            assert mechanism.saved(state) == mechanism.saved(mechanism.start())

    def test_the_stated_variance_is_the_measured_one(self, example: Example) -> None:
        """Of every number of every release, over 1,000 runs; or the mechanism says that it knows none."""
        mechanism, noise = example.mechanism, SeededNoise(7)
        stated = [mechanism.variance(step) for step in range(1, len(example.values) + 1)]
        if None in stated:
            assert stated == [None] * len(stated)
            return
        runs = np.array([np.concatenate(_numbers(example, noise)) for _ in range(RUNS)])
        sizes = [len(numbers) for numbers in _numbers(example, noise)]
        expected = np.repeat(np.array(stated, np.float64), sizes)
        assert np.all(np.abs(runs.var(0) - expected) <= expected * REACH * sqrt(5 / RUNS))


def _run(
    example: Example,
    noise: Noise,
    steps: int | None = None,
    through: Callable[[object], object] = lambda state: state,
) -> tuple[object, list[object]]:
    """The state after so many of the example's steps, all if left out, and what they released.

    through: what becomes of the state before each step.
    """
    state, releases = example.mechanism.start(), list[object]()
    for value in example.values[:steps]:
        state, release = example.mechanism.step(through(state), value, noise)
        releases.append(release)
    return state, releases


def _numbers(example: Example, noise: Noise) -> list[Floats]:
    return [np.asarray(example.numbers(release), np.float64) for release in _run(example, noise)[1]]


def _scalars(plain: Any) -> Iterator[tuple[Any, Any]]:
    """What holds each scalar of plain fields, and where in that; arrays are no scalars."""
    for at, each in plain.items() if isinstance(plain, dict) else enumerate(plain):
        if isinstance(each, dict | list):
            yield from _scalars(each)
        elif not isinstance(each, msgspec.msgpack.Ext):
            yield plain, at


def _arrays(value: object) -> Iterator[NDArray[np.generic]]:
    """Every array that can be written to in a value of dataclasses, tuples and lists."""
    if isinstance(value, np.ndarray):
        yield from [value] if value.flags.writeable else []
    elif is_dataclass(value) or isinstance(value, tuple | list):
        parts = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else value
        for part in parts:
            yield from _arrays(part)
