"""Mutated bodies: through all that reads what strangers send, guided by coverage, and to a server."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_protocol.wire import UPLOADS

from .devices import body, envelope, report
from .hostile import resident
from .serving import ServerProcess


@pytest.mark.skipif(sys.platform != "linux", reason="atheris is for Linux")
@pytest.mark.parametrize("runs", [4_000, pytest.param(150_000, marks=[pytest.mark.heavy, pytest.mark.timeout(600)])])
def test_only_declared_errors_come_of_mutated_bodies_and_tallies_are_right(runs: int) -> None:
    """With a fixed seed: what can be read is counted as a slow count of its own comes to."""
    command = [sys.executable, "-m", "tests.aggregator.parsing", f"{runs}", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-20_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["bodies"] == runs
    assert found["read"].get("upload", 0) > runs // 100
    assert found["reports"] > runs // 200


def _mutated(honest: list[bytes], runs: int) -> Iterator[bytes]:
    chance = random.Random(8)
    for _ in range(runs):
        mutated = bytearray(chance.choice(honest))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(mutated))
            mutated[at : at + chance.choice([0, 1, 1, 8])] = chance.randbytes(chance.choice([0, 1, 1, 8]))
        yield bytes(mutated)


@pytest.mark.heavy
def test_mutated_uploads_fail_no_server_and_change_no_tally(server: ServerProcess) -> None:
    """Ten thousand of them over HTTP: no 500, no more memory, and what was counted stays."""
    asked = server.new_survey()
    server.move_clock(asked.calendar.time(1) + 16)
    honest = [body(*[envelope(asked, server.key, [report(1)]) for _ in range(3)]) for _ in range(4)]
    for each in honest:
        server.http.post(UPLOADS, content=each).raise_for_status()
    counted, before = server.reports(asked), resident(server)
    for each in _mutated(honest, 10_000):
        assert server.http.post(UPLOADS, content=each).status_code < 500
    assert server.reports(asked) == counted
    assert resident(server) - before < 64 * 2**20
