"""The fold as a query of Structured Streaming on a real cluster: kills, and checkpoints that are not what they were."""

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from changeling_aggregator.testing import AFTER
from changeling_aggregator.testing.serving import command_of, offspring
from changeling_spark import SparkTrouble
from changeling_spark.folding import SparkFold
from changeling_spark.testing import SparkCluster, until

from .conftest import Pair
from .here import contents, counted_ids

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
FOLLOWS = True
_COUNTED = ("tallies", "attendance", "refusals")


class Following:
    """`changeling fold --engine spark --follow` on a store, as a process."""

    def __init__(self, pair: Pair, master: str, checkpoint: Path) -> None:
        command = [sys.executable, "-m", "changeling_commands", "fold", "--store", str(pair.path), "--engine", "spark"]
        command += ["--master", master, "--shared", pair.place, "--follow", "--checkpoint", str(checkpoint)]
        self._pair = pair
        self._errors = (checkpoint.parent / "errors").open("w+b")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors)

    def counts_all(self) -> bool:
        assert self.process.poll() is None, self.said()
        with self._pair.store.view() as view:
            return view.unfolded() == 0

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
def following(pair: Pair, spark_cluster: SparkCluster, tmp_path: Path) -> Iterator[Following]:
    with closing(Following(pair, spark_cluster.master, tmp_path / "checkpoint")) as started:
        yield started


def folded(engine: SparkFold) -> int:
    """How many requests are folded, again where Spark fails, as `--follow` does; a process may have stood still."""
    for _ in range(4):
        with suppress(SparkTrouble):
            engine.await_start()
            return engine.fold(AFTER, closing=False).requests
    engine.await_start()
    return engine.fold(AFTER, closing=False).requests


@pytest.mark.usefixtures("many_tasks")
def test_batches_come_to_what_the_embedded_fold_does_whatever_becomes_of_the_checkpoint(
    tmp_path: Path, engine: SparkFold, checkpoint: Path
) -> None:
    """With duplicates, late and foreign uploads, batch by batch. Between batches the query ends, and its checkpoint is
    another store's, deleted, or put back as it was; at last Spark ends the session. Nowhere is a key or an id."""
    pair, other = (Pair(tmp_path / name) for name in ("ours", "other"))
    kept = tmp_path / "kept"

    def step(first: int, of: Pair = pair) -> None:
        of.append(first, first + 15)
        engine.turn_to(of.store)
        assert folded(engine) == 15
        assert folded(engine) == 0
        assert engine._stream is not None
        engine._stream._stop()

    step(0, other)
    step(0)
    shutil.copytree(checkpoint, kept)
    shutil.rmtree(checkpoint)
    step(15)
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    step(30)
    pair.append(45)
    assert engine._spark is not None
    engine._spark.sparkContext._jsc.sc().stop()  # as Spark does by itself, where executors fail again and again
    with pytest.raises(SparkTrouble):
        engine.fold(AFTER, closing=False)
    assert folded(engine) == 15
    engine.close()  # whose executors have the cluster's cores
    assert contents(pair.store) == pair.expected
    with pair.store.view() as view:
        keys = [key.private_bytes_raw() for key in view.private_keys().values()]
    secrets = [form for key in keys for form in (key, key.hex().encode(), base64.b64encode(key)[:40])]
    written = b"".join(path.read_bytes() for at in (checkpoint, kept) for path in at.rglob("*") if path.is_file())
    assert b'"until"' in written
    assert not [each for each in (*secrets, *counted_ids(pair.store)) if each in written]
    for each in (pair, other):
        each.store.close()


@pytest.mark.usefixtures("many_tasks")
def test_a_driver_killed_around_the_stores_commit_counts_nothing_twice_and_skips_nothing(
    pair: Pair, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """First before the store has the batch; then after it, before Spark has it in its log of commits. The command goes
    on from there, and ends by SIGTERM, with nothing in hand."""
    checkpoint = tmp_path / "checkpoint"
    pair.append()
    before = contents(pair.store)

    def life(where: str) -> int:
        arguments = [str(pair.path), spark_cluster.master, pair.place, str(checkpoint), where]
        return subprocess.run([sys.executable, "-m", "tests.spark.killed_driver", *arguments], timeout=600).returncode

    def batches(what: str) -> set[str]:
        return {path.name for path in (checkpoint / what).glob("[0-9]*")}

    assert life("before") == -signal.SIGKILL
    assert contents(pair.store) == before
    assert (batches("offsets"), batches("commits")) == ({"0"}, set())
    assert life("after") == -signal.SIGKILL
    assert contents(pair.store) == pair.expected
    assert (batches("offsets"), batches("commits")) == ({"0", "1"}, {"0"})
    pair.append(59)  # once more: all in it was counted
    with closing(Following(pair, spark_cluster.master, checkpoint)) as following:
        until(following.counts_all)
        os.kill(following.process.pid, signal.SIGTERM)
        assert following.process.wait(300) == 0, following.said()
    assert {"0", "1", "2"} <= batches("offsets")
    with pair.store.view() as view:
        named = {each.name for each in view.id_files()}
    assert contents(pair.store)["tallies"] == pair.expected["tallies"]
    assert {path.name for path in Path(pair.place).iterdir()} == named


def test_the_command_ends_with_a_sentence_when_its_java_process_dies(pair: Pair, following: Following) -> None:
    """And with a code that is not 0, so that what watches over it starts it again. What it had counted is what the
    embedded fold counts."""
    pair.append()
    until(following.counts_all)
    found = contents(pair.store)
    assert [found[table] for table in _COUNTED] == [pair.expected[table] for table in _COUNTED]
    os.kill(following.java()[0], signal.SIGKILL)
    assert following.process.wait(300) == 1, following.said()
    assert "Spark's Java process beside this one has died: run the command again" in " ".join(following.said().split())


def test_told_to_end_in_mid_batch_the_command_ends_and_has_changed_nothing(
    pair: Pair, following: Following, spark_cluster: SparkCluster
) -> None:
    """As soon as an executor's Python runs: all of the batch is left for the next; or none, if it was just done."""
    pair.append()
    before = contents(pair.store)
    until(lambda: spark_cluster.python_runs(0) or spark_cluster.python_runs(1))
    os.kill(following.process.pid, signal.SIGTERM)
    assert following.process.wait(300) == 0, following.said()
    found = contents(pair.store)
    assert [found[table] for table in _COUNTED] in (
        [before[table] for table in _COUNTED],
        [pair.expected[table] for table in _COUNTED],
    )


def test_told_to_end_while_it_waits_for_a_master_the_command_ends(pair: Pair, tmp_path: Path) -> None:
    """One that does not answer, for which Spark would wait a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        with closing(Following(pair, master, tmp_path / "checkpoint")) as started:
            until(lambda: bool(started.java()))
            os.kill(started.process.pid, signal.SIGTERM)
            assert started.process.wait(55) == 0, started.said()
