"""Measures 4 and 5: SIGKILL of servers and folds under load, SIGTERM, PostgreSQL restarted, the same to two servers.

Two servers run on one store, SQLite's or PostgreSQL's. In the end every upload counts exactly once, and nothing else.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from changeling_aggregator.testing.killing import at_once, killed, restarted, terminated
from changeling_aggregator.testing.postgres import PostgreSQL

from .server_world import stores

KILLS = 300
"""On each store."""


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with stores() as new, ThreadPoolExecutor(len(new)) as on_each:
        kills = {name: on_each.submit(_in_own_folder, partial(killed, kills=KILLS), at) for name, at in new.items()}
        for name, done in kills.items():
            figures |= {f"4_{name}_{what}": figure for what, figure in done.result().items()}
        for name, place_in in new.items():
            terms = _in_own_folder(terminated, place_in)
            figures |= {f"4_{name}_sigterm_{what}": figure for what, figure in terms.items()}
    with PostgreSQL() as postgresql, tempfile.TemporaryDirectory() as folder:
        figures |= {f"4_restart_{what}": each for what, each in restarted(Path(folder), postgresql).items()}
        figures |= {f"5_{what}": each for what, each in at_once(Path(folder), postgresql.new()).items()}
    return figures


def _in_own_folder(
    measured: Callable[[Path, str], dict[str, float]], place_in: Callable[[Path], str]
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder), place_in(Path(folder)))
