"""Memory that a fold frees is there for its next arrays."""

import subprocess
import sys

import pytest
from changeling_aggregator.fold.freed_memory import keep_freed_memory

TOLD = """
import resource
import numpy as np
from changeling_aggregator.fold.freed_memory import keep_freed_memory
assert keep_freed_memory()
some = [np.ones(2**20) for _ in range(8)]
del some
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    some = [np.ones(2**20) for _ in range(8)]
    del some
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints how many pages the system had to clear for eight arrays of 8 MiB, made and freed ten times more."""


@pytest.mark.skipif(not keep_freed_memory(), reason="this system's C library cannot be told")
def test_what_is_freed_is_not_asked_of_the_system_again() -> None:
    """Eighty arrays of 2000 pages take few pages more than the eight before them: pages are counted, not seconds."""
    done = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5000
