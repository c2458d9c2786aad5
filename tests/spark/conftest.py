"""One real cluster for all tests that need one; they are skipped where there is no Java."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import WHY_NOT, SparkCluster, cluster


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers with a core each."""
    if WHY_NOT is not None:
        pytest.skip(WHY_NOT)
    folder: Path = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch, cluster(folder) as running:
        patch.setenv("SPARK_LOCAL_DIRS", str(folder / "driver"))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        yield running
