"""The options of a wish, which `changeling survey new` and `changeling-sim plan` share, and the Wish that they make.

The types are for a command's parameters. A wish says how many are asked what, for how long, at which cost; the planner
makes a survey of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar
from urllib.parse import urlsplit

import typer
from changeling_protocol import Calendar, Survey, check_answers
from changeling_protocol.wire import is_loopback
from changeling_statistics import (
    constraint_of,
    format_duration,
    parse_count,
    parse_duration,
    parse_epsilon,
    parse_instant,
)
from rich.console import Console
from rich.progress import Progress

if TYPE_CHECKING:
    from changeling_statistics import Option, Wish

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

AnswersOption: TypeAlias = Annotated[str, typer.Option(help="How many answers, or their names with commas between.")]
StartOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=read_date, metavar="DATE", show_default="tomorrow", help="When the first period begins, in UTC."
    ),
]
PeriodOption: TypeAlias = Annotated[
    int,
    typer.Option(parser=read_duration, metavar="DURATION", help="The shortest span reported on: 1h, 1d, 13w."),
]
HorizonOption: TypeAlias = Annotated[
    int, typer.Option(parser=read_duration, metavar="DURATION", help="How long the survey lasts: 365d, 52w.")
]
EpsilonOption: TypeAlias = Annotated[
    Decimal, typer.Option(parser=read_epsilon, metavar="EPSILON", help="What an entry may lose over the whole survey.")
]
DevicesOption: TypeAlias = Annotated[
    int, typer.Option(parser=read_count, metavar="N", help="How many are expected to answer: 20000, 1e6.")
]
AtMostOption: TypeAlias = Annotated[
    int | None, typer.Option(metavar="K", help="An entry's answer changes at most so often; appearing counts.")
]
WithinOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=read_length,
        metavar="DURATION",
        help="An entry's changes lie within so long of its first. With --at-most: both hold.",
    ),
]
ClosedOption: TypeAlias = Annotated[bool, typer.Option("--closed", help="Everybody has an answer from first to last.")]
ExpectedOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="Changes of an entry over the horizon, expected.", show_default="half of those allowed"
    ),
]
FirstShareOption: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SHARE", help="The share of the entries that is expected to answer in the first period."),
]
AnywayOption: TypeAlias = Annotated[
    bool, typer.Option("--anyway", help="Write the survey even if its figures are expected to show nothing.")
]
SkewOption: TypeAlias = Annotated[int, typer.Option(parser=read_duration, help="How far a device's clock may be off.")]
SpreadOption: TypeAlias = Annotated[
    int, typer.Option(parser=read_duration, help="Answers are spread over so long after a period's close.")
]
GraceOption: TypeAlias = Annotated[
    int, typer.Option(parser=read_duration, help="Reports are taken for so long after a period's close.")
]
MinimumOption: TypeAlias = Annotated[int, typer.Option(help="Nodes with fewer reports are not published.")]
RelayOption: TypeAlias = Annotated[
    str, typer.Option(parser=read_url, metavar="URL", help="The relay that shuffles its envelopes.")
]


@dataclass(frozen=True, slots=True)
class Handling:
    """The part of a survey that the planner does not decide.

    question: what is asked. skew, spread, grace: seconds. relay: the relay's URL, or nothing.
    """

    question: str
    skew: int
    spread: int
    grace: int
    relay: str = ""

    def applied(self, survey: Survey, answers: tuple[str, ...]) -> Survey:
        """A planned survey that is handled so, with these names of its answers."""
        changes = {"skew": self.skew, "spread": self.spread, "grace": self.grace, "relay": self.relay}
        return replace(survey, question=self.question, answers=answers, **changes)  # type: ignore[arg-type]


def names_of(text: str) -> tuple[str, ...]:
    """The names of the answers: as given, with commas between them, or numbered if only their number is given.

    >>> names_of("tea, coffee"), names_of("2")
    (('tea', 'coffee'), ('answer 1', 'answer 2'))
    """
    if not text.strip().lstrip("-").isdecimal():
        return tuple(name.strip() for name in text.split(","))
    check_answers(int(text))
    return tuple(f"answer {number}" for number in range(1, int(text) + 1))


def calendar_of(start: int | None, period: int, horizon: int) -> Calendar:
    """The calendar of a wish: start in Unix seconds, the next midnight for None; period and horizon in seconds."""
    periods, rest = divmod(horizon, period)
    if not periods or rest:
        shorter, longer = max(1, periods) * period, (periods + 1) * period
        raise ValueError(
            f"a horizon of {format_duration(horizon)} is no whole number of periods of {format_duration(period)}: "
            f"choose {format_duration(shorter)} or {format_duration(longer)}"
        )
    if start is None:
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        start = int((midnight + timedelta(days=1)).timestamp())
    return Calendar(start, period, periods)


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


def refuse_hopeless(option: "Option", anyway: bool) -> None:
    """Raises ValueError for a plan whose figures are expected to show nothing, unless that is wanted anyway."""
    if option.hopeless and not anyway:
        raise ValueError(f"{option.hopeless}: ask more devices, or less, or write it all the same with --anyway")


def wish_of(
    answers: int,
    calendar: Calendar,
    *,
    changes: tuple[int | None, int | None],
    expected: float | None,
    first_share: float = 1.0,
    per_year: float | None = None,
    **rest: object,
) -> "Wish":
    """The wish that the options make.

    changes: the most of an entry, and the seconds that they lie within. expected: those of an entry over the calendar,
    or, as a rate, per_year. first_share: of the entries, who answer in the first period; in a closed cohort all do.
    rest: further fields of `Wish`. Raises ValueError for what goes not together.
    """
    from changeling_statistics import Wish, steady_changes

    if expected is not None and per_year is not None:
        raise ValueError("choose --expected-changes or --changes-per-year, not both")
    if per_year is not None:
        expected = per_year * calendar.periods * calendar.period / YEAR
    if rest.get("closed") and first_share != 1:
        raise ValueError(
            "in a closed cohort everybody answers in the first period: leave out --first-share or --closed"
        )
    constraint = constraint_of(*changes)
    steady = steady_changes(calendar, constraint, expected, first_share)
    return Wish(answers=answers, calendar=calendar, constraint=constraint, expected=steady, **rest)  # type: ignore[arg-type]
