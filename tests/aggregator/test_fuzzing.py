"""Mutated bodies through all that reads what strangers send; `make soak` sends a hundred times as many."""

import sys

import pytest

from benchmarks.server_fuzzing import parsed


@pytest.mark.skipif(sys.platform != "linux", reason="atheris is for Linux")
def test_only_declared_errors_come_of_mutated_bodies_and_tallies_are_right() -> None:
    """Guided by coverage, with a fixed seed: what can be read is counted as a slow count of its own comes to."""
    figures = parsed(10_000, seed=1)
    assert figures["6_fuzzed_defects"] == 0
    assert figures["6_fuzzed_bodies"] == 10_000
    assert (figures["6_fuzzed_uploads_read"] or 0) > 100
    assert (figures["6_fuzzed_reports_compared"] or 0) > 50
