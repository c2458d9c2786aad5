"""Every central mechanism with inputs for all its steps, small and quick; several of a kind where forms differ."""

from fractions import Fraction

import numpy as np
from changeling_central import (
    Asked,
    Law,
    PeriodChange,
    Windows,
    counting,
    histogram_query,
    sliding_windows,
    square_root,
)
from changeling_central import offered as offer_of
from changeling_central.testing import Example
from changeling_papers import (
    Algebra,
    Assumed,
    BasicCounting,
    Benchmark,
    Born,
    Domain,
    Evolving,
    HierarchyRelease,
    InfiniteMechanism,
    IntervalTree,
    LinearQueries,
    Metered,
    MultiplicativeWeights,
    OnlineCounting,
    PanPrivateCounter,
    Partitioning,
    Protects,
    Query,
    SigmaCounting,
    SparseVector,
    StreamSegment,
    Update,
    binary_mechanism,
    cum,
    fully_dynamic,
    grouped,
    hierarchy,
    insertion_minus_deletion,
    sparse_release,
)
from changeling_protocol import AtMost, Calendar
from changeling_statistics import read_rows

ONE, SMALL = Fraction(1), Fraction(1, 10**6)


def nothing(release):  # noqa: ARG001
    """For releases that are no truth with noise of a known variance."""
    return []


def of_nodes(release):
    return [value for node in release for value in node.values]


def of_level(level):
    return level.values


COUNT, HISTOGRAM = counting(["a", "b"], ["a"], "a"), histogram_query(["a", "b"], ["a", "b"])
CALENDAR, TWICE = Calendar(0, 1, 6), AtMost(2)
TABLE = np.array([[1, 1, 0], [0, 1, 1]])


def changes(*pairs):
    return [np.array(pair, np.int64) for pair in pairs]


def hdcr(epsilon=ONE, **given):
    return hierarchy(HISTOGRAM, CALENDAR, TWICE, epsilon, shape=(2, 3), **given)


def swcr(epsilon=ONE):
    return sliding_windows(COUNT, Windows(0, 4, 2, 3), TWICE, epsilon)


PAIRS = changes((3, 0), (-1, 2), (0, 0), (5, -2), (1, 1), (0, 7))
BAD_CHANGES = [np.array([1.5, 2]), np.array([1]), None]

OF_CHANGES = [
    Example("hdcr", hdcr(), PAIRS, bad=BAD_CHANGES, other=hdcr(Fraction(2)), numbers=of_nodes),
    Example(
        "swcr", swcr(), changes(*[(t,) for t in range(4)]), bad=BAD_CHANGES[:1], other=swcr(ONE / 2), numbers=of_nodes
    ),
]

OF_LEVELS = [
    Example(
        "square root, banded",
        square_root(HISTOGRAM, CALENDAR, TWICE, ONE, SMALL, band=3),
        PAIRS,
        delta=SMALL,
        bad=BAD_CHANGES,
        numbers=of_level,
    ),
    Example(
        "fresh, gaussian",
        offer_of("fresh").made(Asked(HISTOGRAM, CALENDAR, TWICE, ONE, SMALL, Law.GAUSSIAN)),
        PAIRS,
        delta=SMALL,
        bad=BAD_CHANGES,
        numbers=of_level,
    ),
]

STEPS = [0, 3, 1, 0, 2, 5, 1]
ROWS = [np.array(row) for row in ([0, 1, 0], [2, 0, 1], [0, 0, 0], [1, 1, 1], [4, 0, 2])]
GAUSSIAN = LinearQueries(TABLE, law=Law.GAUSSIAN)

OF_STREAMS = [
    Example("binary", cum(7, ONE), STEPS, bad=[0.5, None], other=cum(7, Fraction(2))),
    Example("binary, root", binary_mechanism(LinearQueries(TABLE), 5, ONE, root=True), ROWS, bad=[ROWS[0][:2]]),
    Example(
        "infinite",
        InfiniteMechanism(BasicCounting(), ONE),
        STEPS,
        ends=False,
        bad=["3"],
        other=InfiniteMechanism(BasicCounting(), ONE / 3),
    ),
    Example("pan-private", PanPrivateCounter(7, ONE), STEPS, bad=[0.5, 2**70], other=PanPrivateCounter(7, Fraction(2))),
    Example("partitioning", Partitioning(ONE, periods=7), STEPS, bad=[-1, 0.5], numbers=nothing),
    Example("partitioning for ever", Partitioning(Fraction(9)), STEPS, Fraction(9), ends=False, numbers=nothing),
    Example("sparse vector", SparseVector(9.0, ONE), [0, -5, 10**6], bad=[0.5], numbers=nothing),
    Example("sparse release", sparse_release(BasicCounting(), ONE * 20, periods=7), [(n,) for n in STEPS], ONE * 20),
    Example(
        "sparse release for ever",
        sparse_release(GAUSSIAN, ONE, SMALL),
        [(row,) for row in ROWS],
        delta=SMALL,
        ends=False,
    ),
]

UPDATES = [
    [Update("a", 0), Update("b", 2)],
    [],
    [Update("a", None), Update("c", 1), Update(4, 1)],
    [Update(n, n % 3) for n in range(10, 40)],
    [Update("b", None), Update("c", None)],
]
SEGMENTS = [
    StreamSegment([0, 1, 1]),
    StreamSegment([2], [Born(1, 1)]),
    StreamSegment(),
    StreamSegment([0, 0], [Born(0, 1), Born(2, 2)]),
]
CAME_AND_WENT = [(np.array([2, 0, 1]), np.array([0, 0, 0])), (np.array([0, 9, 0]), np.array([1, 0, 1]))] * 3
DYNAMIC = LinearQueries(TABLE)


def dynamic(epsilon=Fraction(50), periods=5, **given):
    return fully_dynamic(DYNAMIC, epsilon, periods=periods, **given)


OF_WHAT_COMES_AND_GOES = [
    Example(
        "dynamic",
        dynamic(),
        UPDATES,
        Fraction(50),
        beyond=[],
        bad=[[Update("x", None)], [Update("x", 3)]],
        other=dynamic(ONE),
    ),
    Example("dynamic, entries", dynamic(ONE, protects=Protects.ENTRY), UPDATES, beyond=[]),
    Example("dynamic for ever", fully_dynamic(GAUSSIAN, ONE, SMALL), UPDATES, delta=SMALL, ends=False),
    Example(
        "insertions less deletions",
        insertion_minus_deletion(DYNAMIC, Fraction(30), periods=6),
        CAME_AND_WENT,
        Fraction(30),
        bad=[(ROWS[0], ROWS[0][:1])],
    ),
    Example(
        "interval tree",
        IntervalTree(DYNAMIC, ONE),
        SEGMENTS,
        ends=False,
        bad=[StreamSegment([], [Born(0, 1)])],
        numbers=nothing,
    ),
]


def once(static, epsilon=ONE, delta=Fraction(0)):
    return Metered(static, epsilon, epsilon, delta, delta)


GAUSSIAN_COUNT, WEIGHTS = BasicCounting(Law.GAUSSIAN), MultiplicativeWeights(TABLE)
OF_ONE_DATASET = [
    Example("counting, once", once(BasicCounting()), [12], bad=[0.5], other=once(BasicCounting(), ONE / 2)),
    Example(
        "counting, metered",
        Metered(BasicCounting(), ONE, ONE / 3),
        [12, 12, 0],
        bad=[0.5],
        other=Metered(BasicCounting(), ONE * 2, ONE / 3),
    ),
    Example("queries, once", once(DYNAMIC), ROWS[:1], bad=[ROWS[0][:2]]),
    Example("queries, gaussian", once(GAUSSIAN, ONE, SMALL), ROWS[:1], delta=SMALL),
    Example("weights, once", once(WEIGHTS), [np.array([50, 3, 20])], bad=[ROWS[0][:2]]),
    Example("weights, a delta", once(WEIGHTS, ONE, SMALL), [np.array([9, 3, 2])], delta=SMALL),
]

DOMAIN = Domain.of(age=range(5), city=["P", "R"])
PEOPLE = DOMAIN.table({"age": [0, 1, 2, 4, 4], "city": ["P", "R", "R", "P", "R"]})
STRANGERS = Domain.of(age=range(5)).table({"age": [0, 1]})
ADULTS, ROMANS, OLD = (Query.of(DOMAIN, text) for text in ("age >= 2", "city == 'R'", "age == 4 and city == 'R'"))
ALGEBRA = Algebra.of([ADULTS, ROMANS])
SURE = Assumed(Fraction(2), Fraction(1))

OF_ONE_TABLE = [
    Example(
        "sigma-counting", SigmaCounting(ALGEBRA, ONE), [PEOPLE], bad=[STRANGERS], other=SigmaCounting(ALGEBRA, ONE / 2)
    ),
    Example("grouped", grouped([ADULTS, ROMANS, OLD], ONE), [PEOPLE], bad=[STRANGERS]),
    Example(
        "benchmark",
        Benchmark(ONE, ONE / 3),
        [(PEOPLE, ADULTS), (PEOPLE, ROMANS), (PEOPLE, ADULTS)],
        bad=[(STRANGERS, ADULTS)],
        numbers=lambda answer: [answer.estimate],
    ),
    Example(
        "online",
        OnlineCounting(DOMAIN, ONE, ONE / 3),
        [(PEOPLE, ADULTS), (PEOPLE, ROMANS), (PEOPLE, ADULTS), (PEOPLE, OLD)],
        ends=False,  # what was asked is answered again
        bad=[(STRANGERS, ADULTS)],
        other=OnlineCounting(DOMAIN, Fraction(2), ONE / 3),
    ),
    Example("evolving", Evolving(ADULTS, 3, ONE, SURE), [PEOPLE, PEOPLE, PEOPLE], bad=[STRANGERS]),
]

ROWS_OF_ENTRIES = [("e", 0.5, "a"), ("f", 1.5, "b"), ("e", 2.5, "b"), ("g", 3.5, "a"), ("f", 4.5, ""), ("h", 4.6, "a")]
LOG = read_rows(ROWS_OF_ENTRIES, answers=["a", "b"])


def periods_of(query):
    return [PeriodChange(LOG, part, query) for part in LOG.mutations().by_period(0, 1, CALENDAR.periods)]


def offered(name, query=HISTOGRAM, epsilon=ONE, delta=Fraction(0), **wished):
    return offer_of(name).made(Asked(query, CALENDAR, TWICE, epsilon, delta, **wished))


def of_release(name, delta=Fraction(0), **more):
    """A mechanism of `changeling release`, and the same at twice the epsilon."""
    window = {"window": 3} if name == "swcr" else {}
    made, other = (offered(name, epsilon=epsilon, delta=delta, **window) for epsilon in (ONE, ONE * 2))
    return Example(f"release, {name}", made, periods_of(HISTOGRAM), delta=delta, other=other, numbers=of_level, **more)


RELEASED = [
    *(of_release(name, bad=BAD_CHANGES) for name in ("ahead", "fresh", "optimised")),
    *(of_release(name) for name in ("counter", "partitioning", "dynamic", "swcr")),
    of_release("square-root", SMALL),
    Example(
        "release, hdcr",
        HierarchyRelease(hdcr()),
        periods_of(HISTOGRAM),
        bad=BAD_CHANGES,
        other=HierarchyRelease(hdcr(ONE * 2)),
        numbers=of_level,
    ),
    Example("release, infinite", offered("infinite"), periods_of(HISTOGRAM), ends=False, numbers=of_level),
]

EXAMPLES = [*OF_CHANGES, *OF_LEVELS, *OF_STREAMS, *OF_WHAT_COMES_AND_GOES, *OF_ONE_DATASET, *OF_ONE_TABLE, *RELEASED]
