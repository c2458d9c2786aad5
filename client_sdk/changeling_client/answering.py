"""Which closings of an entry are due, and the report that each node gets.

A node is answered once, whatever happened in it: when its last period has closed, and the clock's skew and a random
delay have passed. What is answered in one go is uploaded together, whatever the server says meanwhile. Knows no store
and no network: from entry to entry. The caller brings the coins and the time, says whether it is sure enough of the
time to drop what is too late, and keeps all of it in one transaction before anything leaves the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from changeling_protocol import (
    MOST_SPANNED_PERIODS,
    Closing,
    Coins,
    Report,
    Slots,
    Standing,
    Survey,
    UnixMilliseconds,
    UnixSeconds,
    closings,
    draw_closing_id,
    respond,
)

from . import states
from .clock import close_ms
from .entries import Entry
from .states import Drawn


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """What an entry answers at a closing: its reports on the nodes that end there. Printed, it shows nothing."""

    closing: Closing
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Answered:
    """What came of answering.

    entry: as it now is. drawn: the nodes that it has still to report, where it does not report all.
    answers: those that fit into one upload. more: whether more closings are due now.
    """

    entry: Entry
    drawn: Drawn
    answers: tuple[Answer, ...]
    more: bool


def answer_due(
    survey: Survey, entry: Entry, drawn: Drawn, now_ms: UnixMilliseconds, may_drop: bool, coins: Coins
) -> Answered:
    """Answers the closings of an entry that are due, in order, as many as one upload spans.

    Those past grace are dropped without an answer.
    now_ms: the device's time without its lead, in Unix milliseconds.
    may_drop: whether closings past grace may be dropped now; if not, the first of them and all after it wait.
    """
    before = entry
    answers: list[Answer] = []
    for period in unanswered(survey, entry, now_ms):
        if past_grace(survey, period, now_ms):
            if not may_drop:
                break
            entry = entry.dropping(entry.standing)._replace(answered=period, delay_ms=draw_delay(survey, coins))
        elif now_ms > due_ms(survey, entry, period):
            if answers and period >= answers[0].closing.period + MOST_SPANNED_PERIODS:
                return Answered(entry, drawn, tuple(answers), more=True)
            answer, slots = _answer(survey, entry, drawn, period, coins)
            answers.append(answer)
            entry = entry._replace(
                slots=slots, standing=Standing.KNOWN, answered=period, delay_ms=draw_delay(survey, coins)
            )
        else:
            break
    if entry is not before:
        drawn = frozenset(
            (track, node) for track, node in drawn if survey.plan.tracks[track].node(node).end > entry.answered
        )
        kept = states.pruned(entry.states, entry.needed(survey.plan, drawn))
        if kept != entry.states:
            entry = entry._replace(states=kept)
    return Answered(entry, drawn, tuple(answers), more=False)


def draw_delay(survey: Survey, coins: Coins) -> int:
    """How long an entry waits before it answers a closing, beyond the skew: up to the survey's spread, in ms."""
    return coins.below(1000 * survey.spread)


def past_grace(survey: Survey, period: int, now_ms: UnixMilliseconds) -> bool:
    """Whether it is too late to report on nodes that end with the period: the server takes no more of them."""
    return now_ms > close_ms(survey.calendar, period) + 1000 * survey.grace


def due_ms(survey: Survey, entry: Entry, period: int) -> UnixMilliseconds:
    """When the entry answers its next closing, at that period: later than this, in Unix milliseconds."""
    return UnixMilliseconds(close_ms(survey.calendar, period) + 1000 * survey.skew + entry.delay_ms)


def next_due_ms(survey: Survey, entry: Entry) -> UnixMilliseconds | None:
    """When the entry answers next, in Unix milliseconds; None if nothing of the plan is left to answer."""
    if entry.answered >= last_closing(survey):
        return None
    period = min(
        track.first + track.width * max((entry.answered - track.first) // track.width + 1, 1)
        for track in survey.plan.tracks
        if track.first + track.width * track.count > entry.answered
    )
    return due_ms(survey, entry, period)


def last_closing(survey: Survey) -> int:
    """The last period at which a node of any track ends: when it is answered, the survey is over for the entry."""
    return max(track.first + track.count * track.width for track in survey.plan.tracks)


def unanswered(survey: Survey, entry: Entry, now_ms: UnixMilliseconds) -> list[int]:
    """The periods whose closings an entry has still to answer, of those that are closed by now."""
    return closings(survey.plan, entry.answered, survey.calendar.closed(UnixSeconds(now_ms / 1000)))


def hangs_on_time(survey: Survey, entry: Entry, waiting: Sequence[int], now_ms: UnixMilliseconds) -> bool:
    """Whether, at this time, a closing would be dropped as past grace, or several closings be answered at once.

    After a long silence that is right. If the clock has leapt, it would be a mistake that cannot be undone.
    waiting: the periods whose answers are not yet acknowledged, rising.
    """
    due = unanswered(survey, entry, now_ms)
    return len(due) > 1 or any(past_grace(survey, period, now_ms) for period in (*waiting[:1], *due[:1]))


def _answer(survey: Survey, entry: Entry, drawn: Drawn, period: int, coins: Coins) -> tuple[Answer, Slots | None]:
    """The entry's answer to a closing, with its reports on the nodes that end there, and the slots that it has then."""
    new = states.at_close(entry.states, period)
    group, slots, reports = survey.plan.groups[entry.group], entry.slots, []
    for place, (index, track) in enumerate(survey.plan.numbered(entry.group)):
        number = track.ending_at(period)
        if number is None or (track.reported is not None and (index, number) not in drawn):
            continue
        old = states.at_close(entry.states, track.node(number).start)
        symbol, slots = respond(group, place, track.randomizer.space.index(old, new), slots, coins)
        reports.append(Report(index, number, symbol))
    closing = Closing(period, draw_closing_id(coins), entry.standing, entry.stratum)
    return Answer(closing, tuple(reports)), slots
