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
declared may come from the data: they never become a column.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

from ..predicate import Comparison, comparisons, evaluated, parsed
from .linear_query import LinearQuery, clipped_sum, counting, histogram_query
from .mean_query import Mean, mean_query

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
    names = [name for comparison in comparisons(predicate) for name in comparison.constants]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The answers that are finite numbers. low, high: what they are clipped to."""

    values: dict[str, float]
    low: float
    high: float

    def is_clipped(self, answer: str) -> bool:
        """Whether the answer is a number beyond the bounds."""
        return answer in self.values and not self.low <= self.values[answer] <= self.high


def numbers_of(text: str, answers: Sequence[str]) -> Numbers | None:
    """The numbers that a sum or a mean adds up; None for a query of any other form. answers: of the changelog."""
    total = _TOTAL.fullmatch(text.strip())
    if total is None:
        return None
    low, high, _ = _bounds(total, text)
    return Numbers(_values(answers), float(low), float(high))


def mean_of(text: str, weight: float | None = 1.0) -> Mean | None:
    """What a mean is made of; None for a query of any other form. weight: of its count, see `Mean`."""
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
    for comparison in comparisons(predicate):
        _checked(comparison, text, declared)
    holds = evaluated(predicate, lambda comparison: comparison.where(answers))
    return counting(answers, [answer for answer, held in zip(answers, holds, strict=True) if held], text, fixed)


def _bounds(total: re.Match[str], text: str) -> tuple[Fraction, Fraction, Fraction]:
    low, high, unit = (_number(part, text) for part in (total[3], total[4], total[5] or "1"))
    return low, high, unit


def _shown(listed: str, column: str, declared: Sequence[str] | None) -> Sequence[str]:
    """The columns of a histogram: those listed, else those declared."""
    if listed != column:
        match parsed(listed, (column,)):
            case Comparison() as names:
                return _checked(names, listed, declared)
        raise ValueError(f"not a query: {listed!r}: a histogram is over `each {column} in ('A', 'B')`")
    if declared is None:
        raise ValueError(
            "which answers there are would come from the data, and could give one entry away: name them, "
            f"--answers A,B,C or --query \"each {column} in ('A', 'B', 'C')\""
        )
    return declared


def _checked(comparison: Comparison, text: str, declared: Sequence[str] | None) -> list[str]:
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


def _values(answers: Sequence[str]) -> dict[str, float]:
    """The answers that are finite numbers."""
    values = {answer: _float(answer) for answer in answers}
    return {answer: value for answer, value in values.items() if isfinite(value)}


def _float(answer: str) -> float:
    try:
        return float(answer)
    except ValueError:
        return float("nan")
