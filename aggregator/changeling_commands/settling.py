"""A wish is settled: its answers are named, and how many changes it allows is as its designer says, or so many that
noise and freezing together are least. What its survey will show, and what freezing will do, is said either way.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite, sqrt
from time import monotonic
from typing import TYPE_CHECKING

from changeling_protocol import ONLY, Constraint, Question, Survey, format_duration
from changeling_statistics import constraint_of, enough
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .wishes import WishOptions, names_of

if TYPE_CHECKING:
    from changeling_statistics import Habits, Option, Planned, Prediction, Rung, Wish

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
            "warning: freezing is more than the noise, and more devices do not help: allow more changes, or leave out "
            "--at-most, and the number with the least error is allowed",
            style="yellow",
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


def when_shown(survey: Survey, fewest: float) -> str:
    """When a period's figures are shown, and when for good.

    fewest: the reports expected on the node that gets fewest, of all strata together. With less than enough of them
    nothing is shown before the grace is over.
    """
    soon, sure = format_duration(survey.skew + survey.spread), format_duration(survey.grace)
    if fewest / survey.strata >= (least := enough(survey.minimum)):
        return f"{soon} after a period's close, and {sure} after it"
    each = "each node and stratum" if survey.strata > 1 else "each node"
    return f"both {sure} after a period's close: to be shown sooner {each} needs {least:,} reports"


def breakdowns_in_words(survey: Survey, devices: int) -> Iterator[tuple[str, str]]:
    """For each breakdown its name, and how many devices a value has at best, with its error; or why none is shown.

    At best is where every value has as many as any other. A figure is shown of a value only if each node has the
    survey's minimum of reports of each combination with the other breakdowns, an offset of numbers included. Of several
    questions it is the one whose error is largest.
    """
    from changeling_statistics import predict

    if not survey.breakdowns:
        return
    each = max(1, devices // survey.strata)
    views = (survey.about(place) for place in range(len(survey.questions)))
    errors = max((predict(view, each).errors for view in views), key=lambda errors: float(errors.max()))
    shown = sum(map(isfinite, errors.tolist()))
    for breakdown in survey.breakdowns:
        of_value = devices / len(breakdown.values)
        said = f"at best {three_digits(of_value):,} devices for each of {len(breakdown.values):,} values: "
        if shown == len(errors):
            error = sqrt(sum(error**2 for error in errors.tolist()) / len(errors) * each / of_value)
            said += f"{100 * error:.3g} points"
        else:
            times = f"in only {shown:,} of {len(errors):,} periods" if shown else "never"
            said += (
                f"{times} shown, as each of {survey.strata:,} combinations has {each:,} devices, too few for "
                f"{survey.minimum:,} reports on a node"
            )
        yield f"by {breakdown.name}", said


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
