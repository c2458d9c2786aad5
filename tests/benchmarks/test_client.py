"""What make bench-client relies on: its lives find what goes wrong, and each of its measures holds on a small scale."""

import os
import shutil
import signal
import struct

import pytest

from benchmarks import client_blocking, client_costs, client_forks, client_kills, client_traffic
from benchmarks.client_fork_cases import CASES
from benchmarks.client_kills import ASKED, Steps, faults, live
from benchmarks.client_world import LoopbackServer, ended, forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def server(tmp_path):
    serving = LoopbackServer(tmp_path / "kept", ASKED)
    yield serving
    serving.close()


def test_a_life_that_nobody_kills_has_no_fault(tmp_path, server):
    """The scenario's steps have all the names that lives are killed at."""
    steps = Steps()
    live(tmp_path, server.url, steps)
    assert not faults(tmp_path).total()
    assert {"record", "draw", "queue", "commit", "witness", "send", "acknowledge", "erase"} <= set(steps.names)


@pytest.mark.parametrize("name", ["draw", "commit", "witness", "send", "acknowledge", "erase"])
def test_a_kill_at_the_last_step_of_a_name_leaves_no_fault(tmp_path, server, name):
    """The next process finishes what was begun; nothing is lost or said twice."""
    counting = Steps()
    server.keep_in(tmp_path / "whole" / "kept")
    (tmp_path / "whole").mkdir()
    live(tmp_path / "whole", server.url, counting)
    last = len(counting.names) - counting.names[::-1].index(name)
    server.keep_in(tmp_path / "kept")
    assert ended(forked(lambda: live(tmp_path, server.url, Steps(last)))) == -signal.SIGKILL
    assert ended(forked(lambda: live(tmp_path, server.url, Steps()))) == 0
    assert not faults(tmp_path).total()


def test_faults_are_found(tmp_path, server):
    """What arrived twice under other ids is counted twice; what did not arrive is lost."""
    live(tmp_path, server.url, Steps())
    other = tmp_path / "other"
    other.mkdir()
    server.keep_in(other / "kept")
    live(other, server.url, Steps())
    whole = (tmp_path / "kept").read_bytes()
    (tmp_path / "kept").write_bytes(whole + (other / "kept").read_bytes())
    assert faults(tmp_path)["counted_twice"] == 2 * 4 * 2
    (size,) = struct.unpack(">I", whole[:4])
    (tmp_path / "kept").write_bytes(whole[4 + size :])
    assert faults(tmp_path)["lost_closings"] > 0
    shutil.rmtree(other)


def test_a_restored_store_is_silent():
    """Wherever the backup was made and put back; not a byte of answers leaves the device."""
    figures = client_kills.restored_witnessed()
    assert figures["1_restored_silent"] == figures["1_restored"] > 0
    assert figures["1_restored_bytes_sent"] == 0


@pytest.mark.parametrize("name", ["nobody_listens", "drip_headers"])
def test_a_server_that_does_not_answer_loses_nothing(name):
    """And the end is not waited for; how long each call takes is measured where nothing else runs."""
    _, kept = client_blocking.live(client_blocking.SERVERS[name], closes=True, tls=False)
    assert kept


@pytest.mark.parametrize("case", CASES)
def test_no_record_is_lost_and_nothing_stands_still(case):
    """Forks, threads, greenlets, processes, signals, and the interpreter's end."""
    made, found, code = client_forks.live(case)
    assert made == found > 0
    assert code == 0


@pytest.mark.parametrize("relayed", [False, True], ids=["server", "relay"])
def test_behaviours_make_the_same_traffic(relayed):
    """One script, all behaviours in pairs; they did record differently."""
    pairs, differences, requests, unlike = client_traffic.compare((0, relayed))
    assert pairs == unlike > 0
    assert requests > 0
    assert differences == 0


def test_an_app_installs_a_dozen_wheels_at_most():
    """Beside our own."""
    assert len(client_costs.wheels()) <= 12
