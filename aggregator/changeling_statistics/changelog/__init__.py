"""Changelogs of a population: read from files, frames and rows, checked, and replayed to any time."""

from .columns import Changelog
from .mutations import Mutations
from .reading import read_csv, read_frame, read_parquet, read_rows
from .times import MICRO, Time

__all__ = ["MICRO", "Changelog", "Mutations", "Time", "read_csv", "read_frame", "read_parquet", "read_rows"]
