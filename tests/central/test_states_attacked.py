"""A saved state goes to the mechanism that wrote it, or to none: states of others, and states with damaged parts."""

from collections.abc import Iterator
from copy import deepcopy
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from changeling_central import BadState, CentralError, Law, Windows, counting, hierarchy, sliding_windows
from changeling_central.testing import SeededNoise
from changeling_papers import (
    BasicCounting,
    InfiniteMechanism,
    LinearQueries,
    PanPrivateCounter,
    Partitioning,
    Protects,
    SparseVector,
    binary_mechanism,
    cum,
    fully_dynamic,
    sparse_release,
)
from changeling_protocol import AtMost, Calendar

from tests.contracts.mechanisms import EXAMPLES

ONE = Fraction(1)
A, B = counting(["a", "b"], ["a"], "a"), counting(["a", "b"], ["b"], "b")
TABLE = np.array([[1, 1, 0], [0, 1, 1]])


def hdcr(query=A, calendar=Calendar(0, 1, 6), k=1):  # noqa: B008
    return hierarchy(query, calendar, AtMost(k), ONE, layers=2)


def swcr(k):
    return sliding_windows(A, Windows(0, 4, 2, 3), AtMost(k), ONE)


def dynamic(protects):
    return fully_dynamic(BasicCounting(), ONE, periods=5, protects=protects)


ALIKE = {
    "a hierarchy of entries that mutate oftener": (hdcr(), hdcr(k=3)),
    "a hierarchy of another query": (hdcr(), hdcr(query=B)),
    "a hierarchy of another calendar": (hdcr(), hdcr(calendar=Calendar(0, 2, 6))),
    "windows of entries that mutate oftener": (swcr(1), swcr(3)),
    "a longer stream": (cum(9, ONE), cum(200, ONE)),
    "a stream of other queries": tuple(
        binary_mechanism(LinearQueries(t), 5, ONE) for t in (TABLE, np.ones_like(TABLE))
    ),
    "an endless stream of a finer grain": tuple(InfiniteMechanism(LinearQueries(TABLE, g), ONE) for g in (1, 2)),
    "a longer pan-private stream": (PanPrivateCounter(9, ONE), PanPrivateCounter(15, ONE)),
    "a longer partitioning": (Partitioning(ONE, periods=7), Partitioning(ONE, periods=100)),
    "another threshold": (SparseVector(9.0, ONE), SparseVector(-(10.0**9), ONE)),
    "a longer sparse release": tuple(sparse_release(BasicCounting(), Fraction(20), periods=t) for t in (7, 700)),
    "entries and not updates": (dynamic(Protects.ENTRY), dynamic(Protects.UPDATE)),
    "other noise": tuple(
        hierarchy(A, Calendar(0, 1, 6), AtMost(1), ONE, Fraction(1, 10**6), law=law)
        for law in (Law.LAPLACE, Law.GAUSSIAN)
    ),
}
"""Two mechanisms of one kind, budget and shape of state, whose noise, query or end differs."""


@pytest.mark.parametrize("name", ALIKE)
def test_a_state_of_the_same_shape_is_refused_by_a_mechanism_made_otherwise(name):
    """What was released under the one would count at the other's price, or be added to another query's."""
    one, other = ALIKE[name]
    for writer, reader in ((one, other), (other, one)):
        assert writer.guarantee == reader.guarantee or name.startswith("entries and")
        with pytest.raises(BadState, match="is of"):
            reader.resumed(writer.saved(writer.start()))


NASTY = (float("nan"), float("inf"), -1, 0, 1, 7, 10**5, 2**63 - 1, 2**64 - 1, -(2**63), 1.5, True, None, "", "1/0", [])


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all scalars of plain fields."""
    if isinstance(value, dict | list | tuple):
        for at, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(each, (*path, at))
    elif not isinstance(value, msgspec.msgpack.Ext):
        yield path


def changed(fields: Any, path: tuple[Any, ...], value: object) -> Any:
    copy = deepcopy(fields)
    part = copy
    for at in path[:-1]:
        part = part[at]
    part[path[-1]] = value
    return copy


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_state_with_a_part_that_is_none_is_refused_or_steps_as_any_other(example):
    """Each number of a state that is under way, changed to what a file may hold: a BadState, a refusal or a release."""
    mechanism, state, noise = example.mechanism, example.mechanism.start(), SeededNoise(2)
    half = max(1, len(example.values) // 2)
    for value in example.values[:half]:
        state, _ = mechanism.step(state, value, noise)
    identity, fields = msgspec.msgpack.decode(mechanism.saved(state))
    for path in [*parts(fields)][:40]:
        for value in NASTY:
            encoded = msgspec.msgpack.encode((identity, changed(fields, path, value)))
            try:
                resumed = mechanism.resumed(encoded)
                after, _ = mechanism.step(resumed, example.values[min(half, len(example.values) - 1)], SeededNoise(9))
                mechanism.saved(after)
            except (CentralError, ValueError):
                continue
