"""Counters of a stream: the binary mechanism, streams without an end, pan-privacy, partitioning, sparse release."""
