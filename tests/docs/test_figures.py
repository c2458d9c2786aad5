"""Figures that stand in a page, computed again: what the pages of designers say of plans."""

import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from changeling_protocol import MICRO, AtMost, Calendar, ExpectedChanges
from changeling_statistics import Wish, optimal_plan, outage, steady_changes

from .blocks import ROOT, blocks, commands_of

pytestmark = pytest.mark.heavy
NAMES = ("paper HDCR", "flat DCR", "sampled hierarchy", "panel", "optimal")


def rows_below(page, head):
    """The rows of the table in a page whose head begins so, as lists of cells."""
    lines = (ROOT / page).read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(head)) + 2
    last = next(number for number in range(first, len(lines)) if not lines[number].startswith("|"))
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[first:last]]


def is_rounded(written, exact):
    """Whether a figure as it is written is another, rounded to as many digits."""
    number = Decimal(written.rstrip("%").replace(",", ""))
    digits = -number.as_tuple().exponent
    return abs(float(number) - exact) <= 0.5000001 * 10.0**-digits


@pytest.mark.timeout(600)
def test_the_commands_of_the_designers_page_run_and_its_plan_is_as_accurate_as_it_says(tmp_path):
    """Simulations with their plot, and the errors of the first; of the plan errors, devices for a point, and what the
    devices of the best one do."""
    page = "docs/designer.md"
    (commands,) = (commands_of(block) for block in blocks(page, "console") if "--plot run.png" in block)
    ran = {}
    for program, *words in commands:
        command = [Path(sys.executable).parent / program, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        ran.setdefault(words[0], done)
    assert (tmp_path / "run.png").stat().st_size > 10_000
    assert ("\x1b" in ran["run"].stdout, ran["run"].stderr) == (False, "")  # as its output is no terminal
    printed = " ".join(ran["run"].stdout.split())
    quoted = r"at most (\d+): rms error ([\d.]+) points, noise ([\d.]+).*\n.*noise of ([\d.]+)"
    allowed, error, noise, papers = re.search(quoted, (ROOT / page).read_text()).groups()
    for part in (
        f"│ {allowed} │ 0.",
        f"rms error {error} points",
        f"noise {noise} points",
        f"a noise of {papers} points",
    ):
        assert part in printed
    done = ran["plan"]
    for name, (_, error, devices) in zip(NAMES, rows_below(page, "| plan | standard error"), strict=True):
        assert re.search(rf"^│ {name}\b[^│]*│ +{error} │.*│ +{devices} │", done.stdout, re.MULTILINE), name
    said = " ".join(done.stdout.split())
    shares = re.findall(r"(\d+)% of the devices report|(\d+)% report|(\d+)% of the devices", said)
    told = [next(filter(None, each)) for each in shares][:3]
    text = " ".join((ROOT / page).read_text().split())
    assert f"{told[0]}% report their state now and then, {told[1]}% changes, {told[2]}% changes on several" in text


def wished(answers, periods, period, most, epsilon, **others):
    """A wish of the page: 20,000 devices of a closed cohort."""
    calendar = Calendar(0, period, periods)
    expected = steady_changes(calendar, AtMost(most))
    asked = {"devices": 20_000, "closed": True, "expected": expected, **others}
    return Wish(answers, calendar, AtMost(most), Decimal(epsilon), **asked)


def test_the_distances_from_the_best_are_those_of_the_plans():
    """The gap, the searched and the certified figure of each row, rounded as they are written."""
    rows = [row for row in rows_below("docs/planning.md", "| closed, 20,000 devices") if row[1] != "any"]
    cases = {
        "yes or no, 12 months, up to 3 changes": (2, 12, "4w"),
        "4 answers, 64 periods, up to 3 changes": (4, 64, "1d"),
    }
    for what, epsilon, *written in rows:
        case = cases[what] if what else case  # noqa: F821
        planned = optimal_plan(wished(*case, 4, epsilon, retrospective=True, minimum=1))
        found = (100 * planned.gap, planned.distance.searched, planned.distance.certified)
        assert all(map(is_rounded, written, found)), (what, epsilon, found)


def test_what_a_lost_period_does_to_plans_is_as_the_page_says():
    """The error without a floor and with one, in points; both gaps, in periods; and the error after a loss."""
    usual, seldom = ExpectedChanges(MICRO, round(MICRO * 1.5 / 63)), ExpectedChanges(MICRO, 3_000)
    for what, *written in rows_below("docs/planning.md", "| 64 periods, 20,000 devices"):
        (epsilon,) = re.findall(r"ε = (\d+)", what)
        most, expected = (2, seldom) if "--at-most 2" in what else (4, usual)
        wish = wished(4, 64, "1d", most, epsilon, expected=expected, minimum=100)
        bare, bridged = optimal_plan(replace(wish, bridge=False)), optimal_plan(wish)
        lost = outage(wish, bridged.option)
        errors = [100 * each.option.error(wish) for each in (bare, bridged)]
        found = (*errors, outage(wish, bare.option).gap, lost.gap, 100 * lost.error)
        assert all(map(is_rounded, written, found)), (what, found)
