"""Transactions as objects: what can be read of one state of a store, and what can be written to it.

No caller meets a connection of the database: values go in, values come out.
"""

from .counted import ReadCounts
from .log import ReadLog, WriteLog
from .registry import ReadRegistry, WriteRegistry
from .runs import ReadRuns, WriteRuns
from .sealing_keys import ReadKeys, WriteKeys


class View(ReadRegistry, ReadKeys, ReadLog, ReadCounts, ReadRuns):
    """One state of a store, to read: what others commit meanwhile is not seen."""


class Transaction(WriteRegistry, WriteKeys, WriteLog, WriteRuns, View):
    """A transaction that may write: whole and on disk when it ends, and nothing of it where it raises."""
