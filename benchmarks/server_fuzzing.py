"""Mutated bodies: a million through what reads strangers' bytes, by `server_parsing`, and many to a server.

No error comes out but those that are declared, tallies are what an independent count comes to, and the server answers
nothing with 500, holds no more memory, and counts what it counted.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from changeling_protocol.wire import UPLOADS

from tests.aggregator.hostile import resident
from tests.aggregator.serving import ServerProcess

from .server_world import bodies, prepared

BODIES = 1_000_000
BODIES_OVER_HTTP = 100_000
MIB = 2**20


def measure() -> dict[str, float | None]:
    return {**parsed(BODIES, seed=20), **over_http(BODIES_OVER_HTTP)}


def parsed(runs: int, seed: int) -> dict[str, float | None]:
    """How many bodies, how many of them could be read, how many reports in them, and how many ended in a defect."""
    command = [sys.executable, "-m", "benchmarks.server_parsing", f"{runs}", f"{seed}"]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        print(done.stderr[-20_000:])
        return {"6_fuzzed_bodies": None, "6_fuzzed_defects": 1}
    told = json.loads(done.stdout.splitlines()[-1])
    return {
        "6_fuzzed_bodies": told["bodies"],
        "6_fuzzed_read": sum(told["read"].values()),
        "6_fuzzed_uploads_read": told["read"].get("upload", 0),
        "6_fuzzed_reports_compared": told["reports"],
        "6_fuzzed_defects": 0,
    }


def over_http(runs: int) -> dict[str, float | None]:
    """So many mutated uploads to a server: how many answers are its own errors; and its memory and tallies."""
    with tempfile.TemporaryDirectory() as place:
        log = prepared(Path(place))
        honest = bodies(log.survey, log.key, 4, 3)
        with ServerProcess(Path(place)) as server:
            for each in honest:
                server.http.post(UPLOADS, content=each).raise_for_status()
            server.fold()
            tallies, began = log.tallies(), time.monotonic()
            statuses: Counter[int] = Counter()
            before = 0
            for number, each in enumerate(_mutated(honest, runs)):
                statuses[server.http.post(UPLOADS, content=each).status_code] += 1
                if number == runs // 10:
                    before = resident(server)
            grown = resident(server) - before
            server.fold()
        same = log.tallies() == tallies
        log.store.close()
    return {
        "6_mutated_over_http": runs,
        "6_mutated_a_second": runs / (time.monotonic() - began),
        "6_mutated_failed": sum(count for status, count in statuses.items() if status >= 500),
        "6_mutated_growth_mib": grown / MIB,
        "6_mutated_tallies_changed": not same,
    }


def _mutated(honest: list[bytes], runs: int) -> Iterator[bytes]:
    chance = random.Random(8)  # noqa: S311
    for _ in range(runs):
        body = bytearray(chance.choice(honest))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(body))
            body[at : at + chance.choice([0, 1, 1, 8])] = chance.randbytes(chance.choice([0, 1, 1, 8]))
        yield bytes(body)
