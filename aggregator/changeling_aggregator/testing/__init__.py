"""What tests of this package, and of stores that somebody adds, are written with; nothing that runs imports it."""

from .store_contract import Opener, StoreContract
from .stores import counted_rows, open_stream_at, sql

__all__ = ["Opener", "StoreContract", "counted_rows", "open_stream_at", "sql"]
