"""The Spark session of a fold, and its settings: what bounds an executor's memory, and what keeps answers off disks.

Blocks that Spark writes to disk, as a shuffle's and what does not fit into memory, hold opened reports: Spark encrypts
them, under a key of the application. Unless it is asked for, nothing is logged, and no history of the application is
written.
"""

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from changeling_aggregator.errors import AggregatorError, FoldOver
from changeling_aggregator.fold import EngineOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = ("changeling_aggregator.errors.", "changeling_spark.keys.")
_FIXED = {
    "spark.io.encryption.enabled": "true",
    "spark.redaction.regex": "(?i)secret|password|token|key",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "false",
}
"""Settings that nobody changes: they encrypt what lies on disks, keep secrets out of pages, and bound memory."""
_DEATH_SECONDS = 1.0
"""How long after its last word a Java process may still be there."""
NEEDS = 'the fold on Spark needs its library: pip install "changeling[spark]"'
NEEDS_JAVA = "the fold on Spark needs Java 17: install a Java runtime, or set JAVA_HOME"


class SparkTrouble(AggregatorError):
    """Spark, or Java, is missing or has failed; the log is as it was before, and can be folded again."""


def missing() -> str | None:
    """The name of what a driver lacks here, and how to get it; None where nothing is missing."""
    from importlib.util import find_spec

    if any(find_spec(each) is None for each in ("pyspark", "pyarrow")):
        return NEEDS
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java") is None:
        return NEEDS_JAVA
    return None


@contextmanager
def session(cluster: EngineOptions) -> "Iterator[SparkSession]":
    """A session on the cluster for as long as the context lasts. Raises SparkTrouble."""
    lacking = missing()
    if lacking is not None:
        raise SparkTrouble(lacking)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(cluster.master).appName("changeling fold").config(map=spark_settings(cluster))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Spark's own, as of a native library that is not there
            spark = builder.getOrCreate()
    except (Py4JError, PySparkException, OSError, RuntimeError) as error:
        raise SparkTrouble(f"Spark at {cluster.master} cannot be used: {first_line(error)}") from None
    if spark.sparkContext.getConf().get("spark.io.encryption.enabled") != "true":
        raise SparkTrouble("Spark does not encrypt what it writes: a session that is not ours runs in this process")
    try:
        spark.sparkContext.setLogLevel(str(spark_settings(cluster)["spark.log.level"]))
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # its Java process may have died
            spark.stop()


def see_alive(spark: "SparkSession", seconds: float = 0.0) -> None:
    """Raises FoldOver where the session's Java process has died, or dies within so many seconds."""
    java = getattr(spark.sparkContext._gateway, "proc", None)
    if isinstance(java, subprocess.Popen):
        with suppress(subprocess.TimeoutExpired):
            java.wait(seconds)
            raise FoldOver("Spark's Java process beside this one has died: run the command again, nothing is lost")


def end_java() -> None:
    """Kill the Java process of this one, if it has one: a session that is being started ends at once."""
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if isinstance(java, subprocess.Popen):
        java.kill()


def trouble_of(spark: "SparkSession", error: BaseException) -> AggregatorError:
    """The error to raise where Spark has raised one: FoldOver where the session's Java process has died."""
    try:
        see_alive(spark, _DEATH_SECONDS)
    except FoldOver as over:
        return over
    return SparkTrouble(f"the fold on Spark has failed, and changed nothing: {first_line(error)}")


def is_stopped(spark: "SparkSession") -> bool:
    """Tell whether Spark has ended the session by itself, as where its master is gone for good."""
    from py4j.protocol import Py4JError

    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def first_line(error: BaseException) -> str:
    """The words of an error of Spark's: the sentence of ours that a task ended with, or its first line; no trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = (line.removeprefix(module) for line in lines for module in _OURS if line.startswith(module))
    return next(ours, lines[0] if lines else type(error).__name__)[:300]


def spark_settings(cluster: EngineOptions) -> dict[str, bool | float | int | str | None]:
    """All settings of the session, by Spark's names.

    Raises ValueError where one that was given is none of Spark's, or one that the fold depends on.
    """
    given: dict[str, str] = {}
    for setting in cluster.conf:
        name, equals, given[name] = setting.partition("=")
        if not (equals and name.startswith("spark.")):
            raise ValueError(f"a setting of Spark is spark.NAME=VALUE, got {name!r}")
        if name in _FIXED:
            raise ValueError(f"{name} is fixed: the fold, or what keeps its data secret, depends on it")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.executor.memory": cluster.executor_memory,
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.log.level": "OFF",
    }
    return settings | given | _FIXED
