"""A mechanism over finitely many databases and outputs, given by its exact probabilities.

A matrix P: P[y][x] is the probability of output y from database x; every column adds up to 1, in fractions. It also
says which pairs of databases are neighbours. Releases nothing itself: it is what regions are read off.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias, TypeVar

from changeling_statistics import Point

Exact: TypeAlias = Fraction | int | str | Decimal
"""What is a fraction without rounding: 1, "1/3", Decimal("0.1"). A float is not."""
Law: TypeAlias = tuple[Fraction, ...]
Database = TypeVar("Database")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class FiniteMechanism:
    """A mechanism by the exact probabilities of its outputs.

    rows: P, a row for each output and a column for each database. neighbours: pairs of columns, in either order.

    ValueError unless each column is a distribution and each pair names two columns.
    """

    rows: tuple[Law, ...]
    neighbours: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.rows or not self.rows[0] or len({len(row) for row in self.rows}) > 1:
            raise ValueError(f"a mechanism's rows are of one length, got {[len(row) for row in self.rows]}")
        for x in range(self.databases):
            checked_law(self.column(x), f"column {x}")
        for pair in self.neighbours:
            if len(set(pair)) != 2 or not set(pair) <= set(range(self.databases)):
                raise ValueError(f"neighbours are two databases of 0 to {self.databases - 1}, got {pair}")

    @classmethod
    def of(
        cls, rows: Iterable[Iterable[Exact]], neighbours: Iterable[tuple[int, int]] | None = None
    ) -> "FiniteMechanism":
        """The mechanism of a matrix of exact numbers.

        rows: P, as strings or fractions. neighbours: pairs of columns; left out, any two databases are neighbours.

        >>> FiniteMechanism.of([["3/4", "1/4"], ["1/4", "3/4"]]).neighbours
        ((0, 1),)
        """
        exact = tuple(tuple(map(exactly, row)) for row in rows)
        every = combinations(range(len(exact[0]) if exact else 0), 2)
        return cls(exact, tuple(every if neighbours is None else neighbours))

    @classmethod
    def tabled(
        cls,
        databases: Sequence[Database],
        outputs: Callable[[Database], Mapping[Outcome, Exact]],
        neighbours: Callable[[Database, Database], bool] | None = None,
    ) -> "FiniteMechanism":
        """The mechanism of a function.

        databases: all there are. outputs: the law of what one of them releases. neighbours: whether two of them are;
        left out, any two are. Outputs are numbered in order of appearance.
        """
        laws = [outputs(database) for database in databases]
        known = {output: None for law in laws for output in law}
        pairs = [
            (i, j)
            for i, j in combinations(range(len(databases)), 2)
            if neighbours is None or neighbours(databases[i], databases[j])
        ]
        return cls.of([[law.get(output, 0) for law in laws] for output in known], pairs)

    @property
    def outputs(self) -> int:
        """How many outputs there are: rows of P."""
        return len(self.rows)

    @property
    def databases(self) -> int:
        """How many databases there are: columns of P."""
        return len(self.rows[0])

    def column(self, database: int) -> Law:
        """The law of what one database releases."""
        return tuple(row[database] for row in self.rows)

    def mixed(self, law: Sequence[Fraction]) -> Law:
        """P f: the law of what a database drawn from `law` = f releases."""
        if len(law) != self.databases:
            raise ValueError(f"a law over {self.databases} databases has as many probabilities, got {len(law)}")
        checked_law(law, "the law over databases")
        return tuple(sum((p * f for p, f in zip(row, law, strict=True)), Fraction(0)) for row in self.rows)


def exactly(number: Exact) -> Fraction:
    """The number as a fraction. ValueError for a float, as 0.1 is not a tenth."""
    if isinstance(number, (float, bool)):
        raise ValueError(f"probabilities are exact: write {number} as a string or a Fraction")
    return Fraction(number)


def checked_law(law: Sequence[Fraction], name: str) -> None:
    """Raises ValueError, with the name, unless these are probabilities that add up to 1 exactly."""
    if least := [p for p in law if p < 0]:
        raise ValueError(f"{name} holds a negative probability, {least[0]}")
    if sum(law) != 1:
        raise ValueError(f"{name} adds up to {sum(law)}, not to 1")


def faced(above: Sequence[Fraction], below: Sequence[Fraction]) -> list[Point]:
    """(p, q) of the outputs that either law knows."""
    return [(p, q) for p, q in zip(above, below, strict=True) if p or q]
