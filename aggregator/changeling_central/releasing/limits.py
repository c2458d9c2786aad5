"""What may be asked of a release at all: budgets, calendars and files, refused before anything is drawn or written.

Beyond these bounds noise has no meaning (2^63 is the largest number), accounting needs more memory than there is, or a
release would write to the disk for days.
"""

from fractions import Fraction
from pathlib import Path

LEAST_EPSILON, MOST_EPSILON = Fraction(1, 10**9), Fraction(1000)
LEAST_ACCOUNTED = Fraction(1, 10**4)
LEAST_DELTA = Fraction(1, 10**12)
MOST_RELEASED_PERIODS = 10**6
MOST_DIGITS = 40
PICTURES = (".png", ".svg", ".pdf")


def budget(text: str) -> Fraction:
    """The exact number that is written. ValueError for what is none, or is too long to mean one."""
    try:
        if "e" in text.lower() and abs(int(text.lower().partition("e")[2])) > MOST_DIGITS:
            raise ValueError
        if len(text) > MOST_DIGITS:
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"a budget is a number such as 0.5 or 1/2, got {text[:MOST_DIGITS]!r}") from None


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    """ValueError where no noise could be drawn or accounted for, and for a delta that is none, whatever it buys."""
    if not 0 <= delta < 1:
        raise ValueError(f"a budget has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")
    if epsilon > 0 and not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise ValueError(f"epsilon is {float(LEAST_EPSILON):g} to {MOST_EPSILON}, got {float(epsilon):g}")
    if epsilon > 0 and 0 < delta < 1:
        if epsilon < LEAST_ACCOUNTED:
            raise ValueError(f"with a delta, epsilon is at least {float(LEAST_ACCOUNTED):g}, got {float(epsilon):g}")
        if delta < LEAST_DELTA:
            raise ValueError(f"delta is 0 or at least {float(LEAST_DELTA):g}, got {float(delta):g}")


def check_periods(periods: int) -> None:
    """ValueError for more periods than can be written one by one."""
    if periods > MOST_RELEASED_PERIODS:
        raise ValueError(
            f"these are {periods} periods, each of which is written to the disk: at most {MOST_RELEASED_PERIODS}; "
            "release less often, --every, or for a shorter time, --until"
        )


def check_changelog(path: Path) -> None:
    """ValueError for what is there but no file: a changelog may be read twice, which a pipe cannot be."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file: a changelog is a .csv, .csv.gz or .parquet file")


def check_output(output: Path) -> None:
    """ValueError where the folder is missing."""
    if not output.parent.is_dir():
        raise ValueError(f"there is no folder {output.parent} to write {output.name} in")


def check_plot(plot: Path, changelog: Path) -> None:
    """Known before the release, not after: ValueError for another kind of file, no folder, and the changelog itself."""
    if plot.suffix not in PICTURES:
        raise ValueError(f"a picture is a .png, .svg or .pdf file, got {plot.name}")
    check_output(plot)
    if plot.exists() and plot.samefile(changelog):
        raise ValueError(f"{plot} is the changelog: a picture would be written over it")
