"""The options of a wish, which `changeling survey new` and `changeling-sim plan` share, and the wish that they make.

A wish says how many are asked what, for how long, at which cost; the planner makes a survey of it. How many changes it
allows is as its designer says, or so many that noise and freezing together are least; what freezing will do is said
either way.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from inspect import Parameter, Signature, signature
from math import isfinite
from pathlib import Path
from time import monotonic
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
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

if TYPE_CHECKING:
    from changeling_statistics import Habits, Option, Planned, Prediction, Rung, Wish


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


SHOWN_AFTER = 2.0
"""Seconds after which work that goes on is shown as a bar."""


@contextmanager
def planning_bar() -> Iterator[Callable[[float], None]]:
    """Shows how far the planner is, from 0 to 1, where it takes longer; on standard error, if that is a terminal."""
    console, began = Console(stderr=True), monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal, auto_refresh=False) as bar:
        task = bar.add_task("planning", total=1.0, visible=False)

        def show(done: float) -> None:
            bar.update(task, completed=done, visible=monotonic() - began > SHOWN_AFTER)
            bar.refresh()

        yield show


def ask_to_overwrite(output: Path | None) -> None:
    """Ask on a terminal whether a file that is there may be written over. Raises ValueError for a no."""
    if output is None or not output.exists() or not sys.stdin.isatty():
        return
    if not typer.confirm(f"{output} exists. Overwrite it?", err=True):
        raise ValueError(f"{output} stays as it is: name another file with -o")


FREEZING = (
    "An entry that has used up its changes stands still, whatever it holds by then. Freezing is the bias that follows, "
    "which more devices do not make smaller."
)


@dataclass(frozen=True, slots=True)
class Settled:
    """A wish whose answers and constraint are settled.

    options: what was asked for. names: of the answers. habits: what is known of how entries will change; None if
    nothing is. planned: the best plan, where it is known.
    """

    options: WishOptions
    names: tuple[str, ...]
    wish: "Wish"
    habits: "Habits | None"
    planned: "Planned | None"

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions that are asked."""
        return self.options.questions_of(self.wish.constraint, self.wish.expected, self.names)

    def survey(self, planned: Survey) -> Survey:
        """A planned survey with the names of its questions and answers, and all that the planner does not decide."""
        return self.options.handled(replace(planned, questions=self.questions))

    def say(self, console: Console, option: "Option", planned: "Planned") -> None:
        """Prints the error of the figure that counts, what tells two arms apart, and what freezing will do."""
        about, estimand = self.questions[0], self.options.estimand
        if estimand != "histogram":
            error = error_in_words(estimand, about, option.error(self.wish), self.wish.devices)
            console.print(f"Error of {error}.", highlight=False)
        say_detection(console, about, option.prediction, self.options)
        say_freezing(console, self.wish.constraint, planned, self.habits)

    def hopeless(self, option: "Option") -> str:
        """Why the figures of a plan are expected to show nothing; empty if they will show something."""
        return option.hopeless if self.habits is None else option.hopeless_beside(self.habits.typical_share)

    def refuse_hopeless(self, option: "Option") -> None:
        """Raises ValueError for a plan whose figures are expected to show nothing, unless that is wanted anyway."""
        if (why := self.hopeless(option)) and not self.options.anyway:
            raise ValueError(f"{why}: ask more devices, or less, or write it all the same with --anyway")


def settled(console: Console, options: WishOptions) -> Settled:
    """The wish that the options make; where they say no constraint, the ladder of what to allow is printed.

    Where the answers are a range, they are its best levels.
    Raises ValueError for options that do not go together, for no answers, and for a pilot of other answers.
    """
    answers = _answers(options)
    names = names_of(answers)
    wish = options.wish(len(names))
    habits = _habits(names, wish, options, numbered=answers.strip().isdecimal())
    if not options.bounded:
        best = best_rung(console, wish, habits)
        return Settled(options, names, best.wish, habits, best.planned)
    wish = wish if habits is None else replace(wish, expected=habits.expected(wish.constraint))
    return Settled(options, names, wish, habits, None)


def _answers(options: WishOptions) -> str:
    """The answers as they are written, or where they are a range its best levels, with commas between."""
    if not options.answers:
        raise ValueError("say what is asked: --answers, or a file of --questions")
    ends = range_in(options.answers, options.unit)
    if ends is None:
        return options.answers
    constraint_of(options.at_most, options.within)  # a range is divided under a bound that is said
    with planning_bar():
        return ",".join(map(str, best_levels(options.wish(2), [*ends], options.estimand)))


def range_in(answers: str, unit: str | None) -> tuple[Decimal, Decimal] | None:
    """The ends of a number's range as it is written, 0..120; None for answers or levels.

    >>> range_in("0..120", "min"), range_in("0,60,120", "min")
    ((Decimal('0'), Decimal('120')), None)
    """
    low, dots, high = answers.partition("..")
    if unit is None or not dots:
        return None
    try:
        return Decimal(low.strip()), Decimal(high.strip())
    except ArithmeticError:
        raise ValueError(f"a range is written as 0..120, got {answers!r}") from None


def best_levels(wish: "Wish", ends: Sequence[object], estimand: str) -> tuple[Decimal, ...]:
    """The levels of a range with the least error of a figure. Raises ValueError for what is no range."""
    from changeling_statistics import levels_tried

    match ends:
        case [int() | Decimal() as low, int() | Decimal() as high]:
            tried = levels_tried(wish, Decimal(low), Decimal(high), estimand)
            return min(tried, key=lambda each: each.relative).levels
    raise ValueError(f"a range is its two ends, as [0, 120]; got {ends!r}")


def _habits(names: tuple[str, ...], wish: "Wish", options: WishOptions, *, numbered: bool) -> "Habits | None":
    """What the options tell of how entries will change. numbered: whether answers are only counted."""
    from changeling_statistics import SteadyChanges, pilot_of, read_csv

    mean, spread, first_share = options.changes, options.changes_spread, options.first_share
    if (pilot := options.pilot) is None:
        if mean is not None:
            return SteadyChanges(len(names), wish.calendar, mean, spread, first_share)
        if spread is not None:
            raise ValueError("--changes-spread is that of --expected-changes: say how many those are, too")
        return None
    if (mean, spread, first_share) != (None, None, 1.0):
        raise ValueError(
            "--from tells how often answers change: leave out --expected-changes, --changes-spread and --first-share"
        )
    changelog = read_csv(pilot, None if numbered else names)
    if len(changelog.answers) > len(names):
        raise ValueError(f"{pilot} holds {len(changelog.answers)} answers, the survey only {len(names)}")
    every_answer = changelog.answers + names[len(changelog.answers) :]
    return pilot_of(replace(changelog, answers=every_answer), wish.calendar, closed=wish.closed)


def best_rung(console: Console, wish: "Wish", habits: "Habits | None") -> "Rung":
    """The number of changes with the least total error, and its plan; the ladder of those tried is printed.

    Raises ValueError if nothing tells how entries will change.
    """
    from changeling_statistics import ladder

    if habits is None:
        raise ValueError(
            "say how an entry's answer may change: --at-most, --within, or both; or how often it does, by --from or "
            "--expected-changes, and the number with the least error is allowed"
        )
    rungs: list[Rung] = []
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("how many changes to allow", total=None)
        for rung in ladder(wish, habits):
            rungs.append(rung)
            progress.update(task, description=f"how many changes to allow: tried {_allowed(rung.wish)}")
    best = min(rungs, key=lambda each: each.total)
    console.print(_table(sorted(rungs, key=lambda each: _allowed(each.wish)), best))
    console.print(FREEZING, style="dim", highlight=False)
    return best


def say_freezing(console: Console, constraint: Constraint, planned: "Planned", habits: "Habits | None") -> None:
    """Prints what freezing does under a constraint, beside a plan's noise, and a warning if it is more than that."""
    from changeling_statistics import Rung

    if habits is None:
        return
    wish, freezing = planned.wish, habits.freezing(constraint)
    chosen = Rung(wish, planned, freezing)
    bias, most = freezing.objective(wish.objective), " at most" if freezing.bounded else ""
    console.print(
        f"Freezing: {100 * freezing.stopped[-1]:.3g}% of the entries will have changed more often than that in the "
        f"end. It biases shares by {100 * bias:.3g} points{most}; with the noise, {100 * chosen.total:.3g} in all.",
        highlight=False,
    )
    if bias > chosen.noise:
        console.print(
            "[yellow]warning:[/] freezing is more than the noise, and more devices do not help: allow more changes, or "
            "leave out --at-most, and the number with the least error is allowed",
            highlight=False,
        )


def error_in_words(estimand: str, question: Question, share: float, devices: int) -> str:
    """The standard error of the figure that a question is asked for, in its unit or in points."""
    from changeling_statistics import estimand_error

    told = estimand_error(estimand, question, share, devices)
    counted = question.is_number and estimand in ("mean", "difference")
    amount = f"{told.error:.3g} {question.unit}".rstrip() if counted else f"{100 * told.error:.3g} points"
    return f"{told.words}: ±{amount}"


def say_detection(console: Console, question: Question, prediction: "Prediction", options: WishOptions) -> None:
    """Prints how many devices tell two arms apart, if the options ask for it.

    Raises ValueError for a difference or a power that cannot be.
    """
    if (difference := options.detect) is None:
        return
    power = options.power
    held, about = 1 / len(question.answers), "" if question.name == ONLY else f"{question.name}: "
    needed, common = (prediction.devices_to_detect(difference, share, power=power) for share in (held, 0.5))
    console.print(
        f"{about}Arms that differ by {100 * difference:.3g} points are told apart by "
        f"{devices_in_words(needed, 'no number of')} devices, half in each arm "
        f"({devices_in_words(common, 'no number of')} for an answer that every second holds): the chance to find it is "
        f"{power:.0%}, that of a false alarm 5%.",
        highlight=False,
    )


def three_digits(number: float) -> int:
    """A number rounded to three digits."""
    return round(float(f"{number:.3g}"))


def devices_in_words(needed: float, none: str = "no number does") -> str:
    """How many devices something takes; `none` where no number is enough."""
    return f"{three_digits(needed):,}" if isfinite(needed) else none


def _allowed(wish: "Wish") -> int:
    k: int = wish.constraint.k  # type: ignore[union-attr]  # rungs are of at-most constraints
    return k


def _table(rungs: "list[Rung]", best: "Rung") -> Table:
    wish = best.wish
    table = Table(
        title=f"Changes to allow, and the error in points, {wish.devices:,} devices",
        title_justify="left",
    )
    for column in ("at most", "noise", "freezing", "total", "devices for ±1 point"):
        table.add_column(column, justify="right")
    for rung in rungs:
        freezing = 100 * rung.freezing.objective(wish.objective)
        table.add_row(
            f"{_allowed(rung.wish)}",
            f"{100 * rung.noise:.3g}",
            f"{'≤ ' if rung.freezing.bounded else ''}{freezing:.3g}",
            f"{100 * rung.total:.3g}",
            devices_in_words(rung.devices_for()),
            style="bold" if rung is best else None,
        )
    return table
