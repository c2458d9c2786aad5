"""Threads take short turns while any of them folds, and the turns they had before once none does."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import permutations

import pytest
from changeling_aggregator.fold.short_turns import TURN_SECONDS, short_turns

THEIRS = 0.003


@pytest.fixture(autouse=True)
def turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(THEIRS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_turns_stay_short_until_the_last_fold_ends(order: tuple[int, ...]) -> None:
    """However three of them overlap; then they are what they were before the first."""
    folds = [ExitStack() for _ in range(3)]
    for fold in folds:
        fold.enter_context(short_turns.wanted())
    for ending in order:
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
        folds[ending].close()
    assert sys.getswitchinterval() == pytest.approx(THEIRS)


def test_turns_are_what_they_were_after_a_fold_that_fails() -> None:
    """An error in it changes nothing for those that come after."""
    with pytest.raises(OSError, match="disk"), short_turns.wanted():
        raise OSError("disk")
    assert sys.getswitchinterval() == pytest.approx(THEIRS)
