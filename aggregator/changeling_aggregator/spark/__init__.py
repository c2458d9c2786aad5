"""The fold on Apache Spark: executors open, check, drop duplicates and sum; the driver writes one transaction.

Executors run the embedded fold's own code, on parts of the log and then on parts of the ids.
"""
