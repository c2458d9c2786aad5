"""What a survey can tell others about one of its entries: in numbers, and in words for the person who answers.

The adversary sees everything that the device ever sends for the survey, and may know whatever else it likes. Figures
are rounded against us. Nothing here depends on what was answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from changeling_protocol import Breakdown, Survey

from .conclusion import BEFORE, Conclusion, conclude, percent_down, percent_up
from .ledger import cost_if_restored
from .truthfulness import Truthfulness, most_telling
from .wording import moment


@dataclass(frozen=True, slots=True)
class Explanation:
    """What can at most be concluded from all that one entry of a survey ever sends. `str()` says it in plain words.

    question: the survey's. answers: its answers.
    conclusions: how far an adversary can be moved, from a probability of 1%, 10% and 50%.
    if_restored: the same if a backup of the store was put back once, so that the entry answered a second time.
    one_report: what a single report says about the truth, for each kind of report in the survey.
    reports: how many reports an entry sends at most.
    ends: when the survey ends. last_sent: until when reports on it are taken.
    public: what the server learns as it is, beside the reports: each breakdown, with its values.
    stratum_changes: how often an entry may change the values of those.
    goes_on: whether the survey goes on from another one, whose cost it adds to.
    epsilon: the most that the survey can cost the entry. per_week: that on average over the weeks of its calendar,
    rounded up; a bound on no single week.
    epsilon_if_restored: the most that it costs if a backup was put back once, and nothing noticed.
    """

    question: str
    answers: tuple[str, ...]
    conclusions: tuple[Conclusion, ...]
    if_restored: tuple[Conclusion, ...]
    one_report: tuple[Truthfulness, ...]
    reports: int
    ends: datetime
    last_sent: datetime
    public: tuple[Breakdown, ...]
    stratum_changes: int
    goes_on: bool
    epsilon: Decimal
    per_week: Decimal
    epsilon_if_restored: Decimal

    def conclude(self, before: Decimal) -> Conclusion:
        """How far an adversary can be moved from a probability of one's own choice, above 0 and below 1."""
        return conclude(before, self.epsilon)

    def __str__(self) -> str:
        return "\n".join(
            (
                f"What others can learn from your answers to: {self.question}",
                "",
                *(f"- {line}" for line in (*_about_reports(self), *_about_conclusions(self), *_about_the_rest(self))),
            )
        )


def explain(survey: Survey) -> Explanation:
    """What an adversary who sees everything that an entry ever sends for a survey could at most conclude."""
    calendar, restored = survey.calendar, cost_if_restored(survey)
    ends = calendar.time(calendar.periods)
    return Explanation(
        question=survey.question,
        answers=survey.answers,
        conclusions=tuple(conclude(before, survey.epsilon) for before in BEFORE),
        if_restored=tuple(conclude(before, restored) for before in BEFORE),
        one_report=most_telling(survey.plan),
        reports=max(sum(track.reports for track in group.tracks) for group in survey.plan.groups),
        ends=datetime.fromtimestamp(ends, UTC),
        last_sent=datetime.fromtimestamp(ends + survey.grace, UTC),
        public=survey.breakdowns,
        stratum_changes=survey.stratum_changes,
        goes_on=bool(survey.follows),
        epsilon=survey.epsilon,
        per_week=survey.per_week,
        epsilon_if_restored=restored,
    )


def moved(conclusion: Conclusion) -> str:
    """From where to where an adversary can be moved, such as "from 10% to 24% at most, and to 3.9% at least"."""
    most, least = percent_up(conclusion.at_most), percent_down(conclusion.at_least)
    return f"from {percent_up(conclusion.before)} to {most} at most, and to {least} at least"


def in_the_open(breakdowns: Sequence[Breakdown]) -> str:
    """The names of breakdowns with their values, as part of a sentence."""
    return "; ".join(f"{each.name} ({', '.join(each.values)})" for each in breakdowns)


def _about_reports(explanation: Explanation) -> Sequence[str]:
    sent = "one report" if explanation.reports == 1 else f"{explanation.reports:,} reports"
    return (
        f"Your device sends at most {sent}, until {moment(explanation.ends)}; one that is late may leave it until "
        f"{moment(explanation.last_sent)}. Whether and when it sends has nothing to do with what you answer.",
        *(f"{one}" for one in explanation.one_report),
    )


def _about_conclusions(explanation: Explanation) -> Sequence[str]:
    rare, example, even = explanation.conclusions
    answer = f'"{explanation.answers[0]}"'
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
    shown = "Not hidden is that you take part, and when your device is on the network to report."
    if explanation.public:
        shown += f" So is this, which the app tells as it is: {in_the_open(explanation.public)}"
        shown += f"; it may change {explanation.stratum_changes} times." if explanation.stratum_changes else "."
    before = "This survey goes on from another one. " if explanation.goes_on else ""
    return (
        shown,
        f"{before}What other surveys tell about you, those before and after this one too, adds to what is said here.",
        f"For experts: local differential privacy of the whole history of an entry, epsilon {explanation.epsilon} over "
        f"the whole survey, {explanation.epsilon_if_restored} with a backup put back once; delta 0. On average over "
        f"its weeks epsilon is {explanation.per_week} a week, which bounds no single week or report: one alone may "
        "tell more.",
    )
