"""The contract of every central mechanism: a frozen value that states its guarantee, and a state from step to step.

    state, release = mechanism.step(state, value, noise)

A mechanism remembers nothing between calls; all that it needs is in the state. A state can be saved as bytes and
resumed, so that what was released is never drawn a second time, whatever crashes in between. States are saved as
MessagePack by their types, arrays to the last bit, fractions exact; a state that is read back must give the same bytes
again, so a field too many, another order or a number in a longer form is refused like any other damage.
"""

import json
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from operator import index
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, get_type_hints

import numpy as np
from changeling_protocol import Calendar, Constraint, Node
from changeling_statistics import Changelog, Counts, Floats, Mutations
from numpy.typing import NDArray

from .errors import BadState, BudgetExhausted
from .linear_query import LinearQuery
from .noise import Law, Noise, gaussian_length

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
    epsilon: Fraction
    neighbours: str
    source: str

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all steps together, against whoever sees every release; the fields say it."""
        delta, rho = getattr(self, "delta", Fraction(0)), getattr(self, "rho", None)
        return Guarantee(self.epsilon, delta, self.neighbours, self.source, rho)

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


@dataclass(frozen=True, slots=True, eq=False)
class PeriodChange:
    """The changes of one period to a query. mutations: those of the period. query: whose columns are counted."""

    changelog: Changelog
    mutations: Mutations
    query: LinearQuery

    @property
    def net(self) -> Counts:
        """The true change of each column, shape (w,), in units."""
        change: Counts = self.moves.sum(0)
        return change

    @property
    def moves(self) -> Counts:
        """How far each mutation moves each column, shape (mutations, w), in units."""
        cells = self.query.cells
        moved: Counts = cells[self.mutations.new] - cells[self.mutations.old]
        return moved


Change: TypeAlias = PeriodChange | Counts
"""One more period, or its true change, shape (w,), in the query's units."""
Made: TypeAlias = dict[str, str | int | list[int]]
"""What a release's mechanism was made with, by name, noise included: kept in the state of the release."""


class ReleaseMechanism(Mechanism[State, PeriodChange, Level]):
    """A mechanism that `changeling release` runs: a step is one period, and releases the query's level at its end.

    The level's variance is nan where none is known. Its values are in the query's units.
    """

    __slots__ = ()

    @property
    def shows(self) -> str:
        """The ending of the columns' names, where it is not their levels that are published."""
        return ""

    def expected_variance(self, step: int, updates: float) -> float | None:  # noqa: ARG002
        """Of each column after so many periods, in units squared, for the curator: it may follow from the data.

        updates: how often the column was moved by then. None where nothing is known.
        """
        return self.variance(step)

    def window_variance(self, step: int, window: int) -> float | None:  # noqa: ARG002
        """Variance of a column's change from `window` periods before to the end of this one, in units squared.

        The level before the first period is 0. None where the mechanism does not say.
        """
        return None

    @property
    def law(self) -> Law:
        """The law whose tails the noise of its levels has."""
        return Law.LAPLACE

    @abstractmethod
    def made_with(self) -> Made:
        """All that it was made with, noise included: a state of one mechanism is never used with another."""

    def identity(self) -> str:
        """The key of a saved state: the mechanism's name, its budget and what it was made with.

        The query is not in it, whose table may grow with the answers of a changelog: the terms of a release hold it.
        """
        stated = self.guarantee
        cost = f"{stated.epsilon} {stated.delta}" if stated.rho is None else f"rho {stated.rho}"
        return f"{type(self).__name__} {cost} {json.dumps(self.made_with(), sort_keys=True)}"

    @property
    def covers_reactions(self) -> bool:
        """True where the guarantee is proved for entries and people that react to what is published, too.

        At a pure epsilon it always is (docs/mathematics.md, "Central releases"); with a delta a mechanism must say so.
        """
        return not self.guarantee.delta

    @property
    def noise_in_words(self) -> str:
        """Describes its shape and the noise on its nodes; "" where what it was made with says that."""
        return ""

    @abstractmethod
    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """True if the guarantee holds for this query on this calendar, for entries that keep to this constraint."""


MOST_COVARIANCE = 2000
"""Periods of a covariance: matrices over all of them are taken."""
GIVEN = ("query", "calendar", "epsilon", "delta", "rho")
"""The fields of a level mechanism that a release knows without what it was made with."""
CODECS: dict[object, tuple[Callable[[Any], str | int | list[int]], Callable[[Any], object]]] = {
    int: (index, index),
    float: (float.hex, float.fromhex),
    Law: (str, Law),
    bytes: (lambda raw: b64encode(raw).decode(), b64decode),
    tuple[int, ...]: (list, tuple),
    tuple[tuple[float, float, float], ...]: (
        lambda curves: " ".join(number.hex() for curve in curves for number in curve),
        lambda text: tuple(zip(*[map(float.fromhex, text.split())] * 3, strict=True)),
    ),
}
"""How the other fields are written and read, to the last bit, by their types."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelState:
    """period: how many have been taken in. level: true, (w,), in units. What a mechanism adds holds its noise."""

    period: int
    level: Counts


Held = TypeVar("Held", bound=LevelState)


class LevelMechanism(ReleaseMechanism[Held], Generic[Held]):
    """A mechanism that publishes the levels of a query, whose noise has a law that is known before any data are.

    A step takes one more period, or its true change. Noise lies on a lattice of 2^-bits units. epsilon, delta: what all
    periods together cost an entry. rho: the same, where the budget is in that. kind: what it is called in `made_with`.
    source: where its guarantee is proved.
    """

    __slots__ = ()
    neighbours = NEIGHBOURS
    kind: ClassVar[str]
    query: LinearQuery
    calendar: Calendar
    delta: Fraction
    rho: Fraction | None
    bits: int

    @property
    def covers_reactions(self) -> bool:
        """With Gaussian noise as well: a period adds a draw of its own to a number that is known by then."""
        return True

    def covers(self, query: LinearQuery, calendar: Calendar, constraint: Constraint) -> bool:
        """True if an entry that keeps to the constraint costs at most the budget under this noise."""
        length = gaussian_length(self.epsilon, self.delta, self.rho) if self.law is Law.GAUSSIAN else 0.0
        return (self.query, self.calendar) == (query, calendar) and self.costs_at_most(length, constraint)

    @abstractmethod
    def costs_at_most(self, length: float, constraint: Constraint) -> bool:
        """Check that no entry that keeps to the constraint costs more than epsilon of Laplace noise, or moves what is
        measured by more than `length` scales of Gaussian noise."""

    @abstractmethod
    def moved(self, state: Held, level: Counts, noise: Noise) -> tuple[Held, Counts]:
        """The state after one more period, at whose end this is the true level; and the level's noise, on the
        lattice."""

    def step(self, state: Held, value: Change, noise: Noise) -> tuple[Held, Level]:
        """One more period: the state after it, and the level at its end.

        Raises BudgetExhausted after the calendar's last period, and ValueError for a change that is not of the query.
        """
        check_left(state.period, self.calendar.periods, "periods")
        after, drawn = self.moved(state, state.level + checked_change(value, self.query.width), noise)
        return after, Level(level_with_noise(after.level, drawn, self.bits), self.variance(after.period))

    def check(self, state: Held) -> None:
        """Raises BadState for more periods than the calendar has, or for other columns."""
        if not 0 <= state.period <= self.calendar.periods:
            raise BadState(f"the state is of {state.period} periods, and the calendar has {self.calendar.periods}")
        check_counts(state.level, (self.query.width,))

    @abstractmethod
    def variance(self, step: int) -> float:
        """Variance of each column's level at the end of this period, in units squared."""

    @property
    @abstractmethod
    def covariance(self) -> Floats:
        """Of the noise of a column's levels, shape (periods, periods), in units squared."""

    def window_variance(self, step: int, window: int) -> float | None:
        """As of any release; None where there are too many levels for a covariance of them all."""
        if self.calendar.periods > MOST_COVARIANCE:
            return None
        K, now, before = self.covariance, step - 1, step - window - 1
        return float(K[now, now] if before < 0 else K[now, now] + K[before, before] - 2 * K[now, before])

    @classmethod
    def _recipe(cls) -> Iterator[tuple[str, Any]]:
        """The name and the codec of each field that is not GIVEN."""
        hints = get_type_hints(cls)
        return ((name, CODECS[hints[name]]) for name in cls.__match_args__ if name not in GIVEN)  # type: ignore[attr-defined]

    def made_with(self) -> Made:
        """All that a mechanism of this query and calendar is made again from, to the last bit (`as_made`)."""
        return {"kind": self.kind} | {name: write(getattr(self, name)) for name, (write, _) in self._recipe()}

    @classmethod
    def as_made(cls, made: Made, query: LinearQuery, calendar: Calendar, epsilon: Fraction, delta: Fraction) -> Self:
        """The mechanism that `made_with` tells of. BadState for what it does not."""
        try:
            fields = {name: read(made[name]) for name, (_, read) in cls._recipe()}
        except (KeyError, TypeError, ValueError) as error:
            raise BadState(f"no mechanism {cls.kind!r} is made with {sorted(made)}") from error
        return cls(query=query, calendar=calendar, epsilon=epsilon, delta=delta, **fields)  # type: ignore[call-arg]


def check_counted(query: LinearQuery) -> None:
    """ValueError for a query that counts nothing."""
    if not sum(query.appearing) + sum(query.moving):
        raise ValueError("the query counts nothing: no entry can change it")


def check_left(taken: int, all_: int, what: str = "steps") -> None:
    """Raises BudgetExhausted where all that the guarantee covers is released."""
    if taken >= all_:
        raise BudgetExhausted(f"the guarantee covers {all_} {what}, and all of them are released")


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
        how = ": it was begun with other settings" if whose.partition(" ")[0] == identity.partition(" ")[0] else ""
        raise BadState(f"the saved state is of {whose}, not of {identity}{how}")
    if written_state(identity, state) != saved:
        raise BadState(f"not the saved state of {identity}: it is not in the form that it was written in")
    typed: State = state
    return typed


def check_counts(array: Counts, shape: tuple[int, ...]) -> None:
    """Raises BadState unless the array holds whole numbers of 64 bits and has this shape."""
    if array.dtype != np.int64 or array.shape != shape:
        raise BadState(f"the state holds {array.dtype} of shape {array.shape}, not int64 of shape {shape}")


def checked_change(value: Change, width: int) -> Counts:
    """A true change, int64 of shape (w,). ValueError for anything else."""
    change = np.asarray(value.net if isinstance(value, PeriodChange) else value)
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
