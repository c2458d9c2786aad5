"""The groups that a plan may be made of. An entry draws one, once, and the whole budget goes to it.

Panels report the state at r random nodes, one in each of r equal stretches of the horizon, at epsilon/r each.
Change cadences come at every width, from the start or, in a closed cohort, from after the first period. Mixes give a
part of the budget to the state at an anchor or at one random time, and the rest to changes after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise, product

import numpy as np
from changeling_protocol import Group

from ..estimate import Floats
from ..estimation.expected import persistence, share_there
from ..estimation.network import Indices
from ..randomizers import Offer
from .losses import Span
from .randomizer_choice import best_change, best_state
from .wish import LEAST_EPSILON, Wish

MOST_PANEL_REPORTS = 16
PHASES = 4
"""A panel's stretches may be divided again, and every entry kept to one part of each: its reports are evener spaced."""
EARLY = (1.5, 3.0)
"""Stretches that grow with this power of time: an online estimate has little to go by at first."""
STATE_PARTS = tuple(Decimal(part) / 100 for part in (4, 6, 8, 10, 12, 15, 20, 30, 40, 50, 60, 70, 80))
"""Parts of the budget that a mix may give to the state."""
BRANCHINGS, LAYERS = (3, 5, 8, 16), (2, 3)
HIERARCHY_STATE = Decimal("0.1")
MIXED_WIDTHS = (1, 2, 3, 4, 7, 14, 28)
LEAST_VARIANCE = 1e-7
"""Where nothing can change, a report of no change is all but exact; the systems stay well conditioned."""
ALL_WIDTHS = 64
"""Cadences of every width up to here, then of every eighth more."""


@dataclass(frozen=True, slots=True)
class Part:
    """One track of a candidate, its randomizer chosen and not yet made."""

    span: Span
    offer: Offer
    changes: bool


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A group of tracks as edges of the release graph.

    kind: panel, changes, hierarchy or mix. start, end: of its E edges, shape (E,). response: the variance of each,
    times the group's share and the number of devices, in squared fractions. sampling: what asking only some adds,
    E δ²; together as planned_variance weighs them.
    """

    kind: str
    parts: tuple[Part, ...]
    start: Indices
    end: Indices
    response: Floats
    sampling: Floats

    @property
    def variance(self) -> Floats:
        """What each edge counts for: response and sampling together, shape (E,)."""
        return np.maximum(self.response + self.sampling, LEAST_VARIANCE)

    @property
    def touches(self) -> int:
        """How many times an edge begins or ends at, the ground left out."""
        return len(np.union1d(self.start[self.start > 0], self.end))

    def without_sampling(self) -> "Candidate":
        """The same group without sampling error, as it has none if everybody is in it."""
        return replace(self, sampling=np.zeros(len(self.sampling)))

    def group(self, share: int = 1) -> Group:
        """The group of a release plan, with this share of the entries."""
        return Group(tuple(part.span.track(part.offer.make()) for part in self.parts), share)


def candidates(wish: Wish) -> list[Candidate]:
    """Every group worth trying. Raises ValueError where the budget is too small for any."""
    known = _Expected(wish)
    worth_trying = [known.candidate(kind, parts) for kind, parts in _groups(wish, known) if parts is not None]
    if not worth_trying:
        raise ValueError(f"epsilon {wish.epsilon} is too small to report anything: raise it")
    return worth_trying


def _groups(wish: Wish, known: "_Expected") -> Iterator[tuple[str, tuple[Part, ...] | None]]:
    for bounds in _stretches(wish):
        yield "panel", _panel(wish, bounds)
    later = int(wish.closed)
    for width in _widths(wish.periods):
        for first in sorted({later, width if wish.closed else 0, 0}):
            yield "changes", _changes(wish, known, Span(width, first, wish.periods), wish.epsilon)
    for branching, layers in product(BRANCHINGS, LAYERS):
        if 2 * branching ** (layers - 1) <= wish.periods:
            yield "hierarchy", _hierarchy(wish, known, branching, layers)
    for width in (width for width in MIXED_WIDTHS if 2 * width <= wish.periods):
        for part in STATE_PARTS:
            state, rest = wish.epsilon * part, wish.epsilon * (1 - part)
            for first in sorted({1, width}):
                anchor = _state(wish, Span(first, 0, first), state, 1)
                yield "mix", _joined(anchor, _changes(wish, known, Span(width, first, wish.periods), rest))
            changes = _changes(wish, known, Span(width, later, wish.periods), rest)
            middle = wish.periods // 2
            if wish.closed and middle:
                yield "mix", _joined(_state(wish, Span(1, middle - 1, middle), state, 1), changes)
            yield "mix", _joined(_state(wish, Span(1, 0, wish.periods, 1), state, 1), changes)


def _widths(periods: int) -> list[int]:
    widths, width = [], 1
    while width <= periods:
        widths.append(width)
        width += max(1, width // 8) if width >= ALL_WIDTHS else 1
    return widths


def _stretches(wish: Wish) -> Iterator[list[tuple[int, int]]]:
    """The stretches of each panel: for every r one panel, its phases, and the early ones."""
    T = wish.periods
    for r in range(1, min(MOST_PANEL_REPORTS, T) + 1):
        yield list(pairwise(_cut(T, r, 1.0)))
        if r > 1 and r * PHASES <= T:
            fine = list(pairwise(_cut(T, r * PHASES, 1.0)))
            yield from (fine[phase::PHASES] for phase in range(PHASES))
        if not wish.retrospective and 1 < r <= T // 4:
            for power in EARLY:
                yield list(pairwise(_cut(T, r, power)))
    yield [(0, 1)]


def _cut(periods: int, pieces: int, power: float) -> list[int]:
    """The ends of pieces of (0, periods], at least one period long each."""
    cuts = [round(periods * (i / pieces) ** power) for i in range(pieces + 1)]
    for i in range(1, pieces):
        cuts[i] = max(cuts[i], cuts[i - 1] + 1)
    return cuts


def _panel(wish: Wish, stretches: list[tuple[int, int]]) -> tuple[Part, ...] | None:
    r = len(stretches)
    return _joined(*(_state(wish, Span(1, first, last, 1), wish.epsilon, r) for first, last in stretches))


def _hierarchy(wish: Wish, known: "_Expected", branching: int, layers: int) -> tuple[Part, ...] | None:
    """Nested cadences, the budget in equal parts, after the state at the first period if that is everybody's."""
    state = wish.epsilon * HIERARCHY_STATE if wish.closed else Decimal(0)
    anchor = _state(wish, Span(1, 0, 1), state, 1) if wish.closed else ()
    each = (wish.epsilon - state) / layers
    spans = [Span(branching**i, int(wish.closed), wish.periods) for i in range(layers)]
    return _joined(anchor, *(_changes(wish, known, span, each) for span in spans))


def _state(wish: Wish, span: Span, budget: Decimal, reports: int) -> tuple[Part, ...] | None:
    offer = best_state(wish.answers, not wish.closed, budget, reports)
    whole = span if span.count > 1 else Span(span.width, span.first, span.last)
    return None if offer is None else (Part(whole, offer, changes=False),)


def _changes(wish: Wish, known: "_Expected", span: Span, budget: Decimal) -> tuple[Part, ...] | None:
    if span.count < 1 or budget < LEAST_EPSILON:
        return None
    offer = best_change(wish, span, budget, known.moved(span.width))
    return None if offer is None else (Part(span, offer, changes=True),)


def _joined(*parts: tuple[Part, ...] | None) -> tuple[Part, ...] | None:
    return None if any(part is None for part in parts) else tuple(p for part in parts if part for p in part)


class _Expected:
    """What a wish expects of nodes, many at a time; the same as estimation/expected.py says of one."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._there = np.array([share_there(wish.expected, time) for time in range(wish.periods + 1)])

    def moved(self, width: int) -> float:
        """The share of entries with an answer that have another one so much later."""
        z = self._wish.answers
        return float((1 - 1 / z) * (1 - persistence(z, self._wish.expected) ** width))

    def candidate(self, kind: str, parts: tuple[Part, ...]) -> Candidate:
        starts, ends, responses, spreads = (list(each) for each in zip(*map(self._edges, parts), strict=True))
        edges = np.concatenate(starts), np.concatenate(ends)
        return Candidate(kind, parts, *edges, np.concatenate(responses), np.concatenate(spreads))

    def _edges(self, part: Part) -> tuple[Indices, Indices, Floats, Floats]:
        span, offer, z = part.span, part.offer, self._wish.answers
        end = span.first + span.width * np.arange(1, span.count + 1)
        start = end - span.width if part.changes else np.zeros_like(end)
        before, after = self._there[start], self._there[end]
        moved = before * self.moved(span.width) if part.changes else np.zeros(len(end))
        response = offer.variances.mixed(moved, after - before)
        if part.changes and self._wish.closed:
            response = np.where(start > 0, offer.conserved.mixed(moved, after - before), response)
        # An entry that moved left one answer and came to another; one that came did half of it.
        spread = (2 * moved + after - before) / z - (self._wish.closed & (start == 0)) / z**2
        chance = span.reports / span.count
        return start, end, response / chance, spread / chance
