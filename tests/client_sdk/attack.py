"""Everything a device can send, over all its coins: the client's own recording, enrolment, answering and packing, run
on a store in memory.

Nothing of the mathematics is written down here. A survey, a schedule of clocks, and what the app may do at each moment
of it go in; the largest ratio of the probabilities of the same uploads comes out, as a fraction.
"""

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, TypeAlias
from unittest.mock import patch

from changeling_client import enrolment, entries, flushing, outbox
from changeling_client.entries import Known, Pending
from changeling_client.flushing import Answerer
from changeling_client.recording import record_in
from changeling_client.server import HeardTime, Server
from changeling_client.settings import ClientSettings
from changeling_client.store import TABLES, Wrapping
from changeling_client.transport import Endpoint
from changeling_protocol import StratumNumber, Survey, lives_cost, respond, stratum_values

from tests.coins import ListedCoins
from tests.enumeration import log_from_below
from tests.protocol.examples import PINNED

Law: TypeAlias = dict[Hashable, Fraction]
"""What may be sent, with its probability."""
Way: TypeAlias = tuple[Hashable, Hashable, Fraction]
"""What is seen of a step, the state after it, and how likely both are."""
Act: TypeAlias = tuple[str, Any] | None
"""What an app may do at a moment: record, by the name of a question, an answer or None; or not call the SDK at all."""
_IDS = 1 << 128
_TABLES = ("servers", "surveys", "entries", "drawn", "closings", "drops", "looks")
_URL = "https://statistics.example"
_ENDPOINT = Endpoint(_URL)


@dataclass(frozen=True, slots=True)
class Moment:
    """now: the device's clock, in seconds. act: whether the app may record here; if not, it flushes.

    hears: the server's time at that flush, if it was asked. ends: whether closings past grace may be dropped.
    tells: the stratum that the app tells before that flush, whatever the entry's answer is.
    """

    now: float
    act: bool = False
    hears: int | None = None
    may_drop: bool = True
    tells: StratumNumber | None = None


def moments(
    begin: float, period: float, acts: Sequence[float], flushes: Sequence[float], shows: Mapping[float, float] = {}
) -> list[Moment]:
    """Those at which the app may record, and at which it flushes, in periods; the last flush hears the time.

    shows: what the clock shows at some of them instead.
    """
    *before, last = (
        Moment(begin + period * shows.get(time, time), act=time in acts) for time in sorted((*acts, *flushes))
    )
    return [*before, replace(last, hears=int(begin + period * max(flushes)))]


class Branching:
    """Coins that follow a path of choices, and say where it forks. Ids are counted; a delay is the same each time."""

    def __init__(self, path: Sequence[int], spread_ms: int, delay: int) -> None:
        self._path, self.forks, self.likely = path, [], Fraction(1)
        self._spread_ms, self._delay, self._ids = spread_ms, delay, 0

    def below(self, n: int) -> int:
        if n == _IDS:
            self._ids += 1
            return self._ids
        if n == self._spread_ms:
            return self._delay
        return self.choose([(value, Fraction(1, n)) for value in range(n)])

    def choose(self, among: Sequence[tuple[Any, Fraction]]) -> Any:
        at = len(self.forks)
        chosen = self._path[at] if at < len(self._path) else 0
        self.forks.append(len(among))
        value, likely = among[chosen]
        self.likely *= likely
        return value


def every_path(run: Callable[[Branching], Hashable], spread_ms: int, delay: int) -> Iterator[tuple[Any, Fraction]]:
    """What comes of every path through the coins, with its probability."""
    path: list[int] = []
    while True:
        coins = Branching(path, spread_ms, delay)
        yield run(coins), coins.likely
        path = [*path, *[0] * (len(coins.forks) - len(path))][: len(coins.forks)]
        while path and path[-1] + 1 == coins.forks[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


class MemoryStore:
    """A store that can go back to any earlier state of its own, but for the random marks that a witness knows it by."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.executescript(TABLES)
        self.db.execute("INSERT INTO device VALUES (?, 0, 0, x'')", (bytes(16),))
        self.wrapping = Wrapping(None)
        self.wrapping.fresh = lambda: b""  # so that a state that comes again is known again

    def interrupts(self) -> bool:
        return False

    def overwrote(self) -> None:
        """Nothing is kept on a disk."""

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self.db.execute("BEGIN")
        try:
            yield self.db
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise

    def state(self) -> Hashable:
        return tuple(tuple(self.db.execute(f"SELECT * FROM {table}").fetchall()) for table in _TABLES)

    def put_back(self, state: Any) -> None:
        self.db.execute("BEGIN")
        for table in reversed(_TABLES):
            self.db.execute(f"DELETE FROM {table}")
        for table, rows in zip(_TABLES, state, strict=True):
            if rows:
                self.db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        self.db.execute("COMMIT")


def settings_at(now: float) -> ClientSettings:
    """Those of a device whose clock shows this, and that bounds no epsilon."""
    options = {"server": _URL, "authority": PINNED, "max_epsilon": 10**9, "path": "/nowhere", "witness": None}
    return ClientSettings.of({**options, "clock": lambda: now})


def enrol(store: MemoryStore, survey: Survey, now: float, answers: list[str] | None, coins: Any) -> None:
    """Joins a survey with one entry, which tells the first stratum."""
    stratum = stratum_values(survey.breakdowns, StratumNumber(0))
    asked = Known(survey.id, entries=1, asked_ms=int(now * 1000), url=_URL, stratum=stratum)
    with store.transaction() as db:
        enroller = enrolment.Enroller(store, settings_at(now), coins)
        enroller.ask(db, asked, answers)
        enroller.enrol(db, asked, survey, time_known=False)


def answer(store: MemoryStore, moment: Moment, coins: Any) -> Hashable:
    """Answers what is due, as a flush does that sends all of it. Returns how much was dropped, and what is sent."""
    server = Server(store, _ENDPOINT, (), lambda: moment.now)
    answerer = Answerer(store, None, coins)
    with store.transaction() as db:
        server.begin(db)
        if moment.hears is not None:
            server.heard = HeardTime(moment.hears * 1000, server.now_ms())
            server.keep(db)
    answerer.answer(server, may_drop=moment.may_drop)
    with store.transaction() as db:
        uploads = [
            upload
            for survey in entries.surveys_at(db, _URL)
            for upload in outbox.uploads(db, store.wrapping, survey, (0, 0))
        ]
        for upload in uploads:
            outbox.drop(db, entries.load(db, store.wrapping, upload.survey, upload.entry), upload.periods)
        server.keep(db)
        if moment.hears is not None:
            answerer.judge(db, server)
        answerer.end_finished(db, server)
    return answerer.dropped, tuple((upload.periods, upload.plaintext) for upload in uploads)


class Device:
    """The laws of what one entry of a survey sends.

    The state of the store is all that the future hangs on, so each step is run once from each state.
    delay: the one that is drawn each time, in ms. numbers: what the app may record where a number is asked for.
    idle: whether an app that may record may also do nothing; it leaves as much behind as one that repeats an answer.
    """

    def __init__(
        self,
        survey: Survey,
        schedule: Sequence[Moment],
        enrols: float,
        delay: int = 0,
        numbers: Sequence[float] = (),
        idle: bool = True,
    ) -> None:
        self.survey, self.schedule, self._delay = survey, schedule, delay
        self._store = MemoryStore()
        self._steps: dict[Hashable, list[Way]] = {}
        self._draws: dict[Hashable, list[tuple[Any, Fraction]]] = {}
        self._laws: dict[Hashable, Law] = {}
        blank = self._store.state()
        given = [(each.name, numbers if each.is_number else each.answers) for each in survey.asked]
        acts: list[Act] = [(name, one) for name, all_ in given for one in (None, *all_)]
        self._acts = [None, *acts] if idle else acts
        firsts = product(*([(name, one) for one in all_] for name, all_ in given)) if survey.closed else [None]
        self._begun = [
            self._ways(blank, lambda coins, first=first: self._enrol(enrols, first, coins)) for first in firsts
        ]

    def _enrol(self, now: float, first: Iterable[tuple[str, Any]] | None, coins: Branching) -> Hashable:
        answers = None if first is None else [dict(first)]
        enrol(self._store, self.survey, now, answers, coins)
        with self._store.transaction() as db:
            return entries.load(db, self._store.wrapping, self.survey.id, 0).group  # every envelope shows it

    def _ways(self, before: Any, run: Callable[[Branching], Hashable]) -> list[Way]:
        """What is seen, the state after it and its probability, for each way the coins may fall."""
        ways: dict[tuple[Hashable, Hashable], Fraction] = {}

        def step(coins: Branching) -> tuple[Hashable, Hashable]:
            self._store.put_back(before)
            seen = run(coins)
            return seen, self._store.state()

        for outcome, likely in every_path(step, 1000 * self.survey.spread, self._delay):
            _add(ways, outcome, likely)
        assert sum(ways.values()) == 1
        return [(seen, after, likely) for (seen, after), likely in ways.items()]

    def _step(self, before: Any, at: int, action: Act) -> list[Way]:
        """What may be seen of one moment, from a state on."""
        key = before, at, action
        if key not in self._steps:
            moment = self.schedule[at]
            if not moment.act:
                self._steps[key] = self._ways(before, lambda coins: self._flush(moment, coins))
            elif action is None:
                self._steps[key] = [(None, before, Fraction(1))]
            else:
                self._steps[key] = self._ways(before, lambda _: self._act(moment, action))
        return self._steps[key]

    def _act(self, moment: Moment, action: tuple[str, Any]) -> None:
        question, answer = action
        record_in(self._store, self.survey.id, 0, Pending(int(moment.now * 1000), answer, question), True, print)

    def _flush(self, moment: Moment, coins: Branching) -> Hashable:
        if moment.tells is not None:
            told = stratum_values(self.survey.breakdowns, moment.tells)
            with self._store.transaction() as db:
                enrolment.change_stratum(db, self._store.wrapping, self.survey, 0, told)
        with patch.object(flushing, "respond", self._respond):
            return answer(self._store, moment, coins)

    def _respond(self, group: Any, place: int, true: int, slots: Any, coins: Branching) -> Any:
        """The client's own answer to each integer that it may draw, those with the same outcome put together."""
        key = id(group), place, true, slots
        if key not in self._draws:
            asked = ListedCoins([0])
            respond(group, place, true, slots, asked)
            (total,) = asked.asked
            counts: dict[Any, int] = {}
            for drawn in range(total):
                outcome = respond(group, place, true, slots, ListedCoins([drawn]))
                counts[outcome] = counts.get(outcome, 0) + 1
            self._draws[key] = [(outcome, Fraction(count, total)) for outcome, count in counts.items()]
        return coins.choose(self._draws[key])

    def within_the_stated_loss(self, *copies: tuple[int, int]) -> Fraction:
        """The worst ratio, which is within the survey's epsilon or, of several lives, within what the ledger states."""
        asked, worst, stated = self.survey, self.worst_ratio(*copies), self.survey.epsilon
        if copies:
            stated = lives_cost(asked.plan, asked.calendar, asked.constraints, asked.closed, lives=1 + len(copies))
        assert log_from_below(worst) <= stated
        return worst

    def worst_ratio(self, *copies: tuple[int, int]) -> Fraction:
        """The largest ratio of the probabilities of what is sent, over all pairs of ways in which the entry may live.

        copies: of each life after the first, in the order of time: the moment before which the copy of the store was
        made that it begins with, and which life's that was. Whoever reads the reports knows which belong to which life.
        """
        most: Law = {}
        least: Law = {}
        for begun, lives in product(self._begun, self._lives(copies)):
            law = _mixed(begun, lambda state, lives=lives: self._law_of_all((state,), 0, lives, copies))
            assert not most or law.keys() == most.keys(), "something is never sent under one of the changelogs"
            for sent, likely in law.items():
                most[sent] = max(likely, most.get(sent, likely))
                least[sent] = min(likely, least.get(sent, likely))
        return max(most[sent] / least[sent] for sent in most)

    def _lives(self, copies: Sequence[tuple[int, int]]) -> list[tuple[tuple[Act, ...], ...]]:
        """All that the app may do in each of its lives, from the first moment on."""
        acts = [self._acts if moment.act else [None] for moment in self.schedule]
        ways: list[tuple[tuple[Act, ...], ...]] = [(one,) for one in product(*acts)]
        for at, of in copies:
            ways = [(*lives, (*lives[of][:at], *rest)) for lives in ways for rest in product(*acts[at:])]
        return ways

    def _law(self, state: Hashable, at: int, lived: tuple[Act, ...]) -> Law:
        """All that may be sent from a state on, with its probability."""
        if not lived:
            return {(): Fraction(1)}
        key = state, at, lived
        if key not in self._laws:
            ways = self._step(state, at, lived[0])
            self._laws[key] = _mixed(ways, lambda after: self._law(after, at + 1, lived[1:]))
        return self._laws[key]

    def _law_of_all(self, states: tuple[Hashable, ...], at: int, lives: Any, copies: Any) -> Law:
        """The same of all lives together, those that have begun by a moment being in these states."""
        while len(states) < len(lives) and copies[len(states) - 1][0] == at:
            states = (*states, states[copies[len(states) - 1][1]])
        if len(states) == len(lives):
            laws = [self._law(state, at, lived[at:]).items() for state, lived in zip(states, lives, strict=True)]
            return {tuple(sent for sent, _ in each): prod(likely for _, likely in each) for each in product(*laws)}
        law: Law = {}
        for ways in product(*(self._step(state, at, lived[at]) for state, lived in zip(states, lives, strict=False))):
            seen, after, likely = zip(*ways, strict=True)
            for sent, chance in self._law_of_all(after, at + 1, lives, copies).items():
                _add(law, (seen, sent), prod(likely) * chance)
        return law


def _mixed(ways: list[Way], law_after: Callable[[Hashable], Law]) -> Law:
    law: Law = {}
    for seen, after, likely in ways:
        for sent, chance in law_after(after).items():
            _add(law, (seen, sent), likely * chance)
    return law


def _add(law: dict[Any, Fraction], key: Hashable, likely: Fraction) -> None:
    law[key] = law.get(key, Fraction(0)) + likely
