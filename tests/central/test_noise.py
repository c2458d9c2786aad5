"""OpenDP's samplers, the pool that draws ahead of need, and the stand-in for both."""

from math import exp, sqrt

import numpy as np
import pytest
from changeling_central import OpenDPNoise
from changeling_central.testing import NoNoise, SeededNoise


def test_noise_of_opendp_does_not_stop_at_32_bits():
    """At scale 2^40 no draw of 200 is another or an end of 32 bits (false alarm 10⁻⁷); beyond 2^56 it is refused."""
    for draw in (OpenDPNoise().laplace, OpenDPNoise().gaussian):
        drawn = draw(2.0**40, 200)
        assert len(set(drawn.tolist())) == 200
        assert np.abs(drawn).max() > 2**32
        with pytest.raises(ValueError, match="2\\^56"):
            draw(2.0**57, 1)


def test_a_pool_hands_out_every_draw_once_and_keeps_none():
    """In the source's order, by law and scale; what was handed out is wiped."""
    from changeling_central import PooledNoise

    class Counting(NoNoise):
        last = 0

        def laplace(self, scale, size):  # noqa: ARG002
            self.last += size
            return np.arange(self.last - size, self.last)

    pool = PooledNoise(Counting(), batch=8)
    handed = [*pool.laplace(1.0, 3), *pool.laplace(1.0, 5), *pool.laplace(1.0, 1), *pool.laplace(1.0, 20)]
    assert handed == [*range(9), *range(16, 36)]
    assert pool.laplace(2.0, 2).tolist() == [36, 37]
    assert pool._pools["laplace", 1.0].draws.tolist() == [0, *range(9, 16)]


def test_a_child_process_never_repeats_its_parents_draws():
    """After a fork the pool is drawn anew."""
    import os

    from changeling_central import PooledNoise

    pool = PooledNoise(OpenDPNoise(), batch=64)
    pool.laplace(1000.0, 1)
    pool._process = os.getpid() + 1  # as a child finds it
    held = pool._pools["laplace", 1000.0].draws.copy()
    assert pool.laplace(1000.0, 60).tolist() != held[1:61].tolist()


def test_laplace_noise_of_the_stand_in_is_the_law_it_stands_for():
    """The audits of this folder rest on it: chance of 0 within 5 standard errors (false alarm 6·10⁻⁷)."""
    n, scale = 200_000, 3.0
    p = exp(-1 / scale)
    zero = (1 - p) / (1 + p)
    found = np.mean(SeededNoise(0).laplace(scale, n) == 0)
    assert abs(found - zero) < 5 * sqrt(zero * (1 - zero) / n)
