"""A process that holds keys leaves no core dump: neither the server, nor those that fold and open for it."""

import subprocess
import sys
from pathlib import Path

import pytest
from changeling_aggregator.core_dumps import leave_no_core
from changeling_spark.keys import KeyService, keys_from
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..processes import offspring
from .devices import envelope, report
from .serving import ServerProcess

resource = pytest.importorskip("resource")
CRASH = """
import os, resource, signal, sys
from changeling_aggregator.core_dumps import leave_no_core

_, most = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
if sys.argv[1] == "none":
    leave_no_core()
os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


def dumps_of(folder: Path, left: str, ended_by: str) -> list[Path]:
    """What a process leaves in the folder that it runs in and is killed in. left: "none", where it is to leave none."""
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", CRASH, left, ended_by], cwd=folder)
    assert done.returncode < 0
    return [*folder.iterdir()]


@pytest.mark.skipif(sys.platform != "linux", reason="where dumps go is told on Linux")
@pytest.mark.parametrize("ended_by", ["SIGSEGV", "SIGABRT"])
def test_a_process_that_crashes_leaves_nothing(tmp_path: Path, ended_by: str) -> None:
    """Where another leaves a core dump in the folder that it runs in, if the machine has it so."""
    assert dumps_of(tmp_path / "none", "none", ended_by) == []
    if not dumps_of(tmp_path / "one", "one", ended_by):
        pytest.skip("here no process leaves a dump in its folder")


@pytest.mark.skipif(sys.platform != "linux", reason="another process's limits are told on Linux")
def test_no_process_of_a_server_leaves_a_core_dump(tmp_path: Path) -> None:
    """Nor would one if the program that the kernel hands dumps to were asked: the limit is one byte, or was none."""
    with ServerProcess(tmp_path, "--movable-clock") as server:
        server.move_clock(1_800_000_000)
        key, asked = server.new_key(), server.new_survey()
        server.move_clock(asked.calendar.time(1) + asked.skew + asked.spread + 1)
        server.upload(*(envelope(asked, key, [report(1)]) for _ in range(1000)))
        server.fold()
        pids = [server.process.pid, *offspring(server.process.pid)]
        assert len(pids) > 1
        limits = {pid: most_core_bytes(pid) for pid in pids}
    assert set(limits.values()) <= {("0", "0"), ("1", "1")}, limits


def most_core_bytes(pid: int) -> tuple[str, str]:
    """How large a core dump of a process may be, and how large it may let it be."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft, hard = next(line for line in lines if line.startswith("Max core file size")).split()[4:6]
    return soft, hard


def test_an_executor_that_has_got_keys_leaves_no_core_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on another machine, where nobody else has seen to that."""
    limits = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: limits.append((which, limit)))
    service = KeyService({bytes(16): X25519PrivateKey.generate()}, "127.0.0.1", "127.0.0.1")
    keys_from(service.source)
    service.close()
    assert [which for which, _ in limits] == [resource.RLIMIT_CORE]
    assert limits[0][1] in ((0, 0), (1, 1))


@pytest.mark.parametrize(("before", "after"), [((-1, -1), 1), ((0, -1), 1), ((0, 2**20), 1), ((0, 1), 1), ((0, 0), 0)])
def test_a_limit_that_is_none_already_stays_so(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: int
) -> None:
    """As nobody but root may raise it."""
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    leave_no_core()
    assert limits == [(after, after)]
