"""What is said of other methods, against enumeration of every transcript of a device with a short life."""

from itertools import product
from math import isclose, log

import numpy as np
import pytest

from benchmarks.rivals import ANSWERS, MEMOISED, Memo

HALF = 2
SHORT = {
    name: Memo(memo.kept, memo.made, memo.one, memo.zero, memo.hashed, HALF)
    for name, memo in MEMOISED.items()
    if isinstance(memo, Memo)
}


def transcript_chance(memo, bits, values):
    """Of 2·HALF rows of bits, each entry's value in a period being in `values`; bits are independent."""
    chance = 1.0
    for bit in range(bits.shape[1]):
        for value in set(values):
            at = [period for period, held in enumerate(values) if held == value]
            remembered = memo.kept if value == bit else memo.made
            ones = bits[at, bit].sum()
            chance *= sum(
                p * tell**ones * (1 - tell) ** (len(at) - ones)
                for p, tell in ((remembered, memo.one), (1 - remembered, memo.zero))
            )
    return chance


def enumerated(memo, bits):
    """(changed, stayed) chances of every transcript; value 0 sets bit 0, value 1 sets bit 1, if there is one."""
    stayed, changed = (0,) * (2 * HALF), (0,) * HALF + (1,) * HALF
    shape = (2 * HALF, bits)
    for row in product((0, 1), repeat=2 * HALF * bits):
        transcript = np.array(row).reshape(shape)
        yield transcript_chance(memo, transcript, changed), transcript_chance(memo, transcript, stayed)


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "bits"), [("rappor", ANSWERS), ("loloha", 1)])
def test_loss_and_advantage_are_those_of_all_transcripts(name, bits):
    """The loss to rounding; the advantage within five standard errors, which a right one leaves once in 10^6."""
    memo = SHORT[name]
    pairs = list(enumerated(memo, bits))
    assert isclose(sum(changed for changed, _ in pairs), 1)
    assert isclose(memo.loss(), max(abs(log(changed / stayed)) for changed, stayed in pairs), rel_tol=1e-9)
    exact = sum(max(0.0, stayed - changed) for changed, stayed in pairs) * (0.5 if memo.hashed else 1)
    n = 40_000
    assert abs(memo.advantage(np.random.default_rng(1), n) - exact) < 5 * 0.5 / n**0.5


@pytest.mark.parametrize("name", list(MEMOISED))
def test_estimates_are_unbiased(name):
    """Mean error over 4,000 entries of 64 periods within six standard errors, missed once in 10^6."""
    states = np.repeat(np.arange(ANSWERS), 1000)[:, None].repeat(2, 1)
    estimates = np.array([MEMOISED[name].estimate(states, np.random.default_rng([3, i])) for i in range(60)])
    error = estimates.mean(0) - 1 / ANSWERS
    assert (np.abs(error) < 6 * estimates.std(0, ddof=1) / 60**0.5).all()
