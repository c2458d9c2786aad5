"""Surveys: the question, its answers, its calendar, the constraint on mutations, the release plan and the epsilon.

A survey never changes and is named by the hash of its signed bytes. Whoever makes a Survey, from fields or from bytes,
works out what its plan costs: one that states a smaller epsilon raises UnderstatedEpsilon.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .calendar import LAST_INSTANT, Calendar
from .canonical import Fields, holds_booleans
from .constraints import Constraint, constraint_from_fields
from .cost import plan_cost
from .errors import MalformedBytes, UnderstatedEpsilon
from .expectation import ExpectedChanges
from .millionths import from_micro, micro, per_week
from .plan import ReleasePlan, Track
from .plan_fields import plan_as_fields, plan_from_fields
from .quantities import SurveyId
from .randomizers.spaces import check_answers
from .signing import payload_bytes, payload_fields, signed, unverified, verified
from .strata import Breakdown, check_breakdowns, count_strata

KIND = "survey"
ID_BYTES = 16

MOST_STRATUM_CHANGES = 100
"""The most often that an entry may change its stratum."""

MOST_EPSILON_MICRO = 10**15
"""The most that a survey states, a billion: a device adds up the millionths of all its surveys in 64 bits."""


@dataclass(frozen=True)
class Survey:
    """A question and how it is answered.

    answers: the names of the answers 1..z, 1 to MOST_ANSWERS of them.
    calendar: the periods that are reported on.
    constraint: how often an entry's answer may change.
    plan: which nodes are reported, through which randomizer, by whom.
    epsilon_micro: the most that an entry can lose over the whole survey, in millionths, rounded up.
    closed: every entry has an answer from the first period to the last.
    skew: how far a device's clock may be off, in seconds; a report waits that long after its node has closed.
    spread: the report waits up to so many seconds more, at random.
    grace: for so many seconds after a node has closed the server takes reports on it.
    minimum: nodes with fewer reports are not published.
    expected: what the designer expects of the population.
    breakdowns: what is public of an entry, as its app tells it: its stratum. It costs no epsilon.
    stratum_changes: how often an entry may change its stratum.
    relay: the base URL of the relay that shuffles this survey's envelopes; empty if none does.
    follows: the id of the survey that this one goes on from; empty if none.
    Raises UnderstatedEpsilon, or ValueError with what cannot be.
    """

    question: str
    answers: tuple[str, ...]
    calendar: Calendar
    constraint: Constraint
    plan: ReleasePlan
    epsilon_micro: int
    closed: bool
    skew: int
    spread: int
    grace: int
    minimum: int
    expected: ExpectedChanges = field(default_factory=ExpectedChanges)
    breakdowns: tuple[Breakdown, ...] = ()
    stratum_changes: int = 0
    relay: str = ""
    follows: bytes = b""

    def __post_init__(self) -> None:
        if not self.question:
            raise ValueError("a survey must have a question")
        check_answers(len(self.answers))
        if len(set(self.answers)) != len(self.answers) or "" in self.answers:
            raise ValueError(f"answers must be distinct and not empty, got {list(self.answers)}")
        if self.skew < 0 or self.spread < 1:
            raise ValueError(f"skew must be >= 0 and spread >= 1 second, got {self.skew} and {self.spread}")
        if self.grace <= self.skew + self.spread:
            raise ValueError(f"grace must be longer than skew + spread = {self.skew + self.spread} s, got {self.grace}")
        if self.calendar.time(self.calendar.periods) + self.grace > LAST_INSTANT:
            raise ValueError(f"the last grace must end with the year 9999 or before, got a grace of {self.grace} s")
        if not 0 <= self.epsilon_micro <= MOST_EPSILON_MICRO:
            raise ValueError(f"a survey states 0 to {MOST_EPSILON_MICRO} millionths, got {self.epsilon_micro}")
        if self.minimum < 1:
            raise ValueError(f"the minimum of reports must be at least 1, got {self.minimum}")
        check_breakdowns(self.breakdowns)
        if not 0 <= self.stratum_changes <= MOST_STRATUM_CHANGES or (self.stratum_changes and not self.breakdowns):
            raise ValueError(
                f"an entry may change its stratum 0 to {MOST_STRATUM_CHANGES} times, and only where there are "
                f"breakdowns, got {self.stratum_changes}"
            )
        if self.follows and len(self.follows) != ID_BYTES:
            raise ValueError(f"a survey follows one with an id of {ID_BYTES} bytes, got {len(self.follows)}")
        for track in self.plan.tracks:
            self._check_track(track)
        if micro(self.cost) > self.epsilon_micro:
            raise UnderstatedEpsilon(
                f"the survey states epsilon {self.epsilon}, its plan can cost {float(self.cost):.6f}: "
                f"state at least {micro(self.cost)} millionths, or choose smaller odds"
            )

    def _check_track(self, track: Track) -> None:
        space = track.randomizer.space
        if track.last > self.calendar.periods:
            raise ValueError(f"a track reaches period {track.last} of a calendar of {self.calendar.periods}")
        if space.answers != len(self.answers):
            raise ValueError(
                f"a track's randomizer is made for {space.answers} answers, the survey has {len(self.answers)}"
            )
        if not space.null and not self.closed:
            raise ValueError("only a closed cohort may report without NULL: silence would tell")
        if not space.null and track.reports_changes and track.first == 0:
            raise ValueError("in the first period answers appear: changes without NULL are reported from after it")

    @classmethod
    def at_cost(
        cls,
        *,
        question: str,
        answers: Sequence[str],
        calendar: Calendar,
        constraint: Constraint,
        plan: ReleasePlan,
        skew: int,
        spread: int,
        grace: int,
        minimum: int,
        closed: bool = False,
        expected: ExpectedChanges = ExpectedChanges(),  # noqa: B008
        breakdowns: Sequence[Breakdown] = (),
        stratum_changes: int = 0,
        relay: str = "",
        follows: bytes = b"",
    ) -> "Survey":
        """The survey that states just what its plan can cost an entry, rounded up to millionths.

        The arguments are the survey's own. Raises ValueError as making a survey does.
        """
        return cls(
            question=question,
            answers=tuple(answers),
            calendar=calendar,
            constraint=constraint,
            plan=plan,
            epsilon_micro=micro(plan_cost(plan, calendar, constraint, closed)),
            closed=closed,
            skew=skew,
            spread=spread,
            grace=grace,
            minimum=minimum,
            expected=expected,
            breakdowns=tuple(breakdowns),
            stratum_changes=stratum_changes,
            relay=relay,
            follows=follows,
        )

    @cached_property
    def cost(self) -> Decimal:
        """What the plan can cost an entry at most, recomputed from its odds."""
        return plan_cost(self.plan, self.calendar, self.constraint, self.closed)

    @cached_property
    def strata(self) -> int:
        """How many strata there are, at least 1."""
        return count_strata(self.breakdowns)

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
        return payload_bytes(KIND, self.as_fields())

    @cached_property
    def id(self) -> SurveyId:
        """The first 16 bytes of the SHA-256 of the signed bytes."""
        return SurveyId(sha256(self.payload).digest()[:ID_BYTES])

    def signed_by(self, authority: Ed25519PrivateKey) -> bytes:
        """The survey as a signed object, as a server publishes it."""
        return signed(KIND, self.as_fields(), authority)

    @classmethod
    def from_signed(cls, encoded: bytes, authority: Iterable[bytes]) -> "Survey":
        """The survey in signed bytes.

        authority: the pinned public keys. Raises BadSignature, UnderstatedEpsilon, or MalformedBytes.
        """
        return cls.from_fields(verified(KIND, encoded, authority))

    @classmethod
    def unverified(cls, encoded: bytes) -> "Survey":
        """The survey in signed bytes, whoever signed them. Raises UnderstatedEpsilon or MalformedBytes."""
        return cls.from_fields(unverified(KIND, encoded))

    @classmethod
    def from_payload(cls, payload: bytes) -> "Survey":
        """The survey whose `payload` this is. Raises UnderstatedEpsilon or MalformedBytes."""
        return cls.from_fields(payload_fields(KIND, payload))

    @classmethod
    def from_fields(cls, fields: Fields) -> "Survey":
        """The survey that `as_fields` wrote. Raises UnderstatedEpsilon or MalformedBytes."""
        try:
            return _from_fields(fields)
        except UnderstatedEpsilon:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedBytes(f"not a survey: {error}") from error

    def as_fields(self) -> Fields:
        """What is signed, but for the kind and the protocol version."""
        return {
            "question": self.question,
            "answers": list(self.answers),
            "calendar": [self.calendar.start, self.calendar.period, self.calendar.periods],
            "constraint": self.constraint.as_fields(),
            "plan": plan_as_fields(self.plan),
            "epsilon_micro": self.epsilon_micro,
            "closed": self.closed,
            "skew": self.skew,
            "spread": self.spread,
            "grace": self.grace,
            "minimum": self.minimum,
            "expected": self.expected.as_fields(),
            "breakdowns": [[each.name, *each.values] for each in self.breakdowns],
            "stratum_changes": self.stratum_changes,
            "relay": self.relay,
            "follows": self.follows,
        }


def _from_fields(fields: Fields) -> Survey:
    match fields:
        case {
            "question": str(question),
            "answers": [*answers],
            "calendar": [int(start), int(period), int(periods)],
            "constraint": dict(constraint),
            "plan": [*groups],
            "epsilon_micro": int(epsilon_micro),
            "closed": bool(closed),
            "skew": int(skew),
            "spread": int(spread),
            "grace": int(grace),
            "minimum": int(minimum),
            "expected": {"first": int(first), "later": int(later), **unexpected},
            "breakdowns": [*breakdowns],
            "stratum_changes": int(stratum_changes),
            "relay": str(relay),
            "follows": bytes(follows),
            **rest,
        } if not (rest or unexpected or holds_booleans({**fields, "closed": None})) and all(
            isinstance(answer, str) for answer in answers
        ):
            check_answers(len(answers))  # before randomizers are made for so many
            return Survey(
                question=question,
                answers=tuple(answers),
                calendar=Calendar(start, period, periods),
                constraint=constraint_from_fields(constraint),
                plan=plan_from_fields(groups, len(answers)),
                epsilon_micro=epsilon_micro,
                closed=closed,
                skew=skew,
                spread=spread,
                grace=grace,
                minimum=minimum,
                expected=ExpectedChanges(first, later),
                breakdowns=tuple(_breakdown(each) for each in breakdowns),
                stratum_changes=stratum_changes,
                relay=relay,
                follows=follows,
            )
    raise ValueError(f"its fields are {sorted(fields)}, or one has the wrong type")


def _breakdown(named: object) -> Breakdown:
    match named:
        case [str(name), *values] if all(isinstance(value, str) for value in values):
            return Breakdown(name, tuple(map(str, values)))
    raise ValueError("a breakdown is its name and its values")
