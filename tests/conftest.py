"""Settings of the whole suite: Hypothesis tries the same examples each time, and minds no clock, as a busy machine
misses any time with nothing wrong. New examples: `pytest --hypothesis-profile default`.

One PostgreSQL runs for all tests that need one. A test that is marked as timed has three tries.
"""

import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.testing.services import PostgreSQL
from hypothesis import HealthCheck, settings

settings.register_profile("changeling", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("changeling")


MEMORY, MOST_FILES_BYTES = Path("/dev/shm"), 4 * 2**30


def pytest_configure() -> None:
    """Temporary folders lie in memory where it has room, and may hold programs: a process that is killed loses nothing
    there either, and no test waits for a disk."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MOST_FILES_BYTES
    if "TMPDIR" not in os.environ and roomy and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A bound on a clock says what can be reached: others had the machine if it is missed once, not if it always is.

    A socket that was open when its other end was killed is collected whenever that happens to be, mostly while another
    test runs: heavy ones, which kill so much, tell of it and do not fail. The others do.
    """
    for item in items:
        if item.get_closest_marker("heavy"):
            item.add_marker(pytest.mark.filterwarnings("default::ResourceWarning"))
        if item.get_closest_marker("timed"):
            item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """So with what is collected when the last test is over, which else fails them all."""
    if any(item.get_closest_marker("heavy") for item in session.items):
        with warnings.catch_warnings():
            warnings.simplefilter("default", ResourceWarning)
            gc.collect()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that tests which are coroutines run in."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A running server; each test asks it for a schema of its own."""
    with PostgreSQL() as server:
        yield server
