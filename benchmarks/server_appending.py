"""Measure 1: durable appends through HTTP beside an endpoint that only reads the body, the fold at work meanwhile.

On SQLite and on PostgreSQL, and one envelope at a time into segments in a folder and in an object store of this
process. Each round loads both servers one after the other; ratios are medians of the rounds'. Half load is measured
twice: where the fold has opened what came before, and where it has millions of envelopes to open.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from changeling_aggregator.testing.bucket import small_bucket
from changeling_aggregator.testing.killing import prepared_log
from changeling_aggregator.testing.serving import RunningServer
from changeling_protocol.wire import survey_path

from .server_world import Running, bodies, empty_server, folded, kept_bodies, loaded, stores

ROUNDS, ROUNDS_WITH_MILLIONS = 5, 3
SECONDS = 2.0
SIZES = {"single": (1, 4000), "thousand": (1000, 64)}
"""Envelopes in a body, and how many bodies differ."""


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with empty_server() as empty, stores() as new, small_bucket() as bucket:
        for name, place_in in new.items():
            with tempfile.TemporaryDirectory() as folder:
                figures |= {f"1_{name}_{what}": figure for what, figure in appended(folder, place_in, empty).items()}
        for name, segments in {"folder": None, "bucket": bucket.place}.items():
            with tempfile.TemporaryDirectory() as folder:
                options = ("--segments", segments or f"{folder}/segments")
                found = appended(folder, new["sqlite"], empty, *options)
                figures |= {f"1_{name}_{what}": figure for what, figure in found.items()}
    return figures


def appended(folder: str, place_in: Callable[[Path], str], empty: Running, *segments: str) -> dict[str, float]:
    """The figures of one store. segments: options of a server whose log lies elsewhere, for one envelope alone."""
    place = place_in(Path(folder))
    log = prepared_log(Path(folder), place=place)
    files = {
        name: kept_bodies(Path(folder) / name, bodies(log.survey, log.key, count, size))
        for name, (size, count) in SIZES.items()
    }
    log.store.close()
    with RunningServer(Path(folder), *segments, store=place) as server:
        ours = Running(server.port, server.process.pid)
        figures = _beside(empty, ours, "single", files["single"])
        if segments:
            return figures
        folded(server, survey_path(log.survey.id.hex()))
        figures |= _at_half_load(empty, ours, files["single"], figures, "half_load", ROUNDS)
        figures |= _beside(empty, ours, "thousand", files["thousand"])
        figures |= _at_half_load(
            empty, ours, files["single"], figures, "half_load_and_millions_to_open", ROUNDS_WITH_MILLIONS
        )
    return figures


def _beside(empty: Running, ours: Running, name: str, file: Path) -> dict[str, float]:
    """Both under as much load as they take."""
    rounds = [_pair(empty, ours, file) for _ in range(ROUNDS)]
    figures: dict[str, float] = {}
    for which, of in ((0, "empty_"), (1, "")):
        figures[f"{name}_{of}requests"] = median(each[which]["rate"] for each in rounds)
        figures[f"{name}_{of}cpu_us"] = 1e6 * median(each[which]["cpu"] for each in rounds)
    figures[f"{name}_ratio"] = median(mine["rate"] / idle["rate"] for idle, mine in rounds)
    figures[f"{name}_cpu_ratio"] = median(idle["cpu"] / mine["cpu"] for idle, mine in rounds)
    figures[f"{name}_turned_away"] = sum(mine["other"] for _, mine in rounds)
    return figures


def _at_half_load(
    empty: Running, ours: Running, file: Path, figures: Mapping[str, float], name: str, rounds: int
) -> dict[str, float]:
    """The 99th percentiles under half of what each took, in milliseconds."""
    pairs = [_pair(empty, ours, file, figures) for _ in range(rounds)]
    return {
        f"{name}_{of}p99_ms": 1000 * median(each[which]["p99"] for each in pairs)
        for which, of in ((0, "empty_"), (1, ""))
    }


def _pair(
    empty: Running, ours: Running, file: Path, half_of: Mapping[str, float] | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Both under load; half_of: figures, where each is to have half its load."""
    rates = (half_of["single_empty_requests"] / 2, half_of["single_requests"] / 2) if half_of else (0, 0)
    return _loaded(empty, file, rates[0]), _loaded(ours, file, rates[1])


def _loaded(server: Running, file: Path, rate: float = 0, connections: int = 64) -> dict[str, float]:
    """With the processor time that a request took the process, that of the fold not counted."""
    before = server.seconds
    found = loaded(server.port, file, SECONDS, rate, connections)
    return {**found, "cpu": (server.seconds - before) / found["requests"]}
