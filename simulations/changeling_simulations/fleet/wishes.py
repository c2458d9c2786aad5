"""What load is wished for: of which devices, about which periods, and with what in between that goes wrong."""

from dataclasses import dataclass

from changeling_protocol import Calendar, Node, Survey, UnixSeconds, closings

MARGIN_SECONDS = 60
"""At the least so long before its grace ends a closing is taken for one that the server will count."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """A fleet.

    devices: how many, each of which answers all closings of the periods in `heard`, (start, end].
    overdue: periods whose closings come after their grace; None where nothing is to be late.
    offline: the chance that a device does not report after a period, and answers for it later.
    duplicates, late, garbage: so many more envelopes, as shares of those that devices send: sent once more; about a
    closing whose grace is over; refused for another reason.
    seed: another one makes other devices, with other answers and other ids.
    """

    devices: int
    heard: Node
    overdue: Node | None
    offline: float = 0.0
    duplicates: float = 0.0
    late: float = 0.0
    garbage: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"a fleet has at least one device, got {self.devices}")
        for name in ("offline", "duplicates", "late", "garbage"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share from 0 to below 1, got {getattr(self, name)}")
        if self.late and self.overdue is None:
            raise ValueError("no period's grace is over, so nothing can be late: leave it out, or wait")


def open_periods(survey: Survey, now: UnixSeconds, lasting: float = 0.0) -> Node:
    """The periods that have closed and whose grace lasts, as a span.

    now: Unix seconds. lasting: for how many seconds envelopes will be sent. Raises ValueError where there are none.
    """
    calendar = survey.calendar
    last = calendar.closed(UnixSeconds(now - 1))
    over = _over(survey, UnixSeconds(now + lasting + MARGIN_SECONDS))
    if last <= over or not closings(survey.plan, over, last):
        raise ValueError(
            "no closing of the survey can be answered now: its periods are to come, or their grace is over"
        )
    return Node(over, last)


def overdue_periods(survey: Survey, now: UnixSeconds) -> Node | None:
    """The periods whose grace is over by now, in Unix seconds, with room for clocks; None where there are none."""
    over = _over(survey, UnixSeconds(now - MARGIN_SECONDS))
    return Node(0, over) if over and closings(survey.plan, 0, over) else None


def _over(survey: Survey, now: UnixSeconds) -> int:
    """How many periods' grace is over."""
    calendar: Calendar = survey.calendar
    return calendar.closed(UnixSeconds(now - survey.grace))
