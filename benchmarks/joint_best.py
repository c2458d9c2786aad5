"""How near mixes of joint groups and histories come to the best that any reports at all could do.

A tiny closed cohort of two answers: T periods, at most k changes after the first, all histories equally likely; every
histogram is estimated, without bias whatever the histories, after the last period. What is compared is the response
variance of the share that holds an answer, mean over the times. The bound is for every channel from whole histories to
anything whose likelihoods differ by at most e^ε: rows of 1 and e^ε suffice (Kairouz, Oh, Viswanath 2014), so it is a
convex programme over 2ⁿ rows, with a certificate.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, pairwise, product
from math import exp, gcd
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    History,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    SignedSubset,
    StateSpace,
    Track,
    agreeing,
    most_telling,
)
from changeling_statistics import Floats
from numpy.typing import NDArray

SHRINK = 0.2
"""By how much the barrier falls once it is solved."""
MOST_STEPS = 500


CASES = tuple(product(((2, 1), (3, 1), (3, 2), (4, 1)), (1.0, 2.0, 4.0)))
"""T and k, and ε, of the twelve cases of docs/joint.md."""
LONGER = (((5, 1), 2.0), ((5, 1), 4.0))
MOST_JOINT = 4
GAP = 1e-5
"""How near the search comes to its certificate, in parts of the response variance; what it reached is printed."""

Histories: TypeAlias = list[tuple[int, ...]]
"""The states at times 0 to T."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix of channels.

    weights: of each channel, shape (N,).
    square: Σ_t x_t' I⁻¹ x_t / T of this mix, the mean square of the best estimator.
    bound: no mix has less. A number that was checked, whatever the search did.
    """

    weights: Floats
    square: float
    bound: float


def measure() -> dict[str, float]:
    """Measure 2: response variance over the certified bound, of the best mix of joint groups, alone and with histories.

    Over five periods there are histories alone, as joint groups are too many.
    """
    figures: dict[str, float] = {}
    for (T, k), epsilon in (*CASES, *LONGER):
        name, histories = f"2_T{T}_k{k}_eps{epsilon:g}", all_histories(T, k)
        bound = response_variance(optimum(histories, epsilon).bound, histories)
        joint = [] if T > MOST_JOINT else [information(group, histories) for group in joint_groups(T, k, epsilon)]
        rows = [information_of_history(group, histories) for group in history_groups(T, k, epsilon)]
        for kind, mixed in (("joint_", joint), ("", rows + joint)):
            if mixed:
                best = best_of(distinct(mixed), histories)
                figures[f"{name}_{kind}over_bound"] = response_variance(best.square, histories) / bound
    twelve = [figures[f"2_T{T}_k{k}_eps{epsilon:g}_over_bound"] for (T, k), epsilon in CASES]
    return figures | {
        "2_worst_of_twelve_over_bound": max(twelve),
        "2_twelve_within_1_percent": float(sum(ratio <= 1.01 for ratio in twelve)),
    }


def history_groups(T: int, k: int, epsilon: float) -> Iterator[Group]:
    """Histories at all rows of times, with at most k changes after the first."""
    for first, every in product(range(1, T + 1), range(1, T + 1)):
        for last in range(first, T + 1, every):
            periods = range(first, last + 1, every)
            if len(periods) > 1 or every == 1:
                history = History.of(Odds.within(epsilon), periods, AtMost(k + 1), Calendar(0, 1, T), closed=True)
                yield Group.of_history(history, 2)


def information_of_history(group: Group, histories: Histories) -> Floats:
    """As `information`, of all that an entry of a history group sends."""
    ends = [node.end for track in group.tracks for node in track.nodes()]
    told = float(group.histories.told)
    reported = [tuple(states[end] for end in ends) for states in histories]
    every = sorted(set(reported))  # all that are possible: there are no histories but these
    rows = np.array([[told * (sent == truth) + (1 - told) / len(every) for truth in reported] for sent in every])
    informed: Floats = rows.T @ (rows / rows.mean(axis=1)[:, None])
    return informed


def all_histories(T: int, k: int) -> Histories:
    """Every history of two answers over T periods with at most k changes after the first."""
    every = ((0, *states) for states in product((1, 2), repeat=T))
    return [states for states in every if sum(old != new for old, new in pairwise(states[1:])) <= k]


def held(histories: Histories) -> Floats:
    """1 where a history holds the first answer, 0 where it holds the other; by time, shape (n, T)."""
    return np.array([states[1:] for states in histories]) % 2 * 1.0


def response_variance(square: float, histories: Histories) -> float:
    """The mean square of an estimator less that of what it estimates, which it would have without any noise."""
    return square - float((held(histories) ** 2).mean())


def optimum(histories: Histories, epsilon: float) -> Mix:
    """The best channel of all: a row for every set of histories, which it makes e^ε times likelier than the others."""
    ratio = exp(epsilon)
    rows = np.array(list(product((1.0, ratio), repeat=len(histories))))
    informations = rows[:, :, None] * rows[:, None, :] / rows.mean(axis=1)[:, None, None]
    return best_mix(informations, held(histories), rows.T, _gap(histories))


def best_of(informations: Floats, histories: Histories) -> Mix:
    """The best mix of groups, one of which each entry draws."""
    return best_mix(informations, held(histories), np.ones((1, len(informations))), _gap(histories))


def _gap(histories: Histories) -> float:
    """The gap of f that is about GAP of the response variance at the largest epsilon here."""
    return GAP * 0.03 * len(histories) / 4


def information(group: Group, histories: Histories) -> Floats:
    """Σ_o q_o q_o' / mean(q_o) of all that an entry of a joint group sends, the drawn nodes known; shape (n, n)."""
    draws = list(product(*(combinations(range(track.count), track.reports) for track in group.tracks)))
    total = np.zeros((len(histories), len(histories)))
    for drawn in draws:
        rows = _joint_rows(group, histories, drawn)
        total += rows.T @ (rows / rows.mean(axis=1)[:, None]) / len(draws)
    return total


Drawn: TypeAlias = tuple[tuple[int, ...], ...]
"""The nodes that an entry reports, by track."""


def _joint_rows(group: Group, histories: Histories, drawn: Drawn) -> Floats:
    """Pr(o | h): the base, and the density of what agrees, by the kernel that tests hold to its definition."""
    assert isinstance(group.joint, Joint)  # noqa: S101
    inputs = [_drawn_inputs(group, states, drawn) for states in histories]
    chances, scores = np.ones(1), np.zeros((len(histories), 1), dtype=np.intp)
    for place, track in enumerate(group.tracks):
        weight = group.joint.weights[place]
        of_symbols, agreed = _agreements(track.randomizer)
        for node in range(track.reports):
            chances = np.outer(chances, of_symbols).ravel()
            gained = weight * agreed[[trues[place][node] for trues in inputs]]
            scores = (scores[:, :, None] + gained[:, None, :]).reshape(len(histories), -1)
    rows = np.empty((len(chances), len(histories)))
    for number, trues in enumerate(inputs):
        used = [
            sum(agreeing(track.randomizer).tells(true) for true in of_track)
            for track, of_track in zip(group.tracks, trues, strict=True)
        ]
        whole, kernel = group.kernel.density([0] * len(used), 0), group.kernel
        scored = (min(score, group.joint.threshold) for score in range(group.joint.heaviest + 1))
        by_score = np.array([float(kernel.density(used, score) / whole) for score in scored])
        rows[:, number] = chances * by_score[scores[number]]
    return rows


@cache
def _agreements(randomizer: Randomizer) -> tuple[Floats, NDArray[np.bool_]]:
    """How likely the base sends each symbol, and whether it agrees with each input, shape (inputs, symbols)."""
    joint, symbols, inputs = agreeing(randomizer), range(randomizer.symbols), range(randomizer.space.size)
    of_symbols = np.full(len(symbols), 1 / len(symbols))
    if not joint.tells(0):
        of_symbols = np.array([randomizer.weight(o, 0) / randomizer.total(0) for o in symbols])
    return of_symbols, np.array([[joint.tells(u) and joint.agrees(o, u) for o in symbols] for u in inputs])


def _drawn_inputs(group: Group, states: tuple[int, ...], drawn: Drawn) -> list[list[int]]:
    inputs = []
    for track, numbers in zip(group.tracks, drawn, strict=True):
        spans = [track.nodes()[number] for number in numbers]
        inputs.append([track.randomizer.space.index(states[node.start], states[node.end]) for node in spans])
    return inputs


def distinct(informations: Iterable[Floats]) -> Floats:
    """The matrices that differ, shape (N, n, n): thresholds and weights often mean the same."""
    return np.array(list({np.round(each, 9).tobytes(): each for each in informations}.values()))


STATES, MOVES = StateSpace(2, null=False), MutationSpace(2, null=False)
ANY = Odds(2, 1)
"""The odds of randomizers before they are joint: `Group.jointly` sets their own."""
SPOKEN = (Fraction(1), Fraction(1, 4))
"""u of signed subsets; k-RR of changes is 2/3 of two answers."""
HEAVIEST = 3
"""The largest weight of a state."""


def joint_groups(T: int, k: int, epsilon: float) -> Iterator[Group]:
    """States at every choice of times, with every choice of weights and threshold, and with a cadence of changes.

    T: periods. k: changes after the first period.
    """
    odds = Odds.within(epsilon)
    for weights in _weights(T, HEAVIEST):
        yield from _thresholds(_states(weights), _positive(weights), odds, T, k)
    for weights, changes, cadence in product(_weights(T, 1, none=True), _changes(), cadences(T)):
        track = cadence(changes)
        for weight in (1, 2) if any(weights) else (1,):
            yield from _thresholds([*_states(weights), track], (*_positive(weights), weight), odds, T, k)


def cadences(T: int) -> list[Callable[[Randomizer], Track]]:
    """Every row of nodes of one width after the first period, with all of its nodes or with some drawn.

    Each takes a randomizer and gives its track.
    """
    rows = [(w, first, first + w * n) for w in range(1, T) for first in range(1, T) for n in range(1, T)]
    return [
        partial(Track, width, first=first, last=last, reported=reported)
        for width, first, last in rows
        if last <= T
        for reported in (None, *range(1, (last - first) // width))
    ]


def _changes() -> list[Randomizer]:
    return [KaryChange(MOVES, ANY), *(SignedSubset(MOVES, ANY, spoken=spoken) for spoken in SPOKEN)]


def _weights(T: int, heaviest: int, none: bool = False) -> Iterator[tuple[int, ...]]:
    """A weight for the state at every time, 0 where it is not reported; without a common factor."""
    for weights in product(range(heaviest + 1), repeat=T):
        if gcd(*weights) == 1 or (none and not any(weights)):
            yield weights


def _positive(weights: Sequence[int]) -> tuple[int, ...]:
    return tuple(weight for weight in weights if weight)


def _states(weights: Sequence[int]) -> list[Track]:
    return [Track(1, KaryResponse(STATES, ANY), t, t + 1) for t, weight in enumerate(weights) if weight]


def _thresholds(tracks: Sequence[Track], weights: tuple[int, ...], odds: Odds, T: int, k: int) -> Iterator[Group]:
    """The group at every threshold at which all of its tracks matter and which is a sum of weights."""
    slots = tuple(most_telling(track, Calendar(0, 1, T), AtMost(k + 1), closed=True) for track in tracks)
    every = [weight for weight, times in zip(weights, slots, strict=True) for _ in range(times)]
    sums = {sum(some) for n in range(1, len(every) + 1) for some in combinations(every, n)}
    for threshold in sorted(sums):
        try:
            yield Group.jointly(tracks, Joint(odds, threshold, weights, slots))
        except ValueError:  # a track that says nothing at this threshold
            continue


def best_mix(informations: Floats, wanted: Floats, charges: Floats, gap: float) -> Mix:
    """The weights w >= 0 with charges·w = 1 that give the least mean square, by an interior-point method.

    informations: of each channel, shape (N, n, n).
    wanted: x, what is estimated of each history, shape (n, T).
    charges: shape (c, N), positive; every row of charges·w is to be 1, and is so at some multiple of (1, …, 1).
    gap: how far from the bound the result may be.
    f is the mean square, φ = -∂f/∂w. As f(w) is convex and f(cw) = f(w)/c, f >= f(w)²/M for all weights, M being the
    largest φ·w. And M <= Σ y for every y with charges'·y >= φ, such as the multipliers of the search, scaled up.
    """
    N, n, _ = informations.shape
    T, flat = wanted.shape[1], informations.reshape(N, n * n)
    weights = np.full(N, 1 / charges.sum(axis=1).max())
    barrier, bound = np.inf, 0.0
    for _ in range(MOST_STEPS):
        solved = np.linalg.solve((weights @ flat).reshape(n, n), wanted)
        square = float((wanted * solved).sum()) / T
        barrier = min(barrier, square / N)
        answers = informations @ solved  # I_g I⁻¹ x_t, shape (N, n, T)
        phi = (answers * solved).sum(axis=(1, 2)) / T
        # Newton's step, in parts of each weight: (barrier + B B') step = φw + barrier - (charges·w)'ν, with no change
        # of charges·w.
        root = np.linalg.inv(np.linalg.cholesky((weights @ flat).reshape(n, n)))
        bends = np.sqrt(2 / T) * weights[:, None] * (root @ answers).reshape(N, n * T)
        axes, lengths, _ = np.linalg.svd(bends, full_matrices=False)
        shares = 1 / (barrier + lengths**2) - 1 / barrier
        charged = (charges * weights).T
        rising = phi * weights + barrier
        both = np.column_stack((rising, charged))
        both = both / barrier + axes @ (shares[:, None] * (axes.T @ both))
        multipliers = np.linalg.solve(charged.T @ both[:, 1:], charged.T @ both[:, 0])
        step = both[:, 0] - both[:, 1:] @ multipliers
        bound = max(bound, _certified(square, phi, charges, multipliers))
        if square - bound <= gap:
            break
        if np.abs(step).max() < 1 / 2:
            barrier *= SHRINK
        weights = weights * (1 + step * min(1.0, 0.9 / max(1e-300, float(np.abs(step).max()))))
        weights /= (charges @ weights).max()
    return Mix(weights, square, bound)


def _certified(square: float, phi: Floats, charges: Floats, multipliers: Floats) -> float:
    """f²/M, for the multipliers scaled up until they cover every φ; 0 if they cannot."""
    covering = charges.T @ multipliers
    if covering.min() <= 0:
        return 0.0
    return square**2 / float(multipliers.sum() * (phi / covering).max())
