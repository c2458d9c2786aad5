"""Mutated bodies through all that reads what strangers send, and to a server; and Schemathesis over its interface."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_protocol import Calendar
from changeling_protocol.wire import UPLOADS

from ..protocol.examples import survey
from .devices import Log, body, envelope, report
from .hostile import resident
from .serving import TOKEN, ServerProcess


@pytest.mark.heavy
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
def test_mutated_uploads_fail_no_server_and_change_no_tally(tmp_path: Path) -> None:
    """Ten thousand of them over HTTP: no 500, no more memory, and what was counted stays."""
    with ServerProcess(tmp_path, "--movable-clock") as server:
        server.move_clock(1_800_000_000)
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


SECONDS = 30
HOOKS = "tests.aggregator.schemathesis_hooks"
ROOT = Path(__file__).parents[2]
REFUSING = ("400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx")
"""What an answer to a body that is none may be; 413 as well, as nothing is read of one that is too long."""


@pytest.mark.heavy
@pytest.mark.timeout(10 * SECONDS)
def test_whatever_is_asked_no_answer_fails_and_no_tally_changes(tmp_path: Path) -> None:
    """A fixed seed, for a bounded time: no 500, every answer as the document says, no more memory, the same tallies."""
    now = int(time.time())
    log = Log.of(Store.open(tmp_path / "server.db"), survey(calendar=Calendar(now - 800, 60, 10), grace=100))
    for period in range(1, 6):
        for symbol in range(20):
            log.append_reports(log.survey.calendar.time(period) + 1, [report(period, symbol % 4)])
    fold(log.store, now)
    tallies = log.tallies()
    log.store.close()
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(f"[checks]\nnegative_data_rejection.expected-statuses = {[*REFUSING]}\n")
    with ServerProcess(tmp_path) as server:
        server.http.get(f"/v1/surveys/{log.survey.id.hex()}/series").raise_for_status()
        before = resident(server)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings)),
                *("run", f"{server.url}/openapi.json"),
                *("--seed", "1", "--generation-database", "none", "--max-examples", "40", "--max-time", str(SECONDS)),
                *("--suppress-health-check", "too_slow", "--request-timeout", "100"),  # others have the machine, too
                *("--header", f"Authorization: Bearer {TOKEN}", "--continue-on-failure", "--no-color"),
                *("--exclude-checks", "positive_data_acceptance"),  # no schema makes a signature
            ],
            cwd=ROOT,
            env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "SURVEY": log.survey.id.hex()},
            capture_output=True,
            text=True,
        )
        grown = resident(server) - before
        server.fold()
    assert done.returncode == 0, done.stdout + done.stderr
    assert grown < 64 * 2**20
    log = Log(Store.open(tmp_path / "server.db"), log.survey, log.key, log.stream)
    assert log.tallies() == tallies
    log.store.close()
