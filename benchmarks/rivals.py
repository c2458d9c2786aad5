"""Other local methods for answers that change, beside ours: how wrong, what they state, what a change exposes.

All at a stated total epsilon of 8, each by its own authors' accounting, on the population of docs/mathematics.md,
"Planning": 20,000 entries, 4 answers, 64 periods, up to 3 changes. RAPPOR (Erlingsson, Pihur, Korolova 2014) and LOLOHA
(Arcolezi, Pinzón, Palamidessi, Gambs 2023) remember one noisy version of every value that a device has held and
randomize it again at each report; their accounting counts the values held, 4 at most here. Memoised k-RR is the same
without the second round.

The observer of an entry's whole transcript knows its answer at first, and asks whether it changed to another, given
one, halfway, or never. `loss`: the largest log ratio of any transcript's likelihoods under the two, exactly, in nats.
`advantage`: by how much the best test's chance to say "changed" is larger for who did (total variation).
`beyond`: the share of those who changed whose transcript is more than e^8 times likelier than had they stayed, which
the stated epsilon rules out.
Of a plan of joint groups `loss` is what it states, which is proved and enumerated (docs/joint.md); no transcripts of it
are drawn here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, isfinite, log

import numpy as np
from changeling_protocol import Group
from changeling_simulations import Population, exact_error
from changeling_statistics import counterpart_of, hierarchical_plan, optimal_plan
from numpy.typing import NDArray

from .plans import ANSWERS, MOST_CHANGES, PERIODS, cohort_wish, populations

Floats = NDArray[np.float64]
EPSILON = 8
VALUES_HELD = 1 + MOST_CHANGES
SEEDS, TRANSCRIPTS = 5, 20_000
HALFWAY = PERIODS // 2
SHARE_OF_FIRST = 0.5
"""LOLOHA's first report has this share of its long-term epsilon, its authors' usual choice."""


def measure(seeds: int = SEEDS, transcripts: int = TRANSCRIPTS) -> dict[str, float]:
    """Per method: rms error of the fractions over times, answers and seeds, loss, advantage and stated epsilon."""
    tried = populations(seeds)
    figures: dict[str, float] = {}
    for name, memo in MEMOISED.items():
        errors = [_rms(memo, each, np.random.default_rng([11, seed])) for seed, each in enumerate(tried)]
        figures[f"{name}_rms_error"] = float(np.sqrt(np.mean(np.square(errors))))
        if isfinite(loss := memo.loss()):
            figures[f"{name}_loss"] = loss
        figures[f"{name}_advantage"] = memo.advantage(np.random.default_rng(12), transcripts)
        figures[f"{name}_beyond"] = memo.beyond(np.random.default_rng(14), transcripts)
    wish = cohort_wish(EPSILON)
    paper = hierarchical_plan(ANSWERS, wish.calendar, wish.constraint, epsilon=wish.epsilon, branching=2, layers=7)
    for name, plan in (("paper_hierarchy", paper), ("optimal", optimal_plan(wish).plan)):
        survey = wish.survey(plan)
        squares = [exact_error(each, survey).mean ** 2 for each in tried]
        figures[f"{name}_rms_error"] = float(np.sqrt(np.mean(squares)))
        if any(group.joint is not None for group in plan.groups):  # transcripts are not drawn here: what is proved
            figures[f"{name}_loss"] = float(survey.cost)
            continue
        figures[f"{name}_loss"] = max(_largest_loss(group) for group in plan.groups)
        shares = [group.share / plan.total_share for group in plan.groups]
        for figure, of_group in (("advantage", _advantage), ("beyond", _beyond)):
            chances = [of_group(group, np.random.default_rng(13), transcripts) for group in plan.groups]
            figures[f"{name}_{figure}"] = float(np.dot(shares, chances))
    return figures


@dataclass(frozen=True)
class Memo:
    """Bits that are remembered per value and told again, flipped anew, in every period.

    A device's report in a period is a row of bits. A bit that the value sets is remembered as 1 with probability
    `kept`, one that it does not set with `made`; in each period a remembered 1 is told as 1 with probability `one`, a
    remembered 0 with `zero`. hashed: the value is first hashed to one bit by a function of the device's own, known to
    the server, and that bit alone is told (LOLOHA with g = 2); else there is a bit for each answer. half: how many
    periods before and after the change the observer sees.
    """

    kept: float
    made: float
    one: float
    zero: float
    hashed: bool = False
    half: int = HALFWAY

    def estimate(self, states: NDArray[np.int64], generator: np.random.Generator) -> Floats:
        """Unbiased fractions per period from one report of each entry; states 0..z-1 of shape (entries, periods)."""
        n, periods = states.shape
        hashes = self._hashes(n, generator)
        chance = np.where(hashes, self.kept, self.made)  # (n, values, bits)
        memo = generator.random(chance.shape) < chance
        rows = np.arange(n)
        fractions = np.empty((periods, ANSWERS))
        for period in range(periods):
            remembered = memo[rows, states[:, period]]
            told = generator.random(remembered.shape) < np.where(remembered, self.one, self.zero)
            if self.hashed:
                fractions[period] = (told == hashes[:, :, 0]).mean(0)
            else:
                fractions[period] = told.mean(0)
        set_, unset = self._told(self.kept), 0.5 if self.hashed else self._told(self.made)
        return (fractions - unset) / (set_ - unset)

    def loss(self) -> float:
        """Of the worst transcript, the change being between values that set different bits."""
        ratios = [self._log_ratios(old, new) for old, new in self._changed_bits()]
        largest, smallest = (sum(pick(each) for each in ratios) for pick in (np.max, np.min))
        return float(max(largest, -smallest))

    def advantage(self, generator: np.random.Generator, transcripts: int) -> float:
        """E max(0, 1 - L(changed)/L(stayed)) over transcripts of who stayed."""
        log_ratio = np.zeros(transcripts)
        for old, new in self._changed_bits():
            chance = self._remembered(old, generator, transcripts)
            log_ratio += self._log_ratios(old, new)[
                generator.binomial(self.half, chance), generator.binomial(self.half, chance)
            ]
        return float(np.maximum(0, 1 - np.exp(log_ratio)).mean()) * self._told_apart

    def beyond(self, generator: np.random.Generator, transcripts: int) -> float:
        """Over transcripts of who changed."""
        log_ratio = np.zeros(transcripts)
        for old, new in self._changed_bits():
            halves = (
                generator.binomial(self.half, self._remembered(bit, generator, transcripts)) for bit in (old, new)
            )
            log_ratio += self._log_ratios(old, new)[tuple(halves)]
        return float((log_ratio > EPSILON).mean()) * self._told_apart

    def _remembered(self, bit: bool, generator: np.random.Generator, devices: int) -> Floats:
        """The chance of telling 1 that comes of a bit newly remembered, on each of so many devices."""
        memo = generator.random(devices) < (self.kept if bit else self.made)
        return np.where(memo, self.one, self.zero)

    @property
    def _told_apart(self) -> float:
        """The share of devices on which the two values do not fall on one bit: half of all hashes."""
        return 0.5 if self.hashed else 1.0

    def _changed_bits(self) -> Iterator[tuple[bool, bool]]:
        """Of each bit told, whether the old and the new value set it."""
        yield True, False
        if not self.hashed:
            yield False, True
            for _ in range(ANSWERS - 2):
                yield False, False

    def _log_ratios(self, old: bool, new: bool) -> Floats:
        """ln L(changed)/L(stayed) of one bit, by how often it was told as 1 in either half; shape (H+1, H+1)."""
        ones = np.arange(self.half + 1)
        by_memo = [ones * log(p) + (self.half - ones) * log(1 - p) for p in (self.one, self.zero)]
        chances = {True: (self.kept, 1 - self.kept), False: (self.made, 1 - self.made)}

        def told(value: bool, by: list[Floats]) -> Floats:
            total: Floats = np.logaddexp(*(log(chance) + logs for chance, logs in zip(chances[value], by, strict=True)))
            return total

        stayed = told(old, [logs[:, None] + logs for logs in by_memo])
        return told(old, by_memo)[:, None] + told(new, by_memo)[None, :] - stayed

    def _hashes(self, n: int, generator: np.random.Generator) -> NDArray[np.bool_]:
        """The bits that each value sets on each device, shape (n, values, bits)."""
        if self.hashed:
            return generator.integers(0, 2, (n, ANSWERS, 1)).astype(bool)
        return np.broadcast_to(np.eye(ANSWERS, dtype=bool), (n, ANSWERS, ANSWERS))

    def _told(self, remembered: float) -> float:
        return remembered * self.one + (1 - remembered) * self.zero


@dataclass(frozen=True)
class MemoisedKary:
    """k-RR over the answers, drawn once per value and told again in every period."""

    epsilon: float

    @cached_property
    def truth(self) -> float:
        return exp(self.epsilon) / (exp(self.epsilon) + ANSWERS - 1)

    @property
    def other(self) -> float:
        return (1 - self.truth) / (ANSWERS - 1)

    def estimate(self, states: NDArray[np.int64], generator: np.random.Generator) -> Floats:
        """As Memo's."""
        n, periods = states.shape
        values = np.broadcast_to(np.arange(ANSWERS), (n, ANSWERS))
        lies = (values + generator.integers(1, ANSWERS, values.shape)) % ANSWERS
        memo = np.where(generator.random(values.shape) < self.truth, values, lies)
        told = np.take_along_axis(memo, states, axis=1)
        counts = np.array([np.bincount(told[:, period], minlength=ANSWERS) for period in range(periods)])
        fractions: Floats = (counts / n - self.other) / (self.truth - self.other)
        return fractions

    def loss(self) -> float:
        """Two different symbols are impossible for who stayed."""
        return inf

    def advantage(self, *_: object) -> float:
        """The chance that the two remembered symbols differ, where who stayed would show one."""
        both_same = 2 * self.truth * self.other + (ANSWERS - 2) * self.other**2
        return 1 - both_same

    beyond = advantage


def _rappor(epsilon: float) -> Memo:
    """One bit an answer, no Bloom filter: two bits change, each at epsilon/2; told again at 3/4 and 1/2 (its q, p)."""
    flipped = 1 / (1 + exp(epsilon / 2))
    return Memo(kept=1 - flipped, made=flipped, one=0.75, zero=0.5)


def _loloha(epsilon: float) -> Memo:
    """g = 2: the hash costs epsilon for good, and the first report epsilon·SHARE_OF_FIRST."""
    first = SHARE_OF_FIRST * epsilon
    again = log((exp(first + epsilon) - 1) / (exp(epsilon) - exp(first)))
    kept, one = (exp(e) / (exp(e) + 1) for e in (epsilon, again))
    return Memo(kept=kept, made=1 - kept, one=one, zero=1 - one, hashed=True)


MEMOISED: dict[str, Memo | MemoisedKary] = {
    "memoised_krr": MemoisedKary(EPSILON / VALUES_HELD),
    "rappor": _rappor(EPSILON / VALUES_HELD),
    "loloha": _loloha(EPSILON / 2),
}
"""At a stated total of EPSILON: shared among the values an entry may hold, or LOLOHA's two hashed ones."""


def _rms(memo: Memo | MemoisedKary, population: Population, generator: np.random.Generator) -> float:
    states = population.frozen[:, 1:].astype(np.int64) - 1
    truth = population.histogram()[1:] / population.entries
    return float(np.sqrt(np.square(memo.estimate(states, generator) - truth).mean()))


def _telling(group: Group) -> Iterator[tuple[int, int, int, Callable[[], list[tuple[float, float]]]]]:
    """For each track: its nodes, how many of them an entry reports, how many nodes differ between answer 1 all the
    time and answer 2 from halfway on, and the likelihood classes (changed, stayed) of a differing report."""
    for track in group.tracks:
        space = track.randomizer.space
        if track.reports_changes:
            differing = sum(node.start < HALFWAY < node.end or node.end == HALFWAY + 1 for node in track.nodes())
            pair = space.index(1, 2), space.index(1, 1)
        else:
            differing = sum(node.end > HALFWAY for node in track.nodes())
            pair = space.index(2, 2), space.index(1, 1)

        def classes(track=track, pair=pair) -> list[tuple[float, float]]:  # type: ignore[no-untyped-def]
            return [(float(p), float(q)) for p, q in counterpart_of(track.randomizer).likelihoods(*pair)]

        yield track.count, track.reports, differing, classes


def _largest_loss(group: Group) -> float:
    total = 0.0
    for _, reports, differing, classes in _telling(group):
        ratios = [log(p / q) for p, q in classes()]
        total += min(reports, differing) * max(map(abs, ratios))
    return total


def _advantage(group: Group, generator: np.random.Generator, transcripts: int) -> float:
    return float(np.maximum(0, 1 - np.exp(_log_ratios(group, False, generator, transcripts))).mean())


def _beyond(group: Group, generator: np.random.Generator, transcripts: int) -> float:
    return float((_log_ratios(group, True, generator, transcripts) > EPSILON).mean())


def _log_ratios(group: Group, changed: bool, generator: np.random.Generator, transcripts: int) -> Floats:
    """ln L(changed)/L(stayed) of transcripts of those who changed, or of those who stayed."""
    log_ratio = np.zeros(transcripts)
    for nodes, reports, differing, classes in _telling(group):
        likelihood = np.array(classes())
        true = likelihood[:, 0 if changed else 1]
        telling = generator.hypergeometric(differing, nodes - differing, reports, transcripts)
        seen = generator.multinomial(telling, true / true.sum())
        log_ratio += seen @ np.log(likelihood[:, 0] / likelihood[:, 1])
    return log_ratio
