"""Every central mechanism keeps the contract."""

import inspect
from fractions import Fraction

import numpy as np
import pytest
from changeling_central import BadState, Law, Mechanism, Windows, all_offers, counting, sliding_windows
from changeling_central.testing import MechanismContract
from changeling_papers import (
    Assumed,
    BasicCounting,
    Evolving,
    InfiniteMechanism,
    LinearQueries,
    PanPrivateCounter,
    Partitioning,
    Protects,
    SparseVector,
    binary_mechanism,
    cum,
    fully_dynamic,
    hierarchy,
    sparse_release,
)
from changeling_protocol import AtMost, Calendar

from .mechanisms import ADULTS, EXAMPLES, OLD, SURE


class TestMechanisms(MechanismContract):
    """All that come with the package, and all that `changeling release` offers."""

    examples = EXAMPLES


def kinds(base):
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_mechanism_of_the_package_is_tried():
    """With an example of its own, each offer of `changeling release` included but those of a kind that is another's."""
    ours = {
        kind.__qualname__
        for kind in kinds(Mechanism)
        if kind.__module__.startswith(("changeling_central", "changeling_papers")) and not inspect.isabstract(kind)
    }
    assert ours == {type(example.mechanism).__qualname__ for example in EXAMPLES}
    offered = {offer.name for offer in all_offers() if offer.make.__module__.startswith("changeling")}
    assert {f"release, {name}" for name in offered - {"best", "dcr"}} <= {example.name for example in EXAMPLES}


ONE = Fraction(1)
A, B = counting(["a", "b"], ["a"], "a"), counting(["a", "b"], ["b"], "b")
TABLE, UNSURE = np.array([[1, 1, 0], [0, 1, 1]]), Assumed(Fraction(2), Fraction(9, 10))


def hdcr(query=A, calendar=Calendar(0, 1, 6), k=1):  # noqa: B008
    return hierarchy(query, calendar, AtMost(k), ONE, shape=(2, 2))


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
    "an endless stream of other queries": tuple(InfiniteMechanism(LinearQueries(TABLE * g), ONE) for g in (1, 2)),
    "a longer pan-private stream": (PanPrivateCounter(9, ONE), PanPrivateCounter(15, ONE)),
    "a longer partitioning": (Partitioning(ONE, periods=7), Partitioning(ONE, periods=100)),
    "another threshold": (SparseVector(9.0, ONE), SparseVector(-(10.0**9), ONE)),
    "a longer sparse release": tuple(sparse_release(BasicCounting(), Fraction(20), periods=t) for t in (7, 700)),
    "an evolving count of another query": tuple(Evolving(query, 3, ONE, SURE) for query in (ADULTS, OLD)),
    "an evolving count of more steps": tuple(Evolving(ADULTS, steps, ONE, UNSURE) for steps in (3, 4)),
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
