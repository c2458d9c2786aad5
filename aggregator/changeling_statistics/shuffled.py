"""The (ε, δ) of a survey against whoever sees its envelopes only after an honest relay has shuffled them; all figures.

At a closing an entry sends one envelope, which holds a report for each of its tracks whose node ends there, and the
relay permutes the envelopes of that closing. The group of an envelope and the nodes it reports can be seen, and those
of this entry are taken to be known; the worst group counts. So an envelope hides only among those of the same group
with reports on the same nodes; what the others drew does not depend on data. In a group two bounds hold, and the
smaller is given, or the local figure if that is smaller still:

- round by round: the relay permutes each closing by itself, so the shuffled rounds compose; the reports of one envelope
  are taken to be linked. Not in a joint group, whose reports depend on each other from closing to closing;
- all linked: if all envelopes of an entry travelled as one, its whole transcript would be a single report of a
  randomizer that loses at most the group's pure cost. Cutting it up and shuffling the pieces reveals no more.

One round is bounded by theorems on n entries that each send one report through the same randomizer; everything in them
is rounded up. docs/mathematics.md, "Accounting".
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from math import comb, exp, inf, log, prod, sqrt
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    Calendar,
    Constraints,
    Group,
    History,
    Losses,
    Survey,
    Track,
    group_cost,
    rounded_up,
    track_cost,
)

from .accounting import (
    LEAST_DELTA,
    ROUNDING,
    PrivacyLossDistribution,
    all_together,
    check_delta,
    epsilon_at,
    from_knots,
    group_epsilon,
    symmetric_deltas,
)
from .estimate import Floats
from .randomizers.counterpart import Blanket, counterpart_of

CLONES = "Feldman, McMillan, Talwar 2021 (Hiding among the clones), theorem 3.1, evaluated numerically"
BLANKET = "Balle, Bell, Gascón, Nissim 2019 (The privacy blanket), evaluated exactly for k-RR"

BLOCKS = 256
"""In so many blocks of values the number of clones is counted."""
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

    local: ε₀, in nats. entries: n, this one included. epsilons: at least 0; returns a δ for each.
    C, the number of clones, is public, and more clones hide better. So its values are counted in blocks, and each block
    as its least value. Given C = c, a count k out of c + 1 is likelier under P by more than e^ε if k > (c + 1)τ.
    Feldman, McMillan, Talwar 2021, theorem 3.1. They improved it in 2023 ("Stronger privacy amplification by
    shuffling"), and withdrew the general form in an erratum: it is not used here.
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

    truth, other: p and q, the probability of the true symbol and of each other. symbols: m, how many there are.
    entries, epsilons: as above.
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


@dataclass(frozen=True, slots=True)
class Round:
    """The shuffling of one closing, or of whole transcripts.

    local: how much of an entry can be told before it is shuffled, in nats, rounded up.
    alike: the probability that another entry of the group reports on the same nodes.
    blanket: the envelope's report as a mixture of the truth and a uniform symbol; None if it is no such mixture, or
    the envelope holds several reports.
    """

    local: float
    alike: float
    blanket: Blanket | None


def linked_round(group: Group, calendar: Calendar, constraint: Constraints, closed: bool) -> Round:
    """The round in which every entry of a group sends its whole transcript at once, among those that drew alike.

    A history group's transcript is k-RR over the possible histories: the truth, or any of them.
    """
    alike = 1 / prod(comb(track.count, track.reports) for track in group.tracks)
    return Round(rounded_up(group_cost(group, calendar, constraint, closed)), alike, _of_history(group))


def _of_history(group: Group) -> Blanket | None:
    """A history as a mixture of the truth and a uniform one; None for other groups, and where histories are too many
    to be counted in floats: these hide nobody."""
    if not isinstance(group.joint, History):
        return None
    odds, count = group.histories.odds, group.histories.possible.count
    total = odds.favoured + (count - 1) * odds.other
    return Blanket(odds.favoured / total, odds.other / total, count) if 1 < count <= MOST_HISTORIES else None


def differing_rounds(group: Group, calendar: Calendar, constraint: Constraints, closed: bool) -> Counter[Round]:
    """The rounds at which two changelogs of an entry of the group can differ, with how many there are of each.

    If no two tracks end together, each track has as many rounds as its reports can differ. If some do, the rounds are
    an upper bound: each report that differs is taken to have a round of its own, and the rounds to be those with the
    largest losses, each with the smallest crowd and no blanket.
    Raises ValueError for a joint group, whose rounds depend on each other.
    """
    if group.joint is not None:
        raise ValueError("the rounds of a joint group depend on each other: only its whole transcript can be counted")
    each = Losses.alike(Decimal(1))
    differing = {track: int(track_cost(track, calendar, constraint, closed, each)) for track in group.tracks}
    forms = _forms(group)
    if all(len(tracks) == 1 for tracks in forms):
        apart: Counter[Round] = Counter()
        for (track,) in forms:
            apart[_round((track,))] += differing[track]
        return +apart
    left = sum(differing[track] for track in group.tracks)
    alike = min(_round(tracks).alike for tracks in forms)
    chosen: Counter[Round] = Counter()
    for tracks in sorted(forms, key=lambda tracks: _round(tracks).local, reverse=True):
        taken = min(left, forms[tracks])
        left -= taken
        chosen[Round(_round(tracks).local, alike, None)] += taken
    return +chosen


def _forms(group: Group) -> Counter[tuple[Track, ...]]:
    """How many closings the group has with which tracks ending there."""
    if len(group.tracks) == 1:
        return Counter({group.tracks: group.tracks[0].count})
    ending: dict[int, list[Track]] = {}
    for track in group.tracks:
        for number in range(1, track.count + 1):
            ending.setdefault(track.first + number * track.width, []).append(track)
    return Counter(tuple(tracks) for tracks in ending.values())


def _round(tracks: tuple[Track, ...]) -> Round:
    losses = [track.randomizer.losses for track in tracks]
    with localcontext(prec=50, rounding=ROUND_CEILING):
        local = sum((max(each.mutations, each.appears, each.vanishes) for each in losses), Decimal(0))
    drawn = [track.reports / track.count for track in tracks if track.reports < track.count]
    # A single report hides among those that report the node. Of several, each is there or not.
    alike = prod(drawn) if len(tracks) == 1 else prod(min(share, 1 - share) for share in drawn)
    blanket = counterpart_of(tracks[0].randomizer).blanket if len(tracks) == 1 else None
    return Round(rounded_up(local), alike, blanket)


MOST_HISTORIES = 10**12
"""With more possible histories than that, the general bound is taken for a history group."""
CONDITIONS = (
    "the relay is honest and does not collude with the server; the same n entries, this one included, answer honestly "
    "at all closings, each with an envelope of its own for every closing, in that closing's shuffle; they enrolled "
    "together and are always of one stratum; this entry's group and drawn nodes may be known; for an entry that sends "
    "late, or several closings in one envelope, or that enrols or changes its stratum when the others do not, only the "
    "(epsilon, delta) figure stands"
)
LOCAL = "the local figure: shuffling so few entries adds nothing that could be proved"
CROWD_SHARE = 0.1
"""The part of delta that is kept for crowds that turn out smaller than counted with."""
STEPS = 64
"""The number of steps of ε in which a round's curve is taken before rounds are composed."""

Profile: TypeAlias = Callable[[Floats], Floats]
"""Takes epsilons and gives the δ of one round for each."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A guarantee: everything an entry reports is (epsilon, delta)-differentially private in its whole changelog.

    epsilon: in nats, rounded up.
    delta: 0 for a pure guarantee.
    source: where the bound is proved.
    conditions: what must hold for it, in words.
    """

    epsilon: float
    delta: float
    source: str
    conditions: str


def shuffled_loss(survey: Survey, delta: float, entries: int) -> Figure:
    """The smallest ε of a survey that can be proved, if the envelopes of every closing are shuffled.

    delta: from LEAST_DELTA to below 1.
    entries: n, how many entries are shuffled together at every closing, this one included; of one stratum.
    Raises ValueError for a survey that declares no relay, a delta outside its range, or no entries.
    """
    if not survey.relay:
        raise ValueError("a shuffled figure needs a relay, and this survey declares none")
    if not LEAST_DELTA <= delta < 1:
        raise ValueError(f"a shuffled figure needs a delta from {LEAST_DELTA:g} to below 1, got {delta}")
    if entries < 1:
        raise ValueError(f"at least one entry is shuffled, got {entries}")
    by_group = [_group_loss(survey, group, delta, entries) for group in set(survey.plan.groups)]
    epsilon, source = max(by_group)
    return Figure(epsilon, delta, source, f"n = {entries}: {CONDITIONS}")


def _group_loss(survey: Survey, group: Group, delta: float, entries: int) -> tuple[float, str]:
    """The smallest ε for the entries of a group, and its source."""
    proved = CLONES if _of_history(group) is None else BLANKET
    candidates = [
        (group_epsilon(survey, group, delta), LOCAL),
        (
            linked_epsilon(survey, group, delta, entries),
            f"the whole transcript as one report, among those that drew alike; {proved}",
        ),
    ]
    if group.joint is None:
        by_round, sources = rounds_epsilon(survey, group, delta, entries)
        candidates.append((by_round, f"one shuffled round a closing, composed; {sources}"))
    return min(candidates, key=lambda candidate: candidate[0])


def linked_epsilon(survey: Survey, group: Group, delta: float, entries: int) -> float:
    """The ε of a single shuffled round in which each entry of a group sends its whole transcript as one report."""
    whole = linked_round(group, survey.calendar, survey.constraints, survey.closed)
    return _composed_epsilon(Counter([whole]), group.share / survey.plan.total_share, delta, entries)


def rounds_epsilon(survey: Survey, group: Group, delta: float, entries: int) -> tuple[float, str]:
    """The ε of all closings of a group, each shuffled by itself; and the bounds that it rests on.

    Raises ValueError for a joint group.
    """
    rounds = differing_rounds(group, survey.calendar, survey.constraints, survey.closed)
    sources = sorted({BLANKET if each.blanket else CLONES for each in rounds})
    return _composed_epsilon(rounds, group.share / survey.plan.total_share, delta, entries), "; ".join(sources)


def _composed_epsilon(rounds: Counter[Round], share: float, delta: float, entries: int) -> float:
    """The ε of independent shuffled rounds. share: the probability that another entry draws the group."""
    if not rounds:
        return 0.0
    certain = share == 1 and all(each.alike == 1 for each in rounds)
    missed = 0.0 if certain else CROWD_SHARE * delta
    profiles = {
        each: (_profile(each, 1 + _crowd(entries - 1, share * each.alike, missed / rounds.total())), each.local)
        for each in rounds
    }
    left = delta - missed
    if rounds.total() == 1:
        ((profile, local),) = profiles.values()
        return _least_epsilon(profile, local, left)
    tail = left / (1000 * rounds.total())
    top = max(_least_epsilon(profile, local, tail, within=0.1) for profile, local in profiles.values())
    if top == 0:
        return 0.0
    losses = all_together(
        [_losses(profiles[each][0], top).self_compose(count) for each, count in sorted(rounds.items(), key=str)]
    )
    return float(losses.get_epsilon_for_delta(left * (1 - 1e-9) - ROUNDING)) * (1 + 1e-9)


def _profile(each: Round, entries: int) -> Profile:
    """δ(ε) of one round, among so many entries whose envelopes have reports on the same nodes."""
    blanket, local = each.blanket, each.local
    if blanket is None:
        return lambda epsilons: clones_deltas(local, entries, epsilons)
    return lambda epsilons: blanket_deltas(blanket.truth, blanket.other, blanket.symbols, entries, epsilons)


def _crowd(others: int, chance: float, missed: float) -> int:
    """How many of the others, each with a chance, send an envelope like this one; fewer do with chance `missed`."""
    if chance == 1 or others == 0:
        return others
    from scipy.stats import binom

    # ppf is the least count reached with probability `missed`; fewer come up with less than that. What floats may have
    # lost of the chance or of the sum is taken off.
    return max(0, int(binom.ppf(missed * (1 - 1e-9), others, chance * (1 - 1e-12))))


def _losses(profile: Profile, top: float) -> PrivacyLossDistribution:
    interval = top / STEPS
    epsilons = np.arange(STEPS + 1, dtype=np.float64) * interval
    _, deltas = symmetric_deltas(profile(epsilons), epsilons)
    return from_knots(np.arange(-STEPS, STEPS + 1), deltas, interval)


def _least_epsilon(profile: Profile, high: float, delta: float, within: float = 1e-6) -> float:
    """The least ε in [0, high] with δ(ε) <= delta, rounded up by at most a part `within` of `high`; else `high`."""
    low = 0.0
    while high - low > within * high:
        epsilons = np.linspace(low, high, 11)
        enough = np.flatnonzero(profile(epsilons) <= delta)
        if len(enough) == 0:
            return high
        first = int(enough[0])
        if first == 0:
            return low
        low, high = float(epsilons[first - 1]), float(epsilons[first])
    return high


@dataclass(frozen=True, slots=True)
class LossStatement:
    """The cost of a survey to an entry, in three figures.

    pure, approximate: with delta 0, and with the delta asked for, against everybody.
    shuffled: with that delta, against whoever sees uploads only after a relay has shuffled them; None if the survey
    declares no relay, or nobody said how many entries it shuffles.
    """

    pure: Figure
    approximate: Figure
    shuffled: Figure | None


def loss_statement(survey: Survey, delta: float, shuffled_entries: int | None = None) -> LossStatement:
    """Works out what a survey can cost an entry. Of the three epsilons, shuffled <= approximate <= pure.

    delta: from 0 to below 1. It ought to be well below one in the number of entries.
    shuffled_entries: at least how many entries, of one stratum, are shuffled together at every closing; None if that is
    not known.
    Raises ValueError for a delta outside [0, 1), and, for a shuffled figure, below 1e-12 or without an entry.
    """
    check_delta(delta)
    local = "none: holds against the server and everybody else, who know the entry's group and drawn nodes"
    sliced = any(group.joint is None and sum(t.reports for t in group.tracks) > 1 for group in survey.plan.groups)
    loose = "; an upper bound, which may be loose: some reports have a budget each" if sliced else ""
    charge = "the charge of the release plan, from exact integer odds"
    pure = Figure(rounded_up(survey.cost), 0.0, charge, local + loose)
    approximate = Figure(
        epsilon_at(survey, delta),
        delta,
        "privacy-loss distributions of the worst transcripts, those of joint groups in closed form, composed with "
        "dp-accounting and rounded up "
        "(Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022; Zhu, Dong, Wang 2022)",
        f"{local}; with probability about delta a transcript may tell more, never more than the pure figure{loose}",
    )
    if shuffled_entries is None or not survey.relay:
        return LossStatement(pure, approximate, None)
    return LossStatement(pure, approximate, shuffled_loss(survey, delta, shuffled_entries))
