"""The fold on a real cluster: a master and two workers, each a process; kills; and what lies on disks meanwhile."""

import base64
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from changeling_aggregator.fold import FoldReport
from changeling_aggregator.testing import AFTER
from changeling_spark.folding import SparkFold
from changeling_spark.session import ClusterSettings

from .cluster import SparkCluster
from .conftest import Pair
from .here import contents, counted_ids

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def until(holds: Callable[[], bool]) -> None:
    """Wait for it, five minutes at most."""
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.usefixtures("many_tasks")
def test_a_cluster_folds_as_this_machine_does_and_keeps_no_secret(pair: Pair, spark_cluster: SparkCluster) -> None:
    """Byte by byte. Neither a private key, in any form, nor an id lies in what Spark wrote, nor is a key in any log."""
    with pair.store.view() as view:
        keys = [key.private_bytes_raw() for key in view.private_keys().values()]
    with closing(SparkFold(pair.store, ClusterSettings(spark_cluster.master), pair.place)) as engine:
        engine.await_start()
        assert engine.fold(AFTER, closing=False).requests == 60
        assert contents(pair.store) == pair.expected
        files = [path for path in spark_cluster.folder.rglob("*") if path.is_file()]
        written = {path: path.read_bytes() for path in files}
    assert any("shuffle" in path.name for path in written)
    assert any(path.name == "stderr" for path in written)
    for key in keys:
        for form in (key, key.hex().encode(), base64.b64encode(key)[:40], repr(key)[2:-1].encode()):
            assert not [path for path, content in written.items() if form in content]
    some = counted_ids(pair.store)
    assert len(some) > 20
    assert not [path for path, content in written.items() for id_ in some if id_ in content]


@pytest.mark.usefixtures("many_tasks")
def test_a_worker_killed_in_mid_fold_changes_nothing_of_what_it_comes_to(
    pair: Pair, spark_cluster: SparkCluster
) -> None:
    """SIGKILL to it and its executor, as soon as that one's Python runs; the other does what is left."""
    reports: list[FoldReport] = []
    with closing(SparkFold(pair.store, ClusterSettings(spark_cluster.master), pair.place)) as engine:
        engine.await_start()
        folding = threading.Thread(target=lambda: reports.append(engine.fold(AFTER, closing=False)))
        folding.start()
        until(lambda: spark_cluster.python_runs(0))
        spark_cluster.kill_worker(0)
        assert folding.is_alive()
        folding.join()
    spark_cluster.restart_worker(0)
    assert [each.requests for each in reports] == [60]
    assert contents(pair.store) == pair.expected


def test_a_driver_killed_in_mid_fold_has_changed_nothing_and_folds_again(
    pair: Pair, spark_cluster: SparkCluster
) -> None:
    """The command, killed with SIGKILL and given again: tallies, attendance and refusals are the same."""
    command = [sys.executable, "-m", "changeling_commands", "fold", "--store", str(pair.path), "--engine", "spark"]
    command += ["--master", spark_cluster.master, "--shared", pair.place]
    before = contents(pair.store)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        until(lambda: spark_cluster.python_runs(0) or spark_cluster.python_runs(1))
        spark_cluster.kill_tree(killed.pid)
    assert contents(pair.store) == before
    said = []
    for _ in range(4):  # as `--follow` does where Spark fails: a process may have stood still
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        said.append(done.stderr)
        if done.returncode == 0:
            break
        assert contents(pair.store) == before
    assert done.returncode == 0, said
    assert done.stdout.startswith(f"{pair.envelopes} envelopes, ")
    found = contents(pair.store)
    for table in ("tallies", "attendance", "refusals"):
        assert found[table] == pair.expected[table]
    with pair.store.view() as view:
        named = {each.name for each in view.id_files()}
    assert {path.name for path in Path(pair.place).iterdir()} == named
