"""Measure 4 of the field: unions of 200 strata, and what the shipped client loses with strata declared.

How long a union takes, and whether it is what was counted for it: reports are drawn one by one, each with a stratum,
some strata with many entries and some with few. The loss is enumerated over all coins of the client's own code.
"""

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    StratumNumber,
    Survey,
    Track,
    TrackNumber,
)
from changeling_statistics import Attendance, NodeTally, PlanNode, StratifiedTallies, counterpart_of, series
from changeling_statistics.publishing import ClosingCell, NodeCell
from numpy.typing import NDArray

from tests.client_sdk.attack import Device
from tests.client_sdk.strata_attack import loss_with_strata
from tests.client_sdk.test_joint_attacked import BEGIN, SURVEYS, heard, honest, offline, set_back
from tests.enumeration import log_from_below

SEED, ENTRIES, PERIODS, UNIONS = 4, 20_000, 64, 200
BREAKDOWNS = tuple(
    Breakdown(name, tuple(f"{name} {value}" for value in range(values)))
    for name, values in (("platform", 5), ("version", 8), ("country", 5))
)


def measure() -> dict[str, float]:
    """What unions take and whether they are as counted, and whether strata change anything of the loss."""
    return unions() | losses()


def losses() -> dict[str, float]:
    """Cases, in how many of them the loss is another with strata, and the largest loss with them over what is stated.

    A case is a small survey and a schedule of clocks; strata are told as an entry enrols and changed once.
    """
    cases, unequal, largest = 0, 0, 0.0
    for survey in SURVEYS.values():
        for schedule in (honest, set_back, heard, offline):
            moments = schedule(survey.calendar.periods)
            plain = Device(survey, moments, BEGIN - 5).worst_ratio()
            told = loss_with_strata(survey, moments, BEGIN - 5)
            cases, unequal = cases + 1, unequal + (plain != told)
            largest = max(largest, float(log_from_below(told) / survey.epsilon))
    return {"4_loss_cases": cases, "4_loss_unequal": unequal, "4_loss_largest": largest}


def unions() -> dict[str, float]:
    """Milliseconds for a union and for the series that is made of it; nodes of unions that are not as counted."""
    draws = np.random.default_rng(SEED)
    survey = _survey()
    stratum = draws.choice(survey.strata, ENTRIES, p=draws.dirichlet(np.full(survey.strata, 0.5)))
    symbols = dict(_symbols(survey, draws))
    everything = StratifiedTallies(_tallies(survey, stratum, symbols), _attendance(survey, stratum), 1)
    union_ms, series_ms, unequal = [], [], 0
    for _ in range(UNIONS):
        chosen = np.flatnonzero(draws.random(survey.strata) < draws.uniform(0.05, 1)).tolist()
        began = perf_counter()
        union = everything.union([StratumNumber(number) for number in chosen])
        united = perf_counter()
        series(survey, union, PERIODS)
        series_ms.append(1e3 * (perf_counter() - united))
        union_ms.append(1e3 * (united - began))
        inside = np.isin(stratum, chosen)
        for (track, node), all_symbols in symbols.items():
            direct = _counted(survey, track, all_symbols[inside])
            tally = union.get((track, node))
            same = tally is not None and tally.reports == direct.reports
            same = same and tally is not None and tally.slots.tobytes() == direct.slots.tobytes()
            unequal += not (same or (tally is None and direct.reports == 0))
    return {
        "4_strata": survey.strata,
        "4_union_ms_median": float(np.median(union_ms)),
        "4_union_ms_worst": max(union_ms),
        "4_series_ms_median": float(np.median(series_ms)),
        "4_unequal_nodes": unequal,
    }


def _survey() -> Survey:
    response = KaryResponse(MutationSpace(4), Odds(20, 1))
    plan = ReleasePlan((Group(tuple(Track(width, response, 0, PERIODS) for width in (1, 4, 16))),))
    return Survey.at_cost(
        question="What is it like in the field?",
        answers=("north", "east", "south", "west"),
        calendar=Calendar(0, 86_400, PERIODS),
        constraint=AtMost(3),
        plan=plan,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=1,
        breakdowns=BREAKDOWNS,
    )


def _symbols(survey: Survey, draws: np.random.Generator) -> Iterator[tuple[PlanNode, NDArray[np.uint64]]]:
    """What each entry sends on each node: on one in a hundred it has some change."""
    for number, track in enumerate(survey.plan.tracks):
        randomizer = track.randomizer
        true = np.where(draws.random(ENTRIES) < 0.01, draws.integers(0, randomizer.space.size, ENTRIES), 0)
        laws = np.array(
            [
                [randomizer.weight(symbol, value) / randomizer.total(value) for symbol in range(randomizer.symbols)]
                for value in range(randomizer.space.size)
            ]
        )
        upto = np.cumsum(laws, axis=1)
        for node in track.node_numbers():
            drawn = (draws.random(ENTRIES)[:, None] > upto[true]).sum(axis=1)
            yield (TrackNumber(number), node), np.minimum(drawn, randomizer.symbols - 1).astype(np.uint64)


def _tallies(
    survey: Survey, stratum: NDArray[np.int64], symbols: dict[PlanNode, NDArray[np.uint64]]
) -> dict[NodeCell, NodeTally]:
    return {
        (track, node, StratumNumber(number)): _counted(survey, track, all_symbols[stratum == number])
        for (track, node), all_symbols in symbols.items()
        for number in np.unique(stratum).tolist()
    }


def _attendance(survey: Survey, stratum: NDArray[np.int64]) -> dict[ClosingCell, Attendance]:
    heard = np.bincount(stratum, minlength=survey.strata).tolist()
    return {
        (0, period, StratumNumber(number)): Attendance(count, count if period == 1 else 0)
        for period in range(1, PERIODS + 1)
        for number, count in enumerate(heard)
        if count
    }


def _counted(survey: Survey, track: int, symbols: NDArray[np.uint64]) -> NodeTally:
    return counterpart_of(survey.plan.tracks[track].randomizer).tally(symbols)
