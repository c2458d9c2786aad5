"""What of a survey's tallies may be shown, and up to which period all answers are due.

A survey that was ended early is over with its last period, whatever its calendar says.

Nothing of a node that has not closed, and nothing of one with fewer reports than the survey's minimum: such a node
takes no part in any estimate either, so that no difference of two estimates reveals it.
"""

from changeling_protocol.quantities import UnixSeconds
from changeling_statistics.errors import NotEstimable
from changeling_statistics.tallies import Tallies

from ..ingest import PublishedSurvey


def closed_tallies(published: PublishedSurvey, tallies: Tallies, now: UnixSeconds) -> Tallies:
    """The tallies of the nodes that have closed by now, in Unix seconds, however small."""
    tracks, over = published.survey.plan.tracks, published.closed(now)
    nodes = {key: tally for key, tally in tallies.items() if tracks[key[0]].node(key[1]).end <= over}
    return Tallies(nodes, {key: there for key, there in tallies.attendance.items() if key[1] <= over})


def publishable_tallies(published: PublishedSurvey, tallies: Tallies, now: UnixSeconds) -> Tallies:
    """The tallies that estimates may be made of."""
    closed, minimum = closed_tallies(published, tallies, now), published.survey.minimum
    enough = {key: tally for key, tally in closed.items() if tally.reports >= minimum}
    return Tallies(enough, closed.attendance)


def settled_period(published: PublishedSurvey, now: UnixSeconds) -> int:
    """The last period whose answers were due by now: closed, skew and spread waited out.

    Raises NotEstimable where there is none yet.
    """
    survey = published.survey
    period = published.closed(UnixSeconds(now - survey.skew - survey.spread))
    if period == 0:
        raise NotEstimable("no period of this survey has closed and been answered yet")
    return period


def check_closed(published: PublishedSurvey, period: int, now: UnixSeconds) -> int:
    """The period, where it has closed. Raises NotEstimable where it has not, ValueError for none of the survey's."""
    if not 1 <= period <= published.survey.calendar.periods:
        periods = published.survey.calendar.periods
        raise ValueError(f"the survey's periods are numbered 1 to {periods}, got {period}")
    if period > published.last:
        raise ValueError(f"the survey was ended early, after period {published.last}: there is no period {period}")
    if period > published.closed(now):
        raise NotEstimable(f"period {period} has not closed")
    return period
