"""Spaces, odds and k-RR: exact by counting."""

from collections import Counter
from decimal import Decimal, localcontext
from math import exp, nextafter

import pytest
from changeling_protocol import Coins, KaryResponse, MutationSpace, Odds, StateSpace
from changeling_protocol.randomizers import log_ratio, randomizer_as_fields, randomizer_from_fields, rounded_up

SPACES = [
    MutationSpace(1),
    MutationSpace(3),
    MutationSpace(2, repeats=True),
    StateSpace(3),
    StateSpace(3, null=False),
]


class ListedCoins(Coins):
    """Coins whose bytes are given, so that every stream of a length can be tried."""

    __slots__ = ("_bytes",)

    def __init__(self, stream: bytes) -> None:
        self._bytes = iter(stream)

    def _take(self, size: int) -> bytes:
        return bytes(next(self._bytes) for _ in range(size))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_inputs_are_numbered_without_gaps(space):
    """Every (old, new) has a number below the size, every possible number names one pair, and 0 is no change."""
    z = space.answers
    lowest = 0 if getattr(space, "null", True) else 1
    pairs = [(old, new) for old in range(z + 1) for new in range(lowest, z + 1)]
    numbers = {space.index(old, new) for old, new in pairs}
    assert numbers <= set(range(space.size))
    if space.reports_changes:
        assert all(space.index(old, new) == 0 for old, new in pairs if old == new)
        assert all(space.pair(space.index(old, new)) == (old, new) for old, new in pairs if old != new)
        assert len(numbers) == z * z + z + 1
    else:
        assert numbers == set(range(space.size))
        assert all(space.pair(space.index(old, new)) == (0, new) for old, new in pairs)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 127, 128, 129, 255, 256])
def test_an_integer_below_n_is_exactly_uniform(n):
    """Over all 256 values of the first byte, every integer below n is accepted equally often, the rest redrawn."""
    drawn = Counter()
    for byte in range(256):
        try:
            drawn[ListedCoins(bytes([byte])).below(n)] += 1
        except (StopIteration, RuntimeError):
            drawn["again"] += 1
    counts = {drawn[i] for i in range(n)}
    assert len(counts) == 1
    assert counts.pop() >= 1


def test_integers_wider_than_a_block_are_in_range_and_repeat():
    """A draw may need several blocks of the stream; the same key and context give the same integers."""
    first, again = (Coins(b"k" * 32, b"context") for _ in range(2))
    n = 2**600 + 1
    assert [first.below(n) for _ in range(4)] == [again.below(n) for _ in range(4)]
    assert Coins(b"k" * 32, b"other").below(n) != Coins(b"k" * 32, b"context").below(n)
    with pytest.raises(ValueError, match="no integer"):
        first.below(0)


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("odds", [Odds(1, 1), Odds(3, 1), Odds(7, 2)], ids=str)
def test_the_sampler_has_exactly_the_stated_probabilities(space, odds):
    """Of all integers below the total, each symbol is selected by exactly its weight, for every input."""
    response = KaryResponse(space, odds)
    for true in range(space.size):
        counted = Counter(response.symbol_at(drawn, true) for drawn in range(response.total(true)))
        assert counted == {symbol: response.weight(symbol, true) for symbol in range(response.symbols)}
        assert sum(counted.values()) == response.total(true)


def test_the_loss_is_the_exact_log_ratio_rounded_up():
    """e^epsilon is never below a/b, and above it by less than 1e-40."""
    with localcontext(prec=80):
        for a, b in [(3, 1), (10**9 + 1, 10**9), (2**63, 1), (2**64 - 1, 2**64 - 2)]:
            loss = Odds(a, b).epsilon
            excess = loss.exp() * b / a - 1
            assert 0 <= excess < Decimal("1e-40")
            assert Decimal(rounded_up(loss)) >= loss > Decimal(nextafter(rounded_up(loss), 0))
    assert log_ratio(7, 7) == 0


@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "1", "3.7", "8", "27"])
def test_odds_within_an_epsilon_use_almost_all_of_it_and_never_more(epsilon):
    """Odds chosen for a loss stay within it and waste less than 1e-9 of the ratio (more only where e^27 is large)."""
    wanted = Decimal(epsilon)
    odds = Odds.within(wanted)
    assert odds.epsilon <= wanted
    assert odds.favoured / odds.other > exp(float(wanted)) * (1 - 1e-9)


@pytest.mark.parametrize("bad", [(0, 0), (1, 2), (2**64, 1), (-1, -2)])
def test_impossible_odds_are_refused(bad):
    """Odds below one, or too large to draw from, are named."""
    with pytest.raises(ValueError, match=str(bad[0])):
        Odds(*bad)
    with pytest.raises(ValueError, match="loss of one report"):
        Odds.within(28)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_randomizer_comes_back_from_its_fields(space):
    """What a survey signs of a randomizer is all of it; anything else is refused."""
    response = KaryResponse(space, Odds(3, 2))
    fields = randomizer_as_fields(response)
    assert randomizer_from_fields(fields, space.answers) == response
    for broken in ({}, {**fields, "more": 1}, {**fields, "kind": "other"}, {**fields, "odds": [3]}):
        with pytest.raises(ValueError, match="not a randomizer"):
            randomizer_from_fields(broken, space.answers)


def test_inputs_outside_the_space_are_refused_without_being_shown():
    """An error never holds an answer."""
    response = KaryResponse(MutationSpace(2), Odds(3, 1))
    with pytest.raises(ValueError, match="inputs are numbered") as raised:
        response.respond(77, Coins(b"k", b"c"))
    assert "77" not in str(raised.value)
    with pytest.raises(ValueError, match="states are numbered") as raised:
        MutationSpace(2).index(0, 77)
    assert "77" not in str(raised.value)
