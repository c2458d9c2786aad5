"""Changelogs of a population: read from files, frames and rows, checked, and replayed to any time."""

from .columns import Changelog
from .form import Columns
from .mutations import Mutations
from .reading import read_csv, read_frame, read_parquet, read_rows
from .times import MICROSECONDS, Time

__all__ = [
    "MICROSECONDS",
    "Changelog",
    "Columns",
    "Mutations",
    "Time",
    "read_csv",
    "read_frame",
    "read_parquet",
    "read_rows",
]
