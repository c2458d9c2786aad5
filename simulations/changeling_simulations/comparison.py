"""Methods at one epsilon, side by side: how wrong each is, what it promises, and what one change can really cost."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from changeling_statistics import Option, Planned, Wish, compare_plans

from .rivals import fresh, memoised, values_held, whole_history

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {
    "optimal": "changeling's plan",
    "panel": "a panel, best number of reports",
    "paper": "the paper's hierarchy, best shape",
    "flat": "the paper's flat release",
    "sampled": "one layer each, best shape",
}
"""What the plans are called beside methods of others."""
SEED = 12
"""Of the transcripts that are drawn, so that a comparison repeats."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method for one wish.

    name: with the parameters that were tuned for it.
    error: the standard error of a share, root mean square over times and answers.
    promised: what it says that an entry loses over the whole survey.
    really: what a change halfway can really cost, in nats; for a method whose promise is proved for a whole life that
    promise, else the worst transcript that was looked at. inf where a transcript gives the change away.
    exposed: the share of those who changed halfway whose transcript is more telling than the promise allows.
    whole_life: whether the promise is proved for everything that an entry ever sends.
    when: "each period", or "at the end" for what is known only when all is over; "trusted" for a curator's count.
    """

    name: str
    error: float
    promised: float
    really: float
    exposed: float
    whole_life: bool
    when: str = "each period"

    @property
    def is_ours(self) -> bool:
        """True for the plan that the planner finds."""
        return self.name.startswith(TITLES["optimal"])

    def as_fields(self) -> dict[str, object]:
        """The figures by name; None stands for a loss without bound, which JSON has no word for."""
        return {**asdict(self), "really": self.really if np.isfinite(self.really) else None}


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Methods for one wish, the most accurate first among those that keep a whole life's promise, then the others.

    planned: our plan, which is one of them.
    """

    wish: Wish
    planned: Planned
    methods: tuple[Method, ...]

    def table(self) -> "Table":
        """The methods, those that keep a whole life's promise first."""
        from rich.table import Table

        wish = self.wish
        table = Table(
            title=f"{wish.devices:,} devices, {wish.periods} periods, epsilon {wish.epsilon}", title_justify="left"
        )
        table.add_column("method", no_wrap=True)
        for column in ("error in points", "known", "promised", "really", "exposed"):
            table.add_column(column, justify="right")
        for at, method in enumerate(self.methods):
            following = self.methods[at + 1 : at + 2]
            table.add_row(*_method(method), end_section=any(_keeps(each) != _keeps(method) for each in following))
        return table

    def _repr_html_(self) -> str:
        from .report import silent

        shown = silent()
        shown.print(self.table())
        return shown.html


def compare_methods(wish: Wish, progress: Callable[[float], None] | None = None) -> SideBySide:
    """Our plan beside the plans of others, memoised methods, and a trusted curator, all at the wish's epsilon.

    wish: of a closed cohort, as methods of others have no word for those who come and go.
    progress: is told what part is done, from 0 to 1.
    Raises ValueError for an open cohort, for fewer than two answers, and where no plan can be made.
    """
    if not wish.closed or wish.answers < 2:
        raise ValueError("methods are compared on a closed cohort, of at least two answers")
    plans = compare_plans(wish, progress)
    found = [*_whole_lives(wish, plans.options), *_memoised(wish)]
    found.sort(key=lambda method: (method.when == "trusted", not method.whole_life, method.error))
    return SideBySide(wish, plans.planned, tuple(found))


def _whole_lives(wish: Wish, options: dict[str, Option]) -> Iterator[Method]:
    when = "at the end" if wish.retrospective else "each period"
    promised = float(wish.epsilon)

    def proved(name: str, error: float, when: str = when) -> Method:
        return Method(name, error, promised, promised, 0.0, True, when)

    for name, option in options.items():
        title = TITLES[name] + (f" ({option.detail})" if option.detail else "")
        yield proved(title, option.prediction.mean)
    yield proved("k-RR afresh each period", fresh(wish), "each period")
    yield proved("PrivUnitG on the whole history", whole_history(wish), "at the end")
    if (error := _curator(wish)) is not None:
        yield proved("a curator who holds the data", error, "trusted")


def _memoised(wish: Wish) -> Iterator[Method]:
    """The memoised methods; where an answer never changes there is no change that they could expose."""
    changes = values_held(wish) > 1 and wish.periods > 1
    promised = float(wish.epsilon)
    for name, method in memoised(wish):
        generator = np.random.default_rng(SEED)
        really = method.loss(wish.periods) if changes else promised
        exposed = method.exposed(promised, wish.periods, generator) if changes else 0.0
        yield Method(name, (method.variance / wish.devices) ** 0.5, promised, really, exposed, not changes)


def _curator(wish: Wish) -> float | None:
    """The error of the best mechanism that a trusted curator has for the same histogram and the same epsilon.

    None where the extra [central] is not installed.
    """
    try:
        from changeling_central import Asked, compared, histogram_query
    except ModuleNotFoundError:
        return None
    answers = [str(answer) for answer in range(wish.answers)]
    asked = Asked(histogram_query(answers, answers), wish.calendar, wish.constraint, Fraction(wish.epsilon))
    return compared(asked)[0].error / wish.devices


def _keeps(method: Method) -> tuple[bool, bool]:
    return method.when == "trusted", method.whole_life


def _method(method: Method) -> tuple[str, ...]:
    if method.when == "trusted":
        return method.name, f"{100 * method.error:.3g}", "each period", f"{method.promised:g}", "trust", "–"
    really = "no bound" if method.really == float("inf") else f"{method.really:.3g}"
    exposed = "none" if method.whole_life else f"{method.exposed:.0%}"
    return method.name, f"{100 * method.error:.3g}", method.when, f"{method.promised:g}", really, exposed
