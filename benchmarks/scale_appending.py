"""Measure 4: appends to segments through HTTP, one envelope each, beside an endpoint that only reads the body.

To a folder and to an object store that speaks as S3 does, which shares the two processors with all else: so for it the
processor time of the server itself is what can be told. Then two server processes at one folder against one.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from tests.aggregator.buckets import new_bucket, object_store
from tests.aggregator.serving import ServerProcess

from .server_appending import loaded_with_cpu
from .server_world import Running, bodies, empty_server, kept_bodies, port_of, prepared

ROUNDS = 5
BODIES = 4000


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with empty_server() as empty, tempfile.TemporaryDirectory() as folder, object_store() as endpoint:
        places = {"folder": str(Path(folder) / "segments"), "bucket": new_bucket(endpoint)}
        for name, place in places.items():
            with tempfile.TemporaryDirectory() as own:
                figures |= {f"4_{name}_{what}": figure for what, figure in _beside(Path(own), place, empty).items()}
    with tempfile.TemporaryDirectory() as own:
        figures |= {f"4_two_{what}": figure for what, figure in _two(Path(own)).items()}
    return figures


def _beside(folder: Path, place: str, empty: Running) -> dict[str, float]:
    log = prepared(folder)
    file = kept_bodies(folder / "bodies", bodies(log.survey, log.key, BODIES, 1))
    log.store.close()
    with ServerProcess(folder, "--segments", place) as server:
        ours = Running(port_of(server), server.process.pid)
        rounds = [(loaded_with_cpu(empty, file), loaded_with_cpu(ours, file)) for _ in range(ROUNDS)]
    return {
        "requests": median(mine["rate"] for _, mine in rounds),
        "cpu_us": 1e6 * median(mine["cpu"] for _, mine in rounds),
        "ratio": median(mine["rate"] / idle["rate"] for idle, mine in rounds),
        "cpu_ratio": median(idle["cpu"] / mine["cpu"] for idle, mine in rounds),
        "turned_away": sum(mine["other"] for _, mine in rounds),
    }


def _two(folder: Path) -> dict[str, float]:
    """Processor time an envelope, of two servers under load at once, over that of one alone."""
    log = prepared(folder)
    file = kept_bodies(folder / "bodies", bodies(log.survey, log.key, BODIES, 1))
    place, store = str(folder / "segments"), str(log.store.place)
    log.store.close()
    ratios = []
    (folder / "other").mkdir()
    with ServerProcess(folder, "--segments", place, store=store) as first:
        one = Running(port_of(first), first.process.pid)
        with ServerProcess(folder / "other", "--segments", place, store=store) as second:
            two = Running(port_of(second), second.process.pid)
            for _ in range(ROUNDS):
                alone = loaded_with_cpu(one, file)
                ratios.append(_of_both(one, two, file) / alone["cpu"])
    return {"cpu_over_one": median(ratios)}


def _of_both(one: Running, two: Running, file: Path) -> float:
    """Processor seconds an envelope of two servers that are loaded at the same time, each as the one is alone."""
    with ThreadPoolExecutor(2) as pool:
        each = [*pool.map(lambda server: loaded_with_cpu(server, file), (one, two))]
    return sum(found["cpu"] * found["requests"] for found in each) / sum(found["requests"] for found in each)
