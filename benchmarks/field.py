"""Measures 1 and 3 to 5 of the field: a stop, silence that depends on answers, unions of strata, and lost periods.

What goes wrong at random is measure 2, in `coverage.field`.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import httpx
import numpy as np
from changeling_protocol import (
    MICRO,
    AtMost,
    Breakdown,
    Calendar,
    ExpectedChanges,
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
from changeling_simulations import Field, sample_field
from changeling_statistics import (
    Attendance,
    Floats,
    Histogram,
    StratifiedTallies,
    Wish,
    counterpart_of,
    hierarchical_plan,
    intervals,
    optimal_plan,
    outage,
    series,
    write_survey,
)
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from demo.deployment import Deployment, deployed
from demo.replay import Clock, device, flush

from .coverage import Scenario
from .coverage_cases import FIELD_ANSWERS, FIELD_PERIODS, in_the_field, open_to_all
from .plans import cohort_wish

DEVICES, PERIODS, PAUSED = 60, 40, (14, 15)
ANSWERS = ("works", "learns", "neither")
CALENDAR, CONSTRAINT = Calendar(1_800_000_000, "1h", PERIODS), AtMost(4)
SKEW, SPREAD, GRACE = 5, 10, 600
"""The grace is shorter than a period: what is not sent by then is lost."""
SURVEYS, BATCHES = 2_000, 4
RELUCTANT = Field(reluctance=(0.05, *(0.05,) * (FIELD_ANSWERS - 1), 0.5))
ENTRIES, NODES, UNIONS = 20_000, 64, 200
BREAKDOWNS = tuple(
    Breakdown(name, tuple(f"{name} {value}" for value in range(values)))
    for name, values in (("platform", 5), ("version", 8), ("country", 5))
)


def stopped() -> dict[str, float]:
    """Measure 1: sixty real clients stop for a while, and a real server's series goes on after it.

    For PAUSED periods nobody flushes, until the grace of what they should have reported is over. From then on everybody
    reports again. Counted are the periods without a figure, and those of them that name the node which is missing: for
    a planned survey with its bridge, one without, and a hierarchy of changes.
    """
    figures: dict[str, float] = {"1_tenth_of_horizon": ceil(PERIODS / 10), "1_lost_periods": len(PAUSED)}
    for name, survey in _stopping_surveys().items():
        null = [each for each in _lived(survey) if each["values"] is None]
        figures[f"1_null_{name}"] = len(null)
        figures[f"1_null_that_name_a_node_{name}"] = sum(each["missing"] is not None for each in null)
        figures[f"1_periods_until_back_{name}"] = max((each["period"] - PAUSED[-1] for each in null), default=0)
    return figures


def _stopping_surveys() -> dict[str, Survey]:
    """Plans at ε = 8 for as many devices, and at a larger one the paper's."""
    wish = Wish(
        len(ANSWERS), CALENDAR, CONSTRAINT, Decimal(8), DEVICES, expected=ExpectedChanges(first=MICRO, later=30_000)
    )
    plans = {
        "bridged": optimal_plan(wish).plan,
        "unbridged": optimal_plan(replace(wish, bridge=False)).plan,
        "hierarchy": hierarchical_plan(len(ANSWERS), CALENDAR, CONSTRAINT, epsilon=Decimal(40), branching=2, layers=4),
    }
    return {
        name: replace(wish.survey(plan, ANSWERS), skew=SKEW, spread=SPREAD, grace=GRACE) for name, plan in plans.items()
    }


def _lived(survey: Survey) -> list[dict[str, Any]]:
    """The series after real clients and a real server went through the whole calendar."""
    with TemporaryDirectory(prefix="changeling-stopped-") as made:
        folder = Path(made)
        write_survey(folder / "survey.json", survey)
        with deployed(folder, folder / "survey.json") as deployment:
            _live(deployment, folder)
            deployment.fold()
            return deployment.series()


def _live(deployment: Deployment, folder: Path) -> None:
    survey, generator = deployment.survey, np.random.default_rng(11)
    calendar, clock = survey.calendar, Clock(survey.calendar.start + 1)
    deployment.move_clock(clock())
    with ExitStack() as stack:
        transport = stack.enter_context(httpx.HTTPTransport())
        clients = [
            stack.enter_context(device(folder / f"device-{i}.db", deployment, transport, clock)) for i in range(DEVICES)
        ]
        handles = [client.join(survey.id) for client in clients]
        flush(clients)
        for period in range(1, PERIODS + 1):
            for handle in handles:
                if period == 1 or generator.random() < 0.03:
                    handle.record(ANSWERS[generator.integers(len(ANSWERS))])
            clock.time = calendar.time(period) + SKEW + SPREAD + 1
            deployment.move_clock(clock())
            if period not in PAUSED:
                flush(clients)


def silence() -> dict[str, float]:
    """Measure 3: silence that depends on the answer, and the bound that assumes nothing of the silent.

    Who holds the last answer is silent at half of the closings, the others at a twentieth. Two thousand surveys with
    either plan; a run is covered if the bound holds the truth for every answer at every time that is looked at.
    By plan: the share of runs that the bound covers, of figures that the interval covers, and how wide both are,
    in points, mean over times and answers."""
    listed = [in_the_field(name, plan, RELUCTANT) for name, plan in open_to_all().items()]
    numbers = [(number, batch) for number in range(len(listed)) for batch in range(BATCHES)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        batches = list(workers.map(partial(_silent, listed), numbers))
    figures: dict[str, float] = {}
    for number, scenario in enumerate(listed):
        mine = [batch for (at, _), batch in zip(numbers, batches, strict=True) if at == number]
        bounds, stated, truth = (np.concatenate([batch[part] for batch in mine]) for part in range(3))
        figures |= {
            f"3_bound_covers_{scenario.name}": float(_inside(truth, bounds).all((1, 2)).mean()),
            f"3_bound_width_{scenario.name}": 100 * float((bounds[..., 1] - bounds[..., 0]).mean()),
            f"3_interval_covers_{scenario.name}": float(_inside(truth, stated).mean()),
            f"3_interval_width_{scenario.name}": 100 * float((stated[..., 1] - stated[..., 0]).mean()),
        }
    return figures


def _inside(truth: Floats, ends: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (ends[..., 0] <= truth) & (truth <= ends[..., 1])


def _silent(listed: list[Scenario], numbers: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Bounds and intervals, shape (surveys, times, z, 2), and the truth, (surveys, times, z), as shares of those that
    are heard of by then."""
    scenario, size = listed[numbers[0]], SURVEYS // BATCHES
    bounds, stated = np.empty((2, size, len(scenario.views), FIELD_ANSWERS, 2))
    truth = np.empty((size, len(scenario.views), FIELD_ANSWERS))
    generator = np.random.default_rng([3, *numbers])
    with threadpool_limits(1):
        for row in range(size):
            drawn = sample_field(scenario.population, scenario.survey, scenario.field, generator)
            published = series(scenario.survey, drawn.tallies, FIELD_PERIODS)
            for at, time in enumerate(view.period for view in scenario.views):
                histogram, known = published[time - 1], drawn.known[time]
                if not isinstance(histogram, Histogram):
                    raise ArithmeticError(f"period {time} of {scenario.name} is not estimable")
                bounds[row, at] = histogram.basis.bounds() / known.sum()
                stated[row, at] = intervals(histogram.estimate, 0.95) / known.sum()
                truth[row, at] = known[1:] / known.sum()
    return bounds, stated, truth


def strata() -> dict[str, float]:
    """Measure 4: unions of 200 strata, some with many entries and some with few; reports are drawn one by one.

    Milliseconds for a union and for the series that is made of it."""
    draws = np.random.default_rng(4)
    survey = _broken_down()
    stratum = draws.choice(survey.strata, ENTRIES, p=draws.dirichlet(np.full(survey.strata, 0.5)))
    everything = _tallies(survey, stratum, draws)
    union_ms, series_ms = [], []
    for _ in range(UNIONS):
        chosen = np.flatnonzero(draws.random(survey.strata) < draws.uniform(0.05, 1)).tolist()
        began = perf_counter()
        union = everything.union([StratumNumber(number) for number in chosen])
        united = perf_counter()
        series(survey, union, NODES)
        series_ms.append(1e3 * (perf_counter() - united))
        union_ms.append(1e3 * (united - began))
    return {
        "4_strata": survey.strata,
        "4_union_ms_median": float(np.median(union_ms)),
        "4_union_ms_worst": max(union_ms),
        "4_series_ms_median": float(np.median(series_ms)),
    }


def _broken_down() -> Survey:
    response = KaryResponse(MutationSpace(4), Odds(20, 1))
    plan = ReleasePlan((Group(tuple(Track(width, response, 0, NODES) for width in (1, 4, 16))),))
    return Survey.at_cost(
        question="What is it like in the field?",
        answers=("north", "east", "south", "west"),
        calendar=Calendar(0, 86_400, NODES),
        constraint=AtMost(3),
        plan=plan,
        skew=60,
        spread=600,
        grace=86_400,
        minimum=1,
        breakdowns=BREAKDOWNS,
    )


def _tallies(survey: Survey, stratum: NDArray[np.int64], draws: np.random.Generator) -> StratifiedTallies:
    """What each entry sends on each node, any symbol, counted by stratum; everybody is heard at every closing."""
    nodes = {}
    for number, track in enumerate(survey.plan.tracks):
        for node in track.node_numbers():
            symbols = draws.integers(0, track.randomizer.symbols, ENTRIES).astype(np.uint64)
            for at in np.unique(stratum).tolist():
                tally = counterpart_of(track.randomizer).tally(symbols[stratum == at])
                nodes[TrackNumber(number), node, StratumNumber(at)] = tally
    attendance = {
        (0, period, StratumNumber(at)): Attendance(count, count if period == 1 else 0)
        for period in range(1, NODES + 1)
        for at, count in enumerate(np.bincount(stratum, minlength=survey.strata).tolist())
        if count
    }
    return StratifiedTallies(nodes, attendance, 1)


def bridge() -> dict[str, float]:
    """Measure 5: what it costs that any lost period is bridged, and what a loss does to estimates.

    The wishes are those of the release plans' measure 2, with the minimum that surveys usually have; their best plans
    tell states all along. A second cohort changes its answers so seldom that the best plan hardly tells states later.

    Of each wish, in fractions: the error without a bridge and with one, and the largest error after a loss.

    Beside them, in periods, for how long estimates are missing at worst after any one loss, without a bridge and with
    one; which part of the devices is there for it; and its price, as a part of the error without it.
    """
    figures: dict[str, float] = {}
    for name, wish in _wishes():
        bare, bridged = optimal_plan(replace(wish, bridge=False)), optimal_plan(wish)
        lost = outage(wish, bridged.option)
        figures |= {
            f"5_{name}_error_without": bare.option.error(wish),
            f"5_{name}_error_with": bridged.option.error(wish),
            f"5_{name}_price": bridged.option.error(wish) / bare.option.error(wish) - 1,
            f"5_{name}_gap_without": outage(wish, bare.option).gap,
            f"5_{name}_gap_with": lost.gap,
            f"5_{name}_gap_allowed": lost.allowed,
            f"5_{name}_floor": bridged.floor,
            f"5_{name}_error_after_a_loss": lost.error,
        }
    return figures


def _wishes() -> Iterator[tuple[str, Wish]]:
    for epsilon in (2, 8, 32):
        for retrospective in (False, True):
            name = f"{'retrospective' if retrospective else 'online'}_{epsilon}"
            yield name, replace(cohort_wish(epsilon, retrospective=retrospective), minimum=100)
    seldom = replace(
        cohort_wish(12),
        constraint=AtMost(2),
        expected=ExpectedChanges(MICRO, 3_000),
        minimum=100,
    )
    yield "seldom_12", seldom
