"""The device's half of every randomizer: exact odds, a sampler on integer weights, and the loss that they cost.

Also the coins that reports are drawn by, the spaces of true inputs, and the registry by which a survey's signed bytes
name a randomizer. Knows no kind of randomizer: each registers itself, and reads and writes its own parameters. The
other half, how reports are tallied and decoded, is in changeling_statistics.

Losses are decimal numbers, always rounded up. They are added and compared on devices, inside apps that may have set a
decimal context of their own. No result here depends on it: a context of one digit would take 18 for 10.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from fractions import Fraction
from functools import lru_cache
from math import gcd, inf, nextafter
from types import MappingProxyType
from typing import ClassVar, Protocol, Self, TypeAlias, TypeVar

from ..signing import Fields, as_terms, from_terms, kinds_of

MICRO = 10**6
"""Surveys are signed in whole millionths, of epsilons and of expected changes."""
WEEK = 604_800
"""The seconds of a week."""
MOST_EPSILON = 43
"""The largest loss for which odds are made: they stay below 2^63, as integers in signed bytes must."""
_LN_ERROR = Decimal("1e-45")
"""Decimal.ln is correctly rounded to 50 digits whatever the context's rounding; this covers it upwards."""
_UPWARDS = Context(
    prec=50,
    rounding=ROUND_CEILING,
    Emin=-999_999,
    Emax=999_999,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""Written out whole: what is left open would come from `decimal.DefaultContext`, which an app may change as well."""


def upwards() -> AbstractContextManager[Context]:
    """A context for a `with` statement, in which decimal arithmetic has 50 digits and rounds up."""
    return localcontext(_UPWARDS)


@dataclass(frozen=True, slots=True)
class Odds:
    """A likelihood ratio of exactly `favoured` to `other`; epsilon is its logarithm, rounded up.

    favoured: at least `other`.
    other: at least 1.
    Raises ValueError outside these ranges.
    """

    favoured: int
    other: int

    def __post_init__(self) -> None:
        if not self.favoured >= self.other >= 1:
            raise ValueError(f"odds must be favoured >= other >= 1, got {self.favoured}:{self.other}")

    @property
    def epsilon(self) -> Decimal:
        """ln(favoured / other), rounded up."""
        return log_ratio(self.favoured, self.other)

    def in_lowest_terms(self) -> "Odds":
        """The same ratio without a common factor."""
        divisor = gcd(self.favoured, self.other)
        return Odds(self.favoured // divisor, self.other // divisor)

    @classmethod
    def within(cls, epsilon: Decimal | float) -> "Odds":
        """The largest odds, in integers of about 2^40, whose loss does not exceed an epsilon.

        epsilon: above 0, at most MOST_EPSILON. Raises ValueError outside.
        """
        with upwards():
            most = Decimal(epsilon)
            if most.is_nan() or not 0 < most <= MOST_EPSILON:
                raise ValueError(f"a loss must be above 0 and at most {MOST_EPSILON}, got {epsilon}")
            ratio = most.exp() * (1 - _LN_ERROR)
            other = max(1, int(2**40 / ratio))
            odds = cls(max(other, int(other * ratio)), other)
            while odds.epsilon > most:
                odds = cls(odds.favoured - 1, other)
            return odds


@lru_cache(maxsize=1024)
def log_ratio(numerator: int, denominator: int) -> Decimal:
    """The logarithm of a fraction to some 45 digits, rounded up; exactly 0 for equal integers."""
    if numerator == denominator:
        return Decimal(0)
    with upwards():
        return (Decimal(numerator) / denominator).ln() + _LN_ERROR


def rounded_up(loss: Decimal) -> float:
    """The least float that is not below `loss`."""
    nearest = float(loss)
    with upwards():
        return nearest if Decimal(nearest) >= loss else nextafter(nearest, inf)


def micro(epsilon: Decimal) -> int:
    """An epsilon in millionths, rounded up."""
    with upwards():
        return int((epsilon * MICRO).to_integral_value(ROUND_CEILING))


def from_micro(epsilon_micro: int) -> Decimal:
    """The epsilon of so many millionths."""
    with upwards():
        return Decimal(epsilon_micro) / MICRO


def per_week(epsilon: Decimal, seconds: int) -> Decimal:
    """An epsilon that is spent over so many seconds, for each week of them, rounded up to millionths.

    >>> per_week(Decimal(8), 2 * WEEK)
    Decimal('4')
    """
    with upwards():
        return from_micro(micro(epsilon * WEEK / seconds))


SYMBOL_LIMIT = 2**63
"""Symbols are numbered below this, so that the server can keep them in columns of 64-bit integers."""
MOST_ANSWERS = 1000
"""The most answers: a person chooses among them, and what a randomizer computes grows with their square."""
NO_NULL = "this space has no NULL: the cohort is closed"


class Coins(Protocol):
    """Exact uniform integers: the only source of chance on a device.

    A chance is taken when it is needed, and what follows from it is stored before anything leaves the device. Nothing
    is derived from a secret, so that nothing on a device opens a report that was sent, or one that will be. Tests bring
    coins of their own; a device has `SystemCoins`.
    """

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), exact for every n >= 1. Raises ValueError for a smaller n."""
        ...


class SystemCoins:
    """The operating system's generator: integers of as many bits as it takes, until one is below n."""

    __slots__ = ()

    def below(self, n: int) -> int:
        """A uniform integer in [0, n). Raises ValueError for n < 1."""
        return secrets.randbelow(n)


@dataclass(frozen=True, slots=True)
class MutationSpace:
    """The mutations over a node. Input 0 is "no change", (NULL, NULL); the others follow in order of (old, new).

    answers: z; a survey of z answers has the states 0 to z, of which 0 is NULL, no answer.
    repeats: whether to have the paper's (z+1)² pairs, with (r, r) among them, which never occur; if not, there are
    d(d-1)+1 inputs over d states.
    null: whether NULL is one of the d states. If not, only moves from one answer to another are told, as in a closed
    cohort after its first period.
    Raises ValueError for a number of answers that no survey has, or for pairs (r, r) without NULL.

    >>> MutationSpace(2).size, MutationSpace(2, repeats=True).size, MutationSpace(2, null=False).size
    (7, 9, 3)
    >>> MutationSpace(2).index(1, 2)
    4
    """

    answers: int
    repeats: bool = False
    null: bool = True

    def __post_init__(self) -> None:
        check_answers(self.answers)
        if self.repeats and not self.null:
            raise ValueError("the paper's pairs (r, r) are over all states, NULL included")

    @property
    def states(self) -> int:
        """d: z+1, or z without NULL."""
        return self.answers + self.null

    @property
    def size(self) -> int:
        """d(d-1)+1, or (z+1)² with the pairs (r, r)."""
        return self.states**2 if self.repeats else self.states * (self.states - 1) + 1

    @property
    def reports_changes(self) -> bool:
        """Yes: an input is a mutation."""
        return True

    def index(self, old: int, new: int) -> int:
        """The input of a mutation; 0 if the two states are the same. Raises ValueError for what is no state here."""
        _check_state(old, self.answers)
        _check_state(new, self.answers)
        if not (self.null or (old and new)):
            raise ValueError(NO_NULL)
        if old == new:
            return 0
        if self.repeats:
            return old * (self.answers + 1) + new
        first = not self.null
        return 1 + (old - first) * (self.states - 1) + new - first - (new > old)

    def pair(self, index: int) -> tuple[int, int]:
        """The mutation (old, new) of an input; (NULL, NULL) for no change. Raises ValueError outside the space."""
        if not 0 <= index < self.size:
            raise ValueError(f"mutations are numbered 0 to {self.size - 1}, got {index}")
        if index == 0:
            return 0, 0
        if self.repeats:
            return divmod(index, self.answers + 1)
        old, rest = divmod(index - 1, self.states - 1)
        new = rest + (rest >= old)
        return old + (not self.null), new + (not self.null)


@dataclass(frozen=True, slots=True)
class StateSpace:
    """The states at a node's end, in order.

    answers: z.
    null: whether NULL is among them; if not, the cohort is closed and everybody has an answer.
    Raises ValueError for a number of answers that no survey has.
    """

    answers: int
    null: bool = True

    def __post_init__(self) -> None:
        check_answers(self.answers)

    @property
    def size(self) -> int:
        """z+1, or z without NULL."""
        return self.answers + self.null

    @property
    def reports_changes(self) -> bool:
        """No: an input is a state."""
        return False

    def index(self, old: int, new: int) -> int:
        """The input of the state `new`; `old` plays no part. Raises ValueError for what is no state of the space."""
        _check_state(old, self.answers)
        _check_state(new, self.answers)
        if not new and not self.null:
            raise ValueError(NO_NULL)
        return new - (not self.null)

    def pair(self, index: int) -> tuple[int, int]:
        """(NULL, the input's state). Raises ValueError outside the space."""
        if not 0 <= index < self.size:
            raise ValueError(f"inputs are numbered 0 to {self.size - 1}, got {index}")
        return 0, index + (not self.null)


Space: TypeAlias = MutationSpace | StateSpace
"""The true inputs of a randomizer, numbered from 0: changes (old, new) over a node, or states at its end.

`index(old, new)` is the input of an entry that was in state `old` when a node started, and in `new` when it ended, and
`pair` the states of an input: the entry leaves `old` and comes to `new`, which changes the histogram."""


def check_answers(answers: int) -> None:
    """Raises ValueError for a number of answers that no survey has."""
    if not 1 <= answers <= MOST_ANSWERS:
        raise ValueError(f"a survey has 1 to {MOST_ANSWERS} answers, got {answers}")


def _check_state(state: int, answers: int) -> None:
    if not 0 <= state <= answers:
        raise ValueError(f"states are numbered 0 (NULL) to {answers}, and this one is not")


@dataclass(frozen=True, slots=True)
class Losses:
    """How well one report tells two inputs u and v apart: max over symbols of ln Pr(o|u)/Pr(o|v), rounded up.

    Each figure is the largest over the pairs of inputs of one kind. For a report of a state all four are the same.

    mutations: u and v are two mutations (L_mm).
    appears: u is a mutation, v is no change (L_m0).
    vanishes: u is no change, v is a mutation (L_0m).
    insertions: u and v are two insertions (L_ii).
    """

    mutations: Decimal
    appears: Decimal
    vanishes: Decimal
    insertions: Decimal

    @classmethod
    def alike(cls, loss: Decimal) -> Self:
        """The losses of a report that tells any two inputs apart as well."""
        return cls(loss, loss, loss, loss)


class Randomizer(ABC):
    """Maps a true input to a random symbol by exact integer weights.

    Inherit it for a frozen dataclass of your own: two randomizers of equal parameters are equal, so that they can be
    the keys of a cache.

    kind: the name that the class is registered under, and known by in signed bytes.
    space: the true inputs it can be given.
    """

    __slots__ = ()
    kind: ClassVar[str]
    space: Space

    @property
    @abstractmethod
    def symbols(self) -> int:
        """How many symbols there are; they are numbered from 0."""

    @property
    @abstractmethod
    def losses(self) -> Losses:
        """The loss of one report. Raises ValueError where that is infinite."""

    @abstractmethod
    def weight(self, symbol: int, true: int) -> int:
        """The weight of a symbol for an input: Pr(symbol | true) = weight(symbol, true) / total(true), exactly."""

    @abstractmethod
    def total(self, true: int) -> int:
        """The sum of an input's weights over all symbols."""

    @abstractmethod
    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total(true)) selects: what `respond` does with its one draw.

        Of all those integers exactly weight(symbol, true) select each symbol. Raises ValueError outside the space,
        without naming the input.
        """

    def respond(self, true: int, coins: Coins) -> int:
        """Draws the symbol to report for a true input, by one integer. Raises ValueError outside the space."""
        check_input(self.space, true)
        return self.symbol_at(coins.below(self.total(true)), true)

    @abstractmethod
    def said(self, symbol: int, states: Sequence[str]) -> str:
        """The meaning of a symbol in words, to the person whose report it is; no two symbols say the same.

        states: the names of the states from NULL on.
        """

    def as_fields(self) -> Fields:
        """The parameters as they stand in a survey's signed bytes, without kind and space: all other fields."""
        return as_terms(self, "space")

    @classmethod
    def from_fields(cls, space: Space, fields: Fields) -> Self | None:
        """The randomizer on this space whose `as_fields` these are; None if they, or the space, are not of its form.

        Raises ValueError for a parameter that it cannot have.
        """
        own = from_terms(cls, fields, "space") if isinstance(space, kinds_of(cls)["space"]) else None
        return None if own is None else cls(space=space, **own)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class OddsRandomizer(Randomizer):
    """A randomizer that has odds a:b, and costs ln(a/b) between any two inputs."""

    space: Space
    odds: Odds

    @property
    def losses(self) -> Losses:
        """ln(a/b) between any two inputs."""
        return Losses.alike(self.odds.epsilon)


@dataclass(frozen=True, slots=True)
class Agreeing(OddsRandomizer):
    """A randomizer that can take part in a joint response: every symbol agrees with an input, or does not.

    An input that tells nothing is answered from the base: each symbol with its weight, whatever was asked. One that
    tells favours the symbols that agree with it over all others by some odds; at odds of 1:1 it, too, is answered from
    the base. `symbol_at` is `favoured_symbol_at` at the randomizer's own odds.

    Inherit it for a randomizer of that kind; every abstract method is its own.

    odds: a:b, how a symbol that agrees with an input is weighed against one that does not.
    """

    @property
    @abstractmethod
    def agreement(self) -> Fraction:
        """p: how likely a symbol of the base agrees with an input that tells; the same for all of them."""

    @abstractmethod
    def tells(self, true: int) -> bool:
        """True if an input favours any symbols."""

    @abstractmethod
    def agrees(self, symbol: int, true: int) -> bool:
        """True if a symbol agrees with an input that tells."""

    @abstractmethod
    def favoured_total(self, true: int, odds: Odds) -> int:
        """How many integers `favoured_symbol_at` chooses by."""

    @abstractmethod
    def favoured_symbol_at(self, drawn: int, true: int, odds: Odds) -> int:
        """The symbol that the integer `drawn` in [0, favoured_total) selects if these odds favour those that agree.

        Raises ValueError outside the space, without naming the input.
        """

    def weight(self, symbol: int, true: int) -> int:
        """a for a symbol that agrees with the input, b for every other."""
        return self.odds.favoured if self.agrees(symbol, true) else self.odds.other

    def total(self, true: int = 0) -> int:
        """The sum of an input's weights over all symbols."""
        return self.favoured_total(true, self.odds)

    def symbol_at(self, drawn: int, true: int) -> int:
        """The symbol that the integer `drawn` in [0, total) selects."""
        return self.favoured_symbol_at(drawn, true, self.odds)

    def at_odds(self, odds: Odds) -> Self:
        """The same randomizer at other odds. Raises ValueError for odds that say nothing."""
        return replace(self, odds=odds)


def check_telling(odds: Odds) -> None:
    """Raises ValueError for odds of 1:1, which say nothing."""
    if odds.favoured == odds.other:
        raise ValueError(f"odds of {odds.favoured}:{odds.other} say nothing: choose favoured > other")


def check_input(space: Space, true: int) -> None:
    """Raises ValueError for an input outside the space, without naming it: errors never hold an answer."""
    if not 0 <= true < space.size:
        raise ValueError(f"inputs are numbered 0 to {space.size - 1}, and this one is not")


def symbol_bytes(randomizer: Randomizer) -> int:
    """The fixed width of a symbol on the wire, in bytes: room for all of them, and for one more value that is none."""
    return (randomizer.symbols.bit_length() + 7) // 8


R = TypeVar("R", bound=Randomizer)

_KINDS: dict[str, type[Randomizer]] = {}
_SPACES: dict[str, dict[str, bool]] = {
    "mutations": {"repeats": False},
    "mutation-pairs": {"repeats": True},
    "moves": {"repeats": False, "null": False},
    "states": {"null": True},
    "answers": {"null": False},
}


def register(randomizer: type[R]) -> type[R]:
    """Make a class of randomizers known by its wire name, `kind`; used as a class decorator.

    A survey that names a kind can be read wherever the kind is registered, and nowhere else. Raises ValueError where
    another class has the name.
    """
    if _KINDS.setdefault(randomizer.kind, randomizer) is not randomizer:
        raise ValueError(f"the kind {randomizer.kind!r} is taken by {_KINDS[randomizer.kind].__name__}")
    return randomizer


def registered() -> Mapping[str, type[Randomizer]]:
    """Every class of randomizers by its wire name, in the order of registration."""
    return MappingProxyType(_KINDS)


def randomizer_as_fields(randomizer: Randomizer) -> Fields:
    """The fields of a survey's signed bytes that say which randomizer this is: its kind, its space, its parameters."""
    return {"kind": randomizer.kind, "space": _space_name(randomizer.space), **randomizer.as_fields()}


def randomizer_from_fields(fields: Fields, answers: int) -> Randomizer:
    """The randomizer that `randomizer_as_fields` wrote.

    answers: how many answers the survey has, z.
    Raises ValueError for anything else, and for a kind that is not registered.
    """
    match fields:
        case {"kind": str(kind), "space": str(space), **own} if kind in _KINDS:
            if (randomizer := _KINDS[kind].from_fields(_space(space, answers), own)) is not None:
                return randomizer
    raise ValueError(f"not a randomizer: {fields!r}")


def _space(name: str, answers: int) -> Space:
    options = _SPACES.get(name)
    if options is None:
        raise ValueError(f"a randomizer's space is one of {sorted(_SPACES)}, got {name!r}")
    return MutationSpace(answers, **options) if "repeats" in options else StateSpace(answers, **options)


def _space_name(space: Space) -> str:
    names = {_space(name, space.answers): name for name in _SPACES}
    return names[space]


def input_in_words(space: Space, index: int, states: Sequence[str]) -> str:
    """An input in words, for the person whose report it is: a state's name, "no change", or a change.

    states: their names from NULL on.

    >>> input_in_words(MutationSpace(2), 4, ["no answer", "tea", "coffee"])
    'from tea to coffee'
    """
    old, new = space.pair(index)
    if not space.reports_changes:
        return states[new]
    return f"from {states[old]} to {states[new]}" if index else "no change"


def own_states(space: Space, states: Sequence[str]) -> Sequence[str]:
    """The names of the states that a space has: without NULL's in a closed cohort."""
    return states if space.null else states[1:]


def listed(names: Sequence[str], last: str) -> str:
    """Names as a part of a sentence.

    >>> listed(["tea", "water", "coffee"], "and")
    'tea, water and coffee'
    """
    return f" {last} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
