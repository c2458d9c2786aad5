"""One real cluster for all tests that need one, a session on it for those of a file, and a log to fold.

They are skipped where there is no Java.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from changeling_aggregator.fold import EngineOptions
from changeling_spark import runs, tasks
from changeling_spark.runs import SparkFold
from changeling_spark.testing import WHY_NOT, SparkCluster, cluster

from .here import Case


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers with a core each. Their Java compiles little: most of it runs once, and ends soon."""
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    folder: Path = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        with cluster(folder) as running:
            patch.setenv("SPARK_LOCAL_DIRS", str(folder / "driver"))
            patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
            yield running


@pytest.fixture(scope="module")
def engine(spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkFold]:
    """The session of a file; each test turns it to a store of its own."""
    nothing: Any = None
    options = EngineOptions(spark_cluster.master, str(tmp_path_factory.mktemp("shared")))
    with closing(SparkFold(nothing, options)) as started:
        yield started


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with closing(Case(tmp_path)) as made:
        yield made


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests a segment, each of them a task of its own, and many files of ids and buckets."""
    for name, few in (("SEGMENT_REQUESTS", 2), ("TASK_BYTES", 1), ("ID_FILE_BYTES", 16 * 20)):
        monkeypatch.setattr(tasks, name, few)
    monkeypatch.setattr(runs, "BUCKET_CLOSINGS", 700)
