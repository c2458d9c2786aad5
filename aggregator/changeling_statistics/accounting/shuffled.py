"""The (ε, δ) of a survey against whoever sees its envelopes only after an honest relay has shuffled them.

What n entries send together hardly depends on one entry's changelog. Whoever reads it knows the entry's group and the
nodes it drew, and the worst group counts. In a group two bounds hold, and the smaller is given, or the local figure if
that is smaller still:

- round by round: an entry sends one envelope at each closing, and the relay permutes each closing by itself, so the
  shuffled rounds compose. The reports of one envelope are taken to be linked. Not so in a joint group, whose rounds
  depend on each other;
- all linked: if all envelopes of an entry travelled as one, its whole transcript would be a single report of a
  randomizer that loses at most the group's pure cost, hidden among those that drew the same group and the same nodes.
  Cutting it up and shuffling the pieces reveals no more, so the bound of that single round holds.

Reports that do travel together are never counted as shuffled apart.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_protocol import Group

from ..estimate import Floats
from .amplification import BLANKET, CLONES, blanket_deltas, clones_deltas
from .distributions import PrivacyLossDistribution, all_together, from_knots, symmetric_deltas
from .rounds import Round, differing_rounds, linked_round
from .transcript import LEAST_DELTA, ROUNDING, Charged, group_epsilon

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
    entries: n, how many entries are shuffled together at every closing, this one included; of one stratum.
    Raises ValueError for a survey that declares no relay, a delta outside its range, or no entries. CONDITIONS says
    when the figure holds.
    """
    if not survey.relay:
        raise ValueError("a shuffled figure needs a relay, and this survey declares none")
    if not LEAST_DELTA <= delta < 1:
        raise ValueError(f"a shuffled figure needs a delta from {LEAST_DELTA:g} to below 1, got {delta}")
    if entries < 1:
        raise ValueError(f"at least one entry is shuffled, got {entries}")
    by_group = [_group_loss(survey, group, delta, entries) for group in set(survey.plan.groups)]
    epsilon, source = max(by_group)
    return ShuffledLoss(epsilon, delta, entries, source)


def _group_loss(survey: Charged, group: Group, delta: float, entries: int) -> tuple[float, str]:
    """The smallest ε for the entries of a group, and its source."""
    candidates = [
        (group_epsilon(survey, group, delta), LOCAL),
        (
            linked_epsilon(survey, group, delta, entries),
            f"the whole transcript as one report, among those that drew alike; {CLONES}",
        ),
    ]
    if group.joint is None:
        by_round, sources = rounds_epsilon(survey, group, delta, entries)
        candidates.append((by_round, f"one shuffled round a closing, composed; {sources}"))
    return min(candidates, key=lambda candidate: candidate[0])


def linked_epsilon(survey: Charged, group: Group, delta: float, entries: int) -> float:
    """The ε of a single shuffled round in which each entry of a group sends its whole transcript as one report.

    delta, entries: as for `shuffled_loss`.
    """
    whole = linked_round(group, survey.calendar, survey.constraint, survey.closed)
    return _composed_epsilon(Counter([whole]), group.share / survey.plan.total_share, delta, entries)


def rounds_epsilon(survey: Charged, group: Group, delta: float, entries: int) -> tuple[float, str]:
    """The ε of all closings of a group, each shuffled by itself; and the bounds that it rests on.

    delta, entries: as for `shuffled_loss`. Raises ValueError for a joint group.
    """
    rounds = differing_rounds(group, survey.calendar, survey.constraint, survey.closed)
    sources = sorted({BLANKET if each.blanket else CLONES for each in rounds})
    return _composed_epsilon(rounds, group.share / survey.plan.total_share, delta, entries), "; ".join(sources)


def _composed_epsilon(rounds: Counter[Round], share: float, delta: float, entries: int) -> float:
    """The ε of independent shuffled rounds.

    share: the probability that another entry draws the group.
    """
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
    """How many of the others, each with a chance, send an envelope like this one; fewer do with probability `missed`.

    others: how many there are.
    """
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
