"""Changelogs of a population, read from files, frames and rows, checked, replayed and filtered by time."""

from .columns import MICRO, Changelog
from .mutations import Mutations
from .times import Time

__all__ = ["MICRO", "Changelog", "Mutations", "Time"]
