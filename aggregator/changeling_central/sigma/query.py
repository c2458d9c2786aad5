"""A counting query: how many rows satisfy a predicate, in the one form that all ways to write it share.

Each column's values fall into classes that the query does not tell apart, and `mask` says of each combination of
classes whether it counts. A column that makes no difference is none of the query's columns, whatever its text says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..predicate import Comparison, Mask, Predicate, comparisons, evaluated, parsed
from .domain import Domain, Table

Classes = NDArray[np.int64]
"""The class of every declared value of a column; classes are numbered by their first value."""

MOST_CELLS = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """How many rows of a table satisfy a predicate.

    text: as it was written. columns: those it constrains, rising. classes: of each of them.

    mask: which combinations of classes count, one axis for each column. key: the same for queries that mean the same.
    bits: 2^column, added up over the columns.
    """

    text: str
    domain: Domain
    columns: tuple[int, ...]
    classes: tuple[Classes, ...]
    mask: Mask
    key: bytes = field(repr=False)
    bits: int = field(repr=False)

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
        compared = list(comparisons(predicate))
        for comparison in compared:
            _check(comparison, domain, text)
        columns = tuple(sorted({domain.index(comparison.column) for comparison in compared}))
        masks: dict[int, list[Mask]] = {column: [] for column in columns}
        for comparison in compared:
            masks[domain.index(comparison.column)].append(
                comparison.where(domain.values[domain.index(comparison.column)])
            )
        classes = {column: classes_of(np.array(masks[column])) for column in columns}
        if prod(int(each.max()) + 1 for each in classes.values()) > MOST_CELLS:
            raise ValueError(f"{text!r} tells more than {MOST_CELLS:,} combinations of values apart")
        firsts = {column: firsts_of(each) for column, each in classes.items()}

        def where(comparison: Comparison) -> Mask:
            column = domain.index(comparison.column)
            shape = [1] * len(columns)
            shape[columns.index(column)] = -1
            values = domain.values[column]
            return comparison.where([values[at] for at in firsts[column]]).reshape(shape)

        shape = [len(firsts[column]) for column in columns]
        mask = np.broadcast_to(evaluated(predicate, where), shape)
        return _reduced(text, domain, columns, [classes[column] for column in columns], mask)

    def count(self, table: Table) -> int:
        """How many rows of the table satisfy it: the truth."""
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


def common_classes(each: Iterable[Classes]) -> Classes:
    """The coarsest classes that are finer than each of these."""
    rows = np.array(list(each))
    return classes_of(rows)


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
    return Query(text, domain, tuple(kept), tuple(left), mask, sha256(said).digest(), bits_of(kept))


def bits_of(columns: Iterable[int]) -> int:
    """2^column, added up over the columns: which columns these are, in one number."""
    return sum(1 << column for column in columns)


def _check(comparison: Comparison, domain: Domain, text: str) -> None:
    values = domain.values[domain.index(comparison.column)]
    kind = type(values[0])
    for constant in comparison.constants:
        if type(constant) is not kind:
            raise ValueError(
                f"{text!r} compares {comparison.column}, which holds {kind.__name__} values, with {constant!r}"
            )
        if kind is str and constant not in values:
            raise ValueError(f"{text!r}: {constant!r} is no declared value of {comparison.column}")
