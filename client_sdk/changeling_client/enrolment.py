"""Joining a survey: the app asks, and once the survey is known its entries are enrolled, wholly or not at all.

The bound on epsilon is checked first; then each entry draws its group and its nodes, once, and is enrolled from the
period on in which the app asked. All of it is one transaction, and no entry ever draws these again.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from changeling_protocol import (
    Coins,
    EntryNumber,
    ProtocolError,
    Slots,
    Survey,
    UnixMilliseconds,
    UnixSeconds,
    draw_nodes,
    micro,
    stratum_of,
    upwards,
)

from . import drops, entries, surveys
from .answering import draw_delay, last_closing
from .drops import Drop
from .entries import Entry, Pending
from .errors import BadEnrolment, BadSurvey, EnrolmentOver, TooCostly, WrongSurvey
from .recording import judged
from .route import Route
from .surveys import Known, Status
from .wrapping import Wrapping

MOST_ENTRIES = 65_536
"""The most entries of a survey in one store."""


def check(asked: Known, answers: Sequence[str] | None) -> None:
    """Raises ValueError for a number of entries that no store holds, or of first answers that is another.

    answers: one for each entry; None if they have none yet.
    """
    if not 1 <= asked.entries <= MOST_ENTRIES:
        raise ValueError(f"a survey is joined with 1 to {MOST_ENTRIES} entries, got {asked.entries}")
    if answers is not None and (isinstance(answers, str) or len(answers) != asked.entries):
        raise ValueError(f"`answers` holds one answer for each of the {asked.entries} entries")


def ask(db: sqlite3.Connection, wrapping: Wrapping, asked: Known, answers: Sequence[str] | None) -> None:
    """Notes that the app wants to join a survey, and its first answers, checked; the survey need not be known."""
    forget_entries(db, asked)
    surveys.put(db, asked)
    for number in range(asked.entries):
        pending = () if answers is None else (Pending(asked.asked_ms, str(answers[number])),)
        entries.insert(db, wrapping, Entry(asked.id, EntryNumber(number), pending=pending))


def verified(id_: bytes, signed: bytes, authority: Sequence[bytes]) -> Survey:
    """The survey, once its signature is checked and its cost computed again. Raises BadSurvey or WrongSurvey."""
    try:
        survey = Survey.from_signed(signed, authority)
    except ProtocolError as error:
        raise BadSurvey(str(error)) from error
    if survey.id != id_:
        raise WrongSurvey(f"asked for survey {id_.hex()}, the signed bytes are of {survey.id.hex()}")
    if survey.relay:
        try:
            Route(survey.relay)
        except ValueError as error:
            raise BadSurvey(f"its relay cannot be spoken with: {error}") from error
    return survey


def charge(survey: Survey, asked: Known) -> int:
    """What a survey counts against the budget, in millionths: once, or for each entry of one person's."""
    return survey.epsilon_micro * (asked.entries if asked.one_person else 1)


def enrol(
    db: sqlite3.Connection,
    wrapping: Wrapping,
    asked: Known,
    survey: Survey,
    max_epsilon: Decimal | None,
    now_ms: UnixMilliseconds,
    time_known: bool,
    coins: Coins,
) -> None:
    """Enrols the entries of a survey that was asked for, and judges the answers that they have had meanwhile.

    max_epsilon: what all surveys of the store may cost together; None if this one, for development, counts nothing.
    now_ms: the time, in Unix milliseconds: the app has asked no later. time_known: whether a server has told it.
    coins: what each entry draws its group, its nodes and its first delay from.
    Raises TooCostly, EnrolmentOver or BadEnrolment; then the store is as it was.
    """
    cost = 0
    if max_epsilon is not None:
        cost = charge(survey, asked)
        with upwards():
            total = micro(surveys.spent(db)) + cost
            if total > max_epsilon * 1_000_000:
                raise TooCostly(
                    f"with this survey of epsilon {Decimal(cost) / 1_000_000} the sum is {Decimal(total) / 1_000_000}, "
                    f"above {max_epsilon}"
                )
    closed = survey.calendar.closed(UnixSeconds(min(asked.asked_ms, now_ms) / 1000))
    if closed >= last_closing(survey):
        raise EnrolmentOver("the survey has ended: nothing of its plan is left to answer")
    if survey.closed and closed:
        raise EnrolmentOver("the survey's cohort is closed since its first period ended")
    try:
        stratum = stratum_of(survey.breakdowns, asked.stratum)
    except ValueError as error:
        raise BadEnrolment(str(error)) from error
    for entry in entries.load_all(db, wrapping, asked.id):
        group = survey.plan.draw_group(coins)
        drawn = frozenset(
            (number, node)
            for number, track in survey.plan.numbered(group)
            if track.reported is not None
            for node in draw_nodes(track, coins)
        )
        slots, delay = Slots.unused(survey.plan.groups[group]), draw_delay(survey, coins)
        drew = entry._replace(group=group, answered=closed, delay_ms=delay, stratum=stratum, slots=slots)
        enrolled, wrong = judged(survey, drew, drawn, now_ms, time_known)
        if survey.closed and not _was_inserted_first(enrolled, drew.needed(survey.plan, drawn).first(1)):
            raise BadEnrolment("a closed cohort is joined with an answer for each entry: pass `answers`")
        entries.update(db, wrapping, enrolled)
        entries.keep_drawn(db, wrapping, enrolled, drawn)
        drops.count(db, Drop.WRONG_ANSWER, wrong)
    known = replace(
        asked,
        status=Status.JOINED,
        url=survey.relay.rstrip("/") or asked.url,
        charge_micro=cost,
        payload=survey.payload,
        stratum={},
    )
    surveys.put(db, known)


def _was_inserted_first(entry: Entry, first: int | None) -> bool:
    """Whether the entry has an answer from the first close on that its nodes need. first: that close."""
    return bool(entry.states) and first is not None and entry.states[0][0] <= first


def refuse(db: sqlite3.Connection, asked: Known, reason: Exception) -> None:
    """Notes that a survey that was asked for may not be joined, and forgets the answers that waited for it."""
    forget_entries(db, asked)
    surveys.put(db, replace(asked, status=Status.REFUSED, reason=f"{type(reason).__name__}: {reason}", stratum={}))


def end(db: sqlite3.Connection, known: Known, status: Status) -> None:
    """Wipes what a survey knew of answers: at once and for good, what waits to be sent as well.

    status: what it is from now on: left, or silenced. Its cost stays counted, and nothing else but its id.
    """
    forget_entries(db, known)
    surveys.put(db, replace(known, status=status, payload=b"", stratum={}, reason=""))


def forget_entries(db: sqlite3.Connection, known: Known) -> None:
    """Deletes the entries of a survey with all that hangs on them."""
    for table in ("closings", "drawn", "entries"):
        db.execute(f"DELETE FROM {table} WHERE survey = ?", (known.id,))  # noqa: S608
