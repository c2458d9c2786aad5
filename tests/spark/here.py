"""Executors in this process, that do all that Spark's do one after the other: for what needs no Java to be tried."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from changeling_aggregator.store import IdFile
from changeling_spark.folding import Executors
from changeling_spark.inputs import Piece
from changeling_spark.tasks import LOTS, Run, count_lots, open_pieces


class Here(Executors):
    """most: the most lots in a batch."""

    host = bind = "127.0.0.1"

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self.buckets: list[int] = []
        """How many closings and ids, in bytes, each bucket of the last run had."""

    def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
        numbers = pa.RecordBatch.from_arrays([pa.array(range(len(tasks)))], names=["id"])
        lots = pa.Table.from_batches(open_pieces(run, tasks, iter([numbers])), LOTS)
        sizes = pa.compute.binary_length(lots["closings"]).to_numpy()
        bucket = lots["bucket"].to_numpy()
        self.buckets = [int(sizes[bucket == at].sum()) for at in range(run.spread.buckets)]
        for at in range(run.spread.buckets):
            of_bucket = lots.filter(pa.array(bucket == at)).combine_chunks()
            for batch in count_lots(run, iter(of_bucket.to_batches(self._most))):
                yield from batch.column(0).to_pylist()
