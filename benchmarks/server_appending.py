"""Measure 1: durable appends through HTTP beside an endpoint that only reads the body, the fold at work meanwhile."""

import tempfile
from pathlib import Path
from statistics import median

from tests.aggregator.serving import ServerProcess

from .server_world import bodies, empty_server, kept_bodies, loaded, port_of, prepared

ROUNDS = 3
SECONDS = 3.0


def measure() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log = prepared(folder)
        files = {
            size: kept_bodies(folder / f"bodies-{size}", bodies(log.survey, log.key, count, size))
            for size, count in ((1, 4000), (1000, 64))
        }
        log.store.close()
        with ServerProcess(folder) as server, empty_server() as empty:
            ours = port_of(server)
            for size, name in ((1, "single"), (1000, "thousand")):
                pairs = []
                for _ in range(ROUNDS):
                    pairs.append((loaded(empty, files[size], SECONDS), loaded(ours, files[size], SECONDS)))
                    print(size, *(f"{each['rate']:.0f} {each['p99']:.4f} {each['other']}" for each in pairs[-1]))
                of_empty, of_ours = (median(pair[which]["rate"] for pair in pairs) for which in (0, 1))
                figures[f"1_{name}_empty_requests"] = of_empty
                figures[f"1_{name}_requests"] = of_ours
                figures[f"1_{name}_ratio"] = median(pair[1]["rate"] / pair[0]["rate"] for pair in pairs)
                figures[f"1_{name}_turned_away"] = sum(pair[1]["other"] for pair in pairs)
                if size == 1:
                    halves = [
                        [
                            loaded(port, files[size], SECONDS, rate / 2)
                            for port, rate in ((empty, of_empty), (ours, of_ours))
                        ]
                        for _ in range(3)
                    ]
                    for which, of in ((0, "empty_"), (1, "")):
                        figures[f"1_half_load_{of}p99_ms"] = 1000 * median(pair[which]["p99"] for pair in halves)
    return figures
