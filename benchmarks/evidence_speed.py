"""Measures 1 and 2 of the evidence: from an empty clone to a picture, and the sampler beside packages of others."""

import json
import resource
import subprocess
import sys
import time
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from changeling_protocol import AtMost, Calendar, Group, History, KaryResponse, Odds, StateSpace
from changeling_simulations import Population, sample_tallies, synthetic_changelog
from changeling_simulations.sampler import SentHistories
from changeling_statistics import Wish, counterpart_of, optimal_plan, series, steady_changes

ENTRIES, ANSWERS, REPEATS = 1_000_000, 16, 5
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
    true = generator.integers(1, ANSWERS + 1, ENTRIES)
    counterpart = counterpart_of(KaryResponse(StateSpace(ANSWERS, null=False), Odds(27, 10)))
    counts = np.bincount(true - 1, minlength=ANSWERS)
    kernel = Group.of_history(
        History.of(Odds(27, 10), range(1, 2), AtMost(1), Calendar(0, 60, 1), True), ANSWERS
    ).histories
    mine, each = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        counterpart.estimate(counterpart.sample(counts, generator))
        mine.append(time.perf_counter() - began)
        began = time.perf_counter()
        np.bincount(SentHistories(kernel, ENTRIES, generator).next(true - 1), minlength=ANSWERS)
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
