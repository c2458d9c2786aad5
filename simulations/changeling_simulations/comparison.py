"""Methods at one epsilon, side by side: how wrong each is, what it promises, and what one change can really cost.

Memoised methods remember one noisy version of every value that a device has held, and most randomize it once more in
each report. Their accounting adds up one epsilon for each value that is held, so their totals look small; a device
whose answer changes begins to show another memory, and a long row of reports tells when. Sources: RAPPOR (Erlingsson,
Pihur, Korolova 2014) and L-OSUE (Arcolezi et al. 2022), LOLOHA (Arcolezi, Pinzón, Palamidessi, Gambs 2023), dBitFlipPM
(Ding, Kulkarni, Yekhanin 2017). Two methods of others keep a total for a whole life, as ours do: k-RR afresh with a
slice of the budget for each period, and PrivUnitG (Asi, Feldman, Talwar 2022) on the whole history, sent at the end.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import groupby
from math import exp, inf, log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from changeling_protocol import AtMost
from changeling_statistics import Floats, Option, Planned, Wish, compare_plans

if TYPE_CHECKING:
    from rich.table import Table

FIRST_SHARE = 0.5
"""The first report of a method with two rounds has this share of its long-term epsilon, its authors' usual choice."""
TRANSCRIPTS = 20_000


@dataclass(frozen=True, eq=False)
class Part:
    """One symbol of a memoised report, as the value that is held, the memory of it, and what is told of the memory.

    remember: the chance of each memory for each value, shape (values, memories).
    tell: the chance of each symbol for each memory, shape (memories, symbols).
    """

    remember: Floats
    tell: Floats

    def ratio(self, old: int, new: int, before: Floats, after: Floats) -> Floats:
        """ln of how much likelier a transcript is for a change from old to new halfway than for old throughout.

        before, after: how often each symbol was told in either half, shape (n, symbols). Returns shape (n,), inf where
        the transcript rules out that nothing changed, nan where it rules out both.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            told, remembered = np.log(self.tell).T, np.log(self.remember)
            first, second = (
                np.where(counts[:, :, None] > 0, counts[:, :, None] * told, 0.0).sum(1) for counts in (before, after)
            )
            stayed = np.logaddexp.reduce(remembered[old] + first + second, axis=1)
            changed = np.logaddexp.reduce(remembered[old] + first, axis=1)
            changed += np.logaddexp.reduce(remembered[new] + second, axis=1)
            ratios: Floats = changed - stayed
        return ratios

    def draw(self, value: int, periods: int, devices: int, generator: np.random.Generator) -> Floats:
        """How often devices that hold a value for so many periods tell each symbol, shape (devices, symbols)."""
        memories = generator.choice(len(self.tell), devices, p=self.remember[value])
        return generator.multinomial(periods, self.tell[memories]).astype(np.float64)

    def worst(self, old: int, new: int, periods: int) -> tuple[float, float]:
        """The smallest and the largest log ratio of the transcripts that are looked at.

        Those are all for two symbols, where halves of so many periods have few counts; else those in which either half
        tells one symbol alone, so that the worst of all may be more.
        """
        symbols = self.tell.shape[1]
        ones = np.arange(periods + 1.0)
        rows = np.stack([periods - ones, ones], axis=1) if symbols == 2 else periods * np.eye(symbols)
        before, after = np.repeat(rows, len(rows), axis=0), np.tile(rows, (len(rows), 1))
        ratios = self.ratio(old, new, before, after)
        return float(np.nanmin(ratios)), float(np.nanmax(ratios))


@dataclass(frozen=True, eq=False)
class Memoised:
    """A method that remembers.

    parts: each with the old and the new value, as the part sees a change from one answer to another.
    apart: the share of devices on which the parts see any change; hashing lets answers fall together.
    variance: of one report's estimate of a share, mean over the answers.
    """

    parts: tuple[tuple[Part, int, int], ...]
    apart: float
    variance: float

    def loss(self, periods: int) -> float:
        """The real cost of the change: the log ratio of the worst transcript that is looked at, in nats."""
        worst = [part.worst(old, new, periods // 2) for part, old, new in self.parts]
        return max(sum(high for _, high in worst), -sum(low for low, _ in worst))

    def exposed(self, epsilon: float, periods: int, generator: np.random.Generator) -> float:
        """The share of those who changed halfway whose transcript is more than e^epsilon times likelier than had
        they stayed, over TRANSCRIPTS devices that are drawn."""
        total = np.zeros(TRANSCRIPTS)
        for part, old, new in self.parts:
            halves = [part.draw(value, periods // 2, TRANSCRIPTS, generator) for value in (old, new)]
            total += part.ratio(old, new, *halves)
        return self.apart * float((total > epsilon).mean())


def memoised(wish: Wish) -> Iterator[tuple[str, Memoised]]:
    """The memoised methods at the wish's epsilon, by name, each by its authors' accounting and tuned as they do."""
    z, epsilon, held = wish.answers, float(wish.epsilon), values_held(wish)
    yield "memoised k-RR", _symbols(z, z, epsilon / held)
    yield "RAPPOR", _bits(z, *_symmetric(epsilon / held))
    yield "L-OSUE", _bits(z, *_optimal(epsilon / held))
    hashed = {g: _symbols(z, g, epsilon / min(g, held), FIRST_SHARE) for g in range(2, max(3, z + 1))}
    g = min(hashed, key=lambda each: hashed[each].variance)
    yield f"LOLOHA, g={g}", hashed[g]
    sampled = {d: _sampled_bits(z, d, epsilon / min(d + 1, held, z)) for d in range(1, z + 1)}
    d = min(sampled, key=lambda each: sampled[each].variance)
    yield f"dBitFlipPM, d={d}", sampled[d]


def values_held(wish: Wish) -> int:
    """How many values an entry may hold, which memoised methods share their epsilon among."""
    most = wish.constraint.k if isinstance(wish.constraint, AtMost) else wish.periods
    return min(wish.answers, most)


def whole_history(wish: Wish) -> float:
    """The standard error of a share by PrivUnitG on all states of a life as one vector, known when all is over.

    The vector has T(z - 1) dimensions, as shares add up to one; the threshold and the split of epsilon are tuned. What
    is estimated of a unit vector has the squared error E|W|²/m² - 1, where W is the Gaussian that is conditioned and m
    its mean along the vector.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import expit
    from scipy.stats import norm

    z, epsilon, d = wish.answers, float(wish.epsilon), wish.periods * (wish.answers - 1)

    def error(x: float) -> float:
        """The squared error where a Gaussian lies above the threshold with the chance 1/(1 + e^x)."""
        at = norm.isf(expit(-x))
        slope = norm.pdf(at) * (expit(epsilon - x) / expit(-x) - expit(x - epsilon) / expit(x))
        return float((d + at * slope) / slope**2 - 1)

    tuned = (minimize_scalar(error, bounds=(low, low + 8), method="bounded").fun for low in range(0, 40, 8))
    return sqrt(max(min(tuned), 0.0) * (1 - 1 / z) / z / wish.devices)


def _variance(own: float, other: float, z: int, sampled: float = 1.0) -> float:
    """The variance of 1{told} scaled to be unbiased, mean over z answers, each asked of a share `sampled`."""
    gap = (own - other) ** 2
    mine = (own * (1 - own) / gap + 1) / sampled - 1
    return (mine + (z - 1) * other * (1 - other) / gap / sampled) / z


def _kary(epsilon: float, symbols: int) -> float:
    return 1 / (1 + (symbols - 1) * exp(-epsilon))


def _uniform(own: float, symbols: int) -> Floats:
    """The matrix of k-RR that tells the truth with the chance `own`."""
    matrix = np.full((symbols, symbols), (1 - own) / (symbols - 1))
    np.fill_diagonal(matrix, own)
    return matrix


def _symbols(z: int, g: int, epsilon: float, first: float | None = None) -> Memoised:
    """k-RR on g symbols, and where a first report has a share of epsilon, again on what answers are hashed to.

    first: that share; None where the memory of the answers themselves, g = z, is told as it is.
    """
    kept = _kary(epsilon, g)
    if first is None:
        return Memoised(((Part(_uniform(kept, g), np.eye(g)), 0, 1),), 1.0, _variance(kept, (1 - kept) / (g - 1), z))
    own, lost = _kary(first * epsilon, g), (1 - kept) / (g - 1)
    part = Part(_uniform(kept, g), _uniform((own - lost) / (kept - lost), g))
    return Memoised(((part, 0, 1),), 1 - 1 / g, _variance(own, 1 / g, z))


def _symmetric(epsilon: float) -> tuple[float, float, float]:
    kept, own = _kary(epsilon / 2, 2), _kary(FIRST_SHARE * epsilon / 2, 2)
    return kept, 1 - kept, (own + kept - 1) / (2 * kept - 1)


def _optimal(epsilon: float) -> tuple[float, float, float]:
    """The own bit is remembered as 1 with 1/2, others with 1/(e^epsilon + 1); memories are told again symmetrically."""
    from scipy.optimize import brentq

    kept, made = 0.5, 1 / (exp(epsilon) + 1)

    def over(again: float) -> float:
        """By how much the first report costs more than its share, where memories are told as they are so often."""
        own, other = (p * again + (1 - p) * (1 - again) for p in (kept, made))
        return log(own * (1 - other) / (other * (1 - own))) - FIRST_SHARE * epsilon

    return kept, made, float(brentq(over, 0.5, 1.0))


def _bits(z: int, kept: float, made: float, again: float) -> Memoised:
    """A bit for each answer; a memory is told as it is with the chance `again`."""
    part = Part(np.array([[1 - made, made], [1 - kept, kept]]), _uniform(again, 2))
    own, other = (p * again + (1 - p) * (1 - again) for p in (kept, made))
    changed = ((part, 1, 0), (part, 0, 1), *(((part, 0, 0),) * (z - 2)))
    return Memoised(changed, 1.0, _variance(own, other, z))


def _sampled_bits(z: int, d: int, epsilon: float) -> Memoised:
    """d of the z bits, drawn for good; each is remembered by itself for each of the values that the d bits tell apart.

    The devices of which the d bits include the old answer or the new one see a change; of them, this follows one whose
    bits include both as far as d allows, which memories alone can expose.
    """
    kept = _kary(epsilon / 2, 2)
    part = Part(np.array([[kept, 1 - kept], [1 - kept, kept]]), np.eye(2))
    moved = ((part, 1, 0), (part, 0, 1))[: min(d, 2)]
    changed = (*moved, *(((part, 0, 0),) * (d - len(moved))))
    blind = (z - d) * (z - d - 1) / (z * (z - 1))
    return Memoised(changed, 1 - blind, _variance(kept, 1 - kept, z, d / z))


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

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row in the table."""
        told = self.name, f"{100 * self.error:.3g}"
        if self.when == "trusted":
            return *told, "each period", f"{self.promised:g}", "trust", "–"
        really = "no bound" if self.really == inf else f"{self.really:.3g}"
        return *told, self.when, f"{self.promised:g}", really, "none" if self.whole_life else f"{self.exposed:.0%}"

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
        for _, alike in groupby(self.methods, key=lambda method: (method.when == "trusted", method.whole_life)):
            for method in alike:
                table.add_row(*method.cells)
            table.add_section()
        return table

    def _repr_html_(self) -> str:
        from .reports import silent

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
    own = _kary(promised / wish.periods, wish.answers)
    afresh = _variance(own, (1 - own) / (wish.answers - 1), wish.answers) / wish.devices
    yield proved("k-RR afresh each period", sqrt(afresh), "each period")
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
