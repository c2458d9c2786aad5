"""Measures 3 and 5 to 8 of the evidence: methods of others, liars, killed sweeps, true pages, a browser."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from xml.etree import ElementTree

import numpy as np
from changeling_protocol import AtMost, Calendar
from changeling_simulations import closed_cohort, compare_methods, paper_survey, sample_tallies
from changeling_simulations.field_sampler import invented_tallies
from changeling_statistics import Solution, Wish, histogram_figures, optimal_plan, releases

DEVICES, ANSWERS = 20_000, 4
EPSILONS, HORIZONS, CHANGES = (1, 2, 8, 32), (12, 64, 365), (1, 3, None)
ROUNDING = 1.001
"""Odds are whole numbers below the budget, so that equal methods differ in the last digits."""
KILLS = 8
LIARS, LIED_PERIODS, LIED_EPSILONS = 200, 12, (1, 4, 8)
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


def documented() -> dict[str, float]:
    """Measure 7: commands, examples and figures of the pages that tests run and read, stale ones, and broken links."""
    links = _tested("tests/docs/test_links.py")
    pages = _tested("tests/docs", "tests/aggregator/test_deploy.py", "--deselect", "tests/docs/test_links.py")
    return {
        "7_links_checked_in_pages": links["tests"],
        "7_pages_with_broken_links": links["failed"],
        "7_commands_and_figures": pages["tests"],
        "7_stale": pages["failed"],
    }


def displayed() -> dict[str, float]:
    """Measure 8: reports and pages of the site in Chromium, each at widths of 390 and 1,000 pixels; and those at fault.

    A fault is a console message, an overflow, an address that is asked, or a violation that axe finds.
    """
    found = _tested("tests/browser/test_reports.py", "tests/browser/test_site.py", "-m", "heavy")
    return {"8_views": found["tests"], "8_views_at_fault": found["failed"], "8_views_not_tried": found["skipped"]}


def _tested(*arguments: str) -> dict[str, int]:
    """How many tests ran, failed and were skipped."""
    with TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-n2", "--dist=loadfile", *arguments, f"--junitxml={results}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # noqa: S603  # our own
        suite = next(ElementTree.parse(results).getroot().iter("testsuite"))  # noqa: S314  # our own
    counted = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = counted["failures"] + counted["errors"]
    return {"tests": counted["tests"] - counted["skipped"], "failed": failed, "skipped": counted["skipped"]}
