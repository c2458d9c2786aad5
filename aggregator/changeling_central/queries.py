"""Queries as people write them: predicates on one column, histograms, clipped sums and means.

answer == 'United'                     how many entries hold it; also !=, in (…), not in (…), and, or, not
any answer                             how many entries there are
each answer in ('United', 'Delta')     a histogram over the answers named
each answer                            a histogram over the answers declared elsewhere
each answer or other                   the same, and a column for all that are not declared
sum of answer from 0 to 100 by 5       numeric answers, clipped, rounded to a multiple (by 1 unless said)
mean of answer from 0 to 100 by 5      the same sum, the count of those that are numbers, and one over the other

Any column may stand in place of `answer`: `sum of price from 0 to 9`. An answer that is no finite number adds 0 to a
sum and nothing to the count of a mean: a refusal would tell that somebody gave it. Names that are not in the query or
declared may come from the data: they never become a column. Predicates read no data: `where` says of which of a
column's declared values a comparison holds.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil, inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np
from changeling_protocol import AtMost, AtMostWithin, Constraint, Hybrid
from numpy.typing import NDArray

from .linear_query import LinearQuery, clipped_sum, counting, histogram_query
from .mechanism import Level
from .noise import Law

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
class ColumnTest:
    """A test of one column.

    constants: what it is compared with. holds: whether a value passes. ordered: it asks for less or greater.
    """

    column: str
    constants: tuple[Value, ...]
    holds: Callable[[Value], bool]
    ordered: bool = False

    def where(self, values: Sequence[Value]) -> Mask:
        """Mask of the values that pass, shape (values,)."""
        return np.fromiter((self.holds(value) for value in values), np.bool_, len(values))


Where = Callable[[ColumnTest], Mask]
"""Says where one comparison holds; masks of several shapes broadcast."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """Comparisons joined by and, or, not.

    comparisons: every one that stands in it. evaluated: where the predicate holds, from where each of them does.
    """

    comparisons: tuple[ColumnTest, ...]
    evaluated: Callable[[Where], Mask]


def parsed(text: str, columns: Sequence[str]) -> Predicate:
    """The predicate that the text says.

    columns: the names it may use. ValueError for anything else, which says what it is and what to write.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"not a query: {text!r}; write comparisons such as {columns[0]} == 'A', joined by and, or, not, or "
            f"'sum of {columns[0]} from 0 to 100', 'mean of …', 'each {columns[0]}'"
        ) from error
    return _predicate(tree, text, columns)


def _predicate(node: ast.expr, text: str, columns: Sequence[str]) -> Predicate:
    match node:
        case ast.BoolOp(op, operands):
            return _joined(isinstance(op, ast.And), [_predicate(operand, text, columns) for operand in operands])
        case ast.UnaryOp(ast.Not(), operand):
            of = _predicate(operand, text, columns)
            return Predicate(of.comparisons, lambda where: ~of.evaluated(where))
        case ast.Name(name):
            return _alone(ColumnTest(_column(name, text, columns), (True,), lambda value: value is True))
        case ast.Compare(
            ast.Name(name), [ast.In() | ast.NotIn() as op], [ast.Tuple() | ast.List() | ast.Set() as side]
        ):
            names = tuple(_constant(element, text) for element in side.elts)
            wanted = isinstance(op, ast.In)
            return _alone(ColumnTest(_column(name, text, columns), names, lambda value: (value in names) is wanted))
        case ast.Compare(_, [ast.In() | ast.NotIn()], [ast.Constant(value)]):
            raise ValueError(f"not a query: {text!r}: one constant in parentheses needs a comma: ({value!r},)")
        case ast.Compare(left, ops, rights):
            sides = zip([left, *rights], ops, rights, strict=False)
            return _joined(True, [_alone(_ordered(a, op, b, text, columns)) for a, op, b in sides])
    raise ValueError(f"not a query: {text!r}: {ast.unparse(node)!r} is no comparison of a column with constants")


def _alone(comparison: ColumnTest) -> Predicate:
    return Predicate((comparison,), lambda where: where(comparison))


def _joined(every: bool, operands: Sequence[Predicate]) -> Predicate:
    both = operator.and_ if every else operator.or_
    comparisons = tuple(comparison for operand in operands for comparison in operand.comparisons)
    return Predicate(comparisons, lambda where: reduce(both, [operand.evaluated(where) for operand in operands]))


def _ordered(left: ast.expr, op: ast.cmpop, right: ast.expr, text: str, columns: Sequence[str]) -> ColumnTest:
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
    return ColumnTest(_column(left.id, text, columns), (constant,), lambda value: compare(value, constant), ordered)


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


SURE = 3.0
"""Standard errors of the count that it must exceed 0 by, before a sum is divided by it."""


class ShownNumber(NamedTuple):
    """A number that is published of a release. name: of it. value: its estimate. error: standard; nan if unknown.

    step: what one unit of its noise is worth; 0 where it is no sum of draws, but a ratio of such.
    """

    name: str
    value: float
    error: float
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of a clipped number, as two columns that the same noise is right for.

    With x clipped and rounded, v = x - middle and h half the range, an entry that counts has -h <= v <= h, and one of
    two forms is measured:

        v, and the count, weighted            where entries may change: a change moves v alone
        h + v, and h - v                      where they only come and go: the two add up to 2h, whatever v is

    The first has a corner at (±h, weight), so in both an entry moves less than each column's most taken together. The
    second has half the variance with Laplace noise: sum and count are half the difference and half the sum of its
    columns. What is shown of them costs nothing more (post-processing).

    column: of the numbers. low, high: what they are clipped to. unit: what they are rounded to a multiple of.

    weight: of the count, in halves of the range; None for the second form, which is measured from both ends.
    ValueError unless low < high, and unit and weight are above 0.
    """

    column: str
    low: Fraction
    high: Fraction
    unit: Fraction = Fraction(1)
    weight: float | None = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high or self.unit <= 0:
            raise ValueError(f"a mean needs low < high and a unit above 0, got {self.low}, {self.high}, {self.unit}")
        if self.weight is not None and not 0 < self.weight < inf:
            raise ValueError(f"the count of a mean has a weight above 0, got {self.weight}")

    @property
    def middle(self) -> Fraction:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> int:
        """Half of the range, in units, rounded up."""
        return ceil((self.high - self.low) / (2 * self.unit))

    @property
    def of_one(self) -> int:
        """The amount that one more in the count adds to what `shown` takes for it, in units."""
        return self.half if self.weight is None else max(1, round(self.weight * self.half))

    def row(self, value: float | None) -> tuple[int, int]:
        """The two columns of an entry with this number, or with none."""
        if value is None:
            return (0, 0)
        v = round((min(max(Fraction(value), self.low), self.high) - self.middle) / self.unit)
        return (v, self.of_one) if self.weight is not None else (self.half + v, self.half - v)

    def shown(self, level: Level) -> list[ShownNumber]:
        """The count, the sum, and the mean where the count is surely above 0.

        level: of `mean_query`'s columns. Standard errors of count and sum are exact; that of the mean is to first
        order, and holds where the count is many times its own.
        """
        total, weighted = (float(value) for value in level.values)
        sigma, unit, middle = sqrt(level.variance), float(self.unit), float(self.middle)
        if self.weight is None:
            total, weighted, sigma = (total - weighted) / 2, (total + weighted) / 2, sigma / sqrt(2)
        count, of_count = weighted / self.of_one, sigma / self.of_one
        above = unit * total
        rows = [
            ShownNumber(f"count of {self.column}", count, of_count),
            ShownNumber(
                f"sum of {self.column}", above + middle * count, sqrt((unit * sigma) ** 2 + (middle * of_count) ** 2)
            ),
        ]
        if count > SURE * of_count:
            slope = above / count
            error = sqrt((unit * sigma) ** 2 + (slope * of_count) ** 2) / count
            rows.append(ShownNumber(f"mean of {self.column}", middle + slope, error))
        return rows


def best_weight(constraint: Constraint, fixed: bool, law: str | None, delta: Fraction) -> float | None:
    """The weight of the count for entries that keep to the constraint; None to measure from both ends.

    fixed: no entry ever holds two different answers. law: of the noise, None if it is not chosen yet; with a delta
    above 0 that is taken to be Gaussian. The weight is that of the least error of a mean at the end of its range, which
    is the worst: with Laplace noise h; with Gaussian noise h √√(4k - 3), at most h √3, for k mutations, as then
    weight² + h² + 4h²(k - 1) bounds what is moved.
    """
    k = _mutations(constraint)
    if fixed or k == 1:
        return 1.0 if law == Law.GAUSSIAN else None
    gaussian = law == Law.GAUSSIAN or (law is None and delta > 0)
    return sqrt(min(3.0, sqrt(4 * k - 3))) if gaussian else 1.0


def mean_query(mean: Mean, values: Mapping[str, float], answers: Sequence[str], fixed: bool = False) -> LinearQuery:
    """The two columns of a mean.

    values: the number that each answer stands for; an answer without one counts in neither. answers: of the changelog,
    states 1..z. fixed: no entry ever holds two different answers.
    """
    h, of_one = mean.half, mean.of_one
    table = ((0, 0), *(mean.row(values.get(answer)) for answer in answers))
    if mean.weight is None:
        names = f"{mean.column} above its least", f"{mean.column} below its most"
        corners = ((0, 0), (2 * h, 0), (0, 2 * h))
        appearing = (2 * h, h)
        moving = appearing if fixed else (2 * h, 2 * h)
    else:
        names = f"sum of {mean.column} above its middle", f"count of {mean.column}, weighted"
        corners = ((0, 0), (h, of_one), (-h, of_one))
        appearing = (h, of_one)
        moving = appearing if fixed else (2 * h, of_one)
    return LinearQuery(names, table, appearing, moving, mean.unit, fixed, corners)


def _mutations(constraint: Constraint) -> float:
    match constraint:
        case AtMost(k) | AtMostWithin(k, _):
            return k
        case Hybrid(classes):
            return max(_mutations(each) for each in classes)
    return inf


ANSWER = "answer"
_ANY = re.compile(r"any\s+(\w+)")
_EACH = re.compile(r"each\s+(?P<listed>(?P<column>\w+)(?:\s+in\s+.+?)?)(?P<other>\s+or\s+other)?", re.S)
_TOTAL = re.compile(r"(sum|mean)\s+of\s+(\w+)\s+from\s+(\S+)\s+to\s+(\S+)(?:\s+by\s+(\S+))?")


def answer_query(
    text: str,
    answers: Sequence[str],
    declared: Sequence[str] | None = None,
    fixed: bool = False,
    weight: float | None = 1.0,
) -> LinearQuery:
    """The query that the text says, as a table over the changelog's answers.

    text: one of the forms above. answers: of the changelog, states 1..z. declared: the names there are, in public,
    which `each answer` shows. fixed: no entry ever holds two different answers. weight: of a mean's count, see `Mean`.
    Raises ValueError for what is none of the forms, for a name in it that is not among those declared, and for a
    histogram whose columns would come from the data.
    """
    try:
        return _query(text.strip(), answers, declared, fixed, weight)
    except (OverflowError, RecursionError, MemoryError):
        raise ValueError("not a query: its numbers are too large, or it is too long") from None


def column_of(text: str) -> str:
    """The column that the query is about; `answer` where it names none. ValueError where it names several."""
    text = text.strip()
    for form, group in ((_ANY, 1), (_EACH, "column"), (_TOTAL, 2)):
        if said := form.fullmatch(text):
            return str(said[group])
    try:
        tree = ast.parse(text, mode="eval")
        compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ANSWER  # what is wrong with it is said where it is read
    sides = ([node.left, *node.comparators] for node in compared)
    firsts = (next((side.id for side in each if isinstance(side, ast.Name)), None) for each in sides)
    names = sorted({name for name in firsts if name is not None})
    if len(names) > 1:
        raise ValueError(f"not a query: {text!r} is about {', '.join(names)}: a release is about one column")
    return names[0] if names else ANSWER


def names_in(text: str) -> list[str]:
    """The answers that the query names, in their order; none where it is a sum, a mean or a count of all."""
    text = text.strip()
    each = _EACH.fullmatch(text)
    if _TOTAL.fullmatch(text) or _ANY.fullmatch(text) or (each and each["listed"] == each["column"]):
        return []
    predicate = parsed(each["listed"] if each else text, (column_of(text),))
    names = [name for comparison in predicate.comparisons for name in comparison.constants]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def numbers_of(text: str, answers: Sequence[str]) -> tuple[dict[str, float], float, float] | None:
    """The answers that a sum or a mean adds up, with their numbers, and what these are clipped to.

    None for a query of any other form. answers: of the changelog.
    """
    total = _TOTAL.fullmatch(text.strip())
    if total is None:
        return None
    low, high, _ = _bounds(total, text)
    return _values(answers), float(low), float(high)


def mean_of(text: str, weight: float | None = 1.0) -> Mean | None:
    """The parts of a mean; None for a query of any other form. weight: of its count, see `Mean`."""
    total = _TOTAL.fullmatch(text.strip())
    if total is None or total[1] != "mean":
        return None
    return Mean(total[2], *_bounds(total, text), weight)


def _query(
    text: str, answers: Sequence[str], declared: Sequence[str] | None, fixed: bool, weight: float | None
) -> LinearQuery:
    column = column_of(text)
    if each := _EACH.fullmatch(text):
        shown = _shown(each["listed"], column, declared)
        return histogram_query(answers, shown, fixed, other=each["other"] is not None)
    if total := _TOTAL.fullmatch(text):
        if mean := mean_of(text, weight):
            return mean_query(mean, _values(answers), answers, fixed)
        low, high, unit = _bounds(total, text)
        return clipped_sum(_values(answers), answers, float(low), float(high), unit, text, fixed)
    if _ANY.fullmatch(text):
        return counting(answers, answers, text, fixed)
    predicate = parsed(text, (column,))
    for comparison in predicate.comparisons:
        _checked(comparison, text, declared)
    _check_tells(predicate, column, text, declared)
    holds = predicate.evaluated(lambda comparison: comparison.where(answers))
    return counting(answers, [answer for answer, held in zip(answers, holds, strict=True) if held], text, fixed)


def _check_tells(predicate: Predicate, column: str, text: str, declared: Sequence[str] | None) -> None:
    """ValueError for a predicate that is true of no answer, or of every one, whatever answers there are."""
    named = [name for comparison in predicate.comparisons for name in comparison.constants]
    unnamed = "any value that the predicate does not name"
    values: list[Value] = [*named, *declared] if declared is not None else [*named, unnamed]
    if not predicate.evaluated(lambda comparison: comparison.where(values)).any():
        raise ValueError(f"not a query: {text!r} is true of no answer")
    if predicate.evaluated(lambda comparison: comparison.where([*values, unnamed])).all():
        raise ValueError(f"not a query: {text!r} is true of every answer: say `any {column}`")


def _bounds(total: re.Match[str], text: str) -> tuple[Fraction, Fraction, Fraction]:
    low, high, unit = (_number(part, text) for part in (total[3], total[4], total[5] or "1"))
    return low, high, unit


def _shown(listed: str, column: str, declared: Sequence[str] | None) -> Sequence[str]:
    """The columns of a histogram: those listed, else those declared."""
    if listed != column:
        compared = parsed(listed, (column,)).comparisons
        if len(compared) == 1:
            return _checked(compared[0], listed, declared)
        raise ValueError(f"not a query: {listed!r}: a histogram is over `each {column} in ('A', 'B')`")
    if declared is None:
        raise ValueError(
            "which answers there are would come from the data, and could give one entry away: name them, "
            f"--answers A,B,C or --query \"each {column} in ('A', 'B', 'C')\""
        )
    return declared


def _checked(comparison: ColumnTest, text: str, declared: Sequence[str] | None) -> list[str]:
    """The names it compares with. ValueError for a comparison that cannot be meant."""
    if comparison.ordered:
        raise ValueError(f"not a query: {text!r}: answers are equal or not, none is greater; name them, or use a sum")
    names = [name for name in comparison.constants if isinstance(name, str)]
    if len(names) < len(comparison.constants):
        raise ValueError(f"not a query: {text!r}: answers are text, and text stands in quotes")
    if not names or "" in names:
        raise ValueError(f"not a query: {text!r}: nobody holds an empty answer, or none of no names")
    unknown = [name for name in names if declared is not None and name not in declared]
    if unknown and declared is not None:
        raise ValueError(f"{text!r} names {unknown[0]!r}, which is none of the answers: {', '.join(declared)}")
    return names


def _number(part: str, text: str) -> Fraction:
    try:
        return Fraction(part)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"not a query: {text!r}: {part!r} is no number") from None


_PLAIN = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def _values(answers: Sequence[str]) -> dict[str, float]:
    """The answers that are finite numbers; `1_0` and ` 1`, which Python would read as numbers, are none."""
    values = {answer: float(answer) for answer in answers if _PLAIN.fullmatch(answer)}
    return {answer: value for answer, value in values.items() if isfinite(value)}
