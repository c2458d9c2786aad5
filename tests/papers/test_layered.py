"""Layered maps, which hold the database of a dynamic release."""

import numpy as np
import pytest
from changeling_papers import Layered


@pytest.mark.parametrize("forget", [False, True])
def test_a_layered_map_is_the_dictionary_of_what_was_last_said(forget):
    """Through 500 random changes; older maps stay as they were; what is forgotten reads as what is gone."""
    random, truth, there, older = np.random.default_rng(7), {}, Layered(), []
    for _ in range(500):
        newer = {int(key): None if key % 3 == 0 else int(key) for key in random.integers(0, 200, 5)}
        older.append((there, dict(truth)))
        truth |= newer
        there = there.over(newer, forget)
        assert all(there.get(key) == truth.get(key) for key in range(200))
        held = {key: value for key, value in there.items() if value is not None}
        assert held == {key: value for key, value in truth.items() if value is not None}
        if not forget:
            assert {key for key in range(200) if key in there} == set(truth)
    for one, then in older:
        assert all(one.get(key) == then.get(key) for key in range(200))


def test_a_change_costs_what_it_changes_and_not_what_there_is():
    """20,000 keys, ten at a time: layers are few, and all that was ever copied is 20,000 times their number."""
    there, copied = Layered(), 0
    for first in range(0, 20_000, 10):
        before = {id(layer) for layer in there.layers}
        there = there.over({first + i: 1 for i in range(10)})
        copied += sum(len(layer) for layer in there.layers if id(layer) not in before)
        assert len(there.layers) <= 12
    assert copied <= 20_000 * 16
    assert len(dict(there.items())) == 20_000
