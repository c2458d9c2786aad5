"""The log outside of the database: Parquet segments in a folder or an object store. Knows no database and no HTTP."""

from .place import Place
from .places import checked_place, place_at

__all__ = ["Place", "checked_place", "place_at"]
