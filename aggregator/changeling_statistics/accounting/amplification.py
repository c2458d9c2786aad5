"""The loss of an entry when one round of reports is shuffled: published bounds, evaluated numerically.

In a round n entries each send one report through the same randomizer, whose loss is at most ε₀, and the shuffler
permutes the reports. The bounds are on how well two inputs of one entry are then told apart, δ(ε), and everything in
them is rounded up. Knows nothing of surveys.

Feldman, McMillan and Talwar improved their theorem in 2023 ("Stronger privacy amplification by shuffling"), and
withdrew the general form in an erratum. It is not used here.
"""

from math import exp, inf, log, sqrt

import numpy as np

from ..estimate import Floats

CLONES = "Feldman, McMillan, Talwar 2021 (Hiding among the clones), theorem 3.1, evaluated numerically"
BLANKET = "Balle, Bell, Gascón, Nissim 2019 (The privacy blanket), evaluated exactly for k-RR"

BLOCKS = 256
"""The number of blocks of values in which the number of clones is counted."""
DEVIATIONS = 10.0
"""How many standard deviations of a binomial are looked at; what is farther out counts as lost."""
BLANKET_POINTS = 3000
"""About how many values are looked at for the blanket, in all blocks together."""
RUNS = 32
"""The number of runs in which a standard deviation of K is counted."""


def clones_deltas(local: float, entries: int, epsilons: Floats) -> Floats:
    """δ(ε) of one shuffled round of any randomizer whose loss is at most ε₀.

        P = (A + Δ, C - A + 1 - Δ)  against  Q = (A + 1 - Δ, C - A + Δ),
        C ~ Bin(n - 1, e^-ε₀),  A ~ Bin(C, 1/2),  Δ ~ Bernoulli(e^ε₀ / (1 + e^ε₀))

    local: ε₀, in nats.
    entries: n, this one included.
    epsilons: at least 0, any number of them.
    Returns a δ for each epsilon.
    C, the number of clones, is public, and more clones hide better. So its values are counted in blocks, and each block
    as its least value. Given C = c, a count k out of c + 1 is likelier under P by more than e^ε if k > (c + 1)τ.
    Feldman, McMillan, Talwar 2021, theorem 3.1.
    """
    _check(local, entries)
    if local == 0:
        return np.zeros_like(epsilons)
    truth = 1 / (1 + exp(-local))
    least, masses = _blocks(entries - 1, exp(-local), BLOCKS)
    ratio = np.exp(epsilons)[:, None]
    tau = (truth * ratio - (1 - truth)) / ((2 * truth - 1) * (1 + ratio))
    cut = np.floor((least + 1) * tau - 1e-12)
    above, from_cut = _upper(least, cut, 0.5), _upper(least, cut - 1, 0.5)
    under_p = truth * from_cut + (1 - truth) * above
    under_q = (1 - truth) * from_cut + truth * above
    return _bounded((np.maximum(0.0, under_p - ratio * under_q) * masses).sum(1), local, epsilons)


def blanket_deltas(truth: float, other: float, symbols: int, entries: int, epsilons: Floats) -> Floats:
    """δ(ε) of one shuffled round of k-RR.

    A report is with probability γ = mq a uniform symbol, and else the truth; the uniform ones are the blanket. Suppose
    that the true reports of the others are public, and the number M of all other reports, this entry's included. Then
    two inputs x and x' differ only in how often x and x' stand among those:

        δ(ε | M) = (m/M) E max(0, (p - q)(X - e^ε X') - qM(e^ε - 1)),   (X, X', rest) multinomial(M; 1/m, 1/m, …)

    truth: p, the probability of the true symbol.
    other: q, of each other symbol.
    symbols: m, how many there are.
    entries: n, this one included.
    epsilons: at least 0, any number of them. Returns a δ for each epsilon.
    M - 1 ~ Bin(n - 1, γ); a larger blanket hides better, so M is counted in blocks, and each block as its least value.
    K = X + X' has the same distribution under both inputs.
    Raises ValueError for probabilities that are not k-RR's.
    Balle, Bell, Gascón, Nissim 2019, section 5; no other way to split k-RR bounds it better (Su, Cheng, Wang 2025).
    """
    _check(0.0, entries)
    if symbols < 2 or not truth >= other > 0 or abs(truth + (symbols - 1) * other - 1) > 1e-9:
        raise ValueError(f"not k-RR over {symbols} symbols: p = {truth}, q = {other}")
    if truth == other:
        return np.zeros_like(epsilons)
    width = 1 + 2 * DEVIATIONS * min(sqrt(2 * entries * other), RUNS)
    least, masses = _blocks(entries - 1, symbols * other, max(1, min(64, round(BLANKET_POINTS / width))))
    total = np.zeros_like(epsilons)
    for others, mass in zip(least, masses, strict=True):
        if mass > 0:
            total += mass * np.minimum(1.0, _blanket_given(truth, other, symbols, others + 1, epsilons))
    return _bounded(total, log(truth / other), epsilons)


def _blanket_given(p: float, q: float, m: int, M: float, epsilons: Floats) -> Floats:
    """δ(ε | M), where K = X + X' is summed over runs of values k..l. With r = e^ε,

        X - r X' = (a martingale in K) - K (r - 1)/2,

    so in a run, E max(0, X - r X' - c) is at most what it is with the martingale at l and the drift at k.
    """
    centre, spread = (M - 1) * 2 / m, sqrt((M - 1) * 2 / m * (1 - 2 / m))
    low = max(1.0, np.floor(centre - DEVIATIONS * spread - 2 * DEVIATIONS))
    high = min(M, np.ceil(centre + DEVIATIONS * spread + 4 * DEVIATIONS))
    first = np.arange(low, high + 1, max(1.0, np.floor(sqrt(centre) / RUNS)))
    last = np.append(first[1:] - 1, high)
    below = _lower(M - 1, np.array(low - 1), 2 / m) if low > 1 else 0.0  # with K = 0 nothing is told
    outside = below + (_upper(M - 1, high - 1, 2 / m) if high < M else 0.0)
    ratio = np.exp(epsilons)[:, None]
    need = q * M * (ratio - 1) / (p - q) - (last - first) * (ratio - 1) / 2
    cut = np.floor((ratio * last + need) / (1 + ratio) - 1e-12)
    above, from_cut = _upper(last - 1, cut, 0.5), _upper(last - 1, cut - 1, 0.5)
    gained = last / 2 * (from_cut - ratio * above) - need * (from_cut + above) / 2
    weights = (_upper(M, first - 1, 2 / m) - _upper(M, last, 2 / m)) * (p - q) * m / M
    return np.asarray((np.maximum(0.0, gained) * np.maximum(0.0, weights)).sum(1) + outside)


def _blocks(trials: int, chance: float, blocks: int) -> tuple[Floats, Floats]:
    """A binomial count in about so many blocks of values: the least value of each block, and its probability.

    The first block begins at 0.
    """
    spread = sqrt(trials * chance * (1 - chance))
    low, high = trials * chance - DEVIATIONS * spread - DEVIATIONS, trials * chance + DEVIATIONS * spread
    starts = np.unique(np.clip(np.round(np.linspace(low, high, blocks + 1)), 0, trials)[:-1])
    starts = np.union1d([0.0], starts)
    below = np.append(np.where(starts > 0, _lower(trials, starts - 1, chance), 0.0), 1.0)
    return starts, np.diff(below)


def _upper(trials: Floats | float, count: Floats | float, chance: float) -> Floats:
    """Pr(Bin(trials, chance) > count), for any count, negative ones too."""
    from scipy.special import bdtrc

    trials, count = np.broadcast_arrays(np.asarray(trials, float), np.asarray(count, float))
    inside = bdtrc(np.clip(count, 0, trials), trials.astype(np.int64), min(chance, 1.0))
    return np.where(count < 0, 1.0, np.where(count >= trials, 0.0, inside))


def _lower(trials: float, count: Floats, chance: float) -> Floats:
    """Pr(Bin(trials, chance) <= count)."""
    from scipy.special import bdtr

    inside = bdtr(np.clip(count, 0, trials), int(trials), min(chance, 1.0))
    return np.where(count < 0, 0.0, np.where(count >= trials, 1.0, inside))


def _bounded(deltas: Floats, local: float, epsilons: Floats) -> Floats:
    """The deltas rounded up by what floating-point sums may have lost, at most 1, and 0 where ε is at least ε₀."""
    return np.where(epsilons >= local, 0.0, np.minimum(1.0, deltas * (1 + 1e-9) + 1e-15))


def _check(local: float, entries: int) -> None:
    if not 0 <= local < inf:
        raise ValueError(f"the local epsilon must be 0 or more and finite, got {local}")
    if entries < 1:
        raise ValueError(f"at least one entry is shuffled, got {entries}")
