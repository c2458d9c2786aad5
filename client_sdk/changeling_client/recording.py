"""Recording an answer. The survey's constraint is enforced here and nowhere else.

Mutations are counted as they are recorded, so the count is on disk before any node that holds them is answered. Once
the constraint admits no more mutations, the entry stays in the state it is in. What a wrong clock could decide is not
decided: such an answer waits until the server's time was heard. Knows no store; from entry to entry.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from changeling_protocol import AtMost, Survey, UnixMilliseconds, UnixSeconds

from . import states
from .clock import close_ms
from .entries import Entry, Pending
from .states import NULL, Drawn


class Recorded(Enum):
    """What became of an answer.

    COUNTED: it stands, and counts as a mutation.
    UNCHANGED: it was the entry's answer already.
    FROZEN: it does not stand, and the entry keeps the answer it had: no mutation is left, or the survey is over.
    PENDING: it is kept, and judged once the survey, or the time, is known.
    DROPPED: it is not kept: the survey was left or silenced or refused, or has no such answer.
    """

    COUNTED = "counted"
    UNCHANGED = "unchanged"
    FROZEN = "frozen"
    PENDING = "pending"
    DROPPED = "dropped"


def state_of(survey: Survey, answer: str | None) -> int:
    """The number of an answer's state, from 1; NULL for None.

    Raises ValueError, which does not repeat what was passed.
    """
    if answer is None:
        return NULL
    try:
        return survey.answers.index(answer) + 1
    except ValueError:
        raise ValueError(f"this is no answer of the survey; its answers are {list(survey.answers)}") from None


def record(survey: Survey, entry: Entry, drawn: Drawn, pending: Pending, time_known: bool) -> tuple[Entry, Recorded]:
    """Takes the entry into a state, if the survey's constraint admits it.

    drawn: the nodes it reports, where it does not report all.
    pending: one of the survey's answers, and when it was given; it counts as given after everything that was answered,
    so that a clock that went back writes nothing into a node that is closed.
    time_known: whether to decide also what would be otherwise if the clock were wrong: that all nodes are over, or the
    time for changes.
    Returns the entry as it now is, and what became of the answer. Raises ValueError for a wrong answer.
    """
    state = state_of(survey, pending.answer)
    needed = entry.needed(survey.plan, drawn)
    at_ms = _open_ms(survey, entry, pending.at_ms)
    period = survey.calendar.period_of(UnixSeconds(at_ms / 1000))
    close = needed.first(period)
    if close is None and needed.first(entry.answered + 1) is None:
        return entry, Recorded.FROZEN
    if entry.pending and not time_known:
        return entry.waiting_for(pending), Recorded.PENDING
    if state == states.current(entry.states):
        return entry, Recorded.UNCHANGED
    elapsed = 0.0 if entry.first_s is None else at_ms / 1000 - entry.first_s
    if (survey.closed and state == NULL) or not survey.constraint.admits(entry.mutations, 0):
        return entry, Recorded.FROZEN
    if close is None or not survey.constraint.admits(entry.mutations, elapsed):
        return (entry, Recorded.FROZEN) if time_known else (entry.waiting_for(pending), Recorded.PENDING)
    first_s = entry.first_s
    if first_s is None and not isinstance(survey.constraint, AtMost):
        first_s = at_ms // 1000
    return entry._replace(
        mutations=entry.mutations + 1,
        first_s=first_s,
        states=states.entered(entry.states, close, state),
    ), Recorded.COUNTED


def bring_back(survey: Survey, entry: Entry, drawn: Drawn, now_ms: UnixMilliseconds) -> Entry:
    """The entry, once mutations that lie in the future, because the clock was ahead, are moved to the present.

    They stay after everything that was answered. Their order and number stay, and no two move apart, so the entry
    keeps to its constraint as before. now_ms: Unix milliseconds.
    """
    if not entry.states and entry.first_s is None:
        return entry
    latest_ms = _open_ms(survey, entry, now_ms)
    period = survey.calendar.period_of(UnixSeconds(latest_ms / 1000))
    kept = states.brought_back(entry.states, entry.needed(survey.plan, drawn).first(period))
    first_s = None if entry.first_s is None else min(entry.first_s, latest_ms // 1000)
    if (kept, first_s) == (entry.states, entry.first_s):
        return entry
    return entry._replace(states=kept, first_s=first_s)


def judged(survey: Survey, entry: Entry, drawn: Drawn, now_ms: UnixMilliseconds, time_known: bool) -> tuple[Entry, int]:
    """The entry, once all that waited is recorded in its order, now that the survey is known.

    now_ms: the time, in Unix milliseconds; what was given later was given now.
    time_known: whether a server has told it; if not, what only time forbids waits on.
    Returns the entry, and how many of what waited were no answers of the survey.
    """
    waiting: Iterable[Pending] = entry.pending
    entry, wrong = entry._replace(pending=()), 0
    for each in waiting:
        try:
            entry, _ = record(survey, entry, drawn, replace(each, at_ms=min(each.at_ms, now_ms)), time_known)
        except ValueError:
            wrong += 1
    return entry, wrong


def _open_ms(survey: Survey, entry: Entry, at_ms: UnixMilliseconds) -> UnixMilliseconds:
    """`at_ms`, or the first millisecond after everything that the entry has answered, if that is later."""
    return UnixMilliseconds(max(at_ms, close_ms(survey.calendar, entry.answered) + 1))
