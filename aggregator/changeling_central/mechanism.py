"""The contract of every central mechanism: a frozen value that states its guarantee, and a state from step to step.

    state, release = mechanism.step(state, value, noise)

A mechanism remembers nothing between calls; all that it needs is in the state. A state can be saved as bytes and
resumed, so that what was released is never drawn a second time, whatever crashes in between. States are saved as
MessagePack by their types, arrays to the last bit, fractions exact; a state that is read back must give the same bytes
again, so a field too many, another order or a number in a longer form is refused like any other damage.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import Calendar, Constraint, Node
from changeling_statistics import Counts, Floats
from numpy.typing import NDArray

from .errors import BadState, BudgetExhausted
from .linear_query import LinearQuery
from .noise import Law, Noise

State = TypeVar("State")
Input = TypeVar("Input", contravariant=True)
Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of everything that a mechanism ever releases, all steps together.

    epsilon: in nats, exact. delta: exact, 0 for pure privacy. neighbours: what the two databases that nobody can tell
    apart differ in. source: where it is proved. rho: where it is rho-zCDP, which (epsilon, delta) follows from; None
    where nothing is said of that.
    """

    epsilon: Fraction
    delta: Fraction
    neighbours: str
    source: str
    rho: Fraction | None = None


NEIGHBOURS = "changelogs of which one lacks an entry of the other, with all its mutations, which keep to the constraint"


@dataclass(frozen=True, slots=True, eq=False)
class NodeRelease:
    """The noisy change over a node, shape (w,), in units of the query; variance: of each."""

    node: Node
    values: Counts
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """values: shape (w,), in units of the query. variance: of each, in units squared."""

    values: Floats
    variance: float


class Mechanism(ABC, Generic[State, Input, Result]):
    """A mechanism that takes one input a step and releases one output a step; of a static one there is one step.

    A step that would break the guarantee raises BudgetExhausted. Whatever a step raises, it raises before it draws.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The guarantee of all steps together, against whoever sees every release."""

    @property
    def overwrites(self) -> bool:
        """True if `step` writes over the state it is given: only pan-privacy does, which must leave no old state."""
        return False

    @abstractmethod
    def start(self) -> State:
        """The state before any input. Draws nothing."""

    @abstractmethod
    def step(self, state: State, value: Input, noise: Noise) -> tuple[State, Result]:
        """One more input: the state after it, and what is released.

        The same state, value and draws give the same result. The old state stays as it was, unless `overwrites`.
        What is released is the caller's own: writing over it changes no state.
        noise: where every draw comes from.
        Raises CentralError or ValueError, and then nothing was drawn.
        """

    @abstractmethod
    def check(self, state: State) -> None:
        """Raises BadState for a state that no run of this mechanism reaches, as far as its shape tells."""

    def variance(self, step: int) -> float | None:  # noqa: ARG002
        """Variance of each number that is released at a step, in the release's unit squared.

        step: counted from 1. Returns None where no variance is known, as where answers are no sum of truth and noise.
        """
        return None

    def identity(self) -> str:
        """The key of a saved state: the mechanism's name, its budget, and a hash of all that it was made with.

        So a state is never resumed under another query, calendar or noise. A mechanism with a field that no state can
        hold, such as a function, says otherwise what it was made with.
        """
        stated = self.guarantee
        return f"{type(self).__name__} {stated.epsilon} {stated.delta} {sha256(written_state('', self)).hexdigest()}"

    def saved(self, state: State) -> bytes:
        """The state as bytes, for `resumed`. It may hold true counts: keep it where the data are kept."""
        return written_state(self.identity(), state)

    def resumed(self, saved: bytes) -> State:
        """The state that `saved` wrote. Raises BadState for damaged bytes and for a state of another mechanism."""
        state = read_state(saved, self.identity(), type(self.start()))
        self.check(state)
        return state


Made: TypeAlias = dict[str, str | int | list[int]]
"""What a release's mechanism was made with, by name, noise included: kept in the state of the release."""
MOST_COVARIANCE = 2000
"""Periods of a covariance: matrices over all of them are taken."""


class LevelMechanism(Mechanism[State, Counts, Level], Generic[State]):
    """A mechanism that publishes the levels of a query, whose noise has a law that is known before any data are.

    A step takes the true change over one period, shape (w,), in the query's units. epsilon, delta: what all periods
    together cost an entry. kind: what it is called in `made_with`. source: where its guarantee is proved.
    """

    __slots__ = ()
    kind: ClassVar[str]
    source: ClassVar[str]
    query: LinearQuery
    calendar: Calendar
    law: Law
    epsilon: Fraction
    delta: Fraction

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for all periods together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, self.source)

    @abstractmethod
    def costs_at_most(self, length: float, constraint: Constraint) -> bool:
        """Check that no entry that keeps to the constraint costs more than epsilon of Laplace noise, or moves what is
        measured by more than `length` scales of Gaussian noise."""

    @abstractmethod
    def variance(self, step: int) -> float:
        """Variance of each column's level at the end of this period, in units squared."""

    @property
    @abstractmethod
    def covariance(self) -> Floats:
        """Of the noise of a column's levels, shape (periods, periods), in units squared."""

    def window_variance(self, step: int, window: int) -> float | None:
        """Of the change of a column's level over the last periods, in units squared; before the first the level is 0.

        window: how many periods. None where there are too many levels for a covariance of them all.
        """
        if self.calendar.periods > MOST_COVARIANCE:
            return None
        K, now, before = self.covariance, step - 1, step - window - 1
        return float(K[now, now] if before < 0 else K[now, now] + K[before, before] - 2 * K[now, before])

    @abstractmethod
    def made_with(self) -> Made:
        """All that a mechanism of this query and calendar is made again from, to the last bit (`as_made`)."""

    @classmethod
    @abstractmethod
    def as_made(
        cls, made: Made, query: LinearQuery, calendar: Calendar, epsilon: Fraction, delta: Fraction
    ) -> "LevelMechanism[State]":
        """The mechanism that `made_with` tells of. BadState for what it does not."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The noise in words, its scale in the query's units."""

    def next_period(self, period: int) -> int:
        """The number of the period after this one. BudgetExhausted where the calendar has no more."""
        if period >= self.calendar.periods:
            raise BudgetExhausted(f"the guarantee covers {self.calendar.periods} periods, and all of them are released")
        return period + 1

    def check_period(self, period: int) -> None:
        """Raises BadState for a period that is not within the calendar."""
        if not 0 <= period <= self.calendar.periods:
            raise BadState(f"the state is of {period} periods, and the calendar has {self.calendar.periods}")


ARRAY = 1
"""The MessagePack extension that holds an array: its type, its shape and its cells."""
CELLS = ("<i8", "<f8")


def written_state(identity: str, state: object) -> bytes:
    """The state as bytes. identity: what it belongs to. ValueError for a number of more than 64 bits."""
    import msgspec  # of the extra `central`

    try:
        return msgspec.msgpack.encode((identity, state), enc_hook=_plain)
    except OverflowError as error:
        raise ValueError("a state holds whole numbers of at most 64 bits") from error


def read_state(saved: bytes, identity: str, kind: type[State]) -> State:
    """The state that `written_state` wrote. Raises BadState for other bytes, and for a state of another identity."""
    import msgspec

    try:
        whose, state = msgspec.msgpack.decode(saved, type=tuple[str, kind], dec_hook=_typed, ext_hook=_array)  # type: ignore[valid-type]
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, ZeroDivisionError, RecursionError) as error:
        raise BadState(f"not the saved state of {identity}: it is damaged, or of another mechanism") from error
    if whose != identity:
        raise BadState(f"the saved state is of {whose}, not of {identity}")
    if written_state(identity, state) != saved:
        raise BadState(f"not the saved state of {identity}: it is not in the form that it was written in")
    typed: State = state
    return typed


def check_counts(array: Counts, shape: tuple[int, ...]) -> None:
    """Raises BadState unless the array holds whole numbers of 64 bits and has this shape."""
    if array.dtype != np.int64 or array.shape != shape:
        raise BadState(f"the state holds {array.dtype} of shape {array.shape}, not int64 of shape {shape}")


def checked_change(value: Counts, width: int) -> Counts:
    """A true change, int64 of shape (w,). ValueError for anything else."""
    change = np.asarray(value)
    if change.shape != (width,) or change.dtype.kind not in "iu":
        raise ValueError(f"a change is {width} integers, got shape {change.shape} of {change.dtype}")
    return change.astype(np.int64)


def level_with_noise(level: Counts, noise: Counts, bits: int) -> Floats:
    """A true level, in units, and its noise, in parts of 2^-bits units: whole units are added before any rounding."""
    whole = noise >> bits
    left = np.ldexp((noise - (whole << bits)).astype(np.float64), -bits)
    published: Floats = (level + whole).astype(np.float64) + left
    return published


def _plain(value: object) -> object:
    """Converts values that MessagePack has no form for."""
    import msgspec

    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        parts = (array.dtype.newbyteorder("<").str, value.shape, array.astype(array.dtype.newbyteorder("<")).tobytes())
        return msgspec.msgpack.Ext(ARRAY, msgspec.msgpack.encode(parts))
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(f"a state holds no {type(value).__name__}")


def _typed(kind: type, value: object) -> object:
    """A value of a type that MessagePack has no form for."""
    if kind is Fraction and isinstance(value, str):
        return Fraction(value)
    if isinstance(value, np.ndarray):
        return value
    raise ValueError(f"not a {kind}")


def _array(code: int, content: memoryview) -> NDArray[np.generic]:
    import msgspec

    if code != ARRAY:
        raise ValueError(f"no extension {code} is known")
    cells, shape, written = msgspec.msgpack.decode(content, type=tuple[str, tuple[int, ...], bytes])
    if cells not in CELLS or any(size < 0 for size in shape):
        raise ValueError(f"no array of {cells} and shape {shape} is saved")
    return np.frombuffer(written, cells).reshape(shape).copy()
