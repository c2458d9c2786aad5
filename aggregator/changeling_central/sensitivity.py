"""How far one entry moves what the square root mechanism measures: the most that ‖C x‖² can be.

x is the entry's change of the query, period by period. The rows of C are one sequence, shifted:

    C_ts = c_{t-s},  c_0 = 1,  c_i = c_{i-1} (1 - 1/2i)

An entry goes through states f_1, …, f_k in periods p_1 <= … <= p_k. With jumps a_i = f_i - f_{i-1}, f_0 = 0,

    ‖C x‖² = Σ_ij <a_i, a_j> G(p_i, p_j),   G(i, j) = Σ_s c_s c_{s+j-i} over the rows that both columns have

It is convex in each state, so only the corners of what an entry may count for matter; it is largest where p_1 is the
first period; and G rises in i and falls in j, as c falls and is never negative. So the periods of up to five mutations
are searched by branch and bound. Of more mutations closed forms bound it, in the square N of C's first column and
F(d) = ‖first column - column d‖², which is what an entry does that is there for d periods. The least of all bounds is
taken; none is ever below the most. Proofs: docs/mathematics.md, "Square roots". Reads no data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import inf, sqrt
from typing import TypeAlias

import numpy as np
from changeling_protocol import Calendar, Constraint
from changeling_statistics import Floats
from numpy.typing import NDArray

from .linear_query import Corner, LinearQuery, Reach, reaches
from .noise import ABOVE

Places: TypeAlias = NDArray[np.int16]
"""Numbers of columns of a `Products`, a row for each box or pattern and a column for each mutation."""

CLOSE = 1e-11
"""Relative: what a box must promise beyond what is attained, to be looked at."""
COUNTED: tuple[Corner, ...] = ((0,), (1,))
"""The corners of an entry that is counted or not."""
LARGEST_WINDOW = 4096
"""Intervals are fitted into windows of so many periods; wider ones are made of such."""
MOST_BOXES, TRIED = 1_000_000, 2000
"""Boxes that are looked at over all patterns, about two seconds; and those of a pattern to see what it attains."""
MOST_MUTATIONS = 5, 4
"""That are searched, between two corners and between more."""
MOST_PATTERNS = 2**17
"""In all periods of a window so short that each pattern is looked at."""
MOST_COLUMNS = 3001
"""Columns whose products are held: 72 MB. Of more every second one is looked at, every third, and so on."""


@lru_cache(maxsize=16)
def square_root_coefficients(band: int) -> Floats:
    """c_0 to c_{band-1}, falling and convex; a read-only array.

    >>> square_root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    i = np.arange(1, band)
    c: Floats = np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * i))])
    c.flags.writeable = False
    return c


def squared_sensitivity(query: LinearQuery, calendar: Calendar, constraint: Constraint, band: int) -> float:
    """The most that ‖C x‖² can be for an entry that keeps to the constraint, in units squared, rounded up.

    band: how many coefficients C has. Exact for counts, sums, means, histograms and queries of fixed answers where
    entries mutate up to five times on calendars of 168 periods, four times of 720, three times of 3,000, or as often as
    they will within a window of 15 periods; elsewhere an upper bound.
    """
    return ABOVE * max(_of_reach(query, calendar.periods, reach, band) for reach in reaches(constraint, calendar))


def most_moved(query: LinearQuery, calendar: Calendar, constraint: Constraint) -> int:
    """The most that Σ |x| can be over all columns and periods, in units."""
    extent = query.extent
    return max(extent.appears[0] + (reach.periods - 1) * extent.moves[0] for reach in reaches(constraint, calendar))


def _of_reach(query: LinearQuery, periods: int, reach: Reach, band: int) -> float:
    factor, corners = corners_of(query, reach.periods)
    if corners == COUNTED:
        closed = _alternating(periods, band, reach)
    elif query.width == 1:
        closed = float(max(*query.appearing, *query.moving) ** 2) * _alternating(periods, band, reach)
    elif corners and not query.corners:
        closed = _between_columns(periods, band, reach)
    else:
        first, later = (sqrt(squares) for _, squares in (query.extent.appears, query.extent.moves))
        closed = float(_columns(periods, band)[0]) * (first + (reach.periods - 1) * later) ** 2
    if corners and not (reach.periods <= 2 and set(corners) <= set(_units(len(corners[0])))):  # exact as it is
        closed = min(closed, most_of_patterns(corners, reach.periods, periods, band, reach.span).bound)
    return factor * closed


def corners_of(query: LinearQuery, mutations: int) -> tuple[float, tuple[Corner, ...]]:
    """The corners of what an entry counts for, each to be multiplied by the root of the factor; () if not known."""
    if query.fixed:
        return float(query.extent.appears[1]), COUNTED
    if query.corners:
        return 1.0, query.corners
    if query.width == 1:
        most, range_ = max(*query.appearing, 0), max(*query.moving, 0)
        return (float(most**2), COUNTED) if range_ <= most else (1.0, ((most,), (most - range_,)))
    if sum(query.appearing) == 1 and len(query.moving) <= 2 and max(query.moving, default=0) <= 1:
        return 1.0, _units(min(query.width, mutations))
    return 1.0, ()


@lru_cache(maxsize=64)
def _units(width: int) -> tuple[Corner, ...]:
    """Nobody, and one in each column."""
    return tuple(tuple(int(column == at) for column in range(width)) for at in range(-1, width))


# Closed forms, for any number of mutations


def _alternating(periods: int, band: int, reach: Reach) -> float:
    """The bound for an entry that is counted, then not, then counted again: x alternates between 1 and -1.

    N                                   k = 1, exact
    max(N, max F)                       k = 2, exact
    (k - 2) N + max(N, max F)           k > 2, and for the whole root also
    ⌊k/2⌋ max F + (k odd) N             no two differences of intervals have a positive product, c being convex
    """
    N, F = float(_columns(periods, band)[0]), _differences(periods, band)[: reach.span + 1]
    k, there = reach.periods, max(N, float(F.max()))
    if k <= 2:
        return N if k == 1 else there
    cut = (k - 2) * N + there
    if band < periods:
        return cut
    return min(cut, k // 2 * float(F.max()) + k % 2 * N, _within(periods, reach.span))


def _between_columns(periods: int, band: int, reach: Reach) -> float:
    """The bound for an entry that is counted in one column of a histogram at a time, and may change the column."""
    N, F = _columns(periods, band), _differences(periods, band)[: reach.span + 1]
    k = reach.periods
    if k <= 2:
        return float(N[0]) if k == 1 else float((F + N[: len(F)]).max())
    every_change = (2 * k - 1) * float(N[0])
    if band < periods:
        return every_change
    return min(every_change, min((k - 1) * float(F.max()), reach.span * float(F[1])) + float(N[0]))


@lru_cache(maxsize=64)
def _columns(periods: int, band: int) -> Floats:
    """The squares of C's columns, the first one first."""
    squares = np.zeros(periods)
    squares[:band] = square_root_coefficients(band) ** 2
    columns: Floats = np.cumsum(squares)[::-1]
    return columns


@lru_cache(maxsize=64)
def _differences(periods: int, band: int) -> Floats:
    """F(0) = 0 to F(periods - 1)."""
    c = np.zeros(periods)
    c[:band] = square_root_coefficients(band)
    points = 1 << (2 * periods - 1).bit_length()
    spectrum = np.fft.rfft(c, points)
    products = np.fft.irfft(spectrum * spectrum.conj(), points)[:periods]
    N = _columns(periods, band)
    differences: Floats = N[0] + N - 2 * products
    differences[0] = 0.0
    return differences


@lru_cache(maxsize=64)
def _within(periods: int, span: int) -> float:
    """The bound for an entry that comes and goes as it likes within span + 1 periods; the last interval may stay open.

    best(l) = max(best(l - 1), max over d of F(d) + best(l - d - 1)) for intervals whose ends lie in l + 1 periods. A
    wider window is cut into pieces; an interval that is cut is no more than its parts.
    """
    N, F = float(_columns(periods, periods)[0]), _differences(periods, periods)
    pieces = -(-(span + 1) // LARGEST_WINDOW)
    last = min(span, LARGEST_WINDOW - 1)
    best = np.full(last + 3, -inf)
    best[0] = best[1] = 0.0  # best(l) is best[l + 1]: nothing fits before the window
    for at in range(1, last + 1):
        best[at + 1] = max(best[at], float((F[1 : at + 1] + best[at - 1 :: -1][:at]).max()))
    if pieces > 1:
        return pieces * float(best[last + 1]) + N
    return max(float(best[last + 1]), float(best[last]) + N)


# The search over the periods of few mutations


@dataclass(frozen=True, slots=True)
class Most:
    """attained: ‖C x‖² of some entry, in units squared. bound: no entry exceeds it; equal where the search ended."""

    attained: float
    bound: float


@dataclass(frozen=True, slots=True)
class Products:
    """G of the columns 0, step, 2·step, …, shape (n, n), above the diagonal; a column beyond the calendar is all 0.

    whole: how many of the columns lie within the window that is looked at.
    """

    table: Floats
    step: int
    whole: int


def products(periods: int, band: int, last: int) -> Products:
    """The products of C's columns up to `last`, which may be the number of periods: the column beyond the calendar."""
    step = -(-(last + 1) // MOST_COLUMNS)
    count = -(-last // step) + 1
    columns = step * np.arange(count)
    c = square_root_coefficients(band)
    table = np.zeros((count, count))
    for apart in range(count):
        lag = apart * step
        if lag >= band:
            break
        sums = np.concatenate([[0.0], np.cumsum(c[: band - lag] * c[lag:])])
        rows = np.clip(periods - columns[apart:], 0, band - lag)
        table[np.arange(count - apart), np.arange(apart, count)] = sums[rows]
    return Products(table, step, last // step + 1)


@lru_cache(maxsize=64)
def most_of_patterns(corners: tuple[Corner, ...], mutations: int, periods: int, band: int, span: int) -> Most:
    """The most over at most so many mutations, from the first to the last at most `span` periods apart.

    corners: of what an entry counts for; nobody, who counts for nothing, is one of them in any case. Returns a bound of
    infinity for more than MOST_MUTATIONS, except in windows so short that every pattern is looked at.
    """
    last = periods if span >= periods - 1 else span
    nobody = (0,) * len(corners[0])
    few = len({*corners, nobody}) ** (last + 1) <= MOST_PATTERNS
    if not few and mutations > MOST_MUTATIONS[len(corners) > 2]:
        return Most(0.0, inf)
    held = products(periods, band, last)
    largest = max(abs(f) for corner in corners for f in corner)
    if few:
        each = _of_every_pattern(np.array(sorted({*corners, nobody})) / largest, mutations, held) * largest**2
        return Most(each, each)
    forms = list(_forms(np.array(corners) / largest, mutations))
    tried = [_searched(form, held, 0.0, TRIED)[0] for form in forms]
    attained, bound, left = max(tried), 0.0, MOST_BOXES
    for at in sorted(range(len(forms)), key=lambda at: -tried[at]):
        attained, exceeded_by_none, looked_at = _searched(forms[at], held, attained, left)
        bound, left = max(bound, exceeded_by_none), left - looked_at
    return Most(attained * largest**2, max(attained, bound) * largest**2)


def _of_every_pattern(corners: Floats, mutations: int, held: Products) -> float:
    """The most over all that an entry can hold in each period of a short window. corners: nobody among them."""
    periods = len(held.table)
    ways = np.indices((len(corners),) * periods).reshape(periods, -1).T
    nobody = int(np.flatnonzero(~corners.any(1))[0])
    before = np.concatenate([np.full((len(ways), 1), nobody), ways[:, :-1]], 1)
    ways = ways[(ways != before).sum(1) <= mutations]
    jumps = np.diff(corners[ways], axis=1, prepend=np.zeros((len(ways), 1, corners.shape[1])))
    table = held.table + np.triu(held.table, 1).T
    return float(np.einsum("ntw,ts,nsw->n", jumps, table, jumps, optimize=True).max())


def _forms(corners: Floats, mutations: int) -> Iterator[Floats]:
    """The different <a_i, a_j> of all ways through the corners, shape (k, k), with k mutations or one less.

    Ways with fewer are among these: they hold a corner for no time at all.
    """
    known: set[bytes] = set()
    for k in range(mutations, max(0, mutations - 2), -1):
        for way in product(range(len(corners)), repeat=k):
            jumps = np.diff(corners[list(way)], axis=0, prepend=0.0)
            form = jumps @ jumps.T
            if jumps[0].any() and all(a != b for a, b in pairwise(way)) and form.tobytes() not in known:
                known.add(form.tobytes())
                yield form


def _searched(form: Floats, held: Products, attained: float, most_boxes: int) -> tuple[float, float, int]:
    """The most of Σ_ij A_ij G(p_i, p_j) over periods p_1 <= … <= p_k, of which the first is the calendar's first.

    form: A, shape (k, k). attained: what is known to be attained by this form or another. Boxes of periods are halved
    where their G differs most; those that promise no more than is attained are dropped. Returns what is attained by
    then, what no periods exceed, and how many boxes were looked at, at most `most_boxes`.
    """
    k, bound, looked_at = len(form), 0.0, 1
    narrow = 2 if held.step > 1 else 1  # where columns are left out, the halves of a box share their border
    low, high = np.zeros((2, 1, k), np.int16)
    high[:, 1:] = len(held.table) - 1
    while len(low):
        above, gaps = _bounded(form, held.table, low, high)
        attained = max(attained, float(_values(form, held, np.minimum((low + high) // 2, held.whole - 1)).max()))
        gaps[high - low < narrow] = -1.0
        ends = gaps.max(1) < 0
        bound = max(bound, float(above[ends].max(initial=0.0)))
        open_ = ~ends & (above > max(attained, bound) * (1 + CLOSE))
        if looked_at + 2 * int(open_.sum()) > most_boxes:
            return attained, max(attained, bound, float(above[open_].max(initial=0.0))), looked_at
        low, high = _halves(low[open_], high[open_], gaps[open_].argmax(1), shared=narrow == 2)
        looked_at += len(low)
    return attained, max(attained, bound), looked_at


def _values(form: Floats, held: Products, places: Places) -> Floats:
    """Σ_ij A_ij G(p_i, p_j) for each row of periods."""
    found = np.zeros(len(places))
    for i in range(len(form)):
        for j in range(i, len(form)):
            found += (1 if i == j else 2) * form[i, j] * held.table[places[:, i], places[:, j]]
    return found


def _bounded(form: Floats, table: Floats, low: Places, high: Places) -> tuple[Floats, Floats]:
    """An upper bound over all periods within each box, and how much each period's range adds to it.

    G lies between its values at two corners of a box. The terms of one mutation and all later ones are bounded twice,
    one by one and summed by parts, as G falls the later the later mutation comes; the smaller bound is taken.

        Σ_{j>i} A_ij G_ij = Σ_{j>i} S_ij (G_ij - G_i,j+1),   S_ij = A_i,i+1 + … + A_ij
    """
    k, nothing = len(form), np.zeros(len(low))
    above, gaps = np.zeros(len(low)), np.zeros(low.shape)
    for i in range(k):
        own = table[low[:, i], low[:, i]]
        above += form[i, i] * own
        gaps[:, i] += form[i, i] * (own - table[high[:, i], high[:, i]])
        later = range(i + 1, k)
        most = [*(table[np.minimum(high[:, i], low[:, j]), low[:, j]] for j in later), nothing]
        least = [*(table[low[:, i], high[:, j]] for j in later), nothing]
        apart, by_parts, sum_ = nothing.copy(), nothing.copy(), 0.0
        for n, j in enumerate(later):
            weight = 2 * form[i, j]
            sum_ += weight
            apart += weight * (most[n] if weight > 0 else least[n])
            by_parts += sum_ * (most[n] - least[n + 1] if sum_ > 0 else np.maximum(least[n] - most[n + 1], 0.0))
            gap = abs(weight) * (most[n] - least[n])
            gaps[:, i] += gap
            gaps[:, j] += gap
        above += np.minimum(apart, by_parts)
    return above, gaps


def _halves(low: Places, high: Places, which: NDArray[np.int64], shared: bool) -> tuple[Places, Places]:
    """Each box cut in two along one of its periods, with what the order of periods then leaves of it."""
    rows = np.arange(len(low))
    middle = (low[rows, which] + high[rows, which]) // 2
    first, second = high.copy(), low.copy()
    first[rows, which] = middle
    second[rows, which] = middle + (not shared)
    low = np.maximum.accumulate(np.concatenate([low, second]), 1)
    high = np.minimum.accumulate(np.concatenate([first, high])[:, ::-1], 1)[:, ::-1]
    kept = (low <= high).all(1)
    return low[kept], high[kept]
