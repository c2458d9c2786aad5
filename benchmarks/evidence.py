"""Measures 1 and 3 of the evidence: a first run, and methods of others that keep a promise for a whole life."""

import json
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from changeling_protocol import AtMost, Calendar
from changeling_simulations import compare_methods
from changeling_statistics import Wish

DEVICES, ANSWERS = 20_000, 4
EPSILONS, HORIZONS, CHANGES = (1, 2, 8, 32), (12, 64, 365), (1, 3, None)
ROUNDING = 1.001
"""Odds are whole numbers below the budget, so that equal methods differ in the last digits."""


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


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own
