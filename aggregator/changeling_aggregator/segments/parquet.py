"""What lies at a place: segments of the log and the ids that were counted, as Parquet files."""

from .form import Row, check_rows, decoded, encoded, rows_after
from .id_files import read_ids, write_ids

__all__ = ["Row", "check_rows", "decoded", "encoded", "read_ids", "rows_after", "write_ids"]
