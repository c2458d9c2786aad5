"""What a survey designer types, turned into values: epsilons, durations, dates."""

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

import typer
from changeling_statistics.durations import parse_duration


def epsilon(text: str) -> Decimal:
    """An epsilon, above 0, as it is written."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"epsilon is a number such as 8 or 0.5, got {text!r}") from None
    if not (value.is_finite() and value > 0):
        raise typer.BadParameter(f"epsilon must be above 0, got {text}")
    return value


def count(text: str) -> int:
    """A whole number, at least 1, which may be written as 1e6."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"write a number such as 20000 or 1e6, got {text!r}") from None
    if not (value.is_finite() and value == value.to_integral_value()):
        raise typer.BadParameter(f"write a whole number such as 20000 or 1e6, got {text}")
    if value < 1:
        raise typer.BadParameter(f"there must be at least one, got {text}")
    return int(value)


def duration(text: str) -> int:
    """The seconds of a duration such as 1d or 13w."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def date(text: str) -> int:
    """Unix seconds of an ISO 8601 date or time, UTC where it names no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"write 2026-01-31 or 2026-01-31T12:00:00Z, not {text!r}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
