"""Predicates as people write them: comparisons of columns with constants, joined by and, or, not.

    age >= 30 and city in ('Paris', 'Rome')        20 <= age < 30 or not smoker

A predicate reads no data: `where` says of which of a column's declared values a comparison holds.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Value = str | int | bool

_ORDERS: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A test of one column.

    constants: what it is compared with. holds: whether a value passes. ordered: it asks for less or greater.
    """

    column: str
    constants: tuple[Value, ...]
    holds: Callable[[Value], bool]
    ordered: bool = False

    def where(self, values: Sequence[Value]) -> Mask:
        """Which of the values pass, shape (values,)."""
        return np.fromiter((self.holds(value) for value in values), np.bool_, len(values))


@dataclass(frozen=True, slots=True)
class Not:
    """Whatever the operand does not hold of."""

    operand: "Predicate"


@dataclass(frozen=True, slots=True)
class Joined:
    """Operands joined by and (`every`), or by or."""

    every: bool
    operands: tuple["Predicate", ...]


Predicate = Comparison | Not | Joined


def parsed(text: str, columns: Sequence[str]) -> Predicate:
    """The predicate that the text says.

    columns: the names it may use. ValueError for anything else, which says what it is and what to write.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"not a query: {text!r}; write comparisons such as {columns[0]} == 'A', joined by and, or, not"
        ) from error
    return _predicate(tree, text, columns)


def comparisons(predicate: Predicate) -> Iterator[Comparison]:
    """Every comparison that stands in it."""
    match predicate:
        case Comparison():
            yield predicate
        case Not(operand):
            yield from comparisons(operand)
        case Joined(_, operands):
            for operand in operands:
                yield from comparisons(operand)


def evaluated(predicate: Predicate, where: Callable[[Comparison], Mask]) -> Mask:
    """Where the predicate holds. where: says the same of one comparison; the masks' shapes broadcast."""
    match predicate:
        case Comparison():
            return where(predicate)
        case Not(operand):
            return ~evaluated(operand, where)
        case Joined(every, operands):
            mask, *others = (evaluated(operand, where) for operand in operands)
            for other in others:
                mask = mask & other if every else mask | other
            return mask


def _predicate(node: ast.expr, text: str, columns: Sequence[str]) -> Predicate:
    match node:
        case ast.BoolOp(op, operands):
            return Joined(isinstance(op, ast.And), tuple(_predicate(operand, text, columns) for operand in operands))
        case ast.UnaryOp(ast.Not(), operand):
            return Not(_predicate(operand, text, columns))
        case ast.Name(name):
            return Comparison(_column(name, text, columns), (True,), lambda value: value is True)
        case ast.Compare(
            ast.Name(name), [ast.In() | ast.NotIn() as op], [ast.Tuple() | ast.List() | ast.Set() as side]
        ):
            names = tuple(_constant(element, text) for element in side.elts)
            wanted = isinstance(op, ast.In)
            return Comparison(_column(name, text, columns), names, lambda value: (value in names) is wanted)
        case ast.Compare(_, [ast.In() | ast.NotIn()], [ast.Constant(value)]):
            raise ValueError(f"not a query: {text!r}: one constant in parentheses needs a comma: ({value!r},)")
        case ast.Compare(left, ops, rights):
            sides = [left, *rights]
            parts = tuple(_ordered(a, op, b, text, columns) for a, op, b in zip(sides, ops, sides[1:], strict=False))
            return parts[0] if len(parts) == 1 else Joined(True, parts)
    raise ValueError(f"not a query: {text!r}: {ast.unparse(node)!r} is no comparison of a column with constants")


def _ordered(left: ast.expr, op: ast.cmpop, right: ast.expr, text: str, columns: Sequence[str]) -> Comparison:
    kind = type(op)
    if kind in _ORDERS and isinstance(right, ast.Name) and not isinstance(left, ast.Name):
        left, right, kind = right, left, _MIRRORED[kind]
    if kind not in _ORDERS or not isinstance(left, ast.Name):
        raise ValueError(
            f"not a query: {text!r}: {ast.unparse(ast.Compare(left, [op], [right]))!r} is no comparison of a column "
            "with constants; text stands in quotes"
        )
    constant, compare = _constant(right, text), _ORDERS[kind]
    ordered = kind not in (ast.Eq, ast.NotEq)
    return Comparison(_column(left.id, text, columns), (constant,), lambda value: compare(value, constant), ordered)


def _column(name: str, text: str, columns: Sequence[str]) -> str:
    if name not in columns:
        raise ValueError(f"not a query: {text!r}: there is no column {name!r}; there are {', '.join(columns)}")
    return name


def _constant(node: ast.expr, text: str) -> Value:
    match node:
        case ast.Constant(bool() | int() | str() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))) if type(value) is int:
            return -value
        case ast.Name(name):
            raise ValueError(f"not a query: {text!r}: {name} is no constant; text stands in quotes: {name!r}")
    raise ValueError(
        f"not a query: {text!r}: {ast.unparse(node)!r} is no constant; text stands in quotes, numbers are whole"
    )
