"""Measure 6 of the client, of two lives: a store without a witness is copied, and both copies go on.

The audit's bound on what the two lives lose together is held against the ledger's `epsilon_if_restored`.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import permutations, product
from math import inf
from typing import TypeAlias

import numpy as np

from tests.enumeration import changelogs, log_from_below

from .client_audit_bound import audited, lower_bound
from .client_audit_cases import CASES, Case, Law, law
from .client_audit_transcripts import Heard, States, Transcript, transcripts_of_lives

Lives: TypeAlias = tuple[States, States]
"""What the app says in each period of the first life, and of the second."""
COUNT, CLIENT = 40_000, 1_000
COPIED = {"signed": 0, "states": 0, "joint": 1}
"""For each survey, after which period the copy is made."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The two pairs of lives that transcripts should tell apart best, and the exact loss of all pairs of lives."""

    pair: tuple[Lives, Lives]
    exact: float


def measure() -> dict[str, float]:
    """Of each survey the bound, the exact loss of two lives, and the ledger's figure for them."""
    figures: dict[str, float] = {"6_lives_transcripts": COUNT * len(COPIED)}
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for name, copied in COPIED.items():
            worst = worst_lives(CASES[name], copied, COUNT // 2)
            batches = [way for way in range(2) for _ in range(COUNT // 2 // CLIENT)]
            heard = list(workers.map(partial(_heard, name, copied, worst.pair), batches))
            bound, ledger = bounded(batches, heard)
            figures |= {
                f"6_lives_{name}_lower_bound": bound,
                f"6_lives_{name}_exact": worst.exact,
                f"6_lives_{name}_share": bound / worst.exact,
                f"6_lives_{name}_ledger": ledger,
            }
    return figures


def bounded(batches: Sequence[int], heard: Sequence[Heard]) -> tuple[float, float]:
    """The lower bound on the loss, and the ledger's figure.

    batches: of each that was heard, which of the two ways to live it went.
    """
    ways: tuple[list[Transcript], list[Transcript]] = [], []
    for way, each in zip(batches, heard, strict=True):
        ways[way].extend(each.transcripts)
    return audited(*ways), float(heard[0].epsilon)


def worst_lives(case: Case, copied: int, count: int) -> Worst:
    """By the exact law, over all pairs of two lives that are the same until the copy is made.

    The pair is the one with the best bound, if the transcripts of its largest ratio came as often as they should.
    count: of how many transcripts each.
    """
    survey = case.survey
    every = sorted(changelogs(len(survey.answers), survey.calendar, survey.constraint), reverse=True)
    single = {states: law(survey.plan.groups[0], states) for states in every}
    laws = {
        (one, again): law_of_lives(single[one], single[again], copied)
        for one, again in product(every, every)
        if one[: copied + 1] == again[: copied + 1]
    }
    ways, sent = list(laws), list(laws[every[0], every[0]])
    chances = np.array([[float(laws[way][each]) for each in sent] for way in ways])
    best, exact, pair = -inf, Fraction(0), (ways[0], ways[0])
    for one, other in permutations(range(len(ways)), 2):
        ratios = chances[one] / chances[other]
        worst = int(ratios.argmax())
        p = float(chances[one][ratios > ratios[worst] * (1 - 1e-9)].sum())
        exact = max(exact, laws[ways[one]][sent[worst]] / laws[ways[other]][sent[worst]])
        if (bound := lower_bound((round(count * p), count), (round(count * p / ratios[worst]), count))) > best:
            best, pair = bound, (ways[one], ways[other])
    (one_life, again), (other_life, anew) = pair
    return Worst(((one_life[1:], again[1:]), (other_life[1:], anew[1:])), float(log_from_below(exact)))


def law_of_lives(one: Law, again: Law, copied: int) -> Law:
    """What two lives send, who are one until `copied` closings are answered: that, then the rest of each.

    Of a survey with one track of nodes of one period.
    """
    shared: Law = {}
    for sent, chance in one.items():
        shared[sent[:copied]] = shared.get(sent[:copied], Fraction(0)) + chance
    return {
        (*sent, *anew[copied:]): chance * again[anew] / shared[sent[:copied]]
        for (sent, chance), anew in product(one.items(), again)
        if sent[:copied] == anew[:copied]
    }


def _heard(name: str, copied: int, pair: tuple[Lives, Lives], way: int) -> Heard:
    return transcripts_of_lives(CASES[name].survey, pair[way], copied, CLIENT, None)
