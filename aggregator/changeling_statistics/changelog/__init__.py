"""Changelogs of a population, read from files, frames and rows, checked, replayed and filtered by time."""

from .columns import Changelog
from .mutations import Mutations
from .times import MICRO, Time

__all__ = ["MICRO", "Changelog", "Mutations", "Time"]
