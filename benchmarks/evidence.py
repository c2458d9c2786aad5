"""Measures 3 and 6 of the evidence: methods of others at our epsilon over a grid, and sweeps that are killed."""

import os
import signal
import subprocess
import sys
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

from changeling_protocol import AtMost, Calendar
from changeling_simulations import compare_methods
from changeling_statistics import Wish

DEVICES, ANSWERS = 20_000, 4
EPSILONS, HORIZONS, CHANGES = (1, 2, 8, 32), (12, 64, 365), (1, 3, None)
ROUNDING = 1.001
"""Odds are whole numbers below the budget, so that equal methods differ in the last digits."""
KILLS = 8
SWEPT = """
surveys = 20
answers = [2, 3]
periods = 6
at_most = [1, 3]
changes = 0.5
entries = 5000
epsilon = [2, 8]
"""


def compared() -> dict[str, float]:
    """Measure 3: cases of methods that keep a whole life's promise, and how many are better than ours.

    Each by what is known as each period closes, and, on horizons of up to 64 periods, by what is known at the end; of
    365 periods by the latter alone, to which PrivUnitG belongs. `worst` is the least of their errors over ours.
    """
    cases = better = 0
    worst = float("inf")
    for epsilon, periods, most in product(EPSILONS, HORIZONS, CHANGES):
        for retrospective in (True,) if periods > 64 else (False, True):
            wish = Wish(
                answers=ANSWERS,
                calendar=Calendar(0, "1d", periods),
                constraint=AtMost(most or periods),
                epsilon=Decimal(epsilon),
                devices=DEVICES,
                closed=True,
                minimum=1,
                retrospective=retrospective,
            )
            found = compare_methods(wish)
            ours = found.planned.option.prediction.mean
            known = {"each period", *(["at the end"] if retrospective else [])}
            others = [m.error for m in found.methods if m.whole_life and m.when in known and not m.is_ours]
            cases += len(others)
            better += sum(ours > ROUNDING * error for error in others)
            worst = min(worst, *(error / ours for error in others))
    return {"3_cases": cases, "3_better_than_ours": better, "3_worst": worst}


def resumed() -> dict[str, float]:
    """Measure 6: bytes of a sweep that differ after it was killed again and again, by SIGKILL."""
    with TemporaryDirectory() as folder:
        experiment, whole, killed = (Path(folder, name) for name in ("experiment.toml", "whole.csv", "killed.csv"))
        experiment.write_text(SWEPT)
        kills = 0
        _started(experiment, whole).wait()
        for attempt in range(KILLS):
            if killed.exists():
                break
            child = _started(experiment, killed)
            sleep(2 + 0.35 * attempt)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                kills += 1
            child.wait()
        if not killed.exists():
            _started(experiment, killed).wait()
        first, second = whole.read_bytes(), killed.read_bytes()
    differing = sum(a != b for a, b in zip(first, second, strict=False)) + abs(len(first) - len(second))
    return {"6_kills": kills, "6_bytes": len(first), "6_bytes_that_differ": differing}


def _started(experiment: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "changeling_simulations", "sweep", str(experiment), "-o", str(output)]
    return subprocess.Popen(  # noqa: S603  # our own command
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
