"""What a report says, and a time, in words for the person on whose behalf it was sent.

A report was chosen at random: mostly untrue.
"""

from datetime import datetime

from changeling_protocol import Report, Survey

NO_ANSWER = "no answer"


def moment(at: datetime) -> str:
    """A time in UTC: to the minute, and to the second where it is none of a full minute.

    >>> [moment(datetime(2027, 1, 1, 0, 0, second)) for second in (0, 10)]
    ['2027-01-01 00:00 UTC', '2027-01-01 00:00:10 UTC']
    """
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at.second else f"{at:%Y-%m-%d %H:%M} UTC"


def said(survey: Survey, report: Report) -> str:
    """What a report says, such as "tea", "from tea to coffee", or "more of tea and water, less of coffee"."""
    return survey.plan.tracks[report.track].randomizer.said(report.symbol, [NO_ANSWER, *survey.answers])
