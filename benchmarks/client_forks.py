"""Measure 4 of the client: forks, threads, greenlets, processes, cancelled tasks, signals, the interpreter's end.

Each case runs in a process of its own; one that does not end in time is a deadlock. Afterwards every record that has
returned must be in the store.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .client_fork_cases import CASES, App

SECONDS = 40.0
"""A case that takes longer has stopped for good."""
REPEATS = {"shutdown": 5, "shutdown_joined": 5}
_UNDER_GEVENT = (
    "from gevent import monkey; monkey.patch_all(); import sys; from benchmarks.client_fork_cases import main;"
    " main(*sys.argv[1:])"
)


def measure() -> dict[str, float]:
    """By case: the records that had returned, those of them in the store, processes that failed or stood still, and
    seconds; and the sums."""
    figures: dict[str, float] = {}
    for case in CASES:
        made = found = failed = deadlocks = 0
        began = time.monotonic()
        for _ in range(REPEATS.get(case, 1)):
            lived = live(case)
            made, found = made + lived[0], found + lived[1]
            deadlocks, failed = deadlocks + (lived[2] is None), failed + (lived[2] not in (0, None))
        figures |= {
            f"4_{case}_made": float(made),
            f"4_{case}_found": float(found),
            f"4_{case}_deadlocks": float(deadlocks),
            f"4_{case}_failed": float(failed),
            f"4_{case}_seconds": time.monotonic() - began,
        }
    sums = {
        what: sum(figures[f"4_{case}_{what}"] for case in CASES) for what in ("made", "found", "deadlocks", "failed")
    }
    return figures | {
        "4_records": sums["made"],
        "4_lost": sums["made"] - sums["found"],
        "4_deadlocks": sums["deadlocks"],
        "4_failed": sums["failed"],
    }


def live(case: str) -> tuple[int, int, int | None]:
    """Runs a case. Returns how many records had returned, how many of these are found, and its exit code; None if it
    did not end."""
    with tempfile.TemporaryDirectory() as name:
        start = ["-c", _UNDER_GEVENT] if case == "greenlets" else ["-m", "benchmarks.client_fork_cases"]
        run = [sys.executable, *start, case, name]
        code: int | None = None
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)  # noqa: S603
        try:
            _, told = process.communicate(timeout=SECONDS)
            code = process.returncode
            if code:
                sys.stderr.write(f"{case}: {told.decode(errors='replace')[-2000:]}\n")
        except subprocess.TimeoutExpired:
            _end(process)
        made = {int(line) for line in (Path(name) / "made").read_text().splitlines()}
        app = App(Path(name), background=False)
        found = app.found()
        app.client.close()
        return len(made), len(made & found), code


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process with all that it has forked."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
