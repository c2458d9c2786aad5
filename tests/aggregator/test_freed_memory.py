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
np.ones(2**20).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    large, small = np.ones(2**20), np.ones(2**16)
    del large, small
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints how many pages the system had to clear for arrays of 8 MiB and half a MiB, made and freed 20 times."""


@pytest.mark.skipif(not keep_freed_memory(), reason="this system's C library cannot be told")
def test_what_is_freed_is_not_asked_of_the_system_again() -> None:
    """Arrays of 2000 pages, made twenty times, take little more than one of them: pages are counted, not seconds."""
    done = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5000
