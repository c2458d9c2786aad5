"""What Spark itself counts of a session's disks: what its shuffles wrote, and what memory had no room for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Disks:
    """Of all stages of a session so far, in MiB.

    shuffled: what tasks handed to one another, all of which goes through files. spilled: what besides was put onto
    disks as it did not fit into an executor's memory.
    """

    shuffled: float
    spilled: float

    @classmethod
    def of(cls, spark: "SparkSession") -> Self:
        """As Spark's own store of figures has them."""
        gateway: Any = spark.sparkContext._gateway  # pyspark has no other way to them
        none = gateway.new_array(gateway.jvm.double, 0)
        kept = spark.sparkContext._jsc.sc().statusStore()
        found = kept.stageList(None, False, False, none, gateway.jvm.java.util.ArrayList())
        stages = [found.apply(at) for at in range(found.size())]
        return cls(
            sum(stage.shuffleWriteBytes() for stage in stages) / _MEBIBYTE,
            sum(stage.diskBytesSpilled() for stage in stages) / _MEBIBYTE,
        )

    def since(self, earlier: "Disks") -> "Disks":
        """What came after."""
        return Disks(self.shuffled - earlier.shuffled, self.spilled - earlier.spilled)


NOTHING = Disks(0, 0)
