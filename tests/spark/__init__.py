"""The fold on Spark: what its tasks do, without Java; and all of it on a real cluster."""
