"""The fold on Apache Spark: executors open, check, drop duplicates and sum; the driver writes one transaction.

Executors run the embedded fold's own code, on parts of the log and then on parts of the ids. The server finds this
package by its entry point, `engine`, and imports nothing of it.
"""

from dataclasses import replace
from pathlib import Path

from changeling_aggregator.fold import EngineOptions, FoldEngine
from changeling_aggregator.segments import checked_place
from changeling_aggregator.store import Store

from .session import KeysWithheld, SparkTrouble, missing, spark_settings

__all__ = ["KeysWithheld", "SparkEngine", "SparkTrouble", "engine"]


class SparkEngine:
    """The engine `spark` of `changeling fold`."""

    def missing(self) -> str | None:
        """The name of what a driver lacks on this machine, and how to get it; None where nothing is missing."""
        return missing()

    def start(self, store: Store, options: EngineOptions) -> FoldEngine:
        """A fold on the cluster; its shared folder is made where there is none. Raises SparkTrouble or ValueError."""
        lacking = missing()
        if lacking is not None:
            raise SparkTrouble(lacking)
        from .runs import SparkFold  # whose libraries are not installed everywhere

        place = checked_place(options.shared)
        if "://" not in place:
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
        spark_settings(options)
        return SparkFold(store, replace(options, shared=place))


engine = SparkEngine()
