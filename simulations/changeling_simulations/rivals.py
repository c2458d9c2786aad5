"""Other local methods for answers that change, at their own accounting: how wrong, and what a change really exposes.

Memoised methods remember one noisy version of every value that a device has held, and most randomize it once more in
each report. Their accounting adds up one epsilon for each value that is held, so their totals look small; a device
whose answer changes begins to show another memory, and a long row of reports tells when. Sources: RAPPOR (Erlingsson,
Pihur, Korolova 2014) and L-OSUE (Arcolezi et al. 2022), LOLOHA (Arcolezi, Pinzón, Palamidessi, Gambs 2023), dBitFlipPM
(Ding, Kulkarni, Yekhanin 2017). Two methods keep a total for a whole life, as ours do: k-RR afresh with a slice of the
budget for each period, and PrivUnitG (Asi, Feldman, Talwar 2022) on the whole history, sent when all is over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from changeling_protocol import AtMost
from changeling_statistics import Floats, Wish

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
        """What the change can really cost: the log ratio of the worst transcript that is looked at, in nats."""
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
    yield "memoised k-RR", _symbols(z, z, epsilon / held, inf)
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


def fresh(wish: Wish) -> float:
    """The standard error of a share by k-RR afresh in every period, with an equal slice of epsilon for each."""
    z, slice_ = wish.answers, float(wish.epsilon) / wish.periods
    own = _kary(slice_, z)
    return sqrt(_variance(own, (1 - own) / (z - 1), z) / wish.devices)


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


def _symbols(z: int, g: int, epsilon: float, first: float) -> Memoised:
    """k-RR on g symbols, which answers are hashed to where g is less than z, told again by k-RR.

    first: the share of epsilon that the first report alone costs; inf where the memory is told as it is.
    """
    kept = _kary(epsilon, g)
    if first == inf:
        tell, own = np.eye(g), kept
    else:
        own = _kary(first * epsilon, g)
        again = (own - (1 - kept) / (g - 1)) / (kept - (1 - kept) / (g - 1))
        tell = _uniform(again, g)
    hashed = first != inf
    other = 1 / g if hashed else (1 - own) / (g - 1)
    part = Part(_uniform(kept, g), tell)
    return Memoised(((part, 0, 1),), 1 - 1 / g if hashed else 1.0, _variance(own, other, z))


def _symmetric(epsilon: float) -> tuple[float, float, float]:
    kept, own = _kary(epsilon / 2, 2), _kary(FIRST_SHARE * epsilon / 2, 2)
    return kept, 1 - kept, (own + kept - 1) / (2 * kept - 1)


def _optimal(epsilon: float) -> tuple[float, float, float]:
    """The own bit is remembered as 1 with 1/2, others with 1/(e^epsilon + 1); memories are told again symmetrically."""
    kept, made, target = 0.5, 1 / (exp(epsilon) + 1), FIRST_SHARE * epsilon

    def first(again: float) -> float:
        own, other = (p * again + (1 - p) * (1 - again) for p in (kept, made))
        return log(own * (1 - other) / (other * (1 - own)))

    return kept, made, _rising(first, target, 0.5, 1.0)


def _rising(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(lambda x: function(x) - target, low, high))


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
