"""What can go wrong in a fold on Spark.

AggregatorError
├── KeysWithheld       an executor could not get the run's private keys from the driver
└── SparkTrouble       the fold on Spark did not come to its end; nothing of it was kept
"""

from changeling_aggregator.errors import AggregatorError


class KeysWithheld(AggregatorError):
    """An executor could not get the run's private keys from the driver; the task is tried again elsewhere."""


class SparkTrouble(AggregatorError):
    """Spark, or Java, is missing or has failed; the log is as it was before, and can be folded again."""
