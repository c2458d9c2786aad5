"""What tests of this package, and of stores that somebody adds, are written with; nothing that runs imports it."""

from .stores import counted_rows, open_stream_at, sql

__all__ = ["counted_rows", "open_stream_at", "sql"]
