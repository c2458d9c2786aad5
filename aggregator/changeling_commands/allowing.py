"""How many changes a survey allows, for `changeling survey new` and `changeling-sim plan`: as its designer says, or so
many that noise and freezing together are least; and what freezing will do either way.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .wishes import YEAR, names_of, wish_of

if TYPE_CHECKING:
    from changeling_protocol import Calendar
    from changeling_statistics import Habits, Planned, Rung, Wish

FromOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="CHANGELOG",
        help="A pilot's entry,time,answer, as CSV: how often answers change, who has one, and where they go.",
    ),
]
ChangesSpreadOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="How far entries differ in their changes: a standard deviation.",
        show_default="that of chance alone",
    ),
]
FREEZING = (
    "An entry that has used up its changes stands still, whatever it holds by then. Freezing is the bias that follows, "
    "which more devices do not make smaller."
)


@dataclass(frozen=True, slots=True)
class Settled:
    """A wish whose constraint is settled.

    habits: what is known of how entries will change; None if nothing is. planned: the best plan, where it is known.
    """

    wish: "Wish"
    habits: "Habits | None"
    planned: "Planned | None"


def settled(
    console: Console,
    answers: str,
    calendar: "Calendar",
    *,
    changes: tuple[int | None, int | None],
    expected: tuple[float | None, float | None, float],
    pilot: Path | None,
    per_year: float | None = None,
    **rest: object,
) -> Settled:
    """The wish that the options make; where they say no constraint, the ladder of what to allow is printed.

    answers: as written. changes: the most of an entry, and the seconds that they lie within, or None.
    expected: changes of an entry over the calendar, their spread over entries, and the share of entries that answer in
    the first period. per_year: the changes as a rate. pilot: a changelog. rest: further fields of `Wish`.
    Raises ValueError for options that do not go together, and for a pilot of other answers.
    """
    names, said = names_of(answers), changes != (None, None)
    allowed = changes if said else (calendar.periods, None)
    wish = wish_of(
        len(names), calendar, changes=allowed, expected=expected[0], first_share=expected[2], per_year=per_year, **rest
    )
    mean = expected[0] if per_year is None else per_year * calendar.periods * calendar.period / YEAR
    numbered = answers.strip().isdecimal()
    habits = _habits(names, wish, pilot, (mean, *expected[1:]), numbered=numbered)
    if not said:
        best = best_rung(console, wish, habits)
        return Settled(best.wish, habits, best.planned)
    wish = wish if habits is None else replace(wish, expected=habits.expected(wish.constraint))
    return Settled(wish, habits, None)


def _habits(
    names: tuple[str, ...],
    wish: "Wish",
    pilot: Path | None,
    expected: tuple[float | None, float | None, float],
    *,
    numbered: bool,
) -> "Habits | None":
    """What the options tell of how entries will change.

    expected: changes, their spread, and the share that answers at first. numbered: whether answers are only counted.
    """
    from changeling_statistics import SteadyChanges, pilot_of, read_csv

    mean, spread, first_share = expected
    if pilot is None:
        if mean is not None:
            return SteadyChanges(len(names), wish.calendar, mean, spread, first_share)
        if spread is not None:
            raise ValueError("--changes-spread is that of --expected-changes: say how many those are, too")
        return None
    if expected != (None, None, 1.0):
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


def say_freezing(console: Console, wish: "Wish", planned: "Planned", habits: "Habits | None") -> None:
    """Prints what freezing does under the wish's constraint, and a warning if it is more than the noise."""
    from changeling_statistics import Rung

    if habits is None:
        return
    freezing = habits.freezing(wish.constraint)
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


def _allowed(wish: "Wish") -> int:
    k: int = wish.constraint.k  # type: ignore[attr-defined]  # rungs are of at-most constraints
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
        needed = rung.devices_for()
        freezing = 100 * rung.freezing.objective(wish.objective)
        table.add_row(
            f"{_allowed(rung.wish)}",
            f"{100 * rung.noise:.3g}",
            f"{'≤ ' if rung.freezing.bounded else ''}{freezing:.3g}",
            f"{100 * rung.total:.3g}",
            "no number does" if needed == float("inf") else f"{round(float(f'{needed:.3g}')):,}",
            style="bold" if rung is best else None,
        )
    return table
