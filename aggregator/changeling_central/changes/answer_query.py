"""Queries as people write them: predicates on `answer`, histograms, clipped sums.

answer == 'United'                     how many entries hold it; also !=, in (…), not in (…), and, or, not
any answer                             how many entries there are
each answer in ('United', 'Delta')     a histogram over the answers named
each answer                            a histogram over the answers declared elsewhere
sum of answer from 0 to 100 by 5       numeric answers, clipped, rounded to a multiple (by 1 unless said)

An answer that is no finite number adds 0 to a sum: a refusal would tell that somebody gave it. Names that are not in
the query or declared may come from the data: they never become a column.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from math import isfinite

from ..predicate import Comparison, comparisons, evaluated, parsed
from .linear_query import LinearQuery, clipped_sum, counting, histogram_query

_EACH = re.compile(r"each\s+(?P<listed>answer(?:\s+in\s+.+)?)", re.S)
_SUM = re.compile(r"sum\s+of\s+answer\s+from\s+(\S+)\s+to\s+(\S+)(?:\s+by\s+(\S+))?")


def answer_query(
    text: str, answers: Sequence[str], declared: Sequence[str] | None = None, fixed: bool = False
) -> LinearQuery:
    """The query that the text says, as a table over the changelog's answers.

    text: one of the forms above. answers: of the changelog, states 1..z. declared: the names there are, in public,
    which `each answer` shows. fixed: no entry ever holds two different answers.
    Raises ValueError for what is none of the forms, for a name in it that is not among those declared, and for a
    histogram whose columns would come from the data.
    """
    try:
        return _query(text.strip(), answers, declared, fixed)
    except (OverflowError, RecursionError, MemoryError):
        raise ValueError("not a query: its numbers are too large, or it is too long") from None


def _query(text: str, answers: Sequence[str], declared: Sequence[str] | None, fixed: bool) -> LinearQuery:
    if each := _EACH.fullmatch(text):
        return histogram_query(answers, _shown(each["listed"], declared), fixed)
    if clipped := _SUM.fullmatch(text):
        low, high, unit = (_number(part, text) for part in (clipped[1], clipped[2], clipped[3] or "1"))
        return clipped_sum(_values(answers), answers, float(low), float(high), unit, text, fixed)
    if re.fullmatch(r"any\s+answer", text):
        return counting(answers, answers, text, fixed)
    predicate = parsed(text, ("answer",))
    for comparison in comparisons(predicate):
        _checked(comparison, text, declared)
    holds = evaluated(predicate, lambda comparison: comparison.where(answers))
    return counting(answers, [answer for answer, held in zip(answers, holds, strict=True) if held], text, fixed)


def _shown(listed: str, declared: Sequence[str] | None) -> Sequence[str]:
    """The columns of a histogram: those listed, else those declared."""
    if listed != "answer":
        match parsed(listed, ("answer",)):
            case Comparison() as names:
                return _checked(names, listed, declared)
        raise ValueError(f"not a query: {listed!r}: a histogram is over `each answer in ('A', 'B')`")
    if declared is None:
        raise ValueError(
            "which answers there are would come from the data, and could give one entry away: name them, "
            "--answers A,B,C or --query \"each answer in ('A', 'B', 'C')\""
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
