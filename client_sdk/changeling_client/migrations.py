"""From one version of the store's tables to the next, and back."""

import sqlite3

from . import schema
from .wrapping import Wrapping

READABLE = (schema.VERSION,)
"""The versions that are brought to the present one as a store is opened."""


def upgrade(connection: sqlite3.Connection, wrapping: Wrapping) -> None:
    """Brings the tables of an open file to the present version."""
