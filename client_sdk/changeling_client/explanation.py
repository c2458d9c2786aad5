"""The most that a survey can tell others about one of its entries: in numbers, in words, and for a privacy notice.

The adversary sees everything that the device ever sends for the survey, and may know whatever else it likes. Reports
that are at most e^epsilon times likelier under one history than under another move it from a probability p to one
between p / (p + (1 - p) e^epsilon) and p e^epsilon / (p e^epsilon + 1 - p). Figures are rounded against us. Nothing
here depends on what was answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import cast

from changeling_protocol import Agreeing, Breakdown, Question, Randomizer, ReleasePlan, Report, Survey, upwards

from .errors import quoted, shown
from .ledger import cost_if_restored

PLACES = 12
"""Bounds are rounded to so many decimal places."""
BEFORE = (Decimal("0.01"), Decimal("0.1"), Decimal("0.5"))
"""The probabilities from which an adversary is taken to start, where examples are given."""

_EXP_ERROR = Decimal("1e-45")
"""Decimal.exp is correctly rounded to 50 digits whatever the context's rounding; this covers it upwards."""
_ENOUGH = Decimal(100)
"""From here on the bounds, rounded, are 0 and 1 for every p in BEFORE, and are taken to be so for all."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The range of beliefs to which an adversary can be moved.

    before: how likely the adversary thought it was, above 0 and below 1.
    at_most: the most that it can come to think, rounded up. at_least: the least, rounded down.
    """

    before: Decimal
    at_most: Decimal
    at_least: Decimal


def conclude(before: Decimal, epsilon: Decimal) -> Conclusion:
    """The range of what somebody who held a thing for `before` likely can come to think, having seen all reports.

    before: above 0 and below 1. epsilon: 0 or more. Raises ValueError outside.

    >>> conclude(Decimal("0.1"), Decimal(1))
    Conclusion(before=Decimal('0.1'), at_most=Decimal('0.231969316685'), at_least=Decimal('0.039270300550'))
    """
    if not (0 < before < 1 and epsilon >= 0):
        raise ValueError(f"a probability between 0 and 1 and an epsilon of 0 or more, got {before} and {epsilon}")
    if epsilon >= _ENOUGH:
        return Conclusion(before, Decimal(1), Decimal(0))
    p, ratio = Fraction(before), _exp_above(epsilon)
    above, below = p * ratio / (p * ratio + 1 - p), p / (p + (1 - p) * ratio)
    return Conclusion(
        before,
        at_most=Decimal(f"{ceil(above * 10**PLACES)}e-{PLACES}"),
        at_least=Decimal(f"{floor(below * 10**PLACES)}e-{PLACES}"),
    )


def percent_up(share: Decimal | Fraction) -> str:
    """A probability as a percentage to two digits, or two beyond the nines, rounded up.

    >>> [percent_up(Decimal(share)) for share in ("0.2319", "0.0161", "0.99951", "1")]
    ['24%', '1.7%', '99.951%', '100%']
    """
    share, shift = Fraction(share), _shift(share)
    return _written(ceil(share * 10 ** (2 + shift)), shift)


def percent_down(share: Decimal | Fraction) -> str:
    """The same, rounded down.

    >>> [percent_down(Decimal(share)) for share in ("0.2319", "0.0369", "0.00004", "0")]
    ['23%', '3.6%', '0.004%', '0%']
    """
    share, shift = Fraction(share), _shift(share)
    return _written(floor(share * 10 ** (2 + shift)), shift)


def _exp_above(epsilon: Decimal) -> Fraction:
    """e^epsilon, rounded up; exactly 1 for 0."""
    if epsilon == 0:
        return Fraction(1)
    with upwards():
        return Fraction(epsilon.exp() * (1 + _EXP_ERROR))


def _shift(share: Fraction) -> int:
    """The number of places behind the point of a percentage, so that two digits tell it from 0% and from 100%."""
    gap, shift = min(share, 1 - share), 0
    while 0 < gap * 10 ** (1 + shift) < 1 and shift < 6:
        shift += 1
    return shift


def _written(scaled: int, shift: int) -> str:
    whole, rest = divmod(scaled, 10**shift)
    behind = f"{rest:0{shift}d}".rstrip("0") if shift else ""
    return f"{whole}.{behind}%" if behind else f"{whole}%"


NO_ANSWER = "no answer"


def moment(at: datetime) -> str:
    """A time in UTC: to the minute, and to the second where it is none of a full minute.

    >>> [moment(datetime(2027, 1, 1, 0, 0, second)) for second in (0, 10)]
    ['2027-01-01 00:00 UTC', '2027-01-01 00:00:10 UTC']
    """
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at.second else f"{at:%Y-%m-%d %H:%M} UTC"


def said(survey: Survey, report: Report) -> str:
    """A report in words, such as "tea", "from tea to coffee", or "more of tea and water, less of coffee"."""
    track = survey.plan.tracks[report.track]
    question = survey.questions[track.question]
    words = track.randomizer.said(report.symbol, [NO_ANSWER, *map(shown, question.answers)])
    return words if len(survey.questions) == 1 else f"{shown(question.name)}: {words}"


_STATED = (
    "names the answer that you hold, or that you hold none, {truth} of the time; by luck it would {luck} of the time"
)
_CHANGED = "names what happened, a change or none, {truth} of the time; by luck it would {luck} of the time"
_SILENT = (
    "names the change that there was {truth} of the time; by luck it would {luck} of the time. "
    "Where nothing changed it is random"
)
_FITS = (
    "points to one change or several, and the one that there was is among them {truth} of the time; by luck it would "
    "be {luck} of the time. Where nothing changed it is random"
)
_LISTS = (
    "is a list of answers, and the one that you hold is on it {truth} of the time; by luck it would be {luck} "
    "of the time"
)
_TICKS = "ticks the answer that you hold {truth} of the time, and each answer that you do not hold {luck} of the time"
_AGREES = "agrees with the truth {truth} of the time; by luck it would {luck} of the time"
_GUESS = "lets somebody guess the truth {truth} of the time, who would guess it {luck} of the time without"

_MEANINGS = {
    ("k-rr", False): _STATED,
    ("k-rr", True): _CHANGED,
    ("k-rr-change", True): _SILENT,
    ("signed-subset", True): _FITS,
    ("subset", False): _LISTS,
}
"""The meaning of a symbol that agrees with the truth, by the randomizer's kind and whether it reports changes."""


@dataclass(frozen=True, slots=True)
class Truthfulness:
    """The chances that one report of a track tells the truth.

    changes: whether it is about a change, or about the answer held at a time.
    meaning: what it is for such a report to tell the truth, a sentence with a place for each of the two figures.
    truth: the probability that it tells the truth, if there is one to be told.
    luck: the probability that a report says the same that knows nothing of the truth.
    """

    changes: bool
    meaning: str
    truth: Fraction
    luck: Fraction

    def __str__(self) -> str:
        subject = "A single report about a change" if self.changes else "A single report about your answer"
        return f"{subject} {self.meaning.format(truth=percent_up(self.truth), luck=percent_down(self.luck))}."


def truthfulness(randomizer: Randomizer) -> Truthfulness:
    """The chances that one report through a randomizer tells the truth.

    Of one that is neither unary nor favours the symbols that agree with the truth, such as a custom matrix, the best
    guess counts: how often whoever holds all inputs for equally likely guesses the true one from the symbol.
    """
    changes = randomizer.space.reports_changes
    ticks: tuple[Fraction, Fraction] | None = getattr(randomizer, "ticks", None)
    if ticks is not None:
        return Truthfulness(changes, _TICKS, *ticks)
    if hasattr(randomizer, "favoured_symbol_at"):
        agreeing = cast(Agreeing, randomizer)
        p, a, b = agreeing.agreement, agreeing.odds.favoured, agreeing.odds.other
        return Truthfulness(changes, _MEANINGS.get((agreeing.kind, changes), _AGREES), p * a / (p * a + (1 - p) * b), p)
    return Truthfulness(changes, _GUESS, *_guessed(randomizer))


def most_telling(plan: ReleasePlan) -> tuple[Truthfulness, ...]:
    """The most telling report for each meaning that a report of the plan can have."""
    best: dict[tuple[bool, str], Truthfulness] = {}
    for track in plan.tracks:
        one = truthfulness(track.randomizer)
        kept = best.setdefault((one.changes, one.meaning), one)
        if one.truth - one.luck > kept.truth - kept.luck:
            best[one.changes, one.meaning] = one
    return tuple(best.values())


def _guessed(randomizer: Randomizer) -> tuple[Fraction, Fraction]:
    """The chances that a best guess is right with the symbol, and without it; inputs that never occur aside."""
    space = randomizer.space
    inputs = [
        true for true in range(space.size) if true == 0 or not space.reports_changes or len(set(space.pair(true))) == 2
    ]
    totals = {true: randomizer.total(true) for true in inputs}
    right = sum(
        max(Fraction(randomizer.weight(symbol, true), totals[true]) for true in inputs)
        for symbol in range(randomizer.symbols)
    )
    return right / Fraction(len(inputs)), Fraction(1, len(inputs))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The most that can be concluded from all that one entry of a survey ever sends. `str()` says it in plain words.

    survey: the survey, with its answers, its dates, and what the server learns as it is.
    conclusions: how far an adversary can be moved, from a probability of 1%, 10% and 50%.
    if_restored: the same if a backup of the store was put back once, so that the entry answered a second time.
    one_report: what a single report says about the truth, for each kind of report in the survey.
    reports: how many reports an entry sends at most.
    """

    survey: Survey
    conclusions: tuple[Conclusion, ...]
    if_restored: tuple[Conclusion, ...]
    one_report: tuple[Truthfulness, ...]
    reports: int

    def conclude(self, before: Decimal) -> Conclusion:
        """The same from a probability of one's own choice, above 0 and below 1."""
        return conclude(before, self.survey.epsilon)

    def __str__(self) -> str:
        return "\n".join(
            (
                f"What others can learn from your answers to: {shown(self.survey.title)}",
                "",
                *(f"- {line}" for line in (*_about_reports(self), *_about_conclusions(self), *_about_the_rest(self))),
            )
        )


def explain(survey: Survey) -> Explanation:
    """The most that an adversary who sees everything that an entry ever sends for a survey could conclude.

    >>> from changeling_client.testing import make_survey
    >>> print(str(explain(make_survey(periods=7, epsilon=2))).splitlines()[0])
    What others can learn from your answers to: What do you drink?
    """
    restored = cost_if_restored(survey)
    return Explanation(
        survey,
        conclusions=tuple(conclude(before, survey.epsilon) for before in BEFORE),
        if_restored=tuple(conclude(before, restored) for before in BEFORE),
        one_report=most_telling(survey.plan),
        reports=max(sum(track.reports for track in group.tracks) for group in survey.plan.groups),
    )


def moved(conclusion: Conclusion) -> str:
    """From where to where an adversary can be moved, such as "from 10% to 24% at most, and to 3.9% at least"."""
    most, least = percent_up(conclusion.at_most), percent_down(conclusion.at_least)
    return f"from {percent_up(conclusion.before)} to {most} at most, and to {least} at least"


def in_the_open(breakdowns: Sequence[Breakdown]) -> str:
    """The names of breakdowns with their values, as part of a sentence."""
    return "; ".join(f"{shown(each.name)} ({', '.join(map(shown, each.values))})" for each in breakdowns)


def _about_reports(explanation: Explanation) -> Sequence[str]:
    sent = "one report" if explanation.reports == 1 else f"{explanation.reports:,} reports"
    calendar, grace = explanation.survey.calendar, explanation.survey.grace
    ends = calendar.time(calendar.periods)
    last, late = (moment(datetime.fromtimestamp(at, UTC)) for at in (ends, ends + grace))
    return (
        f"Your device sends at most {sent}, until {last}; one that is late may leave it until {late}. "
        "Whether and when it sends has nothing to do with what you answer.",
        *(f"{one}" for one in explanation.one_report),
    )


def _about_conclusions(explanation: Explanation) -> Sequence[str]:
    rare, example, even = explanation.conclusions
    answer = quoted(explanation.survey.asked[0].answers[0])
    return (
        f"All reports together: whoever thought before that it was {percent_up(example.before)} likely that you ever "
        f"answered {answer} can at most come to think it {percent_up(example.at_most)}, and at least "
        f"{percent_down(example.at_least)}. In the same way others can be moved {moved(rare)}, and {moved(even)}.",
        "That holds for everything about your answers and when they changed, not only for this example, and whatever "
        "else is known about you. If the app keeps several answers of yours in this survey, it holds for each of them, "
        "and what they tell adds up.",
        "If a backup of the device is put back once while the survey runs, and nothing notices, the device answers "
        f"again. Then others can be moved {moved(explanation.if_restored[1])}.",
    )


def _about_the_rest(explanation: Explanation) -> Sequence[str]:
    survey = explanation.survey
    told = "Not hidden is that you take part, and when your device is on the network to report."
    if survey.public:
        told += f" So is this, which the app tells as it is: {in_the_open(survey.public)}"
        told += f"; it may change {survey.stratum_changes} times." if survey.stratum_changes else "."
    before = "This survey goes on from another one. " if survey.follows else ""
    return (
        told,
        f"{before}What other surveys tell about you, those before and after this one too, adds to what is said here.",
        f"For experts: local differential privacy of the whole history of an entry, epsilon {survey.epsilon} over the "
        f"whole survey, {cost_if_restored(survey)} with a backup put back once; delta 0. On average over its weeks "
        f"epsilon is {survey.per_week} a week, which bounds no single week or report: one alone may tell more.",
    )


_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def privacy_notice(survey: Survey) -> str:
    """A paragraph in English: what is asked and sent, what can be concluded from it, and how to withdraw.

    >>> from changeling_client.testing import make_survey
    >>> "never sent as it is" in privacy_notice(make_survey(periods=7, epsilon=2))
    True
    """
    return " ".join((*_asked(survey), *_sent(survey), *_concluded(survey), *_seen(survey), *_withdrawn()))


def _asked(survey: Survey) -> Sequence[str]:
    asked = "; ".join(_with_answers(question) for question in survey.asked)
    several = f"{len(survey.asked)} questions:" if len(survey.asked) > 1 else "the question"
    by_itself = (
        "The survey counts only so many changes of an answer. Whether yours changed more often, your device reports in "
        "the same way as the answer."
    )
    return (
        f"If you agree, this app takes part in a survey with {several} {asked}.",
        *([by_itself] if len(survey.asked) < len(survey.questions) else []),
        "Your answer is kept on your device and is never sent as it is.",
    )


def _with_answers(question: Question) -> str:
    answers = [quoted(answer) for answer in question.answers]
    named = answers[0] if len(answers) == 1 else f"{', '.join(answers[:-1])} or {answers[-1]}"
    return f"{quoted(question.text)}; the answers that it tells apart are {named}"


def _sent(survey: Survey) -> Sequence[str]:
    calendar, tracks = survey.calendar, survey.plan.tracks
    changes, states = (any(track.reports_changes is about for track in tracks) for about in (True, False))
    told = " or ".join(
        words for words, there in (("how your answer has changed", changes), ("which answer you hold", states)) if there
    )
    often = _duration(min(track.width for track in tracks) * calendar.period)
    explanation = explain(survey)
    return (
        f"From {_day(calendar.start)} to {_day(calendar.time(calendar.periods))} your device sends at most "
        f"{explanation.reports:,} randomized report{'s' * (explanation.reports > 1)} on {told}. They fall due at most "
        f"once every {often}; those that fall due together go in one message, encrypted for the server of the survey.",
        "Each report is drawn by lot on your device and may be the truth or not; the device sends them in the same way "
        "whatever you answer, and whether or not that changes.",
        *(f"{one}" for one in explanation.one_report),
    )


def _concluded(survey: Survey) -> Sequence[str]:
    example, answer = explain(survey).conclusions[1], quoted(survey.asked[0].answers[0])
    return (
        "The server, and whoever sees all that your device ever sends for this survey, can conclude at most this: what "
        f"was thought {percent_up(example.before)} likely before, such as that you ever answered "
        f"{answer}, can come to be thought at most {percent_up(example.at_most)} and at least "
        f"{percent_down(example.at_least)} likely.",
        "Other surveys that you take part in add to that.",
        "What is published are estimates for all who take part together, from at least "
        f"{survey.minimum:,} report{'s' * (survey.minimum > 1)} each.",
    )


def _seen(survey: Survey) -> Sequence[str]:
    public = "Not randomized is that your device takes part"
    if survey.breakdowns:
        public += f", and what the app tells about it for breaking results down: {in_the_open(survey.breakdowns)}"
    if survey.public != survey.breakdowns:
        public += ", and one of a few offsets, drawn by lot once, with which your device rounds numbers"
    if survey.relay:
        between = (
            f"A relay at {shown(survey.relay)} stands between your device and the server: it sees your network address "
            "and sealed messages that it cannot open, and the server does not see your address."
        )
    else:
        between = (
            "No relay stands between your device and the server, which sees your network address while they are "
            "connected, as every server does."
        )
    return (f"{public}.", between)


def _withdrawn() -> Sequence[str]:
    return (
        "You can withdraw in this app at any time: it then erases at once all that it keeps for the survey on your "
        "device, and sends nothing more.",
        "Reports that were sent before carry no name, so they cannot be found again, and stay counted.",
    )


def _day(time: int) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}"


def _duration(seconds: int) -> str:
    """In the largest unit that divides it: "day", "6 hours"."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return unit if seconds == size else f"{seconds // size} {unit}s"
