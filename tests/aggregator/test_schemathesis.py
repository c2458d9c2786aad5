"""Schemathesis over the whole interface of a real server, by its own OpenAPI document."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_protocol import Calendar

from ..protocol.examples import survey
from .devices import Log, report
from .hostile import resident
from .serving import TOKEN, ServerProcess

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
