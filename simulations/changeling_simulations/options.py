"""The words of a designer's command line as values: epsilons, counts, rates, durations, dates, URLs."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TypeVar

import typer
from changeling_commands.wishes import relay_url
from changeling_protocol import Node
from changeling_statistics import parse_count, parse_duration, parse_epsilon, parse_instant

T = TypeVar("T")


def epsilon(text: str) -> Decimal:
    """An epsilon above 0, exactly as it is written."""
    return _option(parse_epsilon, text)


def count(text: str) -> int:
    """A whole number, at least 1, which may be written as 1e6."""
    return _option(parse_count, text)


def duration(text: str) -> int:
    """The seconds of a duration such as 1d or 13w."""
    return _option(parse_duration, text)


def length(text: str) -> int:
    """The seconds of a length of time, which may be in months as well: 90d or 12mo."""
    return _option(lambda written: parse_duration(written, months=True), text)


def date(text: str) -> int:
    """The Unix seconds of an ISO 8601 date or time, in UTC if it names no offset, or of Unix seconds themselves."""
    return int(_option(parse_instant, text))


def url(text: str) -> str:
    """A base URL: HTTPS, or on loopback; without credentials or a query."""
    return _option(relay_url, text)


def rate(text: str) -> float:
    """A rate from 0 to 1, which may be written in percent, as 5%."""
    try:
        value = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except InvalidOperation:
        raise typer.BadParameter(f"a rate is a number such as 0.05, or 5%, got {text!r}") from None
    if not (value.is_finite() and 0 <= value <= 1):
        raise typer.BadParameter(f"a rate is from 0 to 1, got {text}")
    return float(value)


def span(text: str) -> Node:
    """A period, such as 5, or periods in a row, such as 5-7: the span (4, 7]."""
    first, _, last = text.partition("-")
    try:
        return Node(int(first) - 1, int(last or first))
    except ValueError:
        raise typer.BadParameter(f"periods are like 5 or 5-7, counted from 1, got {text!r}") from None


def _option(parse: Callable[[str], T], text: str) -> T:
    """The value of a word. A ValueError becomes the error that Typer shows with the option's name."""
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
