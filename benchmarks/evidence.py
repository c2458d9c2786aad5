"""Measures 1 to 3 and 5 of the evidence: a first run, packages and methods of others, and liars."""

import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from changeling_protocol import AtMost, Calendar, Group, History, KaryResponse, NodeNumber, Odds, StateSpace
from changeling_simulations import (
    Population,
    closed_cohort,
    compare_methods,
    paper_survey,
    sample_tallies,
    synthetic_changelog,
)
from changeling_simulations.field import invented_tallies
from changeling_simulations.sampler import Entries, Respondents
from changeling_statistics import (
    Solution,
    Wish,
    counterpart_of,
    histogram_figures,
    optimal_plan,
    releases,
    series,
    steady_changes,
)

DEVICES, ANSWERS = 20_000, 4
EPSILONS, HORIZONS, CHANGES = (1, 2, 8, 32), (12, 64, 365), (1, 3, None)
ROUNDING = 1.001
"""Odds are whole numbers below the budget, so that equal methods differ in the last digits."""
LIARS, LIED_PERIODS, LIED_EPSILONS = 200, 12, (1, 4, 8)


def compared() -> dict[str, float]:
    """Measure 3: cases of methods that keep a whole life's promise, and how many are better than ours.

    Each by what is known as each period closes, and, on horizons of up to 64 periods, by what is known at the end; of
    365 periods by the latter alone, to which PrivUnitG belongs. No method here bridges a period that a server loses.
    `worst` is the least of their errors over ours.
    """
    wishes = [
        Wish(
            answers=ANSWERS,
            calendar=Calendar(0, "1d", periods),
            constraint=AtMost(most or periods),
            epsilon=Decimal(epsilon),
            devices=DEVICES,
            closed=True,
            minimum=1,
            retrospective=retrospective,
            bridge=False,
        )
        for epsilon, periods, most in product(EPSILONS, HORIZONS, CHANGES)
        for retrospective in ((True,) if periods > 64 else (False, True))
    ]
    with ProcessPoolExecutor() as pool:
        ratios = [ratio for of_wish in pool.map(_over_ours, wishes) for ratio in of_wish]
    return {
        "3_cases": len(ratios),
        "3_better_than_ours": sum(ratio * ROUNDING < 1 for ratio in ratios),
        "3_worst": min(ratios),
    }


def _over_ours(wish: Wish) -> list[float]:
    """The error over ours of each method that keeps a whole life's promise, and knows no more than the wish asks."""
    found = compare_methods(wish)
    ours = found.planned.option.prediction.mean
    known = {"each period", *(["at the end"] if wish.retrospective else [])}
    return [each.error / ours for each in found.methods if each.whole_life and each.when in known and not each.is_ours]


def lied() -> dict[str, float]:
    """Measure 5: how far invented entries move a share, over the bound behind the published count of them for a point.

    With an influence of I, f of them beside n move it by f (I + 1) / (n + f) at most. Of every plan, each group in turn
    is that of all liars; they answer at random, or raise one answer.
    """
    constraint, calendar = AtMost(3), Calendar(0, "1d", LIED_PERIODS)
    generator = np.random.default_rng(5)
    population = closed_cohort(DEVICES, ANSWERS, LIED_PERIODS, 2, generator)
    wishes = [
        Wish(ANSWERS, calendar, constraint, epsilon=Decimal(e), devices=DEVICES, closed=True) for e in LIED_EPSILONS
    ]
    surveys = [wish.survey(optimal_plan(wish).plan, population.answers) for wish in wishes]
    surveys += [paper_survey(population.answers, calendar, constraint, epsilon=Decimal(8), layers=h) for h in (1, 3)]
    tried, worst = 0, {"random": 0.0, "targeted": 0.0}
    for survey in surveys:
        honest = sample_tallies(population, survey, generator)
        before, _ = histogram_figures(Solution(releases(survey, honest)), LIED_PERIODS)
        bound = LIARS * (before.influence + 1) / (before.entries[:, None] + LIARS)
        shares = before.values / before.entries[:, None]
        for group, (kind, pushed) in product(range(len(survey.plan.groups)), (("random", 0), ("targeted", 1))):
            lies = invented_tallies(survey, LIARS, pushed, generator, group=group)
            after, _ = histogram_figures(Solution(releases(survey, honest + lies)), LIED_PERIODS)
            moved = np.abs(after.values / after.entries[:, None] - shares)
            worst[kind] = max(worst[kind], float((moved / bound).max()))
            tried += 1
    return {"5_cases": tried, **{f"5_{kind}_shift_over_bound": shift for kind, shift in worst.items()}}


ENTRIES, CATEGORIES, REPEATS = 1_000_000, 16, 5
OTHERS = ("pure-ldp", "multi-freq-ldpy", "scikit-learn", "statsmodels")
"""Two packages of frequency oracles, and what the first imports and does not ask for."""
THEIRS = """
import json, time
import numpy as np
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
n, z = 1_000_000, 16
true = np.random.default_rng(1).integers(0, z, n).tolist()
began = time.perf_counter()
client, server = DEClient(1.0, z), DEServer(1.0, z)
for each in true:
    server.aggregate(client.privatise(each + 1))
pure = time.perf_counter() - began
GRR_Client(1, z, 1.0)  # compiled
began = time.perf_counter()
GRR_Aggregator_MI(np.array([GRR_Client(each, z, 1.0) for each in true]), z, 1.0)
print(json.dumps([pure, time.perf_counter() - began]))
"""
LIVES, PERIODS, MANY = 10_000, 365, 10**9


def first_run() -> dict[str, float | None]:
    """Measure 1: seconds of `make demo` in an empty clone, up to the installation's end and from there on."""
    with TemporaryDirectory() as folder:
        clone = Path(folder, "changeling")
        _run("git", "clone", "--quiet", ".", str(clone))
        began = time.monotonic()
        _run("make", "--directory", str(clone), "--silent", ".venv/demo")
        installed = time.monotonic()
        _run("make", "--directory", str(clone), "--silent", "demo")
        ended = time.monotonic()
        listed = _run(str(clone / ".venv/bin/python"), "-m", "pip", "list", "--format", "json")
    return {
        "1_install_s": installed - began,
        "1_demo_s": ended - installed,
        "1_packages": len(json.loads(listed)),
    }


def sampling() -> dict[str, float | None]:
    """Measure 2: one round of k-RR, of counts and entry by entry, beside others as they ship; and a billion entries."""
    generator = np.random.default_rng(1)
    true = generator.integers(1, CATEGORIES + 1, ENTRIES)
    counterpart = counterpart_of(KaryResponse(StateSpace(CATEGORIES, null=False), Odds(27, 10)))
    counts = np.bincount(true - 1, minlength=CATEGORIES)
    group = Group.of_history(History.of(Odds(27, 10), range(1, 2), AtMost(1), Calendar(0, 60, 1), True), CATEGORIES)
    everybody = np.ones(ENTRIES, np.bool_)
    mine, each = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        counterpart.estimate(counterpart.sample(counts, generator))
        mine.append(time.perf_counter() - began)
        began = time.perf_counter()
        respondents = Respondents(group, Entries.of(everybody.astype(np.int64)), generator, indistinct=False)
        respondents.close(0, NodeNumber(1), true - 1, everybody, everybody)
        each.append(time.perf_counter() - began)
    figures: dict[str, float | None] = {"2_sampler_s": min(mine), "2_entry_by_entry_s": min(each)}
    for name, seconds in zip(("pure_ldp", "multi_freq_ldpy"), _theirs(), strict=True):
        figures |= {
            f"2_{name}_s": seconds,
            f"2_{name}_over_sampler": seconds / min(mine),
            f"2_{name}_over_entry_by_entry": seconds / min(each),
        }
    with get_context("spawn").Pool(1) as pool:
        seconds, megabytes = pool.apply(_billion)
    return figures | {"2_billion_s": seconds, "2_billion_mib": megabytes}


def _theirs() -> list[float]:
    with TemporaryDirectory() as folder:
        python = Path(folder, "bin/python")
        _run(sys.executable, "-m", "venv", folder)
        _run(str(python), "-m", "pip", "install", "--quiet", *OTHERS)
        seconds: list[float] = json.loads(_run(str(python), "-c", THEIRS))
    return seconds


def _billion() -> tuple[float, float]:
    """Seconds from a plan to all estimates of a billion entries, and the most memory of this process, in MiB."""
    calendar, constraint = Calendar(0, "1d", PERIODS), AtMost(3)
    wish = Wish(
        4,
        calendar,
        constraint,
        epsilon=Decimal(8),
        devices=MANY,
        closed=True,
        expected=steady_changes(calendar, constraint),
    )
    plan = optimal_plan(wish).plan
    generator = np.random.default_rng(2)
    changelog = synthetic_changelog(4, LIVES, 1, calendar, generator)
    population = Population.from_changelog(changelog, calendar, constraint).resampled(MANY, generator)
    survey = wish.survey(plan, population.answers)
    began = time.perf_counter()
    series(survey, sample_tallies(population, survey, generator), PERIODS)
    return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own
