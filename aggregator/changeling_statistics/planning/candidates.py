"""The groups that a plan may be made of. An entry draws one of them, once, and spends its whole budget there.

- A panel reports the state at r random nodes, one in each of r stretches of the horizon, with epsilon/r each.
- A cadence reports changes over all nodes of one width, from the start or, in a closed cohort, from after the first
  period.
- A hierarchy is several cadences, each with an equal part of the budget.
- A mix spends a part of the budget on the state at a fixed or a random time, and the rest on changes after it.
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
"""The most reports of a panel."""
PHASES = 4
"""A stretch may be cut into so many parts, of which an entry uses one and the same: its reports are evener spaced."""
EARLY = (1.5, 3.0)
"""Stretches may grow with one of these powers of time, as an online estimate has little to go by at first."""
STATE_SHARES = tuple(Decimal(percent) / 100 for percent in (4, 6, 8, 10, 12, 15, 20, 30, 40, 50, 60, 70, 80))
"""The shares of the budget that a mix may spend on the state."""
BRANCHINGS, LAYERS = (3, 5, 8, 16), (2, 3)
"""Of hierarchies."""
HIERARCHY_STATE = Decimal("0.1")
"""The share of the budget that a hierarchy in a closed cohort spends on the first state."""
MIXED_WIDTHS = (1, 2, 3, 4, 7, 14, 28)
"""The widths, in periods, of the changes in a mix."""
LEAST_VARIANCE = 1e-7
"""Variances are at least this: where nothing can change they would be all but 0, and systems badly conditioned."""
ALL_WIDTHS = 64
"""Up to this width there is a cadence of every width; from there on the next is an eighth wider."""


@dataclass(frozen=True, slots=True)
class Part:
    """One track of a candidate.

    span: its nodes.
    offer: its randomizer, which is chosen but not made yet.
    changes: whether it reports changes; if not, states.
    """

    span: Span
    offer: Offer
    changes: bool


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A group of tracks as E edges of the release graph.

    kind: panel, changes, hierarchy or mix.
    parts: its tracks.
    start, end: the two times of each edge, shape (E,).
    response: the variance that the randomizers add to each edge, shape (E,), in squared fractions; to be divided by
    the group's share of the entries and by how many entries there are.
    sampling: what asking only a part of the entries adds, likewise.
    """

    kind: str
    parts: tuple[Part, ...]
    start: Indices
    end: Indices
    response: Floats
    sampling: Floats

    @property
    def variance(self) -> Floats:
        """The variance of each edge, response and sampling together, shape (E,), at least LEAST_VARIANCE."""
        return np.maximum(self.response + self.sampling, LEAST_VARIANCE)

    @property
    def touches(self) -> int:
        """At how many times after 0 an edge begins or ends."""
        return len(np.union1d(self.start[self.start > 0], self.end))

    def without_sampling(self) -> "Candidate":
        """The same group without sampling error: there is none if everybody is in it."""
        return replace(self, sampling=np.zeros(len(self.sampling)))

    def group(self, share: int = 1) -> Group:
        """The group for a release plan, its randomizers made.

        share: how many entries draw it, beside the shares of other groups.
        """
        return Group(tuple(part.span.track(part.offer.make()) for part in self.parts), share)


def candidates(wish: Wish) -> list[Candidate]:
    """Every group that is worth trying for a wish. Raises ValueError if the budget is too small for any."""
    known = _Expectation(wish)
    worth_trying = [known.candidate(kind, parts) for kind, parts in _groups(wish, known) if parts is not None]
    if not worth_trying:
        raise ValueError(f"epsilon {wish.epsilon} is too small to report anything: raise it")
    return worth_trying


def _groups(wish: Wish, known: "_Expectation") -> Iterator[tuple[str, tuple[Part, ...] | None]]:
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
        for share in STATE_SHARES:
            state, rest = wish.epsilon * share, wish.epsilon * (1 - share)
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
    """The stretches (start, end] of every panel: for each r equal ones, their parts, and such that grow with time."""
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
    """The bounds of some pieces of (0, periods], each at least one period long, that grow with a power of time."""
    cuts = [round(periods * (i / pieces) ** power) for i in range(pieces + 1)]
    for i in range(1, pieces):
        cuts[i] = max(cuts[i], cuts[i - 1] + 1)
    return cuts


def _panel(wish: Wish, stretches: list[tuple[int, int]]) -> tuple[Part, ...] | None:
    r = len(stretches)
    return _joined(*(_state(wish, Span(1, first, last, 1), wish.epsilon, r) for first, last in stretches))


def _hierarchy(wish: Wish, known: "_Expectation", branching: int, layers: int) -> tuple[Part, ...] | None:
    """Nested cadences with equal parts of the budget; in a closed cohort after a report of the first state."""
    state = wish.epsilon * HIERARCHY_STATE if wish.closed else Decimal(0)
    anchor = _state(wish, Span(1, 0, 1), state, 1) if wish.closed else ()
    budget = (wish.epsilon - state) / layers
    spans = [Span(branching**i, int(wish.closed), wish.periods) for i in range(layers)]
    return _joined(anchor, *(_changes(wish, known, span, budget) for span in spans))


def _state(wish: Wish, span: Span, budget: Decimal, reports: int) -> tuple[Part, ...] | None:
    offer = best_state(wish.answers, not wish.closed, budget, reports)
    whole = span if span.count > 1 else Span(span.width, span.first, span.last)
    return None if offer is None else (Part(whole, offer, changes=False),)


def _changes(wish: Wish, known: "_Expectation", span: Span, budget: Decimal) -> tuple[Part, ...] | None:
    if span.count < 1 or budget < LEAST_EPSILON:
        return None
    offer = best_change(wish, span, budget, known.moved(span.width))
    return None if offer is None else (Part(span, offer, changes=True),)


def _joined(*parts: tuple[Part, ...] | None) -> tuple[Part, ...] | None:
    """All parts together; None if the budget was too small for one of them."""
    return None if any(part is None for part in parts) else tuple(p for part in parts if part for p in part)


class _Expectation:
    """The variances that a wish expects of nodes, as estimation/expected.py has them, for many nodes at once."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._there = np.array([share_there(wish.expected, time) for time in range(wish.periods + 1)])

    def moved(self, width: int) -> float:
        """The share of the entries with an answer that have another one so many periods later."""
        z = self._wish.answers
        return float((1 - 1 / z) * (1 - persistence(z, self._wish.expected) ** width))

    def candidate(self, kind: str, parts: tuple[Part, ...]) -> Candidate:
        """The candidate that these tracks make."""
        starts, ends, responses, spreads = (list(column) for column in zip(*map(self._edges, parts), strict=True))
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
