"""A paragraph for an app's privacy notice, made from a survey. Its figures are those of `explain`."""

from collections.abc import Sequence
from datetime import UTC, datetime

from changeling_protocol import Survey

from .conclusion import percent_down, percent_up
from .explain import explain, in_the_open

_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def privacy_notice(survey: Survey) -> str:
    """A paragraph in English: what is asked and sent, what can be concluded from it, and how to withdraw."""
    return " ".join((*_asked(survey), *_sent(survey), *_concluded(survey), *_seen(survey), *_withdrawn()))


def _asked(survey: Survey) -> Sequence[str]:
    answers = [f'"{answer}"' for answer in survey.answers]
    named = answers[0] if len(answers) == 1 else f"{', '.join(answers[:-1])} or {answers[-1]}"
    return (
        f'If you agree, this app takes part in a survey with the question "{survey.question}"; the answers that it '
        f"tells apart are {named}.",
        "Your answer is kept on your device and is never sent as it is.",
    )


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
    example = explain(survey).conclusions[1]
    return (
        "The server, and whoever sees all that your device ever sends for this survey, can conclude at most this: what "
        f"was thought {percent_up(example.before)} likely before, such as that you ever answered "
        f'"{survey.answers[0]}", can come to be thought at most {percent_up(example.at_most)} and at least '
        f"{percent_down(example.at_least)} likely.",
        "Other surveys that you take part in add to that.",
        "What is published are estimates for all who take part together, from at least "
        f"{survey.minimum:,} report{'s' * (survey.minimum > 1)} each.",
    )


def _seen(survey: Survey) -> Sequence[str]:
    public = "Not randomized is that your device takes part"
    if survey.breakdowns:
        public += f", and what the app tells about it for breaking results down: {in_the_open(survey.breakdowns)}"
    if survey.relay:
        between = (
            f"A relay at {survey.relay} stands between your device and the server: it sees your network address and "
            "sealed messages that it cannot open, and the server does not see your address."
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
