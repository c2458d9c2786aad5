"""Counters take whole numbers, whoever made them."""

from fractions import Fraction

import changeling_papers as papers
import numpy as np
import pytest
from changeling_central.testing import Forbidden, SeededNoise


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint16])
def test_counters_take_numpys_whole_numbers(kind):
    """The same releases as for Python's, and floats are refused as ever."""
    mechanisms = (
        papers.cum(4, Fraction(1)),
        papers.PanPrivateCounter(4, Fraction(1)),
        papers.Partitioning(Fraction(1), periods=4),
        papers.SparseVector(9.0, Fraction(1)),
    )
    for mechanism in mechanisms:
        released = [mechanism.step(mechanism.start(), value, SeededNoise(1))[1] for value in (3, kind(3))]
        assert released[0] == released[1]
        with pytest.raises(ValueError, match=r"whole number|number of its updates"):
            mechanism.step(mechanism.start(), np.float64(3.0), Forbidden())
    dynamic = papers.fully_dynamic(papers.BasicCounting(), Fraction(1))
    dynamic.step(dynamic.start(), [papers.Update(1, kind(0))], SeededNoise(1))
