"""The options of a wish, which `changeling survey new` and `changeling-sim plan` share, and the wish that they make.

A wish says how many are asked what, for how long, at which cost; the planner makes a survey of it.
"""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

import typer
from changeling_protocol import (
    ONLY,
    Breakdown,
    Calendar,
    Constraint,
    ExpectedChanges,
    Question,
    Survey,
    check_answers,
    format_duration,
    parse_duration,
    parse_instant,
)
from changeling_protocol.wire import is_loopback
from changeling_statistics import constraint_of, parse_count, parse_epsilon

if TYPE_CHECKING:
    from changeling_statistics import Wish


YEAR = 31_557_600
"""A mean year in seconds."""
T = TypeVar("T")


def _parser(parse: Callable[[str], T]) -> Callable[[str], T]:
    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def relay_url(text: str) -> str:
    """A base URL: HTTPS, or on loopback; without credentials or a query."""
    parts = urlsplit(text)
    bare = not (parts.username or parts.password or parts.query or parts.fragment)
    if text and not (bare and parts.hostname and (parts.scheme == "https" or is_loopback(parts.hostname))):
        raise ValueError(f"write a base URL such as https://relay.example.org, got {text!r}")
    return text


read_duration, read_epsilon, read_count = _parser(parse_duration), _parser(parse_epsilon), _parser(parse_count)
read_date = _parser(lambda text: int(parse_instant(text)))
read_length = _parser(lambda text: parse_duration(text, months=True))
read_url = _parser(relay_url)

_wish, _changes, _survey = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("The wish", "How answers change", "The survey, for devices and the server")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WishOptions:
    """The options of a wish, as they were given; durations and times in seconds.

    Every field is an option of its name, except that `pilot` is `--from` and `estimand` is `--for`.
    """

    period: Annotated[
        int, _wish(parser=read_duration, metavar="DURATION", help="The shortest span reported on: 1h, 1d, 13w.")
    ]
    epsilon: Annotated[
        Decimal,
        _wish(parser=read_epsilon, metavar="EPSILON", help="The most that an entry may lose over the whole survey."),
    ]
    devices: Annotated[int, _wish(parser=read_count, metavar="N", help="How many are expected to answer: 20000, 1e6.")]
    horizon: Annotated[
        int | None, _wish(parser=read_duration, metavar="DURATION", help="How long the survey lasts: 365d, 52w.")
    ] = None
    periods: Annotated[int | None, _wish(min=1, metavar="N", help="How many periods, instead of --horizon.")] = None
    question: Annotated[
        list[str] | None,
        _wish(
            metavar="TEXT", help="What people are asked; again, as NAME=TEXT, for more questions with the same answers."
        ),
    ] = None
    answers: Annotated[str, _wish(metavar="NAMES", help="How many answers, or their names with commas between.")] = ""
    unit: Annotated[
        str | None,
        _wish(
            metavar="UNIT",
            help="The answers are levels of a number, or its range as 0..120, in this unit: min; empty for none.",
        ),
    ] = None
    questions: Annotated[
        Path | None, _wish(metavar="TOML", help="Questions that differ, instead of --question and --answers.")
    ] = None
    estimand: Annotated[
        str,
        _wish(
            "--for",
            metavar="FIGURE",
            help="The figure that counts, whose error is printed: histogram, mean, quantile or difference.",
        ),
    ] = "histogram"
    retrospective: Annotated[
        bool, _wish("--retrospective", help="Histograms are wanted when all is over, from everything.")
    ] = False
    objective: Annotated[str, _wish(metavar="mean|worst", help="The error to make small.")] = "mean"
    bridge: Annotated[
        bool, _wish("--bridge/--no-bridge", help="Any one lost period is bridged within a tenth of the horizon.")
    ] = True
    detect: Annotated[
        float | None,
        _wish(
            metavar="SHARE",
            help="Say how many devices tell the shares of two arms apart that differ so: 0.02 is two points.",
        ),
    ] = None
    power: Annotated[
        float, _wish(metavar="CHANCE", help="With --detect: the chance to find the difference, in a test at 5%.")
    ] = 0.8
    at_most: Annotated[
        int | None, _changes(metavar="K", help="An entry's answer changes at most so often; appearing counts.")
    ] = None
    within: Annotated[
        int | None,
        _changes(
            parser=read_length,
            metavar="DURATION",
            help="An entry's changes lie within so long of its first. With --at-most: both hold.",
        ),
    ] = None
    closed: Annotated[bool, _changes("--closed", help="Everybody has an answer from first to last.")] = False
    expected_changes: Annotated[
        float | None,
        _changes(
            metavar="X",
            help="How often an entry is expected to change over the horizon.",
            show_default="half of those allowed",
        ),
    ] = None
    changes_per_year: Annotated[float | None, _changes(metavar="X", help="The same as a rate: so often a year.")] = None
    changes_spread: Annotated[
        float | None,
        _changes(
            metavar="X",
            help="How far entries differ in their changes: a standard deviation.",
            show_default="that of chance alone",
        ),
    ] = None
    first_share: Annotated[
        float,
        _changes(metavar="SHARE", help="The share of the entries that is expected to answer in the first period."),
    ] = 1.0
    pilot: Annotated[
        Path | None,
        _changes(
            "--from",
            metavar="CHANGELOG",
            help="A pilot's entry,time,answer, as CSV: how often answers change, who has one, and where they go.",
        ),
    ] = None
    ask_freezing: Annotated[
        bool,
        _changes(
            "--ask-freezing",
            help="Ask too whether an answer changed more often: a yes or no that devices answer by themselves, which "
            "bounds the bias of freezing.",
        ),
    ] = False
    start: Annotated[
        int | None,
        _survey(parser=read_date, metavar="DATE", show_default="tomorrow", help="When it begins, in UTC."),
    ] = None
    skew: Annotated[
        int, _survey(parser=read_duration, metavar="DURATION", help="How far a device's clock may be off.")
    ] = "5m"  # type: ignore[assignment]
    spread: Annotated[
        int,
        _survey(
            parser=read_duration,
            metavar="DURATION",
            help="Devices report within so long of a period's close, at random.",
        ),
    ] = "1h"  # type: ignore[assignment]
    grace: Annotated[
        int,
        _survey(parser=read_duration, metavar="DURATION", help="Reports are taken for so long after a period's close."),
    ] = "7d"  # type: ignore[assignment]
    minimum: Annotated[int, _survey(min=1, metavar="N", help="Nodes with fewer reports are not published.")] = 100
    relay: Annotated[str, _survey(parser=read_url, metavar="URL", help="The relay that shuffles its envelopes.")] = ""
    breakdown: Annotated[
        list[str] | None,
        _survey(metavar="NAME:VALUE,…", help="Results by a public property that the app tells, such as arm:A,B."),
    ] = None
    anyway: Annotated[
        bool, _survey("--anyway", help="Write the survey even if its figures are expected to show nothing.")
    ] = False

    @property
    def calendar(self) -> Calendar:
        """The survey's calendar, from the next midnight on where no start is said.

        Raises ValueError unless either --horizon or --periods says how long it is, in whole periods.
        """
        if (self.periods is None) == (self.horizon is None):
            raise ValueError("say how long the survey lasts: either --periods or --horizon")
        periods, start = self.periods, self.start
        if periods is None:
            periods, rest = divmod(self.horizon or 0, self.period)
            if not periods or rest:
                shorter, longer = max(1, periods) * self.period, (periods + 1) * self.period
                raise ValueError(
                    f"a horizon of {format_duration(self.horizon or 0)} is no whole number of periods of "
                    f"{format_duration(self.period)}: choose {format_duration(shorter)} or {format_duration(longer)}"
                )
        if start is None:
            midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            start = int((midnight + timedelta(days=1)).timestamp())
        return Calendar(start, self.period, periods)

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """The name and the text of each question: one is its text alone, several are NAME=TEXT.

        >>> WishOptions(period=1, epsilon=Decimal(1), devices=1, question=["tea=Tea?", "milk=Milk?"]).asked
        (('tea', 'Tea?'), ('milk', 'Milk?'))
        """
        texts = self.question or ["Which of these is your answer?"]
        if len(texts) == 1:
            return ((ONLY, texts[0]),)
        pairs = [text.partition("=") for text in texts]
        if wrong := [name for name, said, text in pairs if not (said and name and text)]:
            raise ValueError(f"of several questions each is NAME=TEXT, got {wrong[0]!r}")
        return tuple((name.strip(), text.strip()) for name, _, text in pairs)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the answers, as `names_of` reads them."""
        return names_of(self.answers)

    @property
    def common(self) -> dict[str, Any]:
        """The fields of a `Wish` that it has in common with a `Questionnaire`, but for the calendar."""
        if self.objective not in ("mean", "worst"):
            raise ValueError(f"the objective is mean or worst, got {self.objective!r}")
        names = ("epsilon", "devices", "closed", "retrospective", "objective", "bridge", "minimum")
        return {name: getattr(self, name) for name in names}

    @property
    def changes(self) -> float | None:
        """How often an entry is expected to change over the calendar; None where they do not say."""
        if self.changes_per_year is None:
            return self.expected_changes
        if self.expected_changes is not None:
            raise ValueError("choose --expected-changes or --changes-per-year, not both")
        return self.changes_per_year * self.calendar.periods * self.period / YEAR

    @property
    def bounded(self) -> bool:
        """True where they say how an entry's answer may change."""
        return self.at_most is not None or self.within is not None

    def wish(self, answers: int) -> "Wish":
        """The wish that they make, for so many answers; where they say no bound, of as many changes as periods.

        Raises ValueError for options that do not go together.
        """
        from changeling_statistics import Wish, steady_changes

        calendar, changes = self.calendar, self.changes
        if self.closed and self.first_share != 1:
            raise ValueError(
                "in a closed cohort everybody answers in the first period: leave out --first-share or --closed"
            )
        constraint = constraint_of(self.at_most if self.bounded else calendar.periods, self.within)
        expected = steady_changes(calendar, constraint, changes, self.first_share)
        asked = len(self.asked)
        return Wish(answers, calendar, constraint, expected=expected, questions=asked, **self.common)

    def questions_of(
        self, constraint: Constraint, expected: ExpectedChanges, answers: tuple[str, ...]
    ) -> tuple[Question, ...]:
        """The questions that `asked` names, alike but for their names and texts."""
        if self.unit is None:
            return tuple(Question(name, text, answers, constraint, expected) for name, text in self.asked)
        return tuple(
            Question.of_number(name, text, answers, constraint, self.unit, expected) for name, text in self.asked
        )

    def handled(self, survey: Survey) -> Survey:
        """A survey of several questions, or of one, with what only devices and a server need."""
        breakdowns = (text.partition(":") for text in self.breakdown or ())
        return replace(
            survey,
            skew=self.skew,
            spread=self.spread,
            grace=self.grace,
            relay=self.relay,
            breakdowns=tuple(Breakdown(name, _split(values)) for name, _, values in breakdowns),
        )


def taking(
    options: type, command: Callable[..., None], only: Sequence[str] = (), required: Collection[str] = ()
) -> Callable[..., None]:
    """Gives a command an option for each field of a dataclass; it takes them as its first argument, as one value.

    options: a dataclass whose fields are annotated as Typer's parameters are. only: the fields that are options, in
    this order, if not all are. required: those of them that have to be said although they have a default.
    """
    defaults = {each.name: MISSING if each.name in required else each.default for each in fields(options)}
    annotations, names = get_type_hints(options, include_extras=True), only or tuple(defaults)

    def run(**words: object) -> None:
        command(options(**{name: words.pop(name) for name in names}), **words)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    shared = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if defaults[name] is MISSING else defaults[name],
            annotation=annotations[name],
        )
        for name in names
    ]
    own = list(signature(command, eval_str=True).parameters.values())[1:]
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [*shared, *(each.replace(kind=Parameter.KEYWORD_ONLY) for each in own)]
    )
    return run


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def names_of(text: str) -> tuple[str, ...]:
    """The names of the answers: as given, with commas between them, or numbered if only their number is given.

    >>> names_of("tea, coffee"), names_of("2")
    (('tea', 'coffee'), ('answer 1', 'answer 2'))
    """
    if not text.strip().lstrip("-").isdecimal():
        return _split(text)
    check_answers(int(text))
    return tuple(f"answer {number}" for number in range(1, int(text) + 1))


def ask_to_overwrite(output: Path | None) -> None:
    """Ask on a terminal whether a file that is there may be written over. Raises ValueError for a no."""
    if output is None or not output.exists() or not sys.stdin.isatty():
        return
    if not typer.confirm(f"{output} exists. Overwrite it?", err=True):
        raise ValueError(f"{output} stays as it is: name another file with -o")
