"""What every randomizer must satisfy: device's half, aggregator's half and aggregated sampler, by enumeration."""

from collections import Counter
from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from changeling_protocol import Coins, SignedSubset, SubsetSelection, Track, UnaryEncoding
from changeling_protocol.randomizers import randomizer_as_fields, randomizer_from_fields, symbol_bytes
from changeling_protocol.upload import Report, _columns, read_columns
from changeling_simulations.sampler import sample_tally
from changeling_statistics import tallies
from changeling_statistics.estimation import histogram_change
from changeling_statistics.estimation.report_variance import mean_report_variance, report_covariance
from changeling_statistics.tallies import NodeTally, content_sums, slot_count, tally
from scipy.stats import chi2_contingency, chisquare

from tests.enumeration import log_from_below

from .randomizers import LARGER, RANDOMIZERS, matrices, name, one_report, possible, worst_fraction

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the chi-squared tests below, were its seed drawn anew."""

WITH_CONTENTS = [r for r in [*RANDOMIZERS, *LARGER] if isinstance(r, SignedSubset | SubsetSelection | UnaryEncoding)]

every = pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=name)
every_and_larger = pytest.mark.parametrize("randomizer", [*RANDOMIZERS, *LARGER], ids=name)
both_forms = pytest.mark.parametrize("randomizer", WITH_CONTENTS, ids=name)


@pytest.fixture
def sums(monkeypatch):
    """Tallies keep sums of contents, however small the alphabet."""
    monkeypatch.setattr(tallies, "MOST_COUNTED_SYMBOLS", 0)


@every
def test_the_sampler_has_exactly_the_stated_probabilities(randomizer):
    """Of all integers below the total each symbol is selected by exactly its weight, and the weights add up."""
    for true in range(randomizer.space.size):
        total = randomizer.total(true)
        counted = Counter(randomizer.symbol_at(drawn, true) for drawn in range(total))
        weights = {symbol: randomizer.weight(symbol, true) for symbol in range(randomizer.symbols)}
        assert counted == {symbol: weight for symbol, weight in weights.items() if weight}
        assert sum(weights.values()) == total


@every_and_larger
def test_a_response_is_the_symbol_of_one_integer_below_the_total(randomizer):
    """So the coins of a report decide it, and nothing else does."""
    for true in range(randomizer.space.size):
        for key in range(20):
            response = randomizer.respond(true, Coins(bytes(32), bytes([key])))
            drawn = Coins(bytes(32), bytes([key])).below(randomizer.total(true))
            assert response == randomizer.symbol_at(drawn, true)
            assert 0 <= response < randomizer.symbols


@every_and_larger
def test_the_losses_are_the_enumerated_ones_rounded_up(randomizer):
    """By kind of the two inputs: never below the largest log ratio over all symbols, and above by less than 1e-40."""
    space, losses = randomizer.space, randomizer.losses
    inputs = possible(space)
    mutations = [u for u in inputs if u] if space.reports_changes else inputs
    still = [0] if space.reports_changes else inputs
    insertions = [u for u in mutations if space.pair(u)[0] == 0]
    for stated, above, below in [
        (losses.mutations, mutations, mutations),
        (losses.appears, mutations, still),
        (losses.vanishes, still, mutations),
        (losses.insertions, insertions, insertions),
    ]:
        excess = stated - log_from_below(worst_fraction(randomizer, above, below))
        assert 0 <= excess < Decimal("1e-40")


@every
def test_inputs_outside_the_space_are_refused_without_being_shown(randomizer):
    """An error never holds an answer."""
    for outside in (randomizer.space.size, 777, -1):
        with pytest.raises(ValueError, match="numbered") as raised:
            randomizer.respond(outside, Coins(b"k", b"c"))
        assert "777" not in str(raised.value)


@every_and_larger
def test_a_randomizer_comes_back_from_its_fields(randomizer):
    """What a survey signs of a randomizer is all of it, integers only; anything else is refused."""
    fields, answers = randomizer_as_fields(randomizer), randomizer.space.answers
    assert randomizer_from_fields(fields, answers) == randomizer
    assert len({randomizer, randomizer_from_fields(fields, answers)}) == 1
    broken = [{}, {**fields, "more": 1}, {**fields, "kind": "other"}, {**fields, "space": "other"}]
    for key in fields:
        broken += [{k: v for k, v in fields.items() if k != key}, {**fields, key: [True]}, {**fields, key: 0.5}]
    for wrong in broken:
        with pytest.raises(ValueError, match="randomizer"):
            randomizer_from_fields(wrong, answers)


@every
def test_symbols_have_a_fixed_width(randomizer):
    """Every symbol goes through an upload's columns in the same number of bytes."""
    track, width = Track(1, randomizer, 0, 1), symbol_bytes(randomizer)
    assert randomizer.symbols - 1 < 256**width
    for symbol in range(randomizer.symbols):
        columns = _columns([Report(0, 1, bytes(16), symbol)], width)
        assert len(columns) == 20 + width
        assert next(iter(read_columns(track, 0, columns))).symbol == symbol


@every_and_larger
def test_the_decoded_change_is_unbiased_for_every_true_input(randomizer):
    """For every true input that occurs, the expectation over all reports of the decoded change is the change."""
    P, M = matrices(randomizer)
    decoded = np.array([one_report(randomizer, symbol).values for symbol in range(randomizer.symbols)])
    u = possible(randomizer.space)
    np.testing.assert_allclose((decoded.T @ P)[:, u], M[:, u], atol=1e-10)


@every_and_larger
def test_the_covariance_of_a_report_is_the_enumerated_one(randomizer):
    """report_covariance for every true input, and its averages over answers and mutations or states."""
    P, M = matrices(randomizer)
    decoded = np.array([one_report(randomizer, symbol).values for symbol in range(randomizer.symbols)])
    space, variances = randomizer.space, {}
    for u in possible(space):
        exact = _covariance_around(decoded, P[:, u], M[:, u])
        np.testing.assert_allclose(report_covariance(randomizer, u), exact, atol=1e-9 * max(1, abs(exact).max()))
        variances[u] = np.diag(exact).mean()
    changed = np.mean([v for u, v in variances.items() if u or not space.reports_changes])
    unchanged = variances[0] if space.reports_changes else changed
    for share in (0, 0.25, 1):
        expected = (1 - share) * unchanged + share * changed
        assert mean_report_variance(randomizer, share) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="numbered"):
        report_covariance(randomizer, space.size)


def check_estimated_covariance(randomizer):
    """Unbiased for every true input; where it is labelled an upper bound, never below in any direction."""
    P, M = matrices(randomizer)
    estimates = [one_report(randomizer, symbol) for symbol in range(randomizer.symbols)]
    decoded = np.array([estimate.values for estimate in estimates])
    for u in possible(randomizer.space):
        expected = sum(P[o, u] * estimate.covariance for o, estimate in enumerate(estimates))
        exact = _covariance_around(decoded, P[:, u], M[:, u])
        scale = max(1, abs(exact).max())
        if estimates[0].upper_bound:
            assert np.linalg.eigvalsh(expected - exact)[0] > -1e-9 * scale
        else:
            np.testing.assert_allclose(expected, exact, atol=1e-9 * scale)
    return estimates[0].upper_bound


@every_and_larger
def test_the_estimated_covariance_is_unbiased_or_a_labelled_upper_bound(randomizer):
    """Labelled where symbols cannot identify it: signed subsets that never say nothing, or balanced over an even
    number of states, and custom matrices like them."""
    labelled = check_estimated_covariance(randomizer)
    if isinstance(randomizer, SignedSubset):
        even = randomizer.pluses == 0 and randomizer.states % 2 == 0 and randomizer.states > 2
        assert labelled == (randomizer.spoken == 1 or even)
    elif randomizer is RANDOMIZERS[-1]:
        assert labelled
    else:
        assert not labelled


@both_forms
@pytest.mark.usefixtures("sums")
def test_the_covariance_from_sums_is_unbiased_or_a_labelled_upper_bound(randomizer):
    """Sums identify everything for states; for signed subsets they bound it."""
    assert check_estimated_covariance(randomizer) == isinstance(randomizer, SignedSubset)


@every
def test_values_and_covariance_are_unbiased_for_two_entries_at_once(randomizer):
    """Over every outcome of two entries' reports, with exact probabilities."""
    if randomizer.symbols > 10:
        pytest.skip("too many outcomes")
    P, M = matrices(randomizer)
    inputs = possible(randomizer.space)
    outcomes = {
        pair: histogram_change(tally(randomizer, np.array(pair, np.uint64)), randomizer)
        for pair in product(range(randomizer.symbols), repeat=2)
    }
    decoded = np.array([estimate.values for estimate in outcomes.values()])
    for u, v in [(inputs[0], inputs[-1]), (inputs[-1], inputs[-1]), (inputs[len(inputs) // 2], inputs[-1])]:
        chances = np.array([P[o, u] * P[p, v] for o, p in outcomes])
        truth = M[:, u] + M[:, v]
        np.testing.assert_allclose(chances @ decoded, truth, atol=1e-9)
        exact = _covariance_around(decoded, chances, truth)
        expected = sum(chance * e.covariance for chance, e in zip(chances, outcomes.values(), strict=True))
        if next(iter(outcomes.values())).upper_bound:
            assert np.linalg.eigvalsh(expected - exact)[0] > -1e-9
        else:
            np.testing.assert_allclose(expected, exact, atol=1e-9 * max(1, abs(exact).max()))


@every_and_larger
def test_tallies_add_up(randomizer):
    """A tally counts every report once, in any order and division, in as many slots as it says."""
    symbols = np.random.default_rng(1).integers(0, randomizer.symbols, 300).astype(np.uint64)
    whole = tally(randomizer, symbols)
    parts = tally(randomizer, symbols[200:]) + tally(randomizer, symbols[:200])
    assert whole.reports == parts.reports == 300
    assert whole.slots.dtype == np.int64
    assert len(whole.slots) == slot_count(randomizer)
    np.testing.assert_array_equal(whole.slots, parts.slots)
    assert tally(randomizer, symbols[:0]).reports == 0


@both_forms
def test_sums_decode_as_counts_do(randomizer, monkeypatch):
    """The same values; for states the same covariance too."""
    symbols = np.random.default_rng(1).integers(0, randomizer.symbols, 300).astype(np.uint64)
    counted = histogram_change(tally(randomizer, symbols), randomizer)
    monkeypatch.setattr(tallies, "MOST_COUNTED_SYMBOLS", 0)
    node = tally(randomizer, symbols)
    assert len(node.slots) == slot_count(randomizer)
    summed = histogram_change(node, randomizer)
    np.testing.assert_allclose(summed.values, counted.values, atol=1e-9)
    if not isinstance(randomizer, SignedSubset):
        np.testing.assert_allclose(summed.covariance, counted.covariance, rtol=1e-9, atol=1e-9)


@every
def test_the_device_and_the_aggregated_sampler_are_not_told_apart(randomizer):
    """2,000 devices with coins of their own against one draw: chi-squared of the two tallies, per input."""
    n, size = 2000, randomizer.space.size
    generator = np.random.default_rng(7)
    for true in sorted({0, size // 2, size - 1}):
        coins = (Coins(bytes(32), bytes([true]) + i.to_bytes(4)) for i in range(n))
        devices = tally(randomizer, np.array([randomizer.respond(true, own) for own in coins], np.uint64))
        sampled = sample_tally(randomizer, n * np.eye(size, dtype=np.int64)[true], generator)
        assert sampled.reports == devices.reports == n
        table = np.array([devices.slots, sampled.slots])
        table = table[:, table.sum(0) > 0]
        assert table.shape[1] == 1 or chi2_contingency(table).pvalue > FALSE_ALARM


@pytest.mark.parametrize("randomizer", [r for r in WITH_CONTENTS if r.symbols <= 8], ids=name)
@pytest.mark.usefixtures("sums")
def test_sums_of_two_entries_have_their_exact_distribution(randomizer):
    """Every outcome of two reports enumerated, 3,000 tallies sampled: chi-squared, rare outcomes taken together."""
    P, _ = matrices(randomizer)
    n, size = 3000, randomizer.space.size
    generator = np.random.default_rng(8)
    for u, v in {(0, size - 1), (size // 2, size - 1)}:
        exact: dict[tuple[int, ...], float] = {}
        for o, p in product(range(randomizer.symbols), repeat=2):
            said = tuple(content_sums(randomizer, np.array([o, p], np.uint64)).tolist())
            exact[said] = exact.get(said, 0) + P[o, u] * P[p, v]
        counts = np.bincount([u, v], minlength=size)
        seen = Counter(tuple(sample_tally(randomizer, counts, generator).slots.tolist()) for _ in range(n))
        assert set(seen) <= set(exact)
        often = [said for said, chance in exact.items() if n * chance >= 5]
        observed = [seen[said] for said in often]
        expected = [n * exact[said] for said in often]
        if len(often) < len(exact):
            observed.append(n - sum(observed))
            expected.append(n - sum(expected))
        assert chisquare(observed, expected, sum_check=False).pvalue > FALSE_ALARM


@both_forms
@pytest.mark.usefixtures("sums")
def test_sampled_sums_decode_to_the_truth_on_average(randomizer):
    """A million entries of mixed inputs: the decoded change is within six of its exact standard deviations."""
    size = randomizer.space.size
    counts = np.random.default_rng(9).integers(0, 2 * 10**6 // size, size)
    node = sample_tally(randomizer, counts, np.random.default_rng(10))
    _, M = matrices(randomizer)
    exact = sum(count * report_covariance(randomizer, u) for u, count in enumerate(counts))
    away = histogram_change(node, randomizer).values - M @ counts
    assert np.all(np.abs(away) < 6 * np.sqrt(np.diag(exact)))
    assert node.reports == counts.sum()


def test_nothing_is_known_of_unknown_randomizers():
    """They are named, whatever is asked of them."""
    for ask in (slot_count, lambda r: histogram_change(NodeTally(1, np.ones(1, np.int64)), r)):
        with pytest.raises(TypeError, match="object"):
            ask(object())


def _covariance_around(decoded, chances, truth):
    away = decoded - truth
    return (away * chances[:, None]).T @ away
