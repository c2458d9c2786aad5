"""How far the mutations of one entry reach on a calendar: in how many periods, and how far apart."""

from dataclasses import dataclass

from changeling_protocol import AtMostWithin, Calendar, Constraint, Hybrid, TimeBounded


@dataclass(frozen=True, slots=True)
class Reach:
    """periods: in how many periods an entry's mutations lie at most. span: from the first of these to the last."""

    periods: int
    span: int


def reaches(constraint: Constraint, calendar: Calendar) -> tuple[Reach, ...]:
    """The reach of an entry of each class of the constraint; of most constraints there is but one class."""
    bounds = range(0, (calendar.periods + 1) * calendar.period, calendar.period)
    span = calendar.periods - 1
    match constraint:
        case Hybrid(classes):
            return tuple(reach for each in classes for reach in reaches(each, calendar))
        case TimeBounded(seconds) | AtMostWithin(_, seconds):
            span = TimeBounded(seconds).most_nodes(bounds) - 1
    return (Reach(constraint.most_nodes(bounds), span),)
