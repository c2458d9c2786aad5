"""The server's store: tables, transactions, and what is read and written in them."""

from .counted import NodeKey
from .database import Store
from .log import LogEntry

__all__ = ["LogEntry", "NodeKey", "Store"]
