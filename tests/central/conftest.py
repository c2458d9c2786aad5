"""A changelog in a file, of which many releases are made: 20 entries, half of which leave again, on one day."""

import polars as pl
import pytest

from .examples import TEA


@pytest.fixture
def log(tmp_path):
    """Its file."""
    path = tmp_path / "log.csv"
    pl.DataFrame(TEA).write_csv(path)
    return path
