"""Joining a survey, and leaving it: the app asks, and once the survey is known its entries are enrolled, wholly or not.

The bound on epsilon is checked first; then each entry draws its group and its nodes, once, and is enrolled from the
period on in which the app asked. All of it is one transaction, and no entry ever draws these again. Who leaves wipes
everything but a tombstone, the survey's id and what it counted: such a survey is never joined again.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal

from changeling_protocol import (
    OFFSETS,
    Coins,
    EntryNumber,
    ProtocolError,
    StratumNumber,
    Survey,
    SurveyId,
    UnixMilliseconds,
    UnixSeconds,
    draw_nodes,
    first_memory,
    micro,
    stratum_of,
    upwards,
)

from . import entries
from .entries import Drop, Entry, Held, Known, Pending, Status, draw_delay, why_not
from .errors import (
    BadEnrolment,
    BadSurvey,
    CannotJoin,
    ClientError,
    EnrolmentOver,
    ServerTrouble,
    StoreUnusable,
    TooCostly,
    WrongSurvey,
)
from .recording import NULL, FirstAnswers, first_of, judged, kept_answer, place_of, state_of
from .server import Server, Servers, close_ms, known_time, ms_of
from .settings import ClientSettings
from .store import ClientStore, StoreConnection, Wrapping
from .transport import Endpoint, NetworkTime, is_loopback

MOST_ENTRIES = 65_536
"""The most entries of a survey in one store."""


def check(asked: Known, answers: Sequence[FirstAnswers] | None) -> None:
    """Raises ValueError for a number of entries that no store holds, or of first answers that is another.

    answers: one for each entry; None if they have none yet.
    """
    if not 0 <= asked.entries <= MOST_ENTRIES:
        raise ValueError(f"a survey is joined with 0 to {MOST_ENTRIES} entries, got {asked.entries}")
    _check_count(answers, asked.entries)


def _check_count(answers: Sequence[FirstAnswers] | None, entries: int) -> None:
    if answers is not None and (isinstance(answers, str) or len(answers) != entries):
        raise ValueError(f"`answers` holds one answer for each of the {entries} entries")


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
            Endpoint(survey.relay)
        except ValueError as error:
            raise BadSurvey(f"its relay cannot be spoken with: {error}") from None
    return survey


class Enroller:
    """Enrols the entries of surveys that were asked for, each in the caller's transaction.

    coins: what each entry draws its group, its nodes and its first delay from.
    """

    def __init__(self, store: ClientStore, settings: ClientSettings, coins: Coins) -> None:
        self._store, self._settings, self._coins = store, settings, coins

    def ask(self, db: StoreConnection, asked: Known, answers: Sequence[FirstAnswers] | None) -> Known:
        """Notes that the app wants to join a survey, and its first answers, checked; the survey need not be known.

        Returns the survey as it is known then: if it was asked for before and not refused, as it was, but for entries
        that come to it. Raises what `add` does.
        """
        known = entries.find_survey(db, asked.id)
        if known is None or known.status is Status.REFUSED:
            entries.delete_entries(db, asked.id)
            entries.put_survey(db, asked)
            self._insert(db, asked.id, range(asked.entries), answers)
            return asked
        if known.entries < asked.entries and known.status in (Status.ASKED, Status.JOINED):
            more = None if answers is None else answers[known.entries :]
            self.add(db, asked.id, asked.entries - known.entries, more, asked.stratum or None)
            return known._replace(entries=asked.entries)
        return known

    def _insert(
        self, db: StoreConnection, survey: SurveyId, numbers: range, answers: Sequence[FirstAnswers] | None
    ) -> list[Entry]:
        """Keeps new entries, with the first answer of each. One that has left is none."""
        now_ms = ms_of(self._settings.clock())
        new = []
        for place, number in enumerate(numbers):
            if not entries.has_left(db, survey, number):
                first = () if answers is None else first_of(answers[place])
                pending = tuple(Pending(now_ms, kept_answer(answer), name) for name, answer in first)
                new.append(Entry(survey, EntryNumber(number), pending=pending))
        entries.update(db, self._store.wrapping, *new)
        return new

    def join_asked(
        self, asked: Sequence[Known], servers: Servers, network: NetworkTime
    ) -> tuple[list[ClientError], str | None]:
        """Fetches and joins what was asked for and could not be joined yet.

        Returns why surveys may not be joined, and the trouble that there was with servers; None if there was none.
        """
        told: list[ClientError] = []
        trouble: str | None = None
        decided = False
        for each in asked:
            server = servers.at(each.url)
            try:
                refused = self._join(server, each.id, network.share(1 + len({each.url for each in asked})))
                told += [] if refused is None else [refused]
                decided = True
            except ServerTrouble as error:
                trouble = trouble or str(error)
                if error.is_missing and each.id not in server.unknown:
                    server.unknown.add(each.id)
                    told.append(error)
                with self._store.transaction() as db:
                    server.keep(db)
        if decided:
            self._store.erase_past()  # the answers that waited, and when they were given
        return told, trouble

    def _join(self, server: Server, id_: SurveyId, network: NetworkTime) -> CannotJoin | None:
        """Fetches one survey and enrols its entries. Returns why it may not be joined, if so. Raises ServerTrouble."""
        with self._store.transaction() as db:
            server.begin(db)
        signed = server.survey(id_, network)
        if not server.has_told_time:  # by the device's clock alone, its answers could be too late for good
            server.fail()
            raise ServerTrouble("the server told no time")
        try:
            survey = verified(id_, signed, self._settings.authority)
        except CannotJoin as error:
            with self._store.transaction() as db:
                server.keep(db)
                return self._refuse(db, id_, error)
        with self._store.transaction() as db:
            server.keep(db)
            asked = entries.find_survey(db, id_)
            if asked is None or asked.status is not Status.ASKED:  # it was left meanwhile
                return None
            refused = self.enrol_or_refuse(db, asked, survey, time_known=True)
            if refused is None:  # an app asks for a refused one again whenever it starts: that must not be free
                server.succeed(db)
            return refused

    def enrol_or_refuse(self, db: StoreConnection, asked: Known, survey: Survey, time_known: bool) -> CannotJoin | None:
        """Enrols the entries of a survey that was asked for, or notes why not, and returns that.

        time_known: whether a server has told the time.
        """
        db.execute("SAVEPOINT enrolling")
        try:
            self.enrol(db, asked, survey, time_known)
        except CannotJoin as error:
            db.execute("ROLLBACK TO enrolling")
            if isinstance(error, TooCostly) and is_loopback(survey.relay or asked.url):
                error = TooCostly(f"{error}; to develop against a server on loopback, pass development=True")
            return self._refuse(db, asked.id, error)
        finally:
            db.execute("RELEASE enrolling")
        return None

    def enrol(self, db: StoreConnection, asked: Known, survey: Survey, time_known: bool) -> None:
        """Enrols the entries of a survey that was asked for, and judges the answers that they have had meanwhile.

        Raises TooCostly, EnrolmentOver or BadEnrolment.
        """
        charge = self._charge(db, asked, survey)
        self._enrol(db, asked, survey, entries.load_all(db, self._store.wrapping, asked.id), time_known)
        url = survey.relay.rstrip("/") or asked.url
        joined = asked._replace(status=Status.JOINED, url=url, charge_micro=charge, payload=survey.payload, stratum={})
        entries.put_survey(db, joined)

    def add(
        self,
        db: StoreConnection,
        id_: SurveyId,
        count: int,
        answers: Sequence[FirstAnswers] | None,
        stratum: Mapping[str, str] | None,
    ) -> range:
        """Adds entries to a survey that was asked for, and enrols them if it is known. Returns their numbers.

        answers: the first of each. stratum: of those added; None for none, or the one that the survey was joined with.
        Raises ValueError for a bad argument; EnrolmentOver, TooCostly or BadEnrolment.
        """
        known = entries.find_survey(db, id_)
        if known is None or known.status not in (Status.ASKED, Status.JOINED):
            raise EnrolmentOver(f"no entry can be added: {why_not(known, id_)}")
        if not 1 <= count <= MOST_ENTRIES - known.entries:
            raise ValueError(f"a survey has at most {MOST_ENTRIES} entries, and has {known.entries}; got {count} more")
        _check_count(answers, count)
        if stratum is not None and known.status is Status.ASKED and stratum != known.stratum:
            raise BadEnrolment(
                "the survey is not known yet: until it is, all entries have the stratum it is joined with"
            )
        numbers, now_ms = range(known.entries, known.entries + count), ms_of(self._settings.clock())
        more = known._replace(entries=known.entries + count)
        if known.status is Status.JOINED:
            more = more._replace(charge_micro=self._charge(db, more, known.survey))
        entries.put_survey(db, more)
        new = self._insert(db, id_, numbers, answers)
        if known.status is Status.JOINED:
            self._enrol(db, more._replace(asked_ms=now_ms, stratum=stratum or {}), known.survey, new, time_known=False)
        return numbers

    def _enrol(self, db: StoreConnection, asked: Known, survey: Survey, new: Sequence[Entry], time_known: bool) -> None:
        """Draws what these entries draw once, and judges the answers that they have had.

        asked: with the time from which on they take part, and their stratum. Raises EnrolmentOver or BadEnrolment.
        """
        now_ms = known_time(db, asked.url).stamp(ms_of(self._settings.clock()))
        closed = survey.calendar.closed(UnixSeconds(min(asked.asked_ms, now_ms) / 1000))
        if closed >= survey.plan.last_closing:
            raise EnrolmentOver("the survey has ended: nothing of its plan is left to answer")
        if survey.closed and closed:
            raise EnrolmentOver("the survey's cohort is closed since its first period ended")
        try:
            told = stratum_of(survey.breakdowns, asked.stratum)
        except ValueError as error:
            raise BadEnrolment(str(error)) from error
        wrapping, coins = self._store.wrapping, self._coins
        for entry in new:
            group = survey.plan.draw_group(coins)
            drawn = frozenset(
                (number, node)
                for number, track in survey.plan.numbered(group)
                if track.reported is not None
                for node in draw_nodes(track, coins)
            )
            slots, delay = first_memory(survey.plan.groups[group]), draw_delay(survey, coins)
            stratum = with_offset(survey, told, 0 if survey.public == survey.breakdowns else coins.below(OFFSETS))
            held = (Held(),) * len(survey.questions)
            drew = entry._replace(group=group, answered=closed, delay_ms=delay, stratum=stratum, slots=slots, held=held)
            enrolled, wrong = judged(survey, drew, drawn, now_ms, time_known)
            asked_of = [survey.place_of(each.name) for each in survey.asked] if survey.closed else []
            if not all(_given(survey, drew, place, now_ms) for place in asked_of):
                raise BadEnrolment("a closed cohort is joined with an answer for each entry: pass `answers`")
            entries.update(db, wrapping, enrolled)
            entries.keep_drawn(db, wrapping, enrolled, drawn)
            entries.count_drop(db, Drop.WRONG_ANSWER, wrong)

    def _charge(self, db: StoreConnection, asked: Known, survey: Survey) -> int:
        """The survey's charge against the budget, in millionths: once, or for each entry of one person's.

        One on loopback counts nothing in development. Raises TooCostly.
        """
        if self._settings.development and is_loopback(survey.relay or asked.url):
            return 0
        charge, most = survey.epsilon_micro * (asked.entries if asked.one_person else 1), self._settings.max_epsilon
        with upwards():
            total = micro(entries.spent(db)) - asked.charge_micro + charge
            if total > most * 1_000_000:
                raise TooCostly(
                    f"with this survey of epsilon {Decimal(charge) / 1_000_000} the sum is "
                    f"{Decimal(total) / 1_000_000}, above {most}"
                )
        return charge

    def _refuse(self, db: StoreConnection, id_: SurveyId, error: CannotJoin) -> CannotJoin | None:
        """Notes that a survey that was asked for may not be joined, and forgets the answers that waited for it."""
        asked = entries.find_survey(db, id_)
        if asked is None or asked.status is not Status.ASKED:
            return None
        entries.delete_entries(db, id_)
        reason = f"{type(error).__name__}: {error}"
        entries.put_survey(db, asked._replace(status=Status.REFUSED, reason=reason, stratum={}))
        return error


def _given(survey: Survey, entry: Entry, place: int, now_ms: UnixMilliseconds) -> bool:
    """True if the first answer to a question was given by the end of the first period, or no group asks about it.

    The first by the order in which they were given, as that is how they are judged, whatever the clock said meanwhile.
    Also where the entry's own group does not: which one it draws must not decide who takes part.
    """
    if all(track.question not in survey.kept_for[place] for track in survey.plan.tracks):
        return True
    for each in entry.pending:
        with suppress(ValueError):
            asked, question = place_of(survey, each.question), survey.questions[place]
            if asked == place and state_of(question, each.answer, entry.stratum)[0] != NULL:
                return min(each.at_ms, now_ms) <= close_ms(survey.calendar, 1)
    return False


def with_offset(survey: Survey, told: StratumNumber, offset: int) -> StratumNumber:
    """The stratum of an entry whose app told one of the breakdowns, with the offset that it drew."""
    return told if survey.public == survey.breakdowns else StratumNumber(told * OFFSETS + offset)


def change_stratum(
    db: StoreConnection, wrapping: Wrapping, survey: Survey, number: int, told: Mapping[str, str]
) -> None:
    """Changes an entry's stratum; the one that it has already is no change.

    Raises ValueError for a stratum that the survey does not declare, a change more than it allows, or an entry that it
    does not have.
    """
    kept, most = entries.load(db, wrapping, survey.id, number), survey.stratum_changes
    stratum = with_offset(survey, stratum_of(survey.breakdowns, told), kept.stratum % OFFSETS)
    if stratum == kept.stratum:
        return
    if kept.stratum_changes >= most:
        raise ValueError(f"an entry may change its stratum {most} times in this survey, and has done so")
    entries.update(db, wrapping, kept._replace(stratum=stratum, stratum_changes=kept.stratum_changes + 1))


def leave(db: StoreConnection, known: Known) -> None:
    """Leaves one survey: what it knew and what waits is deleted, and a tombstone stays.

    Of one that was never joined nothing stays but the tombstone either: the app has asked for it, and may have told.
    """
    if known.status is not Status.SILENCED:
        entries.end_survey(db, known, Status.LEFT)


def leave_all(db: StoreConnection) -> None:
    """Leaves every survey, and forgets all that is kept besides: keys of servers, and what is known of their time.

    Whatever survey a row says that it belongs to. Raises StoreUnusable if anything stays.
    """
    for table in ("closings", "drawn", "entries", "departed", "sealing_keys", "servers", "looks", "hand_over", "drops"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608
        (left,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
        if left:  # a row whose key is damaged is not found where it should be
            raise StoreUnusable(f"{table} cannot be emptied")
    for known in entries.find_surveys(db):
        leave(db, known)
    db.execute("UPDATE surveys SET payload = ?, stratum = ?, reason = ''", (b"", b"\x80"))
