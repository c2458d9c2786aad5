"""What a table's columns may hold, declared in public, and a table read under that declaration.

    Domain.of(age=range(0, 121), city=["Paris", "Rome", "elsewhere"], smoker=[False, True])

Queries, atoms and clusters are made from the declaration alone; what the rows hold decides none of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from keyword import iskeyword
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from ..frames import Frame
from ..predicate import Value

MOST_VALUES = 1_000_000


@dataclass(frozen=True, slots=True)
class Domain:
    """What the columns of a table may hold.

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
        # one more than will do, or a range of 10^12 would fill the memory before it is refused
        """The domain of columns given by name: Domain.of(age=range(121), city=["Paris", "Rome"])."""
        return cls(tuple(columns), tuple(tuple(islice(values, MOST_VALUES + 1)) for values in columns.values()))

    def index(self, name: str) -> int:
        """The place of a column among the names. ValueError for one that is not there."""
        return self.names.index(name)

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
    """Of a list of texts as they are: NumPy would drop the NULs they end in, and make texts of numbers among them."""
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
