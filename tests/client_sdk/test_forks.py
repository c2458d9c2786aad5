"""Forks, threads, greenlets, signals, the interpreter's end: no record is lost.

Each case runs in a process of its own; one that does not end in time is a deadlock. Afterwards every record that has
returned must be in the store.
"""

import os
import signal
import subprocess
import sys

import pytest

from .fork_cases import CASES, App

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"), pytest.mark.heavy]
SECONDS = 100.0
"""A case that takes longer has stopped for good."""
_UNDER_GEVENT = (
    "from gevent import monkey; monkey.patch_all(); import sys; from tests.client_sdk.fork_cases import main;"
    " main(*sys.argv[1:])"
)


@pytest.mark.parametrize("case", CASES)
def test_no_record_is_lost_and_nothing_stands_still(tmp_path, case):
    """Every record that has returned is found, and the process ends well."""
    start = ["-c", _UNDER_GEVENT] if case == "greenlets" else ["-m", "tests.client_sdk.fork_cases"]
    run = [sys.executable, *start, case, str(tmp_path)]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, told = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"{case} stood still")
    assert process.returncode == 0, told.decode(errors="replace")
    made = {int(line) for line in (tmp_path / "made").read_text().splitlines()}
    app = App(tmp_path, background=False)
    assert made
    assert made <= app.found()
    app.client.close()
