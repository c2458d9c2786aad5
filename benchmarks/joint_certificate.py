"""A search by the exact prediction, from random starts: whether any plan of the same groups is below the bound."""

import numpy as np
from changeling_protocol import Group, ReleasePlan
from changeling_statistics import Floats, Planned, Wish, predict

STARTS, CLIMBS, SEED = 200, 1, 11


def least_found(planned: Planned, wish: Wish) -> float:
    """The least mean variance of all plans that were tried, as predicted; the plan itself is not among them.

    From each start, shares of the plan's own groups drawn at random, near them or far, some steps of exchange that are
    kept where the prediction gets better.
    """
    generator = np.random.default_rng(SEED)
    own = np.array([group.share for group in planned.plan.groups], np.float64)
    own /= own.sum()
    least = np.inf
    for start in range(STARTS):
        near = generator.random() if start % 2 else 1.0 - 0.1 * generator.random()
        shares = near * own + (1 - near) * generator.dirichlet(np.full(len(own), 0.5))
        found = _error(planned, wish, shares)
        for _ in range(CLIMBS):
            tried = np.maximum(shares * np.exp(0.1 * generator.normal(size=len(own))), 1e-4)
            error = _error(planned, wish, tried)
            if error < found:
                shares, found = tried, error
        least = min(least, found)
    return float(least)


def _error(planned: Planned, wish: Wish, shares: Floats) -> float:
    integers = np.maximum(1, np.round(10_000 * shares / shares.sum()).astype(int)).tolist()
    groups = zip(planned.plan.groups, integers, strict=True)
    plan = ReleasePlan(tuple(Group(group.tracks, share, group.joint) for group, share in groups))
    return predict(wish.survey(plan), wish.devices, retrospective=wish.retrospective).mean ** 2
