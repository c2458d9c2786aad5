"""Runs the measures of a suite, prints them as a table and writes build/bench/SUITE.json.

python -m benchmarks plans [measure …]
"""

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

SUITES = {
    "plans": ("plans.references", "plans.prediction", "plans.planner"),
    "joint": ("plans.accuracy", "joint_best"),
    "histories": ("histories.devices", "field.freezing", "histories.wishes"),
    "central": (
        "central.errors",
        "central.choice",
        "central.smoothing",
        "central.scale",
        "central_papers.flights",
        "central_papers.evolving",
        "central_papers.dynamic",
        "central_sigma",
    ),
    "evidence": ("evidence.first_run", "evidence.compared"),
    "questions": ("questions.accuracy", "questions.numbers", "questions.differences"),
    "sigma": ("central_sigma.largest",),
    "field": ("coverage.field", "field.silence"),
    "client": (
        "client.blocking",
        "client.costs",
        "client.durations",
        "client_audit",
    ),
    "server": (
        "server.appending",
        "server.folding",
        "server_reading",
        "server.garbage",
        "server.first_look",
    ),
    "kills": ("server.kills_on_sqlite", "server.kills_on_postgresql", "server.restarts"),
    "soak": ("server.soak",),
    "scale": ("scale.capacity", "scale_spark.against_embedded"),
    "costs": ("scale.serving", "scale_spark.costs"),
    "house": ("house",),
}
OUTPUT = Path("build/bench")
BUDGETS = {
    "joint_best": 120,
    "plans.accuracy": 400,
    "histories.devices": 10,
    "field.freezing": 50,
    "histories.wishes": 170,
    "coverage.intervals": 750,
    "histories.smoother": 120,
}
"""The most processor seconds of a measure, so that `make bench-joint`, `-histories` and `-intervals` end within ten
minutes each on two idle cores. What is over it is marked, and no failure, as cores differ."""


def main(suite: str, *chosen: str) -> None:
    """Runs a suite's measures, or only those chosen by name, which then replace their own figures in the file.

    A measure is a module beside this one, whose `measure()` is called, or a function in one: `plans.accuracy`. It
    returns a flat map from figure to number; None for a figure of what is missing.
    """
    console = Console()
    path = OUTPUT / f"{suite}.json"
    figures: dict[str, float | None] = json.loads(path.read_text()) if chosen and path.exists() else {}
    for name in chosen or SUITES[suite]:
        began, worked = time.monotonic(), _worked()
        module, _, function = name.partition(".")
        measured: dict[str, float | None] = getattr(import_module(f"{__package__}.{module}"), function or "measure")()
        console.print(_table(name, measured, time.monotonic() - began, _worked() - worked))
        figures |= measured
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")
    console.print(f"wrote {path}")


def _worked() -> float:
    """Processor seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _table(name: str, measured: dict[str, float | None], seconds: float, worked: float) -> Table:
    over = f", over its budget of {budget} s" if worked > (budget := BUDGETS.get(name, worked)) else ""
    table = Table(title=f"{name}, {seconds:.0f} s, {worked:.0f} processor seconds{over}", title_justify="left")
    table.add_column("figure")
    table.add_column("", justify="right")
    for figure, number in measured.items():
        table.add_row(figure, "[bold red]MISSING[/]" if number is None else f"{number:.6g}")
    return table


if __name__ == "__main__":
    main(*sys.argv[1:])
