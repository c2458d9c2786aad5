"""Histories: one randomized response over everything that an entry will say, drawn report by report as time goes.

A history is the states of one entry at the times of a history group; it is possible if the survey's constraint allows
it. Of |H| possible histories an entry sends its own with weight a, and every other one with weight b:

    Pr(o | h) = (b + (a - b)[o = h]) / (a + (|H| - 1) b)

so any two changelogs differ by at most ln(a/b). The next symbol follows from how many possible histories begin with
what was sent so far; these are counted in closed form, as exact integers. docs/histories.md.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import comb, gcd

from .calendar import Calendar
from .questions import AtMost, AtMostWithin, Constraint, Hybrid, TimeBounded
from .randomizers.interface import Odds, Randomizer, StateSpace
from .randomizers.kary import BasedResponse, KaryResponse
from .signing import Fields, as_terms, from_terms

MOST_TIMES = 2**10
"""The most times of a history group: a device counts histories over all of them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The changes that the reports of one entry can show after its first answer.

    In a closed cohort the first answer is the first report; else the first report that is not NULL.

    changes: at most so many.
    span: only on so many reports after that of the first answer.
    either: whether it is enough to keep to one of the two limits.
    Raises ValueError for negative numbers.
    """

    changes: int
    span: int
    either: bool = False

    def __post_init__(self) -> None:
        if self.changes < 0 or self.span < 0:
            raise ValueError(f"limits of changes are 0 or more, got {self.changes} and {self.span}")

    @classmethod
    def of(cls, constraint: Constraint, calendar: Calendar, closed: bool, periods: range) -> "Limits":
        """The limits that a survey's constraint sets to reports of the states at the ends of some periods.

        Raises ValueError for a constraint that is none of the protocol's.
        """
        k, seconds, either = _bounds(constraint)
        most = len(periods) - 1
        changes = most if k is None else min(k - 1, most)
        if seconds is None:
            return cls(changes, most)
        # A change shown by a report lies after the report before it, which must be less than `seconds` after the first
        # answer: at the latest the end of the first period in a closed cohort, else that of the report that shows it.
        latest = 1 if closed else periods.start
        span = sum((period - latest) * calendar.period < seconds for period in periods[:-1])
        return cls(changes, span, either and most > 0)


def _bounds(constraint: Constraint) -> tuple[int | None, int | None, bool]:
    """The most mutations and the seconds between the first and the last, None for no such bound; and if one will do."""
    match constraint:
        case AtMost(k):
            return k, None, False
        case TimeBounded(seconds):
            return None, seconds, False
        case AtMostWithin(k, seconds):
            return k, seconds, False
        case Hybrid(classes):
            counts = [each.k for each in classes if isinstance(each, AtMost)]
            spans = [each.seconds for each in classes if isinstance(each, TimeBounded)]
            return max(counts, default=None), max(spans, default=None), bool(counts and spans)
    raise ValueError(f"histories are counted under the constraints of the protocol, not a {type(constraint).__name__}")


@dataclass(frozen=True, slots=True)
class History:
    """The terms of a history group, as they stand in a survey's signed bytes.

    odds: a:b, favoured > other; what the whole group costs.
    limits: which changes an entry's reports can show. They follow from the survey's constraint.
    first, every, times: when it reports: its state at the end of the period `first`, and of every so manieth after it,
    so many times in all.
    null: whether NULL is a state. It is in an open cohort, and is not in a closed one.
    Raises ValueError for odds that say nothing, and for numbers out of range.
    """

    odds: Odds
    limits: Limits
    first: int
    every: int
    times: int
    null: bool

    def __post_init__(self) -> None:
        if self.odds.favoured == self.odds.other:
            raise ValueError(f"odds of {self.odds.favoured}:{self.odds.other} say nothing: choose a > b")
        if self.first < 1 or self.every < 1:
            raise ValueError(f"periods are numbered from 1 on, got the first {self.first} and every {self.every}")
        if not 1 <= self.times <= MOST_TIMES:
            raise ValueError(f"a history group has 1 to {MOST_TIMES} times, got {self.times}")
        if max(self.limits.changes, self.limits.span) >= self.times:
            raise ValueError(f"{self.times} reports show at most {self.times - 1} changes after the first answer")

    @classmethod
    def of(cls, odds: Odds, periods: range, constraint: Constraint, calendar: Calendar, closed: bool) -> "History":
        """The history at the ends of some periods, under a survey's constraint.

        closed: whether the cohort is closed.
        """
        limits = Limits.of(constraint, calendar, closed, periods)
        return cls(odds, limits, periods.start, periods.step, len(periods), not closed)

    @property
    def periods(self) -> range:
        """The periods at whose ends the entry reports."""
        return range(self.first, self.first + self.every * self.times, self.every)

    @property
    def last(self) -> int:
        """The last of them."""
        return self.periods[-1]

    def as_fields(self) -> Fields:
        """The parameters as they stand in a survey's signed bytes."""
        own = as_terms(self, "limits")
        return {"odds": own.pop("odds"), **as_terms(self.limits), **own}

    @classmethod
    def from_fields(cls, fields: Fields) -> "History":
        """The parameters that `as_fields` wrote. Raises ValueError for anything else."""
        names = as_terms(Limits(0, 0)).keys()
        limits = from_terms(Limits, {name: fields[name] for name in names & fields.keys()})
        told = from_terms(cls, {name: fields[name] for name in fields.keys() - names}, "limits")
        if told is None or limits is None:
            raise ValueError("a history group is its odds, its limits and its times")
        return cls(limits=Limits(**limits), **told)


@dataclass(frozen=True, slots=True, repr=False)
class HistoryState:
    """The memory that an entry of a history group has of its reports; printing it shows nothing.

    drawn: at how many of the times a report was drawn.
    last: the input of the last of them; 0 before the first.
    first: which report, from 1 on, showed the first answer; 0 if none did.
    changed: how many changes the reports show after it.
    true: whether all of them were true.
    """

    drawn: int = 0
    last: int = 0
    first: int = 0
    changed: int = 0
    true: bool = True


@dataclass(frozen=True, slots=True)
class PossibleHistories:
    """H: the possible histories of an entry, and how many of them begin with what was reported.

    states: d, how many states there are. times: m, how many reports.
    null: whether NULL is a state, in which every entry starts; if not, the first report is any state.
    limits: which changes the reports can show after the first answer, as in `History`.
    Raises ValueError for a single state.

    Two answers, three reports, up to one change:

    >>> possible = PossibleHistories(2, 3, null=False, limits=Limits(1, 2))
    >>> possible.count
    6
    >>> possible.going_on(HistoryState(drawn=1, last=0, first=1))
    (2, 1)
    """

    states: int
    times: int
    null: bool
    limits: Limits

    def __post_init__(self) -> None:
        if self.states < 2:
            raise ValueError("over a single state there is nothing to report")

    @property
    def steps(self) -> int:
        """About how many steps it takes to work out all that is fixed, each as long as one of a joint group."""
        limits, most = self.limits, self.times - 1
        each = 1 if limits.changes >= limits.span and not limits.either else 1 + limits.changes
        return self.times * each if limits.span == most or not self.null else self.times**2 // 4

    @property
    def count(self) -> int:
        """|H|."""
        if self.null:
            return self.alternating(0, 0)
        return self.states * self._after(self.times - 1)

    def going_on(self, state: HistoryState) -> tuple[int, int]:
        """How many possible histories go on with the last state, and how many with each of the others.

        state: what was reported so far, at fewer than all times. Before the first report of a closed cohort no state
        is the last, and the two counts are the same.
        """
        left, limits = self.times - state.drawn - 1, self.limits
        if state.first == 0:
            first = self._after(left)
            return (self._unanswered(left) if self.null else first), first
        place = state.drawn + 1 - state.first  # of the next report, counted from the first answer's
        stays = self._after(left, state.changed, place)
        counted, within = state.changed < limits.changes, place <= limits.span
        changes = (counted or within) if limits.either else (counted and within)
        return stays, self._after(left, state.changed + 1, place) if changes else 0

    def after(self, state: HistoryState, symbol: int, true: bool) -> HistoryState:
        """The memory after one more report.

        symbol: what was reported. true: whether that is the entry's state, and all before it were true.
        """
        drawn = state.drawn + 1
        if state.first == 0:
            return HistoryState(drawn, symbol, drawn if symbol or not self.null else 0, 0, true)
        return HistoryState(drawn, symbol, state.first, state.changed + (symbol != state.last), true)

    def held(self, time: int) -> tuple[int, int]:
        """How many possible histories hold input 0 at one of the times 1..m, and how many hold each other input."""
        count, d = self.count, self.states
        nothing = (count + (d - 1) * self.alternating(0, time)) // d if self.null else count // d
        return nothing, (count - nothing) // (d - 1)

    def alternating(self, start: int, end: int) -> int:
        """Σ r^c over the possible histories, r = -1/(d - 1) and c the changes that they show on (start, end].

        start, end: two of the times 1..m, or of 0..m with NULL; 0 is before the first report.
        By symmetry each state is as likely as any other to follow a change. So after c changes a state is again what it
        was with probability 1/d + (1 - 1/d) r^c.
        """
        d, m, limits = self.states, self.times, self.limits
        if not self.null:
            return d * self.answered(1, *self._overlaps(1, start, end))
        if limits.span == m - 1 and not limits.either:  # the first answer is a change as any other
            return _signed(d, m, limits.changes + 1, end - start)
        if start == 0:
            return _alternating_from_start(d, m, limits)[end]
        total = 1  # NULL for ever
        for first in range(1, m + 1):
            ways = self.answered(first, *self._overlaps(first, start, end))
            total += -ways if start < first <= end else (d - 1) * ways
        return total

    def answered(self, first: int, inside: int = 0, within: int = 0) -> int:
        """How many ways there are to go on once the first answer was given in a report, from 1 on.

        inside: the changes on so many of the reports after it count r^c, as in `alternating`; `within` of these reports
        are in the span.
        """
        return self._after(self.times - first, 0, 0, inside, within)

    def _overlaps(self, first: int, start: int, end: int) -> tuple[int, int]:
        """How many of (start, end] come after the report of the first answer, and how many of these within the span."""
        inside = range(max(start, first) + 1, end + 1)
        return len(inside), len(inside[: max(0, first + self.limits.span + 1 - inside.start)])

    def _after(self, left: int, changed: int = 0, gone: int = 0, inside: int = 0, within: int = 0) -> int:
        """How many ways there are to go on for `left` more reports, once there was a first answer.

        changed: how many changes were shown since. gone: how many reports there were since.
        inside: the changes on so many of the reports count (-1)^c/(d - 1)^c each; `within` of these are in the span.
        """
        limits, d = self.limits, self.states
        changes, span = limits.changes - changed, min(left, max(0, limits.span - gone))
        both = _signed(d, span, changes, within)
        if not limits.either:
            return both
        return _signed(d, left, changes, inside) + _signed(d, span, span, within) - both

    def _unanswered(self, left: int) -> int:
        """How many ways there are to go on for `left` more reports, if all before were NULL."""
        return 1 + (self.states - 1) * sum(self._after(then) for then in range(left))


@dataclass(frozen=True, slots=True)
class HistoryKernel:
    """The distribution of what an entry of a history group sends, in exact integers.

    odds: a:b. possible: the histories that an entry may have.

    >>> kernel = HistoryKernel(Odds(9, 1), PossibleHistories(2, 3, null=False, limits=Limits(1, 2)))
    >>> kernel.told  # of 14 parts, 8 are the truth
    Fraction(4, 7)
    >>> kernel.total(1, HistoryState()), kernel.total(1, HistoryState(drawn=1, last=1, first=1))
    (14, 11)
    """

    odds: Odds
    possible: PossibleHistories

    @property
    def told(self) -> Fraction:
        """γ: how likely an entry sends its own history, beyond how likely it sends any other.

        γ = (a - b) / (a + (|H| - 1) b). With this probability all reports are true; else any possible history is sent.
        """
        a, b = self.odds.favoured, self.odds.other
        return Fraction(a - b, a + (self.possible.count - 1) * b)

    def total(self, true: int, state: HistoryState) -> int:
        """How many integers `symbol_at` chooses by: b for each history that goes on, and a - b for the truth."""
        stays, changes = self.possible.going_on(state)
        return self.odds.other * (stays + (self.possible.states - 1) * changes) + self._favour(true, state)

    def symbol_at(self, drawn: int, true: int, state: HistoryState) -> int:
        """The symbol that the integer `drawn` in [0, total) selects: the truth below a - b, if all was true so far.

        Then the symbols in order, each with b for every possible history that goes on with it.
        true: the input that the entry has now. state: what it remembers.
        """
        stays, changes = self.possible.going_on(state)
        favour = self._favour(true, state)
        if drawn < favour:
            return true
        history = (drawn - favour) // self.odds.other
        if history < state.last * changes:
            return history // changes
        beyond = history - state.last * changes - stays
        return state.last if beyond < 0 else state.last + 1 + beyond // changes

    def after(self, state: HistoryState, true: int, symbol: int) -> HistoryState:
        """The memory after a report of this symbol."""
        return self.possible.after(state, symbol, self._favour(true, state) > 0 and symbol == true)

    def marginal(self, answers: int, time: int) -> Randomizer:
        """The law of the report at one of the times 1..m by itself, as that of an ordinary randomizer.

        answers: z. In a closed cohort all times have the same.
        """
        nothing, each = self.possible.held(time)
        favour, b = self.odds.favoured - self.odds.other, self.odds.other
        if self.possible.null:
            divisor = gcd(favour, b * nothing, b * each)
            return BasedResponse(StateSpace(answers), favour // divisor, b * nothing // divisor, b * each // divisor)
        return KaryResponse(StateSpace(answers, null=False), Odds(favour + b * each, b * each).in_lowest_terms())

    def _favour(self, true: int, state: HistoryState) -> int:
        """a - b if the truth can go on, as it always can where the device keeps the constraint; else 0."""
        stays, changes = self.possible.going_on(state)
        goes_on = (stays if true == state.last else changes) > 0
        return self.odds.favoured - self.odds.other if state.true and goes_on else 0


@lru_cache(maxsize=64)
def _alternating_from_start(states: int, times: int, limits: Limits) -> tuple[int, ...]:
    """`alternating(0, t)` for all t from 0 to `times` in an open cohort, each from sums of those who first answer when.

    Who first answers at f has as many ways to go on as there are to change at most so often on min(span, times - f)
    reports; where two limits are enough each, those of either less those of both. If the span reaches to the end,
    the first answer is a change as any other, and the sum over f is known.
    """
    d, m = states, times
    counted = [(limits.changes, limits.span, 1)]
    if limits.either:
        counted = [(limits.changes, m, 1), (m, limits.span, 1), (limits.changes, limits.span, -1)]
    totals = [1] * (m + 1)
    for most, span, sign in counted:
        whole = m - span  # up to this report the span ends before the reports do
        later = [0, *accumulate(_signed(d, min(left, span), most, 0) for left in range(m))]
        earlier = [0, *accumulate(_signed(d, span, most, min(inside, span)) for inside in range(m))]
        for t in range(m + 1):
            answered = earlier[t] - earlier[t - min(t, whole)]
            if t > whole:
                answered += 1 + (d - 1) * later[m - t] - _signed(d, span, most + 1, t - whole)
            totals[t] += sign * ((d - 1) * later[m - t] - answered)
    return tuple(totals)


@lru_cache(maxsize=2**14)
def _signed(states: int, times: int, most: int, signed: int) -> int:
    """Σ over the sequences of states that go on for so many times, with at most so many changes.

    Each counts 1, times -1/(d - 1) for every change on the first `signed` times.
    """
    if most < 0:
        return 0
    if most >= times:
        return 0 if signed else states**times
    total, ways = 0, 1
    for c in range(most + 1):
        left = most - c
        total += ways * ((-1) ** left * comb(signed - 1, left) if signed else 1)  # of Σ (-1)^j C(signed, j), j <= left
        ways = ways * (times - signed - c) * (states - 1) // (c + 1)
    return total
