"""`changeling fold --engine spark --follow` in a Spark of this machine: what it counts, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from changeling_aggregator.testing.serving import command_of, offspring
from changeling_spark.testing import WHY_NOT, SparkCluster, until

from .here import Case, contents

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}"),
]
_COUNTED = ("tallies", "refusals")


class Following:
    """The command on a store, as a process."""

    def __init__(self, case: Case, folder: Path, master: str = "local[1]") -> None:
        command = [sys.executable, "-m", "changeling_commands", "fold", "--store", str(case.path), "--engine", "spark"]
        command += ["--master", master, "--shared", case.place.name, "--follow"]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}
        environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        self._case = case
        self._errors = (folder / "errors").open("w+b")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, env=environment)

    def counts_all(self) -> bool:
        assert self.process.poll() is None, self.said()
        with self._case.store.view() as view:
            return view.log_state().unfolded == 0

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def java(self) -> list[int]:
        """The process id of its Java, once that runs; then of those that it has just forked, which look like it."""
        return [each for each in offspring(self.process.pid) if b"pyspark-shell" in command_of(each)]

    def close(self) -> None:
        SparkCluster.kill_tree(self.process.pid)
        self.process.communicate()
        self._errors.close()


@pytest.fixture
def following(case: Case, tmp_path: Path) -> Iterator[Following]:
    with closing(Following(case, tmp_path)) as started:
        yield started


def counted(case: Case) -> list[object]:
    found = contents(case.store)
    return [found[table] for table in _COUNTED]


def test_what_arrives_while_it_runs_counts_and_it_ends_when_told(case: Case, following: Following) -> None:
    """In one session: twenty requests at a time, each once the ones before are counted. Told to end in mid fold it ends
    with 0, and all of that fold is left for the next, or none; no file is left but those with ids that count."""
    for _ in range(2):
        case.append(20)
        until(following.counts_all)
    before = counted(case)
    (java,) = following.java()
    case.append()
    os.kill(following.process.pid, signal.SIGTERM)
    assert following.process.wait(300) == 0, following.said()
    until(lambda: not Path(f"/proc/{java}").exists())
    expected = case.expected()
    whole = counted(case) == [expected[table] for table in _COUNTED]
    assert whole or counted(case) == before
    assert case.named() <= case.lying()
    assert case.lying() == case.named() or not whole


def test_when_its_java_process_dies_it_ends_with_a_sentence(case: Case, following: Following) -> None:
    """And with a code that is not 0, so that what watches over it starts it again. What it had counted stays."""
    case.append(6)
    until(following.counts_all)
    before = counted(case)
    os.kill(following.java()[0], signal.SIGKILL)
    assert following.process.wait(300) == 1, following.said()
    assert counted(case) == before
    assert "Spark's Java process beside this one has died: run the command again" in " ".join(following.said().split())


def test_told_to_end_while_it_waits_for_a_master_it_ends(case: Case, tmp_path: Path) -> None:
    """One that does not answer, for which Spark would wait a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        with closing(Following(case, tmp_path, master)) as started:
            until(lambda: bool(started.java()))
            os.kill(started.process.pid, signal.SIGTERM)
            assert started.process.wait(55) == 0, started.said()
