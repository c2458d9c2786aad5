"""What a report says, in words for the person on whose behalf it was sent. It was chosen at random: mostly untrue."""

from changeling_protocol import Report, Survey

NO_ANSWER = "no answer"


def said(survey: Survey, report: Report) -> str:
    """What a report says, such as "tea", "from tea to coffee", or "more of tea and water, less of coffee"."""
    return survey.plan.tracks[report.track].randomizer.said(report.symbol, [NO_ANSWER, *survey.answers])
