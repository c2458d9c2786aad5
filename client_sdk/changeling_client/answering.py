"""Which nodes of an entry are due, and the report that each one gets.

A node is answered once, whatever happened in it: when its last period has closed, and the clock's skew and a random
delay have passed. One transaction puts the report into the outbox and moves the entry's key past the node, so the
report is never computed twice. Knows nothing of networks. The caller brings the time, and says whether it is sure
enough of it to drop what is too late.
"""

import sqlite3
from collections.abc import Iterator

from changeling_protocol import Report, Survey
from changeling_protocol.entry_secret import Subkeys
from changeling_protocol.quantities import UnixMilliseconds, UnixSeconds
from changeling_protocol.upload import closings

from . import changelog, entries, outbox
from .clock import close_ms
from .entries import Entry


def answer_due(db: sqlite3.Connection, survey: Survey, entry: Entry, now_ms: UnixMilliseconds, may_drop: bool) -> Entry:
    """Answers every closing of an entry that is due, in order; those past grace are dropped without an answer.

    now_ms: the device's time without its lead, in Unix milliseconds.
    may_drop: whether closings past grace may be dropped now; if not, the first of them and all after it wait.
    Returns the entry as it now is.
    """
    before = entry
    for period in closings(survey.plan, entry.answered, survey.calendar.closed(UnixSeconds(now_ms / 1000))):
        subkeys = entry.secret.advanced(period).subkeys(survey.id)
        if past_grace(survey, period, now_ms):
            if not may_drop:
                break
            entry = entry.after(period).dropping(1)
        elif now_ms > _due_ms(survey, period, subkeys):
            outbox.put(db, survey, entry, period, list(_reports(db, survey, entry, period, subkeys)))
            entry = entry.after(period)
        else:
            break
    if entry is not before:
        entries.update(db, entry)
        changelog.prune(db, survey, entry)
    return entry


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


def _due_ms(survey: Survey, period: int, subkeys: Subkeys) -> UnixMilliseconds:
    """When nodes that end with a period are answered: later than this, in Unix milliseconds."""
    delay = subkeys.delay_coins(period).below(1000 * survey.spread)
    return UnixMilliseconds(close_ms(survey.calendar, period) + 1000 * survey.skew + delay)


def _reports(db: sqlite3.Connection, survey: Survey, entry: Entry, period: int, subkeys: Subkeys) -> Iterator[Report]:
    new = changelog.state_at_close(db, survey, entry, period)
    for index, track in survey.plan.numbered(entry.group):
        number = track.ending_at(period)
        if number is None or (track.reported is not None and not _take_drawn(db, entry, index, number)):
            continue
        node = track.node(number)
        old = changelog.state_at_close(db, survey, entry, node.start)
        true = track.randomizer.space.index(old, new)
        symbol = track.randomizer.respond(true, subkeys.response_coins(index, node, true))
        yield Report(index, number, subkeys.report_id(index, node), symbol)


def _take_drawn(db: sqlite3.Connection, entry: Entry, track: int, node: int) -> bool:
    """Whether the entry drew this node at enrolment. The node is then forgotten."""
    drawn = db.execute(
        "DELETE FROM drawn_nodes WHERE survey = ? AND entry = ? AND track = ? AND node = ?",
        (entry.survey, entry.number, track, node),
    )
    return drawn.rowcount == 1
