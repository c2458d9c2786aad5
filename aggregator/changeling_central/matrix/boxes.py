"""Branch and bound over the periods p_1 <= … <= p_k in which an entry mutates: the largest Σ_ij A_ij G(p_i, p_j).

Within a box of periods, each G lies between its values at two corners of the box, as it rises in one argument and falls
in the other (`products`). The terms of one mutation and all later ones are bounded twice, one by one and summed by
parts, since G falls as the later ones come later:

    Σ_{j>i} A_ij G_ij = Σ_{j>i} S_ij (G_ij - G_i,j+1),   S_ij = A_i,i+1 + … + A_ij

The box that promises most is cut next, so what no box exceeds is known whenever the search is ended. Reads no data.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from changeling_statistics import Floats
from numpy.typing import NDArray

from .products import Products

Places: TypeAlias = NDArray[np.int16]
"""Numbers of columns among those held, a row for each way or box."""

CLOSE = 1e-11
"""Relative: what a box must promise beyond what was attained."""
TOGETHER = 2**14
"""Boxes that are cut together."""


def values(form: Floats, held: Products, places: Places) -> Floats:
    """Σ_ij A_ij G(p_i, p_j) for each row of periods. form: A, shape (k, k). places: shape (ways, k), none falling."""
    k = len(form)
    found = np.zeros(len(places))
    for i in range(k):
        for j in range(i, k):
            if weight := (2 if i < j else 1) * form[i, j]:
                found += weight * held.table[places[:, i], places[:, j]]
    return found


def searched(form: Floats, held: Products, attained: float, most_boxes: int) -> tuple[float, float, int]:
    """What is attained by some periods, at least as much as before; what none exceed; how many boxes were looked at.

    The first period is the calendar's first. attained: what is known to be attained by periods of this form or another.
    """
    k, looked_at = len(form), 1
    low, high = np.zeros((2, 1, k), np.int16)
    high[:, 1:] = len(held.table) - 1
    boxes = _bounded(form, held, low, high)
    settled = 0.0
    while len(boxes.above) and looked_at < most_boxes:
        boxes, cut = boxes.best()
        done = cut.which < 0
        settled = max(settled, float(cut.above[done].max(initial=0.0)))
        if done.all():
            continue
        children = _bounded(form, held, *_halves(held, cut.taken(~done)))
        looked_at += len(children.above)
        tried = np.minimum((children.low + children.high) // 2, held.whole - 1).astype(np.int16)
        attained = max(attained, float(values(form, held, tried).max(initial=0.0)))
        boxes = boxes.and_(children)
        boxes = boxes.taken(boxes.above > max(attained, settled) * (1 + CLOSE))
    return attained, max(attained, settled, float(boxes.above.max(initial=0.0))), looked_at


@dataclass(frozen=True, slots=True)
class _Boxes:
    """low, high: of each period, both within the box. above: what no periods in the box exceed.

    which: of its periods is to be cut; -1 where none can be.
    """

    low: Places
    high: Places
    above: Floats
    which: NDArray[np.int64]

    def taken(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> "_Boxes":
        return _Boxes(self.low[which], self.high[which], self.above[which], self.which[which])

    def and_(self, others: "_Boxes") -> "_Boxes":
        return _Boxes(
            np.concatenate([self.low, others.low]),
            np.concatenate([self.high, others.high]),
            np.concatenate([self.above, others.above]),
            np.concatenate([self.which, others.which]),
        )

    def best(self) -> tuple["_Boxes", "_Boxes"]:
        """Those that are left, and those that promise most."""
        if len(self.above) <= TOGETHER:
            return self.taken(np.zeros(0, np.int64)), self
        order = np.argpartition(-self.above, TOGETHER)
        return self.taken(order[TOGETHER:]), self.taken(order[:TOGETHER])


def _bounded(form: Floats, held: Products, low: Places, high: Places) -> _Boxes:
    table, k = held.table, len(form)
    above, gaps = np.zeros(len(low)), np.zeros(low.shape)
    for i in range(k):
        own = table[low[:, i], low[:, i]]
        above += form[i, i] * own
        gaps[:, i] += form[i, i] * (own - table[high[:, i], high[:, i]])
        apart, by_parts, sums = np.zeros(len(low)), np.zeros(len(low)), np.cumsum(form[i, i + 1 :])
        before: tuple[Floats, Floats] | None = None
        for j in range(i + 1, k):
            most = table[np.minimum(high[:, i], low[:, j]), low[:, j]]
            least = table[low[:, i], high[:, j]]
            apart += 2 * form[i, j] * (most if form[i, j] > 0 else least)
            if before is not None:
                by_parts += _part(sums[j - i - 2], before, (most, least))
            before = most, least
            left = abs(2 * form[i, j]) * (most - least)
            gaps[:, i] += left
            gaps[:, j] += left
        if before is not None:
            by_parts += _part(sums[-1], before, (0.0, 0.0))
        above += np.minimum(apart, by_parts)
    gaps[high - low < (2 if held.step > 1 else 1)] = -1.0
    which = np.where(gaps.max(1) < 0, -1, gaps.argmax(1))
    return _Boxes(low, high, above, which)


def _part(weight: float, nearer: tuple[Floats, Floats], farther: tuple[Floats, Floats] | tuple[float, float]) -> Floats:
    """The most of 2·weight·(G_ij - G_i,j+1), which is never negative. nearer, farther: the most and the least of G."""
    difference = nearer[0] - farther[1] if weight > 0 else np.maximum(nearer[1] - farther[0], 0.0)
    found: Floats = 2 * weight * difference
    return found


def _halves(held: Products, boxes: _Boxes) -> tuple[Places, Places]:
    """Each box cut in two. Where columns are left out, the halves share their border."""
    rows = np.arange(len(boxes.low))
    middle = (boxes.low[rows, boxes.which] + boxes.high[rows, boxes.which]) // 2
    first, second = boxes.high.copy(), boxes.low.copy()
    first[rows, boxes.which] = middle
    second[rows, boxes.which] = middle + (held.step == 1)
    low = np.maximum.accumulate(np.concatenate([boxes.low, second]), 1)
    high = np.concatenate([first, boxes.high])
    high = np.minimum.accumulate(high[:, ::-1], 1)[:, ::-1]
    kept = (low <= high).all(1)
    return low[kept], high[kept]
