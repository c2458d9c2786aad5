"""How often a server is asked: the mathematics of the pauses and of the budget, for any coins and any clock."""

from changeling_client.server import MOST_IN_VAIN, MOST_PAUSE_MS, MOST_SILENCE_MS, NEVER_FAILED, REGAIN_MS, Budget
from hypothesis import given
from hypothesis import strategies as st

from ..coins import ListedCoins, SeededCoins

NOW = 1_700_000_000_000
DAY = 86_400_000


def after(failures, coins, silence_ms=0):
    backoff = NEVER_FAILED
    for _ in range(failures):
        backoff = backoff.after_failure(NOW, silence_ms, coins)
    return backoff


class Edge:
    """Coins that fall as low or as high as they can."""

    def __init__(self, high):
        self.high = high

    def below(self, n):
        return n - 1 if self.high else 0


def test_pauses_double_from_ten_seconds_to_an_hour():
    """Each is drawn from the upper half of what it may be, both ends included, as one exact integer of the coins."""
    longest = [after(n, Edge(high=False)).wait_ms(NOW) for n in range(1, 12)]
    shortest = [after(n, Edge(high=True)).wait_ms(NOW) for n in range(1, 12)]
    assert longest == [10_000 * 2**n for n in range(9)] + [3_600_000] * 2
    assert shortest == [most // 2 for most in longest]
    assert after(300, Edge(high=False)).wait_ms(NOW) == MOST_PAUSE_MS
    coins = ListedCoins([1234])
    assert after(1, coins).wait_ms(NOW) == 10_000 - 1234
    assert coins.asked == [5001]


def test_our_own_pause_does_not_bind_who_asks_on_purpose():
    """The server's silence binds everybody, and the pause comes after it."""
    backoff = after(1, Edge(high=False), silence_ms=60_000)
    assert [backoff.wait_ms(NOW + later, unbidden=False) for later in (0, 59_999, 60_000)] == [60_000, 1, 0]
    assert [backoff.wait_ms(NOW + later) for later in (60_000, 70_000)] == [10_000, 0]


@given(st.integers(0, 40), st.integers(-1, 2 * MOST_SILENCE_MS), st.integers(0), st.integers(-10 * NOW, 10 * NOW))
def test_whatever_a_clock_does_nobody_waits_longer(failures, silence_ms, seed, later):
    """A clock that was set back ends the wait; one that runs on shortens it; a day and an hour are the most."""
    backoff = after(failures, SeededCoins(seed)).after_failure(NOW, silence_ms, SeededCoins(seed))
    whole = backoff.wait_ms(NOW)
    assert whole <= MOST_SILENCE_MS + MOST_PAUSE_MS
    assert backoff.wait_ms(later) == (max(0, whole - (later - NOW)) if later >= NOW else 0)
    silent = 0 <= later - NOW < backoff.silence_ms <= MOST_SILENCE_MS
    assert (backoff.wait_ms(later, unbidden=False) > 0) == silent


@given(st.lists(st.integers(0, 3 * REGAIN_MS), min_size=1, max_size=120))
def test_at_most_36_requests_come_to_nothing_in_any_24_hours(pauses):
    """Whenever a request is tried; and whoever was refused may ask as soon as the budget says."""
    budget, now, asked = Budget(0), NOW, []
    for pause in pauses:
        now += pause
        if (wait := budget.wait_ms(now)) > 0:
            assert budget.wait_ms(now + wait) == 0 < budget.wait_ms(now + wait - 1)
            continue
        budget = budget.paying(now)
        asked.append(now)
    assert asked
    assert max(sum(at <= each < at + DAY for each in asked) for at in asked) <= MOST_IN_VAIN + 24 == 36


@given(st.integers(0, MOST_IN_VAIN), st.integers(-10 * NOW, 10 * NOW))
def test_no_clock_makes_the_budgets_wait_longer(spent, later):
    """One that is set back ends it; and what is paid back leaves nothing owed."""
    budget = Budget(0)
    for _ in range(spent):
        budget = budget.paying(NOW)
    assert budget.wait_ms(later) <= REGAIN_MS
    assert budget.paid_back(spent).wait_ms(NOW, left=MOST_IN_VAIN - 1) == 0
