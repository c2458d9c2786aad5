"""How long a server is left in peace: as long as it asked, then a pause that grows, and never longer for a clock."""

import pytest
from changeling_client.patience import MOST_PAUSE_MS, MOST_SILENCE_MS, NEVER_FAILED, Patience
from hypothesis import given
from hypothesis import strategies as st

from ..coins import ListedCoins, SeededCoins

NOW = 1_700_000_000_000


class Edge:
    """Coins that fall as low or as high as they can."""

    def __init__(self, high: bool) -> None:
        self.high = high

    def below(self, n):
        return n - 1 if self.high else 0


def after(failures: int, coins, silence_ms: int = 0) -> Patience:
    patience = NEVER_FAILED
    for _ in range(failures):
        patience = patience.after_failure(NOW, silence_ms, coins)
    return patience


def test_who_never_failed_is_asked_at_once():
    """At any time whatever, by everybody."""
    for now in (-NOW, 0, NOW):
        assert NEVER_FAILED.allows(now)
        assert NEVER_FAILED.wait_ms(now) == 0


def test_pauses_double_from_ten_seconds_to_an_hour():
    """Each is drawn from the upper half of what it may be, both ends included."""
    longest = [after(n, Edge(high=False)).wait_ms(NOW) for n in range(1, 12)]
    shortest = [after(n, Edge(high=True)).wait_ms(NOW) for n in range(1, 12)]
    assert longest == [10_000 * 2**n for n in range(9)] + [3_600_000] * 2
    assert shortest == [most // 2 for most in longest]
    assert after(300, Edge(high=False)).wait_ms(NOW) == MOST_PAUSE_MS


def test_a_pause_is_one_draw_among_all_its_milliseconds():
    """An exact integer of the coins, and nothing else."""
    coins = ListedCoins([1234])
    assert after(1, coins).wait_ms(NOW) == 10_000 - 1234
    assert coins.asked == [5001]


def test_our_own_pause_does_not_bind_who_asks_on_purpose():
    """The server's silence binds everybody, and the pause comes after it."""
    patience = after(1, Edge(high=False), silence_ms=60_000)
    assert not patience.allows(NOW)
    assert not patience.allows(NOW + 59_999)
    assert patience.allows(NOW + 60_000)
    assert patience.wait_ms(NOW + 60_000) == 10_000
    assert patience.wait_ms(NOW + 70_000) == 0


@given(st.integers(0, 40), st.integers(-1, 2 * MOST_SILENCE_MS), st.integers(0), st.integers(-10 * NOW, 10 * NOW))
def test_whatever_a_clock_does_nobody_waits_longer(failures, silence_ms, seed, later):
    """A clock that was set back ends the wait; one that runs on shortens it; a day and an hour are the most."""
    patience = after(failures, SeededCoins(seed)).after_failure(NOW, silence_ms, SeededCoins(seed))
    whole = patience.wait_ms(NOW)
    assert whole <= MOST_SILENCE_MS + MOST_PAUSE_MS
    assert patience.wait_ms(later) == (max(0, whole - (later - NOW)) if later >= NOW else 0)
    assert patience.allows(later) or 0 <= later - NOW < patience.silence_ms <= MOST_SILENCE_MS
    assert Patience(*patience.as_row()) == patience


def test_a_length_below_nothing_is_refused():
    """Such as a damaged row's."""
    with pytest.raises(ValueError, match="not below 0"):
        Patience(NOW, -1, 0, 1)
