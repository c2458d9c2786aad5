"""Recording an answer: the states of an entry, and the survey's constraint, which is enforced here and nowhere else.

Mutations are counted as they are recorded, so the count is on disk before any node that holds them is answered. Once
the constraint admits no more mutations, the entry stays in the state it is in. What a wrong clock could decide is not
decided: such an answer waits until the server's time was heard. Nothing here waits for a network, and nothing steers
what is sent, or when.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import TypeAlias

from changeling_protocol import (
    OFFSETS,
    AtMost,
    Constraint,
    Hybrid,
    Question,
    ReleasePlan,
    StratumNumber,
    Survey,
    SurveyId,
    UnixMilliseconds,
    UnixSeconds,
)

from . import entries
from .entries import Answer, Drawn, Drop, Entry, Held, Known, Pending, States, Status, why_not
from .errors import ClientError
from .server import close_ms, known_time
from .store import ClientStore, StoreConnection, Wrapping

NULL = 0
"""The state of an entry that has no answer."""
NOT_FROZEN, IS_FROZEN = 1, 2
"""The states of the freezing question, no and yes."""
FirstAnswers: TypeAlias = Answer | Mapping[str, Answer]
"""The first answer of an entry; where there are several questions, by their names."""
MOST_ANSWER_CHARACTERS = 1_000
"""The longest answer that is kept for a survey that is not known yet."""
_log = logging.getLogger("changeling")


class Recorded(Enum):
    """The outcome of recording an answer.

    COUNTED: it stands, and counts as a mutation.
    UNCHANGED: it was the entry's answer already.
    FROZEN: it does not stand, and the entry keeps the answer it had: no mutation is left, the survey is over, or no
    report that is still to come is about the question. It is no error, and nothing to show: an app goes on as ever.
    PENDING: it is kept, and judged once the survey, or the time, is known.
    DROPPED: it is not kept: the survey was left or silenced or refused, or has no such answer.
    """

    COUNTED = "counted"
    UNCHANGED = "unchanged"
    FROZEN = "frozen"
    PENDING = "pending"
    DROPPED = "dropped"


def needed_close(
    plan: ReleasePlan, entry: Entry, drawn: Drawn, period: int, questions: Collection[int] = (0,)
) -> int | None:
    """The first close at or after a period at which the entry's state is still needed; None if there is none.

    A close is needed where a node that the entry has still to report ends or, on a track of changes, begins.
    drawn: the nodes it reports, where it does not report all. questions: those whose nodes count, by their places.
    """
    closes: list[int] = []
    for track in plan.groups[entry.group].tracks:
        if track.reported is None and track.question in questions:
            first, width, count = track.first, track.width, track.count
            unanswered = max((entry.answered - first) // width + 1, 1)
            bound = max(-((first - period) // width), unanswered - track.reports_changes)
            if max(unanswered, bound) <= count:
                closes.append(first + bound * width)
    for number, node_number in drawn:
        track = plan.tracks[number]
        node = track.node(node_number)
        if node.end > entry.answered and track.question in questions:
            bounds = (node.start, node.end) if track.reports_changes else (node.end,)
            closes += [close for close in bounds if close >= period]
    return min(closes, default=None)


def at_close(states: States, period: int) -> int:
    """The state when a period closed; NULL before the first. Right only for a close that is needed."""
    state = NULL
    for close, since in states:
        if close > period:
            break
        state = since
    return state


def current(states: States) -> int:
    """The state that the entry is in; NULL before its first mutation."""
    return states[-1][1] if states else NULL


def entered(states: States, close: int | None, state: int) -> States:
    """The states after a mutation that no later one follows: what was kept beyond goes.

    close: the first that is needed at or after the mutation's period; None if none is, and nothing is kept.
    If the entry had the state already at the needed close before, nothing remains of the mutation.
    """
    if close is None:
        return states
    before = tuple([each for each in states if each[0] < close])
    return before if current(before) == state else (*before, (close, state))


def pruned(survey: Survey, entry: Entry, drawn: Drawn, place: int) -> States:
    """The states of the answer to a question, only those still needed, now that more is answered."""
    kept: States = ()
    for close, state in entry.held[place].states:
        kept = entered(kept, needed_close(survey.plan, entry, drawn, close, survey.kept_for[place]), state)
    return kept


def place_of(survey: Survey, question: str) -> int:
    """The place of a question that apps answer, by its name, which may be left out where it is the only one.

    Raises ValueError.
    """
    if not question and len(survey.asked) > 1:
        raise ValueError(f"say which question is answered: {[each.name for each in survey.asked]}")
    place = survey.place_of(question or survey.asked[0].name)
    if survey.questions[place].freezing_of:
        raise ValueError(f"the device answers the question {question!r} by itself: record another one")
    return place


def state_of(question: Question, answer: Answer | None, stratum: StratumNumber) -> tuple[int, bool]:
    """The number of an answer's state, from 1, and whether a number was clipped; NULL for None.

    stratum: the entry's, whose last part is the offset that it rounds numbers with.
    Raises ValueError, which does not repeat what was passed.
    """
    if answer is None:
        return NULL, False
    if question.is_number:
        level, clipped = question.rounded(answer, stratum % OFFSETS)  # type: ignore[arg-type]  # refuses strings
        return level + 1, clipped
    try:
        return question.answers.index(answer) + 1, False
    except ValueError:
        raise ValueError(f"this is no answer of the survey; its answers are {list(question.answers)}") from None


def check_first(survey: Survey, answers: FirstAnswers) -> None:
    """Raises ValueError where the first answers of an entry are none of the survey's."""
    for name, answer in first_of(answers):
        state_of(survey.questions[place_of(survey, name)], answer, StratumNumber(0))


def first_of(answers: FirstAnswers) -> Sequence[tuple[str, Answer]]:
    """The first answers of an entry by the names of their questions; the only one's is left out."""
    return tuple(answers.items()) if isinstance(answers, Mapping) else (("", answers),)


def record(survey: Survey, entry: Entry, drawn: Drawn, pending: Pending, time_known: bool) -> tuple[Entry, Recorded]:
    """Takes the entry into a state, if the survey's constraint admits it.

    drawn: the nodes it reports, where it does not report all.
    pending: one of the survey's answers, and when it was given; it counts as given after everything that was answered,
    so that a clock that went back writes nothing into a node that is closed.
    time_known: whether to decide also what would be otherwise if the clock were wrong: that all nodes are over, or the
    time for changes.
    Returns the entry as it now is, and what became of the answer. Raises ValueError for a wrong answer.
    """
    place = place_of(survey, pending.question)
    state, clipped = state_of(survey.questions[place], pending.answer, entry.stratum)
    entry, recorded = _record(survey, entry, drawn, pending, place, state, time_known)
    stands = recorded in (Recorded.COUNTED, Recorded.UNCHANGED)  # what waits counts once it is judged
    entry = entry._replace(clipped=entry.clipped + (clipped and stands))
    other = survey.freezing[place]
    frozen = None if other is None else _frozen(survey, entry.held[other], recorded, state)
    if other is not None and frozen is not None:
        entry, _ = _record(survey, entry, drawn, pending, other, frozen, time_known)
    return entry, recorded


def passed_over(survey: Survey, entry: Entry, drawn: Drawn, period: int, now_ms: UnixMilliseconds) -> Entry:
    """The entry as it answers a closing that a change which still waits is not in: that freezes its question there.

    Else a change that time forbids, and which waits for a server to say so, would be told a closing too late.
    now_ms: the time, in Unix milliseconds. What was given later was given while the clock was ahead, nobody knows when.
    """
    close = close_ms(survey.calendar, period)
    for each in entry.pending:
        if close < each.at_ms <= now_ms:
            continue
        with suppress(ValueError):  # it is no answer of the survey
            place = place_of(survey, each.question)
            state, _ = state_of(survey.questions[place], each.answer, entry.stratum)
            unlike, other = state != current(entry.held[place].states), survey.freezing[place]
            if other is not None and unlike and not (survey.closed and state == NULL):
                by_then = each._replace(at_ms=min(each.at_ms, close))
                entry, _ = _record(survey, entry, drawn, by_then, other, IS_FROZEN, time_known=True)
    return entry


def _frozen(survey: Survey, held: Held, recorded: Recorded, state: int) -> int | None:
    """The state of the freezing question that an entry takes after a record of the question it is about.

    held: what is held of the freezing question. state: the one that was recorded. None for no change. Where nothing is
    reported any more it does not matter.
    """
    if recorded is Recorded.COUNTED and current(held.states) == NULL:
        return NOT_FROZEN
    withdrawn = survey.closed and state == NULL  # in a closed cohort the last answer stands, by what the survey says
    return IS_FROZEN if recorded is Recorded.FROZEN and not withdrawn else None


def _record(
    survey: Survey, entry: Entry, drawn: Drawn, pending: Pending, place: int, state: int, time_known: bool
) -> tuple[Entry, Recorded]:
    """Takes an entry into a state of one question, by its place."""
    constraint, held = survey.questions[place].constraint, entry.held[place]
    at_ms = _open_ms(survey, entry, pending.at_ms)
    period = survey.calendar.period_of(UnixSeconds(at_ms / 1000))
    questions = survey.kept_for[place]
    close = needed_close(survey.plan, entry, drawn, period, questions)
    if close is None and needed_close(survey.plan, entry, drawn, entry.answered + 1, questions) is None:
        return entry, Recorded.FROZEN
    if not time_known and waiting_for_time(survey, entry, place):
        return entry.waiting_for(pending), Recorded.PENDING
    if state == current(held.states):
        return entry, Recorded.UNCHANGED
    elapsed = 0.0 if held.first_s is None else at_ms / 1000 - held.first_s
    if (survey.closed and state == NULL) or not constraint.admits(held.mutations, 0):
        return entry, Recorded.FROZEN
    if close is None or not constraint.admits(held.mutations, elapsed):
        return (entry, Recorded.FROZEN) if time_known else (entry.waiting_for(pending), Recorded.PENDING)
    first_s = held.first_s
    if _counts_time(constraint):  # what waited may have been given while the clock was ahead, or before it was
        first_s = at_ms // 1000 if first_s is None else min(first_s, at_ms // 1000)
    after = Held(held.mutations + 1, first_s, entered(held.states, close, state))
    return entry.holding(place, after), Recorded.COUNTED


def waiting_for_time(survey: Survey, entry: Entry, place: int) -> list[Answer | None]:
    """The answers to a question that wait until the server's time was heard: later ones to it are judged after them.

    Those to other questions do not wait for them: a first answer is of the period in which it was given.
    """
    return [each.answer for each in entry.pending if place_of(survey, each.question) == place]


def _counts_time(constraint: Constraint) -> bool:
    """True if the constraint asks when the first mutation was."""
    of = constraint.classes if isinstance(constraint, Hybrid) else (constraint,)
    return not all(isinstance(each, AtMost) for each in of)


def bring_back(survey: Survey, entry: Entry, drawn: Drawn, now_ms: UnixMilliseconds) -> Entry:
    """The entry, once mutations that lie in the future, because the clock was ahead, are moved to the present.

    They stay after everything that was answered. Their order and number stay, and no two move apart, so the entry
    keeps to its constraint as before. now_ms: Unix milliseconds.
    """
    latest_ms = _open_ms(survey, entry, now_ms)
    period = survey.calendar.period_of(UnixSeconds(latest_ms / 1000))
    for place, held in enumerate(entry.held):
        states, first_s = held.states, held.first_s
        close = needed_close(survey.plan, entry, drawn, period, survey.kept_for[place]) if states else None
        if close is not None and states[-1][0] > close:
            states = entered(states, close, current(states))
        if first_s is not None:
            first_s = min(first_s, latest_ms // 1000)
        if (states, first_s) != (held.states, held.first_s):
            entry = entry.holding(place, held._replace(states=states, first_s=first_s))
    return entry


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
            entry, _ = record(survey, entry, drawn, each._replace(at_ms=min(each.at_ms, now_ms)), time_known)
        except ValueError:
            wrong += 1
    return entry, wrong


def _open_ms(survey: Survey, entry: Entry, at_ms: UnixMilliseconds) -> UnixMilliseconds:
    """`at_ms`, or the first millisecond after everything that the entry has answered, if that is later."""
    return UnixMilliseconds(max(at_ms, close_ms(survey.calendar, entry.answered) + 1))


def record_in(
    store: ClientStore,
    id_: SurveyId,
    number: int,
    pending: Pending,
    strict: bool,
    tell: Callable[[ClientError], None],
) -> Recorded:
    """Records an entry's answer in a store, or with None that it has none.

    pending: the answer, and the device's time. strict: whether a wrong answer or entry raises ValueError, or is dropped
    and counted. tell: told what cannot be raised.
    In a signal handler that interrupts a record or a flush of its own thread it is PENDING, and on disk as soon as that
    goes on. Raises a store's errors.
    """

    def afterwards() -> None:
        try:
            _recorded(store, id_, number, pending, strict)
        except ClientError as error:
            tell(error)
        except ValueError:
            _log.warning("a record in a signal handler was dropped: the survey has no such answer or entry")

    if store.interrupts():
        store.afterwards(afterwards)
        return Recorded.PENDING
    return _recorded(store, id_, number, pending, strict)


def _recorded(store: ClientStore, id_: SurveyId, number: int, pending: Pending, strict: bool) -> Recorded:
    try:
        with store.transaction() as db:
            recorded, refused = _keep(db, store.wrapping, id_, number, pending)
        store.overwrote()  # the answer that stood, perhaps
    except ValueError:
        if strict:
            raise
        with store.transaction() as db:
            entries.count_drop(db, Drop.WRONG_ANSWER)
        _log.warning(
            "survey %s: a record was dropped: it has no such question, answer or entry; strict=True says which",
            id_.hex(),
        )
        return Recorded.DROPPED
    if refused is not None:
        _log.warning("a record was dropped: %s", why_not(refused, id_))
    return recorded


def _keep(
    db: StoreConnection, wrapping: Wrapping, id_: SurveyId, number: int, pending: Pending
) -> tuple[Recorded, Known | None]:
    """Keeps an answer. Returns the outcome, and the survey where that was refused: it is logged afterwards."""
    pending, known = pending._replace(answer=kept_answer(pending.answer)), entries.find_survey(db, id_)
    before = None if known is None or known.status >= Status.LEFT else entries.find(db, wrapping, id_, number)
    if known is None or before is None:
        entries.count_drop(db, Drop.NOT_TAKING_PART)
        return Recorded.DROPPED, known if known is not None and known.status is Status.REFUSED else None
    if known.status is Status.ASKED:
        entry, recorded = _kept_for_later(before, pending)
    else:
        survey = known.survey
        draws = any(track.reported is not None for track in survey.plan.groups[before.group].tracks)
        drawn = entries.drawn_nodes(db, wrapping, before) if draws else frozenset()
        stamp_ms = known_time(db, known.url).stamp(pending.at_ms)
        entry = bring_back(survey, before, drawn, stamp_ms)
        entry, recorded = record(survey, entry, drawn, pending._replace(at_ms=stamp_ms), time_known=False)
    entries.update(db, wrapping, entry)  # a change or none: both take as long, and write as much
    return recorded, None


def _kept_for_later(entry: Entry, pending: Pending) -> tuple[Entry, Recorded]:
    """Keeps an answer for a survey that is not known yet."""
    before = entry.waiting_about(pending.question)
    last = (before[-1].question, before[-1].answer) if before else (pending.question, None)
    if last == (pending.question, pending.answer):  # by another name it may be about another question
        return entry, Recorded.UNCHANGED
    return entry.waiting_for(pending), Recorded.PENDING


def kept_answer(answer: Answer | None) -> Answer | None:
    """An answer as it can be kept. Raises ValueError for what is neither a text nor a finite number."""
    if isinstance(answer, int | float | Decimal) and not isinstance(answer, bool):
        with suppress(OverflowError):
            if isfinite(number := float(answer)):
                return number
        raise ValueError("a question for a number takes a finite number, and this is none")
    if answer is None:
        return None
    if isinstance(answer, str) and len(answer) <= MOST_ANSWER_CHARACTERS and _is_text(answer):
        return str(answer)
    raise ValueError("an answer is a text of the survey's, or a finite number")


def _is_text(answer: str) -> bool:
    """False for half of a pair of surrogates, which no file can keep. What would be raised holds the whole answer."""
    return answer.encode(errors="ignore").decode() == answer
