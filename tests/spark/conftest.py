"""One real cluster for all tests that need one, a session on it for those of a file, and a log to fold.

They are skipped where there is no Java.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from changeling_aggregator.fold import EngineOptions, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER, prepared
from changeling_spark import runs as running
from changeling_spark import tasks as pieces
from changeling_spark.runs import SparkFold
from changeling_spark.testing import WHY_NOT, SparkCluster, cluster

from .here import contents


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


class Pair:
    """A store for Spark, with nothing in its log yet, and what the embedded fold makes of all that is to come."""

    def __init__(self, folder: Path) -> None:
        self.place, self.path = str(folder / "shared"), folder / "ours.db"
        Path(self.place).mkdir(parents=True)
        self.store = Store.open(self.path)
        self._log, _ = prepared(self.store)
        self.store.close()
        shutil.copy(self.path, folder / "theirs.db")
        theirs = Store.open(folder / "theirs.db")
        self._log.append_to([partial(theirs.append, stream) for stream in range(1, 4)])
        self.envelopes = fold(theirs, AFTER, closing=False).envelopes
        self.expected = contents(theirs)
        theirs.close()
        self.store = Store.open(self.path)

    def append(self, first: int = 0, last: int | None = None) -> None:
        """Append some of the log."""
        self._log.append_to([partial(self.store.append, stream) for stream in range(1, 4)], first, last)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request a segment and a task of its own, and some buckets."""
    monkeypatch.setattr("changeling_spark.tasks.SEGMENT_REQUESTS", 2)
    monkeypatch.setattr(pieces, "TASK_BYTES", 1)
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 1000)
