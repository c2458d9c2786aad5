"""The unit costs that `changeling-sim capacity` multiplies: those of one machine, as the benchmarks measured them.

`python -m benchmarks scale scale_capacity` and `make bench-costs` measure them anew.
"""

from .costs import AnswerCost, Cost, ObjectCost, SparkCosts, UnitCosts
from .design import Design

ENVELOPE_BYTES = 112.0
"""Of an upload that was measured."""

STORE = UnitCosts(
    accept=Cost(0.01, 110e-6),
    opening=Cost(0.02, 85e-6),
    counting=Cost(0.03, 4.5e-6),
    stored=Cost(540e3, 176.0),
    server_memory=Cost(132e6, 0.5),
    fold_memory=Cost(127e6, 60.0),
)
"""SQLite, rounded, between what an idle machine and a busy one took."""

SEGMENTS = UnitCosts(
    accept=Cost(0.01, 105e-6),
    opening=Cost(0.02, 85e-6),
    counting=Cost(0.03, 4.5e-6),
    stored=Cost(540e3, 170.0),
    server_memory=Cost(132e6, 0.5),
    fold_memory=Cost(127e6, 60.0),
)
"""Segments in a folder, as much above what was measured as STORE; in a bucket each object adds what OBJECT says."""

OBJECT = ObjectCost(written=2.0e-3, read=2.3e-3)
"""Of a bucket, with 15 uploads in each."""

SPARK = SparkCosts(run=1.5, envelope=115e-6, closing=3.3e-6, id=1.4e-6, shuffled=27.0, shuffled_id=18.0, memory=1.6e9)
"""Two workers of one core, on a machine so busy that it did everything in more processor time than alone. memory: of
Java as `--executor-memory` bounds it, and of Python."""

KEY = AnswerCost(390e-6, 510.0)
"""To a device that asks for the sealing key."""
RESULT = AnswerCost(1.3e-3, 1200.0)
"""To a reader, of a change that was asked for before since it last changed."""

UNITS = {Design.STORE: STORE, Design.SEGMENTS: SEGMENTS, Design.SPARK: SEGMENTS}
"""What accepting and storing take by design, and folding where it is not Spark that folds."""
