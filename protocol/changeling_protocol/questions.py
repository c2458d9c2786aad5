"""Questions: what entries are asked, with answers by name or a number by levels, and how often an answer may change.

A number is answered by the level that it is rounded to, up or down, with an offset that the entry draws once and keeps:
it is one of a few and public, as a stratum is. So the mean of levels is the mean of the numbers, and an answer changes
only when the number crosses a threshold of the entry's own. docs/mathematics.md, "Numbers".

A device turns down a mutation that the question's constraint does not admit; a plan's cost follows from the most nodes
that admitted mutations reach. The first answer, an insertion, is a mutation too. Knows no randomizer.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeGuard

from .calendar import LAST_INSTANT
from .randomizers.interface import MICRO, check_answers
from .signing import Fields, as_terms, from_terms, holds_booleans

MOST_MUTATIONS = 2**20
"""The largest k: a device keeps the mutations of an entry until their node is answered, and these are some 50 MB."""
MOST_CLASSES = 16
"""The most classes of a hybrid constraint: each is asked at every mutation, and for every track of a survey."""


class _Bound:
    """A bound by numbers, which stand in a survey's signed bytes under their names, with its kind."""

    __slots__ = ()
    kind: ClassVar[str]

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes."""
        return {"kind": self.kind, **as_terms(self)}


@dataclass(frozen=True, slots=True)
class AtMost(_Bound):
    """At most k mutations in the entry's life."""

    kind: ClassVar[str] = "at-most"
    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"an entry must be allowed at least its insertion: k >= 1, got {self.k}")
        if self.k > MOST_MUTATIONS:
            raise ValueError(f"an entry is allowed at most {MOST_MUTATIONS} mutations, got {self.k}")

    def admits(self, mutations: int, elapsed: float) -> bool:  # noqa: ARG002
        """True if one more mutation is allowed: if there were fewer than k so far.

        mutations: how many the entry has made. elapsed: seconds since the first of them (0 if there is none).
        """
        return mutations < self.k

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """κ, the most nodes that hold a mutation: k, or all where there are fewer.

        bounds: the N+1 times that bound the N nodes of a disjoint release, rising, in seconds.
        """
        return min(self.k, len(bounds) - 1)


@dataclass(frozen=True, slots=True)
class TimeBounded(_Bound):
    """All mutations within B seconds of the first, both ends included."""

    kind: ClassVar[str] = "time-bounded"
    seconds: int

    def __post_init__(self) -> None:
        if self.seconds < 1:
            raise ValueError(f"the bound must be at least one second, got {self.seconds}")
        if self.seconds > LAST_INSTANT:
            raise ValueError(f"the bound must be at most {LAST_INSTANT} seconds, got {self.seconds}")

    def admits(self, mutations: int, elapsed: float) -> bool:
        """True if it is the first, or no later than B seconds after the first."""
        return mutations == 0 or elapsed <= self.seconds

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """MostSpan: as many as a window of B seconds can meet."""
        return most_span(bounds, self.seconds)


@dataclass(frozen=True, slots=True)
class AtMostWithin(_Bound):
    """At most k mutations, and all of them within B seconds of the first, both ends included."""

    kind: ClassVar[str] = "at-most-within"
    k: int
    seconds: int

    def __post_init__(self) -> None:
        AtMost(self.k)
        TimeBounded(self.seconds)

    def admits(self, mutations: int, elapsed: float) -> bool:
        """True if both bounds admit it."""
        return AtMost(self.k).admits(mutations, elapsed) and TimeBounded(self.seconds).admits(mutations, elapsed)

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """The smaller of k and MostSpan."""
        return min(self.k, most_span(bounds, self.seconds))


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Entries of several classes, none of which says which is its own: each entry keeps to one of the constraints."""

    classes: tuple[AtMost | TimeBounded, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise ValueError(f"a hybrid constraint needs at least two classes, got {len(self.classes)}")
        if len(self.classes) > MOST_CLASSES:
            raise ValueError(f"a hybrid constraint has at most {MOST_CLASSES} classes, got {len(self.classes)}")

    def admits(self, mutations: int, elapsed: float) -> bool:
        """True if some class admits it."""
        return any(constraint.admits(mutations, elapsed) for constraint in self.classes)

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """The most of any class."""
        return max(constraint.most_nodes(bounds) for constraint in self.classes)

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes."""
        return {"kind": "hybrid", "classes": [constraint.as_fields() for constraint in self.classes]}


Constraint: TypeAlias = AtMost | TimeBounded | AtMostWithin | Hybrid
"""A bound on the mutations of one entry. A value, so that it can be the key of a cache."""


_KINDS: tuple[type[AtMost | TimeBounded | AtMostWithin], ...] = AtMost, TimeBounded, AtMostWithin
_ALONE = {kind.kind: kind for kind in _KINDS}


def constraint_from_fields(fields: Fields) -> Constraint:
    """The constraint that `as_fields` wrote. Raises ValueError for anything else."""
    match fields:
        case {"kind": "hybrid", "classes": [*listed], **rest} if not rest:
            classes = [each for each in map(_alone, listed) if isinstance(each, AtMost | TimeBounded)]
            if len(classes) == len(listed):
                return Hybrid(tuple(classes))
    return _alone(fields)


def _alone(fields: Any) -> AtMost | TimeBounded | AtMostWithin:
    match fields:
        case {"kind": str(kind), **terms} if kind in _ALONE and (told := from_terms(_ALONE[kind], terms)) is not None:
            return _ALONE[kind](**told)
    raise ValueError(f"not a constraint: {fields!r}")


def most_span(bounds: Sequence[int], length: int) -> int:
    """MostSpan: the most nodes that a closed window of `length` can meet, wherever it lies.

        max over i of #{ j >= i : start_j < end_i + length },   node j being (bounds[j], bounds[j+1]]

    bounds: the times that bound the nodes, rising; of nodes of one width a range, however many they are.
    A window is worst when it begins at the end of a node. One that reaches past the last end counts the
    nodes that remain, which the paper's own code misses (Pan 2023, section 4.2; docs/central/errata.md).

    >>> most_span([0, 2, 5, 8, 10, 11, 12], 5)
    4
    """
    if length < 0:
        raise ValueError(f"a window cannot have a length of {length}")
    starts, ends = bounds[:-1], bounds[1:]
    if isinstance(bounds, range):  # nodes of one width: the first window meets as many as any
        ends = ends[:1]
    return max((bisect_left(starts, end + length) - i for i, end in enumerate(ends)), default=0)


MOST_QUESTIONS = 2**8
"""The most questions of a survey: each is recorded, counted and shown by itself."""

MOST_LEVEL_DIGITS = 30
"""The most characters of a level, as it is written in a survey's signed bytes."""

OFFSETS = 8
"""How many offsets there are to round numbers with; an entry draws one, for all its numbers."""


@dataclass(frozen=True, slots=True)
class ExpectedChanges:
    """How often a survey's designer expects answers to change, before anybody answers.

    When histograms are estimated, releases are weighed against each other by it, so that the weights never come from
    the data. Privacy does not depend on it: of a population that behaves otherwise the estimates are unbiased too, only
    less accurate.

    first: mutations per entry, in millionths, in the first period (insertions). later: in each later one.
    """

    first: int = MICRO
    later: int = 20_000

    def __post_init__(self) -> None:
        if not (0 <= self.first <= MICRO and 0 <= self.later <= MICRO):
            raise ValueError(f"expected changes are 0 to {MICRO} millionths, got {self.first} and {self.later}")

    def share_changed(self, start: int, end: int) -> float:
        """The share of entries with a mutation over the node (start, end]."""
        unchanged = 1.0 - self.first / MICRO if start == 0 else 1.0
        later = end - max(start, 1)
        return float(1.0 - unchanged * (1.0 - self.later / MICRO) ** later)


class Rounded(NamedTuple):
    """A number as it is answered. answer: the level's place among the answers, from 0. clipped: if it lay outside."""

    answer: int
    clipped: bool


@dataclass(frozen=True)
class Question:
    """One question of a survey.

    name: what apps call it by, such as "drink"; distinct in a survey.
    text: what people are asked.
    answers: the names of the answers 1..z, 1 to MOST_ANSWERS of them. Of a number they are its levels: see `of_number`.
    constraint: how often an entry's answer may change.
    expected: how often the designer expects it to.
    levels: the levels of a number, rising, as exact decimals; empty if the answers are names.
    unit: what a number is counted in, such as "minutes"; may be empty.
    freezing_of: the name of the question whose changes it is about, if devices answer it by themselves (`of_freezing`);
    empty for a question that apps record answers to.
    Raises ValueError for anything else.

    >>> from changeling_protocol import AtMost
    >>> minutes = Question.of_number("minutes", "How long?", ["0", "60", "120"], AtMost(3), unit="min")
    >>> minutes.answers, [str(minutes.threshold(1, offset)) for offset in (0, 7)]
    (('0 min', '60 min', '120 min'), ['15/4', '225/4'])
    >>> minutes.rounded(37.5, offset=2), minutes.rounded(37.5, offset=5), minutes.rounded(500, offset=0)
    (Rounded(answer=1, clipped=False), Rounded(answer=0, clipped=False), Rounded(answer=2, clipped=True))
    """

    name: str
    text: str
    answers: tuple[str, ...]
    constraint: Constraint
    expected: ExpectedChanges = field(default_factory=ExpectedChanges)
    levels: tuple[Decimal, ...] = ()
    unit: str = ""
    freezing_of: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.text:
            raise ValueError(f"a question must have a name and a text, got {self.name!r} and {self.text!r}")
        check_answers(len(self.answers))
        if len(set(self.answers)) != len(self.answers) or "" in self.answers:
            raise ValueError(f"answers must be distinct and not empty, got {list(self.answers)}")
        if self.levels and self.answers != _named(self.levels, self.unit):
            raise ValueError("the answers of a number are its levels, with its unit: see Question.of_number")
        if self.unit and not self.levels:
            raise ValueError(f"only a number has a unit, got {self.unit!r}")
        if self.freezing_of and (len(self.answers) != 2 or self.constraint != AtMost(2) or self.levels):
            raise ValueError(
                f"a freezing question has the answers no and yes, and at most two changes; {self.name!r} has others"
            )

    @classmethod
    def of_freezing(cls, question: "Question", expected: ExpectedChanges | None = None) -> "Question":
        """The question whether a change of an entry's answer to another one was turned down, which is no, then yes.

        The device answers it by itself: no with the first answer to the other question, and yes, for good, as soon as
        it turns down a change that the other question's constraint does not admit. Until then the entry reports on
        what it holds, so at the end of any period the share of yes bounds how far freezing moves any share.
        docs/mathematics.md, "The freezing question".

        question: the other one. expected: how often an entry is expected to answer, and to freeze.

        >>> from changeling_protocol import AtMost
        >>> Question.of_freezing(Question("drink", "Tea?", ("yes", "no"), AtMost(3))).name
        'drink-frozen'
        """
        text = f"Did the answer to \u201c{question.text}\u201d change more often than is counted?"
        expected = expected or ExpectedChanges(question.expected.first)
        return cls(f"{question.name}-frozen", text, ("no", "yes"), AtMost(2), expected, freezing_of=question.name)

    @classmethod
    def of_number(
        cls,
        name: str,
        text: str,
        levels: Sequence[Decimal] | Sequence[int] | Sequence[str],
        constraint: Constraint,
        unit: str = "",
        expected: ExpectedChanges | None = None,
    ) -> "Question":
        """A question for a number between the first and the last of some levels.

        levels: at least 2, rising; floats are refused, as what they are exactly is not what was written.
        """
        exact = tuple(map(_level, levels))
        if len(exact) < 2 or any(low >= high for low, high in pairwise(exact)):
            raise ValueError(f"the levels of a number are at least two, and rise; got {[str(each) for each in exact]}")
        return cls(name, text, _named(exact, unit), constraint, expected or ExpectedChanges(), exact, unit)

    @property
    def is_number(self) -> bool:
        """True if it asks for a number."""
        return bool(self.levels)

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The levels as floats, for estimates; empty if the answers are names."""
        return tuple(map(float, self.levels))

    def threshold(self, level: int, offset: int) -> Fraction:
        """The number from which on an entry with an offset answers a level, or one above: v + u (v' - v) below it.

        level: 1 or more, by its place among the levels. offset: from 0 to OFFSETS - 1; u = (2 offset + 1)/(2 OFFSETS).
        """
        below, above = map(Fraction, self.levels[level - 1 : level + 1])
        return below + Fraction(2 * offset + 1, 2 * OFFSETS) * (above - below)

    def rounded(self, number: float | Decimal | Fraction, offset: int) -> Rounded:
        """The level that a number is rounded to. Raises ValueError for what is no finite number; it is not repeated."""
        exact = _exact(number)
        answer = sum(exact >= self.threshold(level, offset) for level in range(1, len(self.levels)))
        return Rounded(answer, not self.levels[0] <= exact <= self.levels[-1])

    def as_fields(self) -> Fields:
        """The question in a survey's signed bytes."""
        asked: Fields = {"levels": [str(each) for each in self.levels], "unit": self.unit}
        return {
            "name": self.name,
            "text": self.text,
            **(asked if self.levels else {"answers": list(self.answers)}),
            **({"freezing_of": self.freezing_of} if self.freezing_of else {}),
            "constraint": self.constraint.as_fields(),
            "expected": as_terms(self.expected),
        }

    @classmethod
    def from_fields(cls, fields: Any) -> "Question":
        """The question that `as_fields` wrote. Raises ValueError for anything else."""
        match fields:
            case {
                "name": str(name),
                "text": str(text),
                "constraint": dict(constraint),
                "expected": {"first": int(first), "later": int(later), **unexpected},
                **asked,
            } if not unexpected and not holds_booleans(fields):
                known = constraint_from_fields(constraint), ExpectedChanges(first, later)
                match asked:
                    case {"answers": [*answers], **rest} if not rest and _are_strings(answers):
                        return cls(name, text, tuple(answers), *known)
                    case {"answers": [*answers], "freezing_of": str(of), **rest} if of and not rest:
                        if _are_strings(answers):
                            return cls(name, text, tuple(answers), *known, freezing_of=of)
                    case {"levels": [*levels], "unit": str(unit), **rest} if not rest and _are_strings(levels):
                        made = cls.of_number(name, text, levels, known[0], unit, known[1])
                        if [str(each) for each in made.levels] == levels:
                            return made
        raise ValueError("a question is its name, text, answers or levels and unit, constraint and expected changes")


def _are_strings(values: list[Any]) -> TypeGuard[list[str]]:
    return all(isinstance(value, str) for value in values)


def _level(value: Decimal | int | str) -> Decimal:
    """A level as it is signed: without exponent, and without zeros that mean nothing."""
    if isinstance(value, bool | float):
        raise ValueError(f"a level is written as a whole number or a decimal, got {value!r}")
    if len(str(value)) > MOST_LEVEL_DIGITS:
        raise ValueError(f"a level has at most {MOST_LEVEL_DIGITS} characters, got {len(str(value))}")
    try:
        exact = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"a level is a decimal number, got {value!r}") from None
    if not exact.is_finite() or abs(exact.adjusted()) > MOST_LEVEL_DIGITS:
        raise ValueError(f"a level is a finite number of at most {MOST_LEVEL_DIGITS} digits, got {value!r}")
    written = f"{exact:f}"
    written = written.rstrip("0").rstrip(".") if "." in written else written
    return Decimal(0) if exact == 0 else Decimal(written)


def _named(levels: Sequence[Decimal], unit: str) -> tuple[str, ...]:
    return tuple(f"{level} {unit}".rstrip() for level in levels)


def _exact(number: object) -> Fraction:
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal | Fraction):
        raise ValueError("a question for a number takes a number, and this is none")
    if isinstance(number, float | Decimal) and not isfinite(number):
        raise ValueError("a question for a number takes a finite number, and this is none")
    return Fraction(number)
