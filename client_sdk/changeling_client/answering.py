"""Which closings of an entry are due, and the report that each node gets.

A node is answered once, whatever happened in it: when its last period has closed, and the clock's skew and a random
delay have passed. One transaction puts the closing with its id and its reports into the outbox, and keeps that the
nodes are answered, the slots that are left, and the delay of the next closing. Nothing leaves the device before; a
retry repeats what is stored. Knows nothing of networks. The caller brings the coins and the time, and says whether it
is sure enough of the time to drop what is too late.
"""

import sqlite3
from dataclasses import replace

from changeling_protocol import Closing, Coins, Report, Standing, Survey
from changeling_protocol.quantities import UnixMilliseconds, UnixSeconds
from changeling_protocol.upload import closings, draw_closing_id

from . import changelog, ending, entries, outbox
from .clock import close_ms
from .entries import Entry
from .responding import respond


def answer_due(
    db: sqlite3.Connection, survey: Survey, entry: Entry, now_ms: UnixMilliseconds, may_drop: bool, coins: Coins
) -> Entry:
    """Answers every closing of an entry that is due, in order; those past grace are dropped without an answer.

    now_ms: the device's time without its lead, in Unix milliseconds.
    may_drop: whether closings past grace may be dropped now; if not, the first of them and all after it wait.
    Returns the entry as it now is.
    """
    before = entry
    for period in closings(survey.plan, entry.answered, survey.calendar.closed(UnixSeconds(now_ms / 1000))):
        if past_grace(survey, period, now_ms):
            if not may_drop:
                break
            entry = entry.dropping(entry.standing)
        elif now_ms > _due_ms(survey, entry, period):
            entry = _answer(db, survey, entry, period, coins)
        else:
            break
        entry = entry.after(period, draw_delay(survey, coins))
    if entry is before:
        return entry
    if ending.has_ended(survey, entry):
        return ending.clear(db, entry)
    entries.update(db, entry)
    changelog.prune(db, survey, entry)
    return entry


def draw_delay(survey: Survey, coins: Coins) -> int:
    """How long an entry waits before it answers a closing, beyond the skew: up to the survey's spread, in ms."""
    return coins.below(1000 * survey.spread)


def past_grace(survey: Survey, period: int, now_ms: UnixMilliseconds) -> bool:
    """Whether it is too late to report on nodes that end with the period: the server takes no more of them."""
    return now_ms > close_ms(survey.calendar, period) + 1000 * survey.grace


def hangs_on_time(db: sqlite3.Connection, survey: Survey, entry: Entry, now_ms: UnixMilliseconds) -> bool:
    """Whether, at this time, a closing would be dropped as past grace, or several closings be answered at once.

    After a long silence that is right. If the clock has leapt, it would be a mistake that cannot be undone.
    now_ms: the device's time without its lead, in Unix milliseconds.
    """
    answered = outbox.waiting(db, survey.id, entry.number)
    unanswered = closings(survey.plan, entry.answered, survey.calendar.closed(UnixSeconds(now_ms / 1000)))
    oldest = [*answered[:1], *unanswered[:1]]
    return len(unanswered) > 1 or any(past_grace(survey, period, now_ms) for period in oldest)


def _due_ms(survey: Survey, entry: Entry, period: int) -> UnixMilliseconds:
    """When the entry answers its next closing, at that period: later than this, in Unix milliseconds."""
    return UnixMilliseconds(close_ms(survey.calendar, period) + 1000 * survey.skew + entry.delay_ms)


def _answer(db: sqlite3.Connection, survey: Survey, entry: Entry, period: int, coins: Coins) -> Entry:
    """Puts the entry's answer to a closing into the outbox, with its reports on the nodes that end there.

    Returns the entry as it now is.
    """
    new = changelog.state_at_close(db, survey, entry, period)
    group, slots, reports = survey.plan.groups[entry.group], entry.slots, []
    for place, (index, track) in enumerate(survey.plan.numbered(entry.group)):
        number = track.ending_at(period)
        if number is None or (track.reported is not None and not _take_drawn(db, entry, index, number)):
            continue
        old = changelog.state_at_close(db, survey, entry, track.node(number).start)
        symbol, slots = respond(group, place, track.randomizer.space.index(old, new), slots, coins)
        reports.append(Report(index, number, symbol))
    closing = Closing(period, draw_closing_id(coins), entry.standing, entry.stratum)
    outbox.put(db, survey, entry, closing, reports)
    return replace(entry, slots=slots, standing=Standing.KNOWN)


def _take_drawn(db: sqlite3.Connection, entry: Entry, track: int, node: int) -> bool:
    """Whether the entry drew this node at enrolment. The node is then forgotten."""
    drawn = db.execute(
        "DELETE FROM drawn_nodes WHERE survey = ? AND entry = ? AND track = ? AND node = ?",
        (entry.survey, entry.number, track, node),
    )
    return drawn.rowcount == 1
