"""What shuffling one round of reports does to a local guarantee: the published bounds, numerically and closed.

A round: n entries each send one report through one and the same ε₀-private local randomizer, the shuffler permutes
them, and one entry's input is replaced by another. Bounds return δ(ε), and every approximation
in them rounds up. Knows nothing of surveys.

Feldman, McMillan and Talwar improved their theorem in 2023 ("Stronger privacy amplification by shuffling"), and
withdrew the general form in an erratum: its decomposition fails between the extremes. It is not used here.
"""

from math import exp, inf, log, sqrt

import numpy as np

from .distributions import Floats

CLONES = "Feldman, McMillan, Talwar 2021 (Hiding among the clones), theorem 3.1, evaluated numerically"
CLONES_CLOSED = "Feldman, McMillan, Talwar 2021 (Hiding among the clones), closed form"
BLANKET = "Balle, Bell, Gascón, Nissim 2019 (The privacy blanket), evaluated exactly for k-RR"

BLOCKS = 256
DEVIATIONS = 10.0
BLANKET_POINTS = 3000
RUNS = 32
"""Runs of K to a standard deviation."""


def clones_epsilon(local: float, entries: int, delta: float) -> float:
    """ε of one shuffled round in closed form, in nats; O(√(e^ε₀ ln(1/δ) / n)).

        a = 8 √(e^ε₀ ln(4/δ) / n) + 8 e^ε₀ / n
        ε = ln(1 + a (1 - e^-ε₀) / (1 + e^(-ε₀ - ln(1 + a))))

    local: ε₀ in nats. entries: n, this one included. Raises ValueError where ε₀ > ln(n / (16 ln(4/δ))), for which
    the theorem says nothing. Feldman, McMillan, Talwar 2021, theorem 3.1, in the more
    careful form of its authors' code.
    """
    _check(local, entries)
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, got {delta}")
    most = log(entries / (16 * log(4 / delta)))
    if local > most:
        raise ValueError(
            f"the closed form needs a local epsilon of at most ln(n / (16 ln(4/delta))) = {most:.3f} "
            f"for {entries} entries and delta {delta:g}, got {local:.3f}: more entries, or the numerical bound"
        )
    a = 8 * sqrt(exp(local) * log(4 / delta) / entries) + 8 * exp(local) / entries
    return log(1 + a * (1 - exp(-local)) / (1 + exp(-local) / (1 + a)))


def clones_deltas(local: float, entries: int, epsilons: Floats) -> Floats:
    """δ(ε) of one shuffled round of any ε₀-private local randomizer. epsilons: shape (n,), >= 0.

        P = (A + Δ, C - A + 1 - Δ)  against  Q = (A + 1 - Δ, C - A + Δ),
        C ~ Bin(n - 1, e^-ε₀),  A ~ Bin(C, 1/2),  Δ ~ Bernoulli(e^ε₀ / (1 + e^ε₀))

    C is public, and more clones hide better; so C is counted in blocks, each as its least. Given C = c, a count k of
    c + 1 is likelier under P by more than e^ε where k > (c + 1)τ. Feldman, McMillan, Talwar 2021, theorem 3.1.
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
    """δ(ε) of one shuffled round of k-RR with probabilities p = `truth` and q = `other` over m = `symbols`.

    Every report is with probability γ = mq a uniform symbol, the blanket, and else the truth. With the true reports
    and the number M of the others (this entry's included) public, x and x' differ in the counts of x and x' alone:

        δ(ε | M) = (m/M) E max(0, (p - q)(X - e^ε X') - qM(e^ε - 1)),   (X, X', rest) multinomial(M; 1/m, 1/m, …)

    M - 1 ~ Bin(n - 1, γ), counted in blocks, each as its least; a larger blanket hides better. K = X + X' has one law
    on either side. Balle, Bell, Gascón, Nissim 2019, section 5; no decomposition of k-RR bounds it better (Su, Cheng,
    Wang 2025). Raises ValueError for probabilities that are not k-RR's.
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
    """δ(ε | M), K = X + X' being summed in runs. With r = e^ε,

        X - r X' = (a martingale in K) - K (r - 1)/2,

    so that E max(0, X - r X' - c) over a run k..l is at most its value with l trials and the k's drift.
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
    """A binomial count in blocks: the least of each, and its mass. The first block begins at 0."""
    spread = sqrt(trials * chance * (1 - chance))
    low, high = trials * chance - DEVIATIONS * spread - DEVIATIONS, trials * chance + DEVIATIONS * spread
    starts = np.unique(np.clip(np.round(np.linspace(low, high, blocks + 1)), 0, trials)[:-1])
    starts = np.union1d([0.0], starts)
    below = np.append(np.where(starts > 0, _lower(trials, starts - 1, chance), 0.0), 1.0)
    return starts, np.diff(below)


def _upper(trials: Floats | float, count: Floats | float, chance: float) -> Floats:
    """Pr(Bin(trials, chance) > count), also for counts outside 0 .. trials."""
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
    """Rounded up by what floating-point sums may have lost; 0 from the local loss on, which no shuffling raises."""
    return np.where(epsilons >= local, 0.0, np.minimum(1.0, deltas * (1 + 1e-9) + 1e-15))


def _check(local: float, entries: int) -> None:
    if not 0 <= local < inf:
        raise ValueError(f"the local epsilon must be 0 or more and finite, got {local}")
    if entries < 1:
        raise ValueError(f"at least one entry is shuffled, got {entries}")
