"""Queries as people write them: predicates on `answer`, histograms, clipped sums.

answer == 'United'                     how many entries hold it; also !=, in (…), not in (…), and, or, not
any answer                             how many entries there are
each answer in ('United', 'Delta')     a histogram over the answers named
each answer                            a histogram over the answers declared elsewhere
sum of answer from 0 to 100 by 5       numeric answers, clipped, rounded to a multiple (by 1 unless said)

Names that are not in the query or declared may come from the data: they never become a column.
"""

import ast
import re
from collections.abc import Sequence
from fractions import Fraction
from math import isnan, nan

from .linear_query import LinearQuery, clipped_sum, counting, histogram_query

_EACH = re.compile(r"each\s+answer(?:\s+in\s+(?P<names>.+))?", re.S)
_SUM = re.compile(r"sum\s+of\s+answer\s+from\s+(\S+)\s+to\s+(\S+)(?:\s+by\s+(\S+))?")


def answer_query(
    text: str, answers: Sequence[str], declared: Sequence[str] | None = None, fixed: bool = False
) -> LinearQuery:
    """The query as a table over the changelog's answers. declared: the names that `each answer` shows.

    Raises ValueError for what is none of the forms, and for a histogram whose columns would come from the data.
    """
    stripped = text.strip()
    if each := _EACH.fullmatch(stripped):
        shown = _names(each["names"], text) if each["names"] else declared
        if shown is None:
            raise ValueError(
                "which answers there are would come from the data, and could give one entry away: name them, "
                "--answers A,B,C or --query \"each answer in ('A', 'B', 'C')\""
            )
        return histogram_query(answers, list(shown), fixed)
    if clipped := _SUM.fullmatch(stripped):
        low, high, unit = (_number(part, text) for part in (clipped[1], clipped[2], clipped[3] or "1"))
        return clipped_sum(_values(answers), answers, float(low), float(high), unit, stripped, fixed)
    if re.fullmatch(r"any\s+answer", stripped):
        return counting(answers, answers, stripped, fixed)
    try:
        predicate = ast.parse(stripped, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not a query: {text!r}; write answer == 'A', answer in ('A', 'B') or each answer") from error
    _holds(predicate, "", text)  # refuses what is no predicate, whatever the answers
    return counting(answers, [answer for answer in answers if _holds(predicate, answer, text)], stripped, fixed)


def _holds(node: ast.expr, answer: str, text: str) -> bool:
    match node:
        case ast.BoolOp(op, values):
            each = [_holds(value, answer, text) for value in values]
            return all(each) if isinstance(op, ast.And) else any(each)
        case ast.UnaryOp(ast.Not(), operand):
            return not _holds(operand, answer, text)
        case ast.Compare(ast.Name("answer"), [ast.Eq() | ast.NotEq() as op], [ast.Constant(str(name))]):
            return (answer == name) == isinstance(op, ast.Eq)
        case ast.Compare(ast.Name("answer"), [ast.In() | ast.NotIn() as op], [ast.Tuple() | ast.List() as names]):
            return (answer in _strings(names.elts, text)) == isinstance(op, ast.In)
    raise ValueError(f"not a query: {text!r}: {ast.unparse(node)!r} is no comparison of `answer` with names in quotes")


def _strings(elements: Sequence[ast.expr], text: str) -> list[str]:
    names = [element.value for element in elements if isinstance(element, ast.Constant)]
    if len(names) != len(elements) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"not a query: {text!r}: names stand in quotes")
    return [str(name) for name in names]


def _names(listed: str, text: str) -> list[str]:
    try:
        found = ast.parse(listed.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not a query: {text!r}") from error
    if isinstance(found, ast.Tuple | ast.List):
        return _strings(found.elts, text)
    return _strings([found], text)


def _number(part: str, text: str) -> Fraction:
    try:
        return Fraction(part)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"not a query: {text!r}: {part!r} is no number") from None


def _values(answers: Sequence[str]) -> dict[str, float]:
    """The answers as numbers. The error does not say which is none: it may be one entry's."""
    try:
        values = {answer: float(answer) for answer in answers}
    except ValueError:
        values = {"": nan}
    if any(isnan(value) for value in values.values()):
        raise ValueError("a sum of answers needs numbers, and an answer is none")
    return values
