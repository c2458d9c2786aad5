"""Settings of the whole suite: Hypothesis sets no deadline, as a busy machine misses one with nothing wrong.

One PostgreSQL runs for all tests that need one.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from .postgres import PostgreSQL

settings.register_profile("changeling", deadline=None)
settings.load_profile("changeling")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A running server; each test asks it for a schema of its own."""
    with PostgreSQL() as server:
        yield server
