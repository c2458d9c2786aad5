"""What of a survey's tallies may be shown, and up to which period all answers are due.

Nothing of a node that has not closed, and nothing of one with fewer reports than the survey's minimum: such a node
takes no part in any estimate either, so that no difference of two estimates reveals it.
"""

from changeling_protocol import Survey
from changeling_protocol.quantities import UnixSeconds
from changeling_statistics.errors import NotEstimable
from changeling_statistics.tallies import Tallies

from ..fold.closing import last_ended


def closed_tallies(survey: Survey, tallies: Tallies, now: UnixSeconds) -> Tallies:
    """The tallies of the nodes that have closed by now, in Unix seconds, however small."""
    ended = [last_ended(survey, track, now) for track in survey.plan.tracks]
    nodes = {key: tally for key, tally in tallies.items() if key[1] <= ended[key[0]]}
    over = survey.calendar.closed(now)
    return Tallies(nodes, {key: there for key, there in tallies.attendance.items() if key[1] <= over})


def publishable_tallies(survey: Survey, tallies: Tallies, now: UnixSeconds) -> Tallies:
    """The tallies that estimates may be made of."""
    closed = closed_tallies(survey, tallies, now)
    enough = {key: tally for key, tally in closed.items() if tally.reports >= survey.minimum}
    return Tallies(enough, closed.attendance)


def settled_period(survey: Survey, now: UnixSeconds) -> int:
    """The last period whose answers were due by now: closed, skew and spread waited out.

    Raises NotEstimable where there is none yet.
    """
    period = survey.calendar.closed(UnixSeconds(now - survey.skew - survey.spread))
    if period == 0:
        raise NotEstimable("no period of this survey has closed and been answered yet")
    return period


def check_closed(survey: Survey, period: int, now: UnixSeconds) -> int:
    """The period, where it has closed. Raises NotEstimable where it has not, ValueError for none of the survey's."""
    if not 1 <= period <= survey.calendar.periods:
        raise ValueError(f"the survey's periods are numbered 1 to {survey.calendar.periods}, got {period}")
    if period > survey.calendar.closed(now):
        raise NotEstimable(f"period {period} has not closed")
    return period
