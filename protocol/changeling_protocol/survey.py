"""Surveys: the questions, their calendar, the release plan and the epsilon.

A survey never changes and is named by the hash of its signed bytes. Whoever makes a Survey, from fields or from bytes,
works out what its plan costs: one that states a smaller epsilon raises UnderstatedEpsilon. Its early end is a second
signed object, beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from html import escape
from math import prod
from typing import Any, ClassVar, NewType, Self

from .calendar import LAST_INSTANT, MOST_PERIODS, Calendar
from .cost import plan_cost
from .errors import UnderstatedEpsilon
from .plan import ReleasePlan, Track, plan_as_fields, plan_from_fields
from .questions import MOST_QUESTIONS, OFFSETS, Constraint, ExpectedChanges, Question
from .randomizers.interface import from_micro, micro, per_week
from .signing import ID_BYTES, Fields, SignedObject, SurveyId, holds_booleans, members, payload_bytes

MOST_STRATA = 2**10
"""The most combinations of values that a survey may declare: tallies are kept for each."""

MOST_STRATUM_CHANGES = 100
"""The most often that an entry may change its stratum."""

MOST_EPSILON_MICRO = 10**15
"""The most that a survey states, a billion: a device adds up the millionths of all its surveys in 64 bits."""

EntryNumber = NewType("EntryNumber", int)
"""An entry's number among those that an app holds for one survey, from 0 on."""

StratumNumber = NewType("StratumNumber", int)
"""A combination of the values of a survey's breakdowns, from 0 on."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A public property of entries that results are broken down by, such as the platform.

    An entry's value is told by its app and sent in the open, beside its reports. It must not depend on any answer; so
    it costs no epsilon, and whoever sees the inside of an envelope learns it.

    name: such as "platform".
    values: their names; at least one. Each entry has one of them.
    Raises ValueError for names that are empty or occur twice.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a breakdown must have a name")
        if not self.values or len(set(self.values)) < len(self.values) or "" in self.values:
            raise ValueError(f"the values of {self.name!r} must be distinct and not empty, got {list(self.values)}")


@dataclass(frozen=True)
class Survey(SignedObject):
    """One or several questions and how they are answered, at one epsilon for all of them together.

    Of a survey with one question, and of the view that `about` gives of one of several, `question`, `answers`,
    `constraint` and `expected` are that question's.

    questions: what is asked, 1 to MOST_QUESTIONS; tracks of the plan name theirs by its place.
    calendar: the periods that are reported on.
    plan: which nodes are reported, through which randomizer, by whom.
    epsilon_micro: the most that an entry can lose over the whole survey, in millionths, rounded up.
    closed: every entry has an answer from the first period to the last.
    skew: how far a device's clock may be off, in seconds; a report waits that long after its node has closed.
    spread: the report waits up to so many seconds more, at random.
    grace: for so many seconds after a node has closed the server takes reports on it.
    minimum: nodes with fewer reports are not published.
    breakdowns: the public properties of an entry, as its app tells them. They cost no epsilon.
    stratum_changes: how often an entry may change its stratum, which is one value for each breakdown.
    relay: the base URL of the relay that shuffles this survey's envelopes; empty if none does.
    follows: the id of the survey that this one goes on from; empty if none.
    Raises UnderstatedEpsilon, or ValueError with what cannot be.
    """

    kind: ClassVar[str] = "survey"
    questions: tuple[Question, ...]
    calendar: Calendar
    plan: ReleasePlan
    epsilon_micro: int
    closed: bool
    skew: int
    spread: int
    grace: int
    minimum: int
    breakdowns: tuple[Breakdown, ...] = ()
    stratum_changes: int = 0
    relay: str = ""
    follows: bytes = b""

    def __post_init__(self) -> None:
        self._check_questions()
        self._check_times()
        if not 0 <= self.epsilon_micro <= MOST_EPSILON_MICRO:
            raise ValueError(f"a survey states 0 to {MOST_EPSILON_MICRO} millionths, got {self.epsilon_micro}")
        if self.minimum < 1:
            raise ValueError(f"the minimum of reports must be at least 1, got {self.minimum}")
        if self.follows and len(self.follows) != ID_BYTES:
            raise ValueError(f"a survey follows one with an id of {ID_BYTES} bytes, got {len(self.follows)}")
        for track in self.plan.tracks:
            self._check_track(track)
        if micro(self.cost) > self.epsilon_micro:
            raise UnderstatedEpsilon(
                f"the survey states epsilon {self.epsilon}, its plan can cost {float(self.cost):.6f}: "
                f"state at least {micro(self.cost)} millionths, or choose smaller odds"
            )

    def _check_questions(self) -> None:
        if not 1 <= len(self.questions) <= MOST_QUESTIONS:
            raise ValueError(
                f"a survey asks 1 to {MOST_QUESTIONS} questions, got {len(self.questions)}: ask in two surveys"
            )
        if len({each.name for each in self.questions}) < len(self.questions):
            raise ValueError(f"questions must have distinct names, got {[each.name for each in self.questions]}")
        about = [each.freezing_of for each in self.questions if each.freezing_of]
        if len(set(about)) < len(about) or not {each.name for each in self.asked}.issuperset(about):
            raise ValueError(f"a freezing question is about one that apps answer, each about another; got {about}")
        if self.strata > MOST_STRATA:
            raise ValueError(
                f"breakdowns and the {OFFSETS} offsets of numbers have at most {MOST_STRATA} combinations, "
                f"got {self.strata}: leave breakdowns out"
            )
        check_breakdowns(self.breakdowns)
        if not 0 <= self.stratum_changes <= MOST_STRATUM_CHANGES or (self.stratum_changes and not self.breakdowns):
            raise ValueError(
                f"an entry may change its stratum 0 to {MOST_STRATUM_CHANGES} times, and only where there are "
                f"breakdowns, got {self.stratum_changes}"
            )

    def _check_times(self) -> None:
        if self.skew < 0 or self.spread < 1:
            raise ValueError(f"skew must be >= 0 and spread >= 1 second, got {self.skew} and {self.spread}")
        if self.grace <= self.skew + self.spread:
            raise ValueError(f"grace must be longer than skew + spread = {self.skew + self.spread} s, got {self.grace}")
        if self.calendar.time(self.calendar.periods) + self.grace > LAST_INSTANT:
            raise ValueError(f"the last grace must end with the year 9999 or before, got a grace of {self.grace} s")

    def _check_track(self, track: Track) -> None:
        space = track.randomizer.space
        if track.last > self.calendar.periods:
            raise ValueError(f"a track reaches period {track.last} of a calendar of {self.calendar.periods}")
        if not 0 <= track.question < len(self.questions):
            raise ValueError(f"a track is about question {track.question}, of {len(self.questions)} from 0 on")
        if space.answers != len(answers := self.questions[track.question].answers):
            raise ValueError(
                f"a track's randomizer is made for {space.answers} answers, its question has {len(answers)}"
            )
        if not space.null and not self.closed:
            raise ValueError("only a closed cohort may report without NULL: silence would tell")
        if not space.null and track.reports_changes and track.first == 0:
            raise ValueError("in the first period answers appear: changes without NULL are reported from after it")

    @classmethod
    def at_cost(
        cls,
        *,
        plan: ReleasePlan,
        calendar: Calendar,
        questions: Sequence[Question] = (),
        closed: bool = False,
        **others: Any,
    ) -> Self:
        """The survey that states just what its plan can cost an entry, rounded up to millionths.

        questions: what is asked. If it is one, its fields can be given instead: question (its text), answers,
        constraint and expected; it is called "question".
        others: the survey's other fields but epsilon_micro, by name. Raises ValueError as making a survey does.
        """
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in others.items()
        }
        if not questions:
            asked = {name: fields.pop(name) for name in ("answers", "constraint", "expected") if name in fields}
            questions = (Question(ONLY, fields.pop("question"), **asked),)
        epsilon_micro = micro(plan_cost(plan, calendar, tuple(each.constraint for each in questions), closed))
        return cls(
            questions=tuple(questions),
            plan=plan,
            calendar=calendar,
            closed=closed,
            epsilon_micro=epsilon_micro,
            **fields,
        )

    def __repr__(self) -> str:
        calendar = self.calendar
        return f"<Survey: {self.title!r}, {calendar.periods} periods of {calendar.period} s, epsilon {self.epsilon}>"

    def _repr_html_(self) -> str:
        asked = [(each.text, f"{', '.join(each.answers)}; {each.constraint!r}") for each in self.questions]
        rows = [
            *asked,
            ("periods", f"{self.calendar.periods} of {self.calendar.period:,} seconds"),
            ("epsilon", f"at most {self.epsilon} for all that an entry ever says"),
            ("plan", f"{len(self.plan.groups)} groups, of which an entry draws one; {len(self.plan.tracks)} tracks"),
        ]
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(said)}</td></tr>" for name, said in rows)
        return f"<table>{''.join(lines)}</table>"

    @property
    def only(self) -> Question:
        """The question. Raises ValueError if there are several."""
        if len(self.questions) > 1:
            raise ValueError(f"the survey asks {len(self.questions)} questions: say about which, see Survey.about")
        return self.questions[0]

    @property
    def question(self) -> str:
        """The text of the only question, as `only`."""
        return self.only.text

    @property
    def title(self) -> str:
        """The text of the only question that apps answer, or the names of all: one line for a list of surveys."""
        if len(self.asked) == 1:
            return self.asked[0].text
        return f"{len(self.asked)} questions: {', '.join(each.name for each in self.asked)}"

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers of the only question, as `only`."""
        return self.only.answers

    @property
    def constraint(self) -> Constraint:
        """The constraint of the only question, as `only`."""
        return self.only.constraint

    @property
    def expected(self) -> ExpectedChanges:
        """How often the answer to the only question is expected to change, as `only`."""
        return self.only.expected

    def asking(self, **changes: Any) -> Self:
        """The survey with other fields, of its own or of its only question, by name; `question` is its text."""
        fields = {("text" if name == "question" else name): changes[name] for name in changes}
        asked = {name: fields.pop(name) for name in ("text", "answers", "constraint", "expected") if name in fields}
        return replace(self, questions=(replace(self.only, **asked),), **fields)

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraint of each question."""
        return tuple(each.constraint for each in self.questions)

    @cached_property
    def asked(self) -> tuple[Question, ...]:
        """The questions that apps record answers to; devices answer the others by themselves."""
        return tuple(each for each in self.questions if not each.freezing_of)

    @cached_property
    def freezing(self) -> tuple[int | None, ...]:
        """The place of the freezing question about each question; None where there is none."""
        about = {each.freezing_of: place for place, each in enumerate(self.questions) if each.freezing_of}
        return tuple(about.get(each.name) for each in self.questions)

    @cached_property
    def kept_for(self) -> tuple[tuple[int, ...], ...]:
        """The questions whose nodes a device keeps its states of each question for.

        They are itself and, if there are two of which one follows from the other, the other.
        """
        pairs = {place: (place, other) for place, other in enumerate(self.freezing) if other is not None}
        pairs |= {pair[1]: pair for pair in pairs.values()}
        return tuple(pairs.get(place, (place,)) for place in range(len(self.questions)))

    def place_of(self, name: str) -> int:
        """The place of the question with a name, from 0. Raises ValueError with the names there are."""
        for place, each in enumerate(self.questions):
            if each.name == name:
                return place
        raise ValueError(f"the questions are {[each.name for each in self.questions]}, got {name!r}")

    def about(self, question: int) -> Self:
        """The survey as one of its questions sees it: a survey of that question alone, for estimates and pages.

        question: its place. The view has the survey's id, bytes and cost, and all its groups by their numbers, of which
        each has only the tracks about the question (`plan.numbers_about` tells their numbers in the whole plan). Of a
        freezing question it no longer says that it is one. It is not signed, and not sent.
        """
        if len(self.questions) == 1:
            return self
        alone = replace(self.questions[question], freezing_of="")
        view = replace(self, questions=(alone,), plan=self.plan.about(question))
        vars(view).update(id=self.id, payload=self.payload, cost=self.cost, public=self.public, strata=self.strata)
        return view

    @cached_property
    def cost(self) -> Decimal:
        """The most that the plan can cost an entry, over all questions, recomputed from its odds."""
        return plan_cost(self.plan, self.calendar, self.constraints, self.closed)

    @cached_property
    def public(self) -> tuple[Breakdown, ...]:
        """The strata that an envelope shows: the breakdowns, and last the offset if a question asks for a number."""
        numbers = any(each.is_number for each in self.questions)
        return (*self.breakdowns, OFFSET) if numbers else self.breakdowns

    @cached_property
    def strata(self) -> int:
        """How many strata there are, at least 1: one for each combination of what is public."""
        return count_strata(self.public)

    @property
    def epsilon(self) -> Decimal:
        """The stated epsilon."""
        return from_micro(self.epsilon_micro)

    @property
    def per_week(self) -> Decimal:
        """The stated epsilon on average over the calendar's weeks, rounded up to millionths; no bound on a week."""
        return per_week(self.epsilon, self.calendar.period * self.calendar.periods)

    @cached_property
    def payload(self) -> bytes:
        """The canonical bytes that are signed."""
        return payload_bytes(self.kind, self.as_fields())

    @cached_property
    def id(self) -> SurveyId:
        """The first 16 bytes of the SHA-256 of the signed bytes."""
        return SurveyId(sha256(self.payload).digest()[:ID_BYTES])

    def as_fields(self) -> Fields:
        """The signed fields, but for the kind and the protocol version."""
        return {
            "questions": [each.as_fields() for each in self.questions],
            "calendar": [self.calendar.start, self.calendar.period, self.calendar.periods],
            "plan": plan_as_fields(self.plan),
            "epsilon_micro": self.epsilon_micro,
            "closed": self.closed,
            "skew": self.skew,
            "spread": self.spread,
            "grace": self.grace,
            "minimum": self.minimum,
            "breakdowns": [[each.name, *each.values] for each in self.breakdowns],
            "stratum_changes": self.stratum_changes,
            "relay": self.relay,
            "follows": self.follows,
        }

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        lists = dict.fromkeys(("questions", "calendar", "plan", "breakdowns"), list)
        numbers = dict.fromkeys(("epsilon_micro", "skew", "spread", "grace", "minimum", "stratum_changes"), int)
        told = members(fields, **lists, **numbers, closed=bool, relay=str, follows=bytes)
        if holds_booleans({**fields, "closed": None}):
            raise ValueError("nothing but `closed` is a boolean")
        if len(told["questions"]) > MOST_QUESTIONS:
            raise ValueError(f"a survey asks at most {MOST_QUESTIONS} questions, got {len(told['questions'])}")
        if list(map(type, told["calendar"])) != [int] * 3:
            raise ValueError("a calendar is its start, the length of a period, and how many there are")
        asked = tuple(map(Question.from_fields, told["questions"]))
        read = {
            "questions": asked,
            "calendar": Calendar(*told["calendar"]),
            "plan": plan_from_fields(told["plan"], [len(each.answers) for each in asked]),
            "breakdowns": tuple(map(_breakdown, told["breakdowns"])),
        }
        return cls(**{**told, **read})


OFFSET = Breakdown("offset", tuple(f"{2 * offset + 1}/{2 * OFFSETS}" for offset in range(OFFSETS)))
"""The offset that an entry rounds numbers with: its device draws it once, and it is public as a breakdown is."""

ONLY = "question"
"""The name of a question that was given none, as it is the only one."""


def _breakdown(named: object) -> Breakdown:
    match named:
        case [str(name), *values] if all(isinstance(value, str) for value in values):
            return Breakdown(name, tuple(map(str, values)))
    raise ValueError("a breakdown is its name and its values")


def check_breakdowns(breakdowns: Sequence[Breakdown]) -> None:
    """Raises ValueError for breakdowns with one name, or with more combinations than MOST_STRATA."""
    if len({each.name for each in breakdowns} - {OFFSET.name}) < len(breakdowns):
        raise ValueError(
            f"breakdowns must have distinct names, none {OFFSET.name!r}, got {[each.name for each in breakdowns]}"
        )
    if (count := count_strata(breakdowns)) > MOST_STRATA:
        raise ValueError(f"breakdowns have at most {MOST_STRATA} combinations of values, got {count}: leave some out")


def count_strata(breakdowns: Sequence[Breakdown]) -> int:
    """How many strata there are: one for each combination of values; 1 without breakdowns."""
    return prod(len(each.values) for each in breakdowns)


def stratum_of(breakdowns: Sequence[Breakdown], values: Mapping[str, str]) -> StratumNumber:
    """The number of a stratum, from 0; the last breakdown's values are next to each other.

    values: the value for the name of every breakdown. Raises ValueError for names and values that are not declared, or
    are missing.

    >>> system, channel = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))
    >>> stratum_of([system, channel], {"channel": "beta", "system": "linux"})
    1
    """
    if values and not breakdowns:
        raise ValueError(f"the survey breaks nothing down, so it takes no stratum; got one for {sorted(values)}")
    if values.keys() != {each.name for each in breakdowns}:
        raise ValueError(
            f"a stratum has a value for each of {[each.name for each in breakdowns]}, got one for {sorted(values)}"
        )
    number = 0
    for each in breakdowns:
        if values[each.name] not in each.values:
            raise ValueError(f"{each.name!r} is one of {list(each.values)}, got {values[each.name]!r}")
        number = number * len(each.values) + each.values.index(values[each.name])
    return StratumNumber(number)


def stratum_values(breakdowns: Sequence[Breakdown], stratum: StratumNumber) -> dict[str, str]:
    """The value of each breakdown in a stratum, from which `stratum_of` makes its number."""
    values: dict[str, str] = {}
    rest = int(stratum)
    for each in reversed(breakdowns):
        rest, value = divmod(rest, len(each.values))
        values[each.name] = each.values[value]
    return dict(reversed(values.items()))


@dataclass(frozen=True, slots=True)
class EarlyEnd(SignedObject):
    """The early end of a survey: after which period nothing more is asked.

    The server keeps it, refuses reports on later closings, and takes its last period for the calendar's last in all
    that it publishes. Devices answer on until the grace of that period is over, at no more than the epsilon that the
    survey states. Then the server refuses that as "closed", and a device that is told so asks for the end, checks who
    signed it, drops and counts what waits, and leaves the survey ended.

    survey: the survey's id. last: the number of the last period of its calendar that counts, from 1.
    """

    kind: ClassVar[str] = "early-end"
    survey: SurveyId
    last: int

    def __post_init__(self) -> None:
        if len(self.survey) != ID_BYTES:
            raise ValueError(f"a survey's id has {ID_BYTES} bytes, got {len(self.survey)}")
        if not 1 <= self.last <= MOST_PERIODS:
            raise ValueError(f"a survey ends after a period of its calendar, numbered from 1, got {self.last}")
