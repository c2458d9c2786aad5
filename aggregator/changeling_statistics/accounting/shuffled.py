"""The (ε, δ) of a survey against whoever sees its envelopes only after an honest relay has shuffled them.

What n entries send together hardly depends on one entry's changelog. Two bounds hold, and the smaller is given, or the
local figure if that is smaller still:

- round by round: an entry sends one envelope at each closing, and the relay permutes each closing by itself, so the
  shuffled rounds compose. The reports of one envelope are taken to be linked, and so are all those of a joint group,
  which depend on each other: its whole transcript is one round;
- all linked: if all envelopes of an entry travelled as one, its whole transcript would be a single report of a
  randomizer that loses at most the survey's pure cost. Cutting it up and shuffling the pieces reveals no more, so the
  bound of that single round holds.

Reports that do travel together are never counted as shuffled apart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import Group
from changeling_protocol.randomizers import rounded_up

from ..estimate import Floats
from .amplification import BLANKET, CLONES, blanket_deltas, clones_deltas
from .distributions import PrivacyLossDistribution, all_together, from_knots, symmetric_deltas
from .rounds import Round, differing_rounds
from .transcript import LEAST_DELTA, Charged, epsilon_at

CONDITIONS = (
    "the relay is honest and does not collude with the server; at every closing at least n entries, this one "
    "included, answer honestly and send envelopes over the same periods into one shuffle; an entry that sends late, "
    "or several closings in one envelope, hides only among those that do the same"
)
LOCAL = "the local figure: shuffling so few entries adds nothing that could be proved"
CROWD_SHARE = 0.1
"""The part of delta that is kept for crowds that turn out smaller than counted with."""
STEPS = 64
"""In how many steps of ε a round's curve is taken before rounds are composed."""

Profile: TypeAlias = Callable[[Floats], Floats]
"""Takes epsilons and gives the δ of one round for each."""


@dataclass(frozen=True, slots=True)
class ShuffledLoss:
    """That a survey is (epsilon, delta)-differentially private after shuffling.

    epsilon: in nats, rounded up.
    delta: the one asked for.
    entries: how many are shuffled together at every closing, at least.
    source: which bound gave the figure.
    """

    epsilon: float
    delta: float
    entries: int
    source: str


def shuffled_loss(survey: Charged, delta: float, entries: int) -> ShuffledLoss:
    """The smallest ε of a survey that can be proved, if the envelopes of every closing are shuffled.

    delta: from LEAST_DELTA to below 1.
    entries: n, how many entries are shuffled together at every closing, this one included.
    Raises ValueError for a delta outside its range, or for no entries. CONDITIONS says when the figure holds.
    """
    if not LEAST_DELTA <= delta < 1:
        raise ValueError(f"a shuffled figure needs a delta from {LEAST_DELTA:g} to below 1, got {delta}")
    if entries < 1:
        raise ValueError(f"at least one entry is shuffled, got {entries}")
    by_round, source = rounds_epsilon(survey, delta, entries)
    candidates = [
        (epsilon_at(survey, delta), LOCAL),
        (linked_epsilon(survey, delta, entries), f"the whole transcript as one shuffled report; {CLONES}"),
        (by_round, f"one shuffled round a closing, or one for all of a joint group, composed; {source}"),
    ]
    epsilon, source = min(candidates, key=lambda candidate: candidate[0])
    return ShuffledLoss(epsilon, delta, entries, source)


def linked_epsilon(survey: Charged, delta: float, entries: int) -> float:
    """The ε of a single shuffled round in which each entry sends its whole transcript as one report.

    delta, entries: as for `shuffled_loss`.
    """
    local = rounded_up(survey.cost)
    return _least_epsilon(lambda epsilons: clones_deltas(local, entries, epsilons), local, delta)


def rounds_epsilon(survey: Charged, delta: float, entries: int) -> tuple[float, str]:
    """The ε of all closings, each shuffled by itself, of the worst group; and the bounds that it rests on.

    A joint group has one round, of all its closings together.

    delta, entries: as for `shuffled_loss`. An entry's group does not depend on its data, so δ(ε) = Σ f_g δ_g(ε) is at
    most that of the worst group.
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
    """δ(ε) of one round, among so many entries whose envelopes have reports on the same nodes."""
    blanket, local = each.blanket, each.local
    if blanket is None:
        return lambda epsilons: clones_deltas(local, entries, epsilons)
    return lambda epsilons: blanket_deltas(blanket.truth, blanket.other, blanket.symbols, entries, epsilons)


def _crowd(others: int, chance: float, missed: float) -> int:
    """How many of the others, each with a chance, send an envelope like this one; fewer do with probability `missed`.

    others: how many there are.
    """
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
