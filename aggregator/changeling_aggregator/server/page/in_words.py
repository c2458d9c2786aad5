"""A survey in words and numbers, for the page: what its signed bytes say, which are open to all."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from changeling_protocol import AtMost, Constraint, Hybrid, Survey, TimeBounded, upwards
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...ingest import PublishedSurvey
from ..requests import survey_in_path

_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_TELLING = Decimal(20)
"""Up to this epsilon the factor on odds is told: beyond it is so large that it bounds nothing."""


async def show_in_words(request: Request) -> Response:
    """GET what a survey asks, when, under which plan, and what it can cost whoever takes part."""
    return JSONResponse(_in_words(survey_in_path(request)), headers={"cache-control": "no-cache"})


def _in_words(published: PublishedSurvey) -> dict[str, Any]:
    survey, calendar = published.survey, published.survey.calendar
    return {
        "id": survey.id.hex(),
        "public": published.public,
        "question": survey.question,
        "answers": list(survey.answers),
        "start": calendar.start,
        "period_seconds": calendar.period,
        "periods": calendar.periods,
        "period_words": _duration(calendar.period),
        "breakdowns": [{"name": each.name, "values": list(each.values)} for each in survey.breakdowns],
        "tracks": list(_tracks(survey)),
        "ledger": list(_ledger(survey)),
    }


def _tracks(survey: Survey) -> Iterator[dict[str, Any]]:
    for track in survey.plan.tracks:
        reports = "changes" if track.reports_changes else "states"
        yield {"reports": reports, "width": track.width, "first": track.first, "last": track.last}


def _ledger(survey: Survey) -> Iterator[str]:
    """What taking part can cost, and what that rests on, in sentences."""
    epsilon = survey.epsilon
    yield f"Whoever takes part loses at most ε = {_plain(epsilon)}, over the whole survey and whatever they answer."
    if epsilon <= _TELLING:
        with upwards():
            factor = int(epsilon.exp()) + 1
        yield (
            "That means: to whoever sees everything that a device ever sends, one history of answers becomes at most "
            f"{factor:,} times likelier, against any other, than it was before."
        )
    if survey.per_week < epsilon:
        yield f"On average that is ε = {_plain(_three_digits(survey.per_week))} a week."
    yield "It bounds a whole life in this survey, and no single week: one report alone may tell more than the average."
    yield f"{_allowed(survey.constraint)} Devices see to that themselves; what goes beyond is not reported."
    if any(group.joint is not None for group in survey.plan.groups):
        yield "All reports of a device are drawn together, on one budget."
    most = max(sum(track.reports for track in group.tracks) for group in survey.plan.groups)
    yield f"A device sends at most {most:,} report{'s' * (most > 1)}, at times that do not depend on its answers."
    if survey.breakdowns:
        named = ", ".join(each.name for each in survey.breakdowns)
        yield f"What results are broken down by is sent in the open, and costs nothing of that: {named}."
    yield (
        "A relay stands between devices and this server, which sees no device's address."
        if survey.relay
        else "No relay is declared: this server sees the addresses of devices while they are connected."
    )
    if survey.follows:
        yield "It goes on from another survey; whoever took part in both has lost the sum of both."
    yield (
        "A device whose backup is put back once, unnoticed, may lose up to three times that in all. Other surveys add "
        "to it, and so does a second device, or installing the app anew."
    )


def _allowed(constraint: Constraint) -> str:
    return f"The answer may {_bound(constraint)}."


def _bound(constraint: Constraint) -> str:
    match constraint:
        case AtMost(k):
            return f"be given and changed {k:,} time{'s' * (k > 1)} in all, the first time included"
        case TimeBounded(seconds):
            return f"change for {_duration(seconds)} after it was first given"
        case Hybrid(classes):
            return ", or ".join(_bound(each) for each in classes)
    return f"change as the survey bounds it ({constraint})"


def _duration(seconds: int) -> str:
    """In the largest unit that divides it: "1 day", "6 hours"."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size:,} {unit}{'s' * (seconds > size)}"


def _three_digits(amount: Decimal) -> Decimal:
    """Rounded up."""
    with upwards():
        return round(amount, 2 - amount.adjusted())


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():,f}"
