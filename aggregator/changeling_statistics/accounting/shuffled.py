"""The (ε, δ) of a survey against whoever sees its envelopes only after an honest relay has shuffled them.

The central guarantee: what n entries send together hardly depends on one entry's changelog. Two bounds hold at once,
and the smaller is given, never more than the local figure:

- round by round: an entry sends one envelope at each closing and the relay permutes each closing on its own, so the
  shuffled rounds compose. Each is bounded with the reports of one envelope linked;
- all linked: if all envelopes of an entry travelled as one, its whole transcript would be one report of a randomizer
  as private as the survey's pure cost. Cutting it up and shuffling the pieces again reveals no more, so the bound of
  that single round holds for ours.

The reverse is no argument: reports that do travel together must not be counted as shuffled apart.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Group
from changeling_protocol.randomizers import rounded_up

from .amplification import BLANKET, CLONES, blanket_deltas, clones_deltas
from .distributions import Floats, PrivacyLossDistribution, all_together, from_knots, symmetric_deltas
from .rounds import Round, differing_rounds
from .transcript import LEAST_DELTA, Charged, epsilon_at

CONDITIONS = (
    "the relay is honest and does not collude with the server; at every closing at least n entries, this one "
    "included, answer honestly and send envelopes over the same periods into one shuffle; an entry that sends late, "
    "or several closings in one envelope, hides only among those that do the same"
)
LOCAL = "the local figure: shuffling so few entries adds nothing that could be proved"
CROWD_SHARE = 0.1
"""The part of delta that pays for crowds smaller than expected."""
STEPS = 64

Profile = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class ShuffledLoss:
    """(epsilon, delta) after shuffling, and the bound it comes from. epsilon in nats, rounded up."""

    epsilon: float
    delta: float
    entries: int
    source: str


def shuffled_loss(survey: Charged, delta: float, entries: int) -> ShuffledLoss:
    """The smallest proved ε of the survey with `entries` = n entries shuffled at every closing.

    Raises ValueError for a delta outside [LEAST_DELTA, 1), or for no entries. CONDITIONS says when it holds.
    """
    if not LEAST_DELTA <= delta < 1:
        raise ValueError(f"a shuffled figure needs a delta from {LEAST_DELTA:g} to below 1, got {delta}")
    if entries < 1:
        raise ValueError(f"at least one entry is shuffled, got {entries}")
    by_round, source = rounds_epsilon(survey, delta, entries)
    candidates = [
        (epsilon_at(survey, delta), LOCAL),
        (by_round, f"one shuffled round a closing, composed; {source}"),
        (linked_epsilon(survey, delta, entries), f"the whole transcript as one shuffled report; {CLONES}"),
    ]
    epsilon, source = min(candidates, key=lambda each: each[0])
    return ShuffledLoss(epsilon, delta, entries, source)


def linked_epsilon(survey: Charged, delta: float, entries: int) -> float:
    """ε with an entry's whole transcript as one report of a randomizer that loses at most the survey's pure cost."""
    local = rounded_up(survey.cost)
    return _least_epsilon(lambda epsilons: clones_deltas(local, entries, epsilons), local, delta)


def rounds_epsilon(survey: Charged, delta: float, entries: int) -> tuple[float, str]:
    """ε with every closing shuffled on its own, of the worst group, and the bounds that it rests on.

    Groups are drawn whatever the data, and so δ(ε) = Σ f_g δ_g(ε) is at most the largest.
    """
    by_group = [_group_epsilon(survey, group, delta, entries) for group in set(survey.plan.groups)]
    sources = sorted({source for _, sources in by_group for source in sources})
    return max(epsilon for epsilon, _ in by_group), "; ".join(sources)


def _group_epsilon(survey: Charged, group: Group, delta: float, entries: int) -> tuple[float, set[str]]:
    rounds = differing_rounds(group, survey.calendar, survey.constraint, survey.closed)
    sources = {BLANKET if each.blanket else CLONES for each in rounds}
    share = group.share / survey.plan.total_share
    certain = share == 1 and all(each.alike == 1 for each in rounds)
    missed = 0.0 if certain else CROWD_SHARE * delta
    profiles = {
        each: (_profile(each, 1 + _crowd(entries - 1, share * each.alike, missed / rounds.total())), each.local)
        for each in rounds
    }
    left = delta - missed
    if rounds.total() == 1:
        ((profile, local),) = profiles.values()
        return _least_epsilon(profile, local, left), sources
    tail = left / (1000 * rounds.total())
    top = max(_least_epsilon(profile, local, tail, within=0.1) for profile, local in profiles.values())
    if top == 0:
        return 0.0, sources
    losses = all_together(
        [_losses(profiles[each][0], top).self_compose(count) for each, count in sorted(rounds.items(), key=str)]
    )
    return float(losses.get_epsilon_for_delta(left)) * (1 + 1e-9), sources


def _profile(each: Round, entries: int) -> Profile:
    """δ(ε) of one round among so many entries of the same form."""
    blanket, local = each.blanket, each.local
    if blanket is None:
        return lambda epsilons: clones_deltas(local, entries, epsilons)
    return lambda epsilons: blanket_deltas(blanket.truth, blanket.other, blanket.symbols, entries, epsilons)


def _crowd(others: int, chance: float, missed: float) -> int:
    """So many of the others draw the same form, except with probability `missed`."""
    if chance == 1 or others == 0:
        return others
    from scipy.stats import binom

    # ppf is the least count reached with probability `missed`; fewer come up with less than that.
    return max(0, int(binom.ppf(missed, others, chance)))


def _losses(profile: Profile, top: float) -> PrivacyLossDistribution:
    interval = top / STEPS
    epsilons = np.arange(STEPS + 1, dtype=np.float64) * interval
    _, deltas = symmetric_deltas(profile(epsilons), epsilons)
    return from_knots(np.arange(-STEPS, STEPS + 1), deltas, interval)


def _least_epsilon(profile: Profile, high: float, delta: float, within: float = 1e-6) -> float:
    """The least ε in [0, high] with δ(ε) <= delta, from above, relatively `within`; high where there is none below."""
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
