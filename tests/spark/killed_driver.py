"""A driver of a query that kills itself, and its Java process, where it is told: just before or after the store has a
batch. A program of its own. Arguments: the store, the cluster's URL, the shared place, the checkpoint, where.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Any

from changeling_aggregator.store import Store
from changeling_aggregator.testing import AFTER
from changeling_aggregator.testing.serving import offspring
from changeling_spark import ClusterSettings, SparkTrouble, runs
from changeling_spark.folding import SparkFold


def main(store: str, master: str, shared: str, checkpoint: str, where: str) -> None:
    hand_over = runs._hand_over

    def dying(*arguments: Any) -> None:
        if where == "before":
            die()
        hand_over(*arguments)
        if where == "after":
            die()

    runs._hand_over = dying
    opened = Store.open(store)
    engine = SparkFold(opened, ClusterSettings(master), shared, checkpoint)
    for _ in range(4):  # as `--follow` does where Spark fails
        with suppress(SparkTrouble):
            engine.await_start()
            engine.fold(AFTER, closing=False)
            break
    engine.close()
    opened.close()


def die() -> None:
    """All at once, so that Java does nothing more."""
    for each in [*offspring(os.getpid()), os.getpid()]:
        with suppress(ProcessLookupError):  # one that was ending by itself
            os.kill(each, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
