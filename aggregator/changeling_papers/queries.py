"""Counting queries of one table, in the one form that all ways to write them share, and the algebra they generate.

    Domain    what a table's columns may hold, declared in public: Domain.of(age=range(121), city=["Paris", "Rome"])
    Table     a table that keeps to a domain
    Query     how many rows satisfy a predicate
    Algebra   the atoms of queries: the least pieces of the domain that they are made of

Queries, atoms and clusters are made from the declaration and the predicates alone; what the rows hold decides none of
them: two combinations of values belong to one atom if no query tells them apart. What no query holds is an atom as
well, or complements could not be answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from keyword import iskeyword
from math import prod
from unicodedata import normalize

import numpy as np
from changeling_central import ColumnTest, Frame, Mask, Predicate, Value, parsed
from changeling_statistics import Counts
from numpy.typing import NDArray

MOST_VALUES = 1_000_000


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that the columns of a table may hold.

    names: of the columns, identifiers. values: of each column, all texts, all whole numbers or all bools.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.values):
            raise ValueError(f"a domain has columns, and values for each, got {len(self.names)} and {len(self.values)}")
        for name, values in zip(self.names, self.values, strict=True):
            if not name.isidentifier() or iskeyword(name) or normalize("NFKC", name) != name:  # as Python reads names
                raise ValueError(f"a column that queries name is an identifier and no keyword, got {name!r}: rename it")
            if not 1 <= len(values) <= MOST_VALUES:
                raise ValueError(
                    f"column {name} declares {_number(values)} values: between 1 and {MOST_VALUES:,} will do"
                )
            if len({type(value) for value in values}) > 1 or type(values[0]) not in (str, int, bool):
                raise ValueError(f"column {name} holds either texts, whole numbers or bools")
            if any(not -(2**63) <= value < 2**63 for value in values if isinstance(value, int)):
                raise ValueError(f"column {name} declares a number that takes more than 64 bits")
            if len(set(values)) != len(values):
                raise ValueError(f"column {name} declares a value twice")

    @classmethod
    def of(cls, **columns: Iterable[Value]) -> "Domain":
        """The domain of columns given by name: Domain.of(age=range(121), city=["Paris", "Rome"])."""
        # one more than will do, or a range of 10^12 would fill the memory before it is refused
        return cls(tuple(columns), tuple(tuple(islice(values, MOST_VALUES + 1)) for values in columns.values()))

    def table(self, frame: Mapping[str, object] | Frame) -> "Table":
        """A pandas or polars frame, or a mapping from names to sequences, as a table; other columns are left.

        Raises ValueError for a column that is missing or of another length, and for one that holds what it does not
        declare. The error names the column alone: which rows do so is told by the data, and errors are logged.
        """
        there = set(frame if isinstance(frame, Mapping) else frame.columns)
        codes: list[NDArray[np.int32]] = []
        for name, values in zip(self.names, self.values, strict=True):
            if name not in there:
                raise ValueError(f"the table has no column {name!r}")
            codes.append(_codes(name, values, _array(frame[name])))
            if len(codes[-1]) != len(codes[0]):
                raise ValueError(f"column {name!r} has {len(codes[-1])} rows, {self.names[0]!r} has {len(codes[0])}")
        return Table(self, tuple(codes))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table that keeps to a domain.

    codes: for each column the place of every row's value among the declared ones, shape (rows,).
    """

    domain: Domain
    codes: tuple[NDArray[np.int32], ...]

    def __repr__(self) -> str:
        return f"Table of {', '.join(self.domain.names)}"


def _number(values: Sequence[Value]) -> str:
    return f"{len(values)}" if len(values) <= MOST_VALUES else f"more than {MOST_VALUES:,}"


def _array(column: object) -> NDArray[np.generic]:
    """The column as an array; texts as objects: NumPy would drop NULs at their ends, and turn numbers to texts."""
    array = np.asarray(column)
    return array if array.dtype.kind != "U" or hasattr(column, "dtype") else np.asarray(column, object)


def _codes(name: str, values: Sequence[Value], column: NDArray[np.generic]) -> NDArray[np.int32]:
    if column.ndim != 1:
        raise ValueError(f"column {name!r} is one value a row, got shape {column.shape}")
    if not len(column):  # the type of nothing says nothing
        return np.zeros(0, np.int32)
    kind = type(values[0])
    allowed = {str: "OUT", int: "iu", bool: "b"}[kind]
    if column.dtype.kind not in allowed:
        raise ValueError(f"column {name!r} declares {kind.__name__} values, the table holds {column.dtype}")
    if kind is str:
        places = {value: place for place, value in enumerate(values)}
        texts = (places.get(value, -1) if isinstance(value, str) else -1 for value in column.tolist())
        places_held = np.fromiter(texts, np.int32, len(column))
    else:
        declared = np.array(values, np.int64)
        order = np.argsort(declared)
        at = np.minimum(np.searchsorted(declared, column.astype(np.int64), sorter=order), len(declared) - 1)
        places_held = np.where(declared[order[at]] == column, order[at], -1).astype(np.int32)
    if (places_held < 0).any():
        raise ValueError(
            f"column {name!r} holds what is not declared of it: declare it, or change the rows that hold it"
        )
    return places_held


Classes = NDArray[np.int64]
"""The class of every declared value of a column; classes are numbered by their first value."""

MOST_CELLS = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A counting query: the number of rows of a table that satisfy a predicate.

    Each column's values fall into classes that the query does not tell apart. A column that makes no difference is
    none of the query's columns, whatever its text says.

    text: as it was written. columns: those it constrains, rising. classes: of each of them.
    mask: which combinations of classes count, one axis for each column. key: the same for queries that mean the same.
    """

    text: str
    domain: Domain
    columns: tuple[int, ...]
    classes: tuple[Classes, ...]
    mask: Mask
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, domain: Domain, text: str) -> "Query":
        """The query that the text says. Texts are ordered as Python orders them, not as they are declared.

        ValueError for what is no query, for a text that no value equals, and for what is nested too deeply.
        """
        try:
            return cls._of(domain, text, parsed(text, domain.names))
        except (RecursionError, MemoryError):
            raise ValueError("not a query: it is too long, or nested too deeply") from None

    @classmethod
    def _of(cls, domain: Domain, text: str, predicate: Predicate) -> "Query":
        compared = predicate.comparisons
        for comparison in compared:
            _check(comparison, domain, text)
        columns = tuple(sorted({domain.names.index(comparison.column) for comparison in compared}))
        masks: dict[int, list[Mask]] = {column: [] for column in columns}
        for comparison in compared:
            masks[domain.names.index(comparison.column)].append(
                comparison.where(domain.values[domain.names.index(comparison.column)])
            )
        classes = {column: classes_of(np.array(masks[column])) for column in columns}
        if prod(int(each.max()) + 1 for each in classes.values()) > MOST_CELLS:
            raise ValueError(f"{text!r} tells more than {MOST_CELLS:,} combinations of values apart")
        firsts = {column: firsts_of(each) for column, each in classes.items()}

        def where(comparison: ColumnTest) -> Mask:
            column = domain.names.index(comparison.column)
            shape = [1] * len(columns)
            shape[columns.index(column)] = -1
            values = domain.values[column]
            return comparison.where([values[at] for at in firsts[column]]).reshape(shape)

        shape = [len(firsts[column]) for column in columns]
        mask = np.broadcast_to(predicate.evaluated(where), shape)
        return _reduced(text, domain, columns, [classes[column] for column in columns], mask)

    def count(self, table: Table) -> int:
        """The true number of rows of the table that satisfy it."""
        if table.domain != self.domain:
            raise ValueError("the table is of another domain than the query")
        if not self.columns:
            return len(table.codes[0]) if self.mask else 0
        places = tuple(each[table.codes[column]] for column, each in zip(self.columns, self.classes, strict=True))
        return int(np.count_nonzero(self.mask[places]))


def classes_of(masks: Mask) -> Classes:
    """The classes of values that no mask tells apart, numbered by their first value. masks: shape (masks, values)."""
    _, first, inverse = np.unique(masks, axis=1, return_index=True, return_inverse=True)
    renumbered = np.argsort(np.argsort(first))
    classes: Classes = renumbered[inverse.reshape(-1)].astype(np.int64)
    return classes


def firsts_of(classes: Classes) -> NDArray[np.int64]:
    """The first value of each class."""
    seen = np.maximum.accumulate(classes)
    return np.flatnonzero(np.diff(seen, prepend=-1))


def _reduced(text: str, domain: Domain, columns: tuple[int, ...], classes: list[Classes], mask: Mask) -> Query:
    """Classes that make no difference become one; columns left with one class are dropped."""
    kept, left = [], []
    for axis, column in enumerate(columns):
        moved = np.moveaxis(mask, axis, 0)
        same = classes_of(moved.reshape(len(moved), -1).T)
        mask = np.moveaxis(moved[np.unique(same, return_index=True)[1]], 0, axis)
        if same.max() > 0:
            kept.append(column)
            left.append(same[classes[axis]])
    # `ascontiguousarray` would give the mask of a constant an axis
    mask = mask.reshape([int(each.max()) + 1 for each in left]).copy()
    said = repr(kept).encode() + b"".join(each.tobytes() for each in left) + mask.tobytes()
    return Query(text, domain, tuple(kept), tuple(left), mask, sha256(said).digest())


def _check(comparison: ColumnTest, domain: Domain, text: str) -> None:
    values = domain.values[domain.names.index(comparison.column)]
    kind = type(values[0])
    for constant in comparison.constants:
        if type(constant) is not kind:
            raise ValueError(
                f"{text!r} compares {comparison.column}, which holds {kind.__name__} values, with {constant!r}"
            )
        if kind is str and constant not in values:
            raise ValueError(f"{text!r}: {constant!r} is no declared value of {comparison.column}")


Atoms = NDArray[np.int64]
"""Atoms by their numbers, rising."""

BITS = 62


@dataclass(frozen=True, slots=True, eq=False)
class Algebra:
    """The atoms that some queries are made of.

    columns: all that some query constrains, rising. classes: of each, the coarsest that suit every query.

    labels: the atom of each combination of classes, one axis for each column. sizes: combinations in each atom.
    firsts: the first value of each class of each column.
    """

    domain: Domain
    columns: tuple[int, ...]
    classes: tuple[Classes, ...]
    labels: NDArray[np.int64]
    sizes: Counts
    firsts: tuple[Atoms, ...]

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "Algebra":
        """The least algebra that holds all of these queries.

        ValueError for no queries, for queries of several domains, and where there would be more than MOST_CELLS pieces.
        """
        if not queries:
            raise ValueError("an algebra is generated by at least one query")
        domain = queries[0].domain
        if any(query.domain != domain for query in queries):
            raise ValueError("the queries are of several domains")
        columns, classes = shared_classes(queries)
        firsts = tuple(firsts_of(each) for each in classes)
        shape = [len(each) for each in firsts]
        if prod(shape) > MOST_CELLS:
            raise ValueError(
                f"together these queries tell {prod(shape):,} combinations of values apart, more than "
                f"{MOST_CELLS:,}: group them (`grouped`)"
            )
        labels = np.zeros(shape, np.int64)
        bit = 0
        for query in {query.key: query for query in queries}.values():
            if bit == BITS:
                labels, atoms = _renumbered(labels)
                if atoms == labels.size:
                    break
                bit = atoms.bit_length()
            np.bitwise_or(labels, 1 << bit, out=labels, where=_spread(query, columns, firsts))
            bit += 1
        labels, atoms = _renumbered(labels)
        return cls(domain, columns, classes, labels, np.bincount(labels.reshape(-1), minlength=atoms), firsts)

    @property
    def atoms(self) -> int:
        """The number of atoms."""
        return len(self.sizes)

    def count(self, table: Table) -> Counts:
        """The true number of rows of the table in each atom, shape (atoms,)."""
        if table.domain != self.domain:
            raise ValueError("the table is of another domain than the algebra")
        places = tuple(each[table.codes[column]] for column, each in zip(self.columns, self.classes, strict=True))
        labels_held = self.labels[places] if places else np.zeros(len(table.codes[0]), np.int64)
        counts: Counts = np.bincount(labels_held, minlength=self.atoms)
        return counts

    def members(self, query: Query) -> Atoms | None:
        """The atoms whose union the query is; None where it is no union of atoms."""
        if query.domain != self.domain or not set(query.columns) <= set(self.columns):
            return None
        for column, parts in zip(query.columns, query.classes, strict=True):
            axis = self.columns.index(column)
            if not np.array_equal(parts, parts[self.firsts[axis]][self.classes[axis]]):  # it tells apart what we do not
                return None
        inside = np.broadcast_to(_spread(query, self.columns, self.firsts), self.labels.shape)
        held = np.bincount(self.labels[inside], minlength=self.atoms)
        chosen = np.flatnonzero(held)
        return chosen if np.array_equal(held[chosen], self.sizes[chosen]) else None


def shared_classes(queries: Sequence[Query]) -> tuple[tuple[int, ...], tuple[Classes, ...]]:
    """All columns that some query constrains, and the coarsest classes of each that suit every query."""
    each: dict[int, dict[bytes, Classes]] = {}
    for query in queries:
        for column, parts in zip(query.columns, query.classes, strict=True):
            each.setdefault(column, {})[parts.tobytes()] = parts
    columns = tuple(sorted(each))
    return columns, tuple(classes_of(np.array([*each[column].values()])) for column in columns)


def _spread(query: Query, columns: tuple[int, ...], firsts: tuple[Atoms, ...]) -> NDArray[np.bool_]:
    """The query's mask over finer classes of more columns, as an array that broadcasts to all of them."""
    places = []
    shape = [1] * len(columns)
    for column, parts in zip(query.columns, query.classes, strict=True):
        axis = columns.index(column)
        places.append(parts[firsts[axis]])
        shape[axis] = len(firsts[axis])
    spread = query.mask[np.ix_(*places)] if places else query.mask
    return spread.reshape(shape)


def _renumbered(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    distinct, inverse = np.unique(labels, return_inverse=True)
    return inverse.reshape(labels.shape).astype(np.int64), len(distinct)
