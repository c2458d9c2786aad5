"""Every registered randomizer keeps the contract; and those whose tallies can keep sums do so in either form."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from changeling_protocol import SignedSubset, register, registered
from changeling_statistics import NodeTally, counterpart_of, histogram_change, register_counterpart
from changeling_statistics.randomizers.counted import WithContents
from changeling_statistics.testing import FALSE_ALARM, RandomizerContract, expected_covariance, matrices, name
from scipy.stats import chisquare

from .randomizers import LARGER, RANDOMIZERS


class TestRandomizers(RandomizerContract):
    """All kinds that come with the packages."""

    small, larger = RANDOMIZERS, LARGER


SUMMED = [
    replace(counterpart, most_counted=0)
    for counterpart in map(counterpart_of, [*RANDOMIZERS, *LARGER])
    if isinstance(counterpart, WithContents)
]
"""Counterparts whose tallies keep sums of contents, however small the alphabet."""


def test_every_registered_kind_is_tried():
    """With examples of its own, above."""
    ours = {kind for kind in registered().values() if kind.__module__.startswith("changeling_")}
    assert ours == {type(randomizer) for randomizer in RANDOMIZERS}


def test_a_name_and_a_class_are_registered_once():
    """Another class under a wire name, or another counterpart of a class, is refused."""
    with pytest.raises(ValueError, match="'signed-subset' is taken by SignedSubset"):
        register(type("Other", (), {"kind": "signed-subset"}))
    with pytest.raises(ValueError, match="SignedSubset has a counterpart already"):
        register_counterpart(SignedSubset, counterpart_of)


def test_nothing_is_known_of_unknown_randomizers():
    """They are named, whatever is asked of them."""
    for ask in (counterpart_of, lambda r: histogram_change(NodeTally(1, np.ones(1, np.int64)), r)):
        with pytest.raises(TypeError, match="object"):
            ask(object())


def test_a_covariance_is_a_bound_only_where_symbols_cannot_tell_it():
    """Signed subsets that never say nothing, or balanced over an even number of states, and custom matrices like
    them."""
    for randomizer in [*RANDOMIZERS, *LARGER]:
        even = isinstance(randomizer, SignedSubset) and randomizer.pluses == 0 and randomizer.states in range(4, 99, 2)
        always = isinstance(randomizer, SignedSubset) and randomizer.spoken == 1
        found = counterpart_of(randomizer).estimate(counterpart_of(randomizer).tally(np.zeros(1, np.uint64)))
        assert found.upper_bound == (always or even or randomizer is RANDOMIZERS[-1]), name(randomizer)


@pytest.mark.parametrize("summed", SUMMED, ids=lambda counterpart: name(counterpart.randomizer))
def test_sums_decode_as_counts_do(summed):
    """The same values, for states the same covariance too, which for signed subsets is a bound; and of a million
    sampled entries the change within six of its exact standard deviations."""
    assert expected_covariance(summed) == isinstance(summed.randomizer, SignedSubset)
    randomizer = summed.randomizer
    symbols = np.random.default_rng(1).integers(0, randomizer.symbols, 300).astype(np.uint64)
    counting = counterpart_of(randomizer)
    by_count = counting.estimate(counting.tally(symbols))
    node = summed.tally(symbols)
    assert len(node.slots) == summed.slots
    by_sum = summed.estimate(node)
    np.testing.assert_allclose(by_sum.values, by_count.values, atol=1e-9)
    if not isinstance(randomizer, SignedSubset):
        np.testing.assert_allclose(by_sum.covariance, by_count.covariance, rtol=1e-9, atol=1e-9)
    assert summed.squares(node) is None
    np.testing.assert_array_equal(summed.changed([node]), counting.changed([counting.tally(symbols)]))
    size = randomizer.space.size
    counts = np.random.default_rng(9).integers(0, 2 * 10**6 // size, size)
    node, (_, M) = summed.sample(counts, np.random.default_rng(10)), matrices(randomizer)
    exact = sum(count * summed.report_covariance(u) for u, count in enumerate(counts))
    assert np.all(np.abs(summed.estimate(node).values - M @ counts) < 6 * np.sqrt(np.diag(exact)))
    assert node.reports == counts.sum()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "summed", [s for s in SUMMED if s.randomizer.symbols <= 8], ids=lambda counterpart: name(counterpart.randomizer)
)
def test_sums_of_two_entries_have_their_exact_distribution(summed):
    """Every outcome of two reports enumerated, 1,000 tallies sampled: chi-squared, rare outcomes taken together."""
    randomizer = summed.randomizer
    P, _ = matrices(randomizer)
    n, size = 1000, randomizer.space.size
    generator = np.random.default_rng(8)
    for u, v in {(0, size - 1), (size // 2, size - 1)}:
        exact: dict[tuple[int, ...], float] = {}
        for o, p in product(range(randomizer.symbols), repeat=2):
            said = tuple(summed.content_sums(np.array([o, p], np.uint64)).tolist())
            exact[said] = exact.get(said, 0) + P[o, u] * P[p, v]
        counts = np.bincount([u, v], minlength=size)
        seen = Counter(tuple(summed.sample(counts, generator).slots.tolist()) for _ in range(n))
        assert set(seen) <= set(exact)
        often = [said for said, chance in exact.items() if n * chance >= 5]
        observed = [seen[said] for said in often]
        expected = [n * exact[said] for said in often]
        if len(often) < len(exact):
            observed.append(n - sum(observed))
            expected.append(n - sum(expected))
        assert chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM


ALIKE = {
    (
        s.randomizer.kind,
        s.randomizer.space.null,
        s.randomizer.space.answers > 2,
        getattr(s.randomizer, "pluses", getattr(s.randomizer, "chosen", None)),
    ): s
    for s in SUMMED
    if hasattr(s.randomizer, "agrees")
}
"""One of those that differ in odds and by a few answers alone, which say nothing of what agrees."""


@pytest.mark.parametrize("summed", ALIKE.values(), ids=lambda counterpart: name(counterpart.randomizer))
def test_sums_of_reports_that_agree_or_do_not_are_distributed_as_counts_are(summed):
    """Of both: the mean over 500 draws, and the mean of products, within six of their standard errors of each
    other; per draw three reports of each of two inputs, and two of the base."""
    counting, size, draws = counterpart_of(summed.randomizer), summed.randomizer.space.size, 500
    agreed, others = np.zeros((2, size), np.int64)
    agreed[[size - 1, 1]], others[[size - 1, size // 2]] = (2, 1), (1, 2)
    if size == 2 and summed.randomizer.space.reports_changes:
        agreed[0] = others[0] = 0
    generator, w = np.random.default_rng(12), counting.all_contents
    parts = [w > 0, w < 0] if isinstance(summed.randomizer, SignedSubset) else [w > 0]
    quiet = [w.any(1, keepdims=True) == 0] if isinstance(summed.randomizer, SignedSubset) else []
    said = np.hstack([*quiet, *parts]).astype(float)
    sums, counts = [], []
    for _ in range(draws):
        sums.append(summed.sample_joint(agreed, others, 2, generator).slots)
        counts.append(counting.sample_joint(agreed, others, 2, generator).slots @ said)
    for moment in (lambda x: x, lambda x: (x[:, :, None] * x[:, None, :]).reshape(draws, -1)):
        one, other = (moment(np.array(drawn, float)) for drawn in (sums, counts))
        spread = np.sqrt((one.var(0) + other.var(0)) / draws)
        assert np.all(np.abs(one.mean(0) - other.mean(0)) <= 6 * spread + 1e-9)
