"""Measure 5 of the field: what it costs that any lost period is bridged, and what a loss does to estimates.

The wishes are those of `benchmarks.accuracy`, with the minimum that surveys usually have; their best plans tell states
all along. A second cohort changes its answers so seldom that the best plan hardly tells states after the start.
"""

from collections.abc import Iterator
from dataclasses import replace

from changeling_protocol import MICRO, AtMost, ExpectedChanges
from changeling_statistics import Wish, optimal_plan, outage

from .accuracy import cohort_wish

EPSILONS = (2, 8, 32)
SELDOM_EPSILON, SELDOM_MOST, SELDOM_RATE = 12, 2, 0.003
"""Of the second cohort: its budget, how often an entry's answer changes at most, and the rate of changes a period."""
MINIMUM = 100


def measure() -> dict[str, float]:
    """Of each wish, in fractions: the error without a bridge and with one, and the largest error after a loss.

    Beside them, in periods, for how long estimates are missing at worst after any one loss, without a bridge and with
    one; which part of the devices is there for it; and its price, as a part of the error without it.
    """
    figures: dict[str, float] = {}
    for name, wish in _wishes():
        bare, bridged = optimal_plan(replace(wish, bridge=False)), optimal_plan(wish)
        lost = outage(wish, bridged.option)
        figures |= {
            f"5_{name}_error_without": bare.option.error(wish),
            f"5_{name}_error_with": bridged.option.error(wish),
            f"5_{name}_price": bridged.option.error(wish) / bare.option.error(wish) - 1,
            f"5_{name}_gap_without": outage(wish, bare.option).gap,
            f"5_{name}_gap_with": lost.gap,
            f"5_{name}_gap_allowed": lost.allowed,
            f"5_{name}_floor": bridged.floor,
            f"5_{name}_error_after_a_loss": lost.error,
        }
    return figures


def _wishes() -> Iterator[tuple[str, Wish]]:
    for epsilon in EPSILONS:
        for retrospective in (False, True):
            name = f"{'retrospective' if retrospective else 'online'}_{epsilon}"
            yield name, replace(cohort_wish(epsilon, retrospective=retrospective), minimum=MINIMUM)
    seldom = replace(
        cohort_wish(SELDOM_EPSILON),
        constraint=AtMost(SELDOM_MOST),
        expected=ExpectedChanges(MICRO, round(MICRO * SELDOM_RATE)),
        minimum=MINIMUM,
    )
    yield f"seldom_{SELDOM_EPSILON}", seldom
