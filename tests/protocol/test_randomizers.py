"""Coins, spaces and odds, and what is particular to each randomizer; what they share is in tests/contracts."""

import random
from collections import Counter
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import exp, nextafter

import numpy as np
import pytest
from changeling_protocol import (
    SYMBOL_LIMIT,
    CustomResponse,
    KaryChange,
    MutationSpace,
    Odds,
    SignedSubset,
    SignVectors,
    StateSpace,
    SubsetSelection,
    SystemCoins,
    UnaryEncoding,
    log_ratio,
    randomizer_as_fields,
    randomizer_from_fields,
    rounded_up,
)
from changeling_statistics import counterpart_of
from changeling_statistics.randomizers.counted import unrank_signs

from tests.coins import SeededCoins

VECTORS = SignVectors(4, ((2, 2),))
SPACES = [
    MutationSpace(1),
    MutationSpace(3),
    MutationSpace(2, repeats=True),
    MutationSpace(2, null=False),
    MutationSpace(4, null=False),
    StateSpace(3),
    StateSpace(3, null=False),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_inputs_are_numbered_without_gaps(space):
    """Every (old, new) has a number below the size, every possible number names one pair, and 0 is no change."""
    z = space.answers
    lowest = 0 if space.null else 1
    oldest = lowest if space.reports_changes else 0
    pairs = [(old, new) for old in range(oldest, z + 1) for new in range(lowest, z + 1)]
    numbers = {space.index(old, new) for old, new in pairs}
    assert numbers <= set(range(space.size))
    if space.reports_changes:
        assert all(space.index(old, new) == 0 for old, new in pairs if old == new)
        assert all(space.pair(space.index(old, new)) == (old, new) for old, new in pairs if old != new)
        d = z + 1 - lowest
        assert len(numbers) == d * (d - 1) + 1
    else:
        assert numbers == set(range(space.size))
        assert all(space.pair(space.index(old, new)) == (0, new) for old, new in pairs)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 127, 128, 129, 255, 256])
def test_an_integer_below_n_is_exactly_uniform(n, monkeypatch):
    """Over all values of the system's first two bytes every integer below n is taken equally often."""
    stream = (first.to_bytes(2) for first in range(2**16))
    monkeypatch.setattr(random, "_urandom", lambda size: next(stream)[:size])
    drawn = Counter()
    with suppress(StopIteration):
        while True:
            drawn[SystemCoins().below(n)] += 1
    assert set(drawn) == set(range(n))
    assert len(set(drawn.values())) == 1


def test_a_device_has_the_operating_systems_integers_of_any_width():
    """Two draws of 600 bits are not the same; there is no integer below nothing."""
    coins, n = SystemCoins(), 2**600 + 1
    drawn = [coins.below(n) for _ in range(4)]
    assert len(set(drawn)) == 4
    assert all(0 <= each < n for each in drawn)
    assert coins.below(1) == 0
    for nothing in (0, -1):
        with pytest.raises(ValueError, match="positive"):
            coins.below(nothing)


def test_the_loss_is_the_exact_log_ratio_rounded_up():
    """e^epsilon is never below a/b, and above it by less than 1e-40."""
    with localcontext(prec=80):
        for a, b in [(3, 1), (10**9 + 1, 10**9), (2**63, 1), (2**64 - 1, 2**64 - 2)]:
            loss = Odds(a, b).epsilon
            excess = loss.exp() * b / a - 1
            assert 0 <= excess < Decimal("1e-40")
            assert Decimal(rounded_up(loss)) >= loss > Decimal(nextafter(rounded_up(loss), 0))
    assert log_ratio(7, 7) == 0


@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "3.7", "8", "27", "43"])
def test_odds_within_an_epsilon_use_almost_all_of_it_and_never_more(epsilon):
    """Odds chosen for a loss stay within it and waste less than 1e-9 of the ratio (more only where e^27 is large)."""
    wanted = Decimal(epsilon)
    odds = Odds.within(wanted)
    assert odds.epsilon <= wanted
    assert odds.favoured / odds.other > exp(float(wanted)) * (1 - 1e-9)


def test_states_outside_the_survey_are_refused_without_being_shown():
    """An error never holds an answer. Where there is no NULL nobody appears or goes."""
    with pytest.raises(ValueError, match="states are numbered") as raised:
        MutationSpace(2).index(0, 77)
    assert "77" not in str(raised.value)
    for old, new in ((0, 2), (2, 0), (0, 0)):
        with pytest.raises(ValueError, match="the cohort is closed"):
            MutationSpace(3, null=False).index(old, new)


def test_one_change_costs_its_odds_whatever_it_is_compared_with():
    """L_mm = L_m0 + L_0m = ln(a/b), each rounded up, and both parts are positive: of signed subsets and of k-RR of
    changes, where plain k-RR costs each of the two as much."""
    spaces = [MutationSpace(z) for z in (1, 2, 3, 4, 7, 16)] + [MutationSpace(4, null=False)]
    for space, odds in product(spaces, (Odds(3, 1), Odds(2981, 1), Odds(10**9 + 1, 10**9))):
        quiet = SignedSubset(space, odds, spoken=Fraction(3, 1000))
        for randomizer in (SignedSubset(space, odds), quiet, KaryChange(space, odds)):
            losses = randomizer.losses
            assert losses.mutations == odds.epsilon
            assert min(losses.appears, losses.vanishes) > 0
            with localcontext(prec=60):
                assert 0 <= losses.appears + losses.vanishes - losses.mutations < Decimal("1e-40")


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: SignedSubset(MutationSpace(2, repeats=True), Odds(3, 1)), "none"),
        (lambda: SignedSubset(MutationSpace(2), Odds(3, 3)), "3:3"),
        (lambda: SignedSubset(MutationSpace(3), Odds(3, 1), -1), "1 to 1 of 4"),
        (lambda: SignedSubset(MutationSpace(3), Odds(3, 1), spoken=Fraction(1, 2**64)), "2\\^64"),
        (lambda: SignedSubset(MutationSpace(70), Odds(3, 1)), "63 bits"),
        (lambda: SignedSubset(MutationSpace(1, null=False), Odds(3, 1)), "over 1 answer there is no mutation"),
        (lambda: MutationSpace(2, repeats=True, null=False), "NULL included"),
        (lambda: KaryChange(MutationSpace(1, null=False), Odds(3, 1)), "over 1 answer there is no mutation"),
        (lambda: SubsetSelection(StateSpace(3), Odds(2, 2), 1), "2:2"),
        (lambda: SubsetSelection(StateSpace(70), Odds(3, 1), 35), "63 bits"),
        (lambda: UnaryEncoding(StateSpace(62), Odds(3, 1)), "got 63"),
        (lambda: UnaryEncoding(StateSpace(1, null=False), Odds(3, 1)), "got 1"),
        (lambda: CustomResponse(StateSpace(1), ((1, 2), (3, 1.5))), "integers from 0"),
        (lambda: CustomResponse(StateSpace(1), ((1, 0), (3, 0))), "every column"),
        (lambda: Odds(-1, -2), "-1"),
        (lambda: Odds.within(44), "at most 43, got 44"),
        (lambda: VECTORS.unrank(-1), "ranks run from 0 to 5"),
        (lambda: VECTORS.unrank(6), "ranks run from 0 to 5"),
        (lambda: VECTORS.rank((1, 1, 1, -1)), "not a vector of 4"),
        (lambda: VECTORS.rank((1, -1)), "not a vector of 4"),
        (lambda: VECTORS.rank((1, -1, 0, 0)), "not a vector of 4"),
    ],
)
def test_impossible_randomizers_are_refused(build, says):
    """With the value that is wrong and what would do; what a survey can be signed with is in tests/vectors."""
    with pytest.raises(ValueError, match=says):
        build()


def test_a_probability_given_as_a_whole_number_is_read_back():
    """Else a survey could be published that no device and no server can read."""
    whole = SignedSubset(MutationSpace(3), Odds(3, 1), spoken=1)  # type: ignore[arg-type]
    assert randomizer_from_fields(randomizer_as_fields(whole), 3) == SignedSubset(MutationSpace(3), Odds(3, 1))


def test_a_symbol_fits_into_a_column_up_to_the_largest_alphabet():
    """63 answers, balanced, are the most that signed subsets can number; a response draws in a moment."""
    response = SignedSubset(MutationSpace(64), Odds(10**9, 3), spoken=Fraction(1, 10**6))
    assert response.symbols < SYMBOL_LIMIT < 3 * response.symbols
    coins = SeededCoins(1)
    symbols = {response.respond(9, coins) for _ in range(50)}
    assert max(symbols) < response.symbols
    assert len(symbols) > 40


def test_an_infinite_loss_is_refused_where_a_loss_is_asked_for():
    """A zero facing a non-zero may be studied for its (ε, δ); no survey can be made of it."""
    response = CustomResponse(StateSpace(1), ((3, 1), (1, 3), (1, 0)))
    assert response.weight(2, 1) == 0
    with pytest.raises(ValueError, match=r"infinite: .* symbol 2 .*\(ε, δ\) alone"):
        _ = response.losses


@pytest.mark.parametrize(
    "randomizer",
    [
        SignedSubset(MutationSpace(64), Odds(3, 1)),
        SignedSubset(MutationSpace(62), Odds(3, 1)),
        SignedSubset(MutationSpace(100), Odds(3, 1), 5),
        SignedSubset(MutationSpace(1000), Odds(3, 1), 1),
        SubsetSelection(StateSpace(64), Odds(3, 1), 30),
    ],
    ids=lambda r: f"{type(r).__name__}-{r.space.answers}",
)
def test_the_largest_alphabets_are_unranked_exactly(randomizer):
    """First, last and random symbols of alphabets near 2^63: no integer overflows on the way."""
    vectors = randomizer.vectors if isinstance(randomizer, SignedSubset) else randomizer.subsets
    ranks = np.random.default_rng(4).integers(0, vectors.count, 200)
    ranks[:2] = 0, vectors.count - 1
    assert unrank_signs(vectors, ranks).tolist() == [list(vectors.unrank(int(rank))) for rank in ranks]
    assert all(vectors.rank(vectors.unrank(int(rank))) == rank for rank in ranks[:20])


def test_bits_are_read_up_to_the_last():
    """Bit i of a symbol speaks of input i, also of the 62nd."""
    response = UnaryEncoding(StateSpace(61), Odds(3, 1))
    said = counterpart_of(response).contents(np.array([0, 1, 2**61, response.symbols - 1], np.uint64))
    assert said.sum(1).tolist() == [0, 1, 1, 62]
    assert said[1, 0] == said[2, 61] == 1
