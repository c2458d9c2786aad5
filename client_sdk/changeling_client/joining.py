"""Joining the surveys that an app has asked for: fetched, checked, their entries enrolled; or refused for a reason."""

import sqlite3

from changeling_protocol import Coins, Survey, SurveyId, UnixMilliseconds

from . import enrolment, surveys
from .clock import known_time
from .errors import CannotJoin, ClientError, ServerTrouble, TooCostly
from .exchange import Deadline
from .obstacles import Obstacle
from .route import is_loopback
from .servers import Line, Lines
from .settings import Settings
from .store import Store
from .surveys import Known, Status


def join_asked(
    store: Store, lines: Lines, settings: Settings, deadline: Deadline, coins: Coins
) -> tuple[list[ClientError], str | None]:
    """Joins what was asked for and could not be joined yet.

    Returns why surveys may not be joined, and the trouble that there was with servers; None if there was none.
    """
    with store.transaction() as db:
        asked = surveys.find_all(db, Status.ASKED)
    told: list[ClientError] = []
    trouble: str | None = None
    decided = False
    for each in asked:
        by = deadline.share(1 + len({each.url for each in asked}))
        line = lines.to(each.url)
        with store.transaction() as db:
            line.begin(db)
        try:
            signed = line.server.survey(each.id, by)
            if not line.has_heard:  # by the device's clock alone, its answers could be too late for good
                raise ServerTrouble("the server told no time")
            survey = enrolment.verified(each.id, signed, settings.authority)
            told += _enrol(store, settings, each.id, survey, line, coins)
            decided = True
        except CannotJoin as error:
            with store.transaction() as db:
                told += _refuse(db, each.id, error)
            decided = True
        except ServerTrouble as error:
            trouble = trouble or str(error)
            if error.obstacle is Obstacle.NOT_HERE and each.id not in line.unknown:
                line.unknown.add(each.id)
                told.append(error)
            with store.transaction() as db:
                line.keep(db)
    store.erase_past(decided)  # the answers that waited, and when they were given
    return told, trouble


def enrol_or_refuse(
    db: sqlite3.Connection,
    store: Store,
    settings: Settings,
    asked: Known,
    survey: Survey,
    now_ms: UnixMilliseconds,
    time_known: bool,
    coins: Coins,
) -> list[ClientError]:
    """Enrols the entries of a survey that was asked for, or notes why not. Returns what there is to tell."""
    db.execute("SAVEPOINT enrolling")
    try:
        uncounted = settings.development and is_loopback(survey.relay or asked.url)
        most = None if uncounted else settings.max_epsilon
        enrolment.enrol(db, store.wrapping, asked, survey, most, now_ms, time_known, coins)
    except CannotJoin as error:
        db.execute("ROLLBACK TO enrolling")
        if isinstance(error, TooCostly) and is_loopback(survey.relay or asked.url):
            error = TooCostly(f"{error}; to develop against a server on loopback, pass development=True")
        return _refuse(db, asked.id, error)
    finally:
        db.execute("RELEASE enrolling")
    return []


def _refuse(db: sqlite3.Connection, id_: SurveyId, error: CannotJoin) -> list[ClientError]:
    asked = surveys.find(db, id_)
    if asked is None or asked.status is not Status.ASKED:
        return []
    enrolment.refuse(db, asked, error)
    return [error]


def _enrol(
    store: Store, settings: Settings, id_: SurveyId, survey: Survey, line: Line, coins: Coins
) -> list[ClientError]:
    with store.transaction() as db:
        line.keep(db)
        now_ms = known_time(db, line.url).stamp(line.now_ms())
        asked = surveys.find(db, id_)
        if asked is None or asked.status is not Status.ASKED:  # it was left meanwhile
            return []
        return enrol_or_refuse(db, store, settings, asked, survey, now_ms, True, coins)
