"""What tests of this package, and of stores that somebody adds, are written with; nothing that runs imports it."""

from .store_contract import Opener, StoreContract
from .stores import SegmentedStore, counted_rows, sql

__all__ = ["Opener", "SegmentedStore", "StoreContract", "counted_rows", "sql"]
