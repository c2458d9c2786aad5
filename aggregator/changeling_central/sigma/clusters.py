"""Which queries share an algebra: clusters of the columns that queries constrain, from the queries alone.

A cluster g of budget ε_g answers its queries with variance 2/ε_g² for each piece of each, A_g pieces in all. With
Σ ε_g = ε, the sum Σ 2·A_g/ε_g² is least at ε_g ∝ A_g^(1/3), where it is 2·(Σ A_g^(1/3))³/ε². Joining clusters saves
budget and makes pieces finer: they are joined, the best pair first, while Σ A_g^(1/3) falls, where A_g is bounded by
the combinations of classes and by m·2^(m-1) for m queries. One cluster for every query is the benchmark, one for all
is sigma-counting. Source: sigma-counting, section 3.2, which leaves the clustering open; the criterion is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from changeling_statistics import Floats
from numpy.typing import NDArray

from .algebra import Algebra, shared_classes
from .query import MOST_CELLS, Classes, Query, firsts_of

SMALL = 2**16
"""So many combinations of classes make one algebra for all queries cheap to try as well."""


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Queries that share an algebra.

    queries: distinct. atoms: how many each query is made of, added up over the queries.
    """

    queries: tuple[Query, ...]
    algebra: Algebra
    atoms: int

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "Cluster":
        """The cluster of these queries."""
        algebra = Algebra.of(queries)
        held = (algebra.members(query) for query in queries)
        return cls(tuple(queries), algebra, sum(max(1, len(atoms)) for atoms in held if atoms is not None))

    @property
    def root(self) -> float:
        """A^(1/3): the cluster's share of the budget is in proportion to it."""
        return float(self.atoms ** (1 / 3))


def clustered(queries: Sequence[Query]) -> list[Cluster]:
    """The clusters of these queries, in an order that does not depend on theirs. Queries that mean the same are one.

    Raises ValueError for no queries.
    """
    if not queries:
        raise ValueError("there are no queries to group")
    distinct = sorted({query.key: query for query in queries}.values(), key=lambda query: query.key)
    columns, shared = shared_classes(distinct)
    classes = dict(zip(columns, shared, strict=True))
    split = np.log([int(parts.max()) + 1 for parts in shared])
    patterns: dict[tuple[int, ...], list[Query]] = {}
    for query in distinct:
        patterns.setdefault(query.columns, []).append(query)
    groups: list[list[Query]] = []
    for pattern, group in patterns.items():
        too_fine = split[np.isin(columns, pattern)].sum() > np.log(MOST_CELLS)
        groups.extend([query] for query in group) if too_fine else groups.append(group)
    _join(groups, columns, classes, split)
    clusters = [Cluster.of(group) for group in groups if group]
    if split.sum() <= np.log(SMALL):
        whole = Cluster.of(distinct)
        if whole.root < sum(cluster.root for cluster in clusters):
            return [whole]
    return clusters


def _join(groups: list[list[Query]], columns: Sequence[int], classes: dict[int, Classes], split: Floats) -> None:
    """Joins the groups in place, the best pair first; those that joined another are left empty."""
    state = _Groups(
        np.array([np.isin(columns, group[0].columns) for group in groups], np.float64).reshape(len(groups), -1),
        np.log([max(1.0, sum(_pieces(query, classes) for query in group)) for group in groups]),
        np.array([float(len(group)) for group in groups]),
        split,
    )
    best, mate = state.best_of_all()
    stale = np.zeros(len(groups), np.bool_)  # what joined can only have lost: `best` is then a bound from above
    while best.max(initial=-np.inf) > 1e-9:
        one = int(best.argmax())
        if stale[one]:
            gains = state.gains(one)
            best[one], mate[one], stale[one] = gains.max(), gains.argmax(), False
            continue
        other = int(mate[one])
        state.join(one, other)
        groups[one], groups[other] = groups[one] + groups[other], []
        stale |= (mate == one) | (mate == other)
        gains = state.gains(one)
        gains[other] = best[other] = -np.inf
        best[one], mate[one], stale[one] = gains.max(), gains.argmax(), False
        better = gains > best
        better[one] = False
        best[better], mate[better], stale[better] = gains[better], one, False


def _pieces(query: Query, classes: dict[int, Classes]) -> float:
    """How many combinations of the shared classes of its columns the query holds."""
    held = query.mask.astype(np.float64)
    for column, parts in zip(query.columns, query.classes, strict=True):
        held = np.tensordot(np.bincount(parts[firsts_of(classes[column])]).astype(np.float64), held, axes=(0, 0))
    return float(held)


@dataclass(slots=True)
class _Groups:
    """What joining needs to know of every group.

    bits: which columns each constrains, (groups, columns). pieces: ln of the combinations that its queries hold.

    sizes: how many queries; 0 for a group that joined another. split: ln of the classes of each column.
    """

    bits: Floats
    pieces: Floats
    sizes: Floats
    split: Floats

    def join(self, one: int, other: int) -> None:
        self.pieces[one] = self.joined(one)[other]
        self.bits[one] = np.maximum(self.bits[one], self.bits[other])
        self.sizes[one] += self.sizes[other]
        self.sizes[other] = 0

    def joined(self, row: int) -> Floats:
        """`pieces` of `row` with each: what either lacks splits it finer."""
        mine = self.bits[row]
        together: Floats = np.logaddexp(
            self.pieces[row] + (self.bits * (1 - mine)) @ self.split,
            self.pieces + ((1 - self.bits) * mine) @ self.split,
        )
        return together

    def gains(self, row: int) -> Floats:
        """By how much Σ A^(1/3) falls if `row` and each other are joined."""
        sizes = self.sizes
        gain = _root(self.pieces[row : row + 1], sizes[row : row + 1]) + _root(self.pieces, sizes)
        gain -= _root(self.joined(row), sizes[row] + sizes)
        too_fine = np.maximum(self.bits, self.bits[row]) @ self.split > np.log(MOST_CELLS)
        gain[(sizes == 0) | too_fine] = -np.inf
        gain[row] = -np.inf
        return gain

    def best_of_all(self) -> tuple[Floats, NDArray[np.int64]]:
        """Of each group the gain with the best other one, and which that is."""
        best, mate = np.empty(len(self.sizes)), np.zeros(len(self.sizes), np.int64)
        for row in range(len(self.sizes)):
            gains = self.gains(row)
            mate[row] = gains.argmax()
            best[row] = gains[mate[row]]
        return best, mate


def _root(pieces: Floats, sizes: Floats) -> Floats:
    """A^(1/3): of m queries, at most m·2^(m-1) atoms are counted in all."""
    few = np.log(np.maximum(sizes, 1)) + (sizes - 1) * np.log(2)
    root: Floats = np.exp(np.minimum(pieces, few) / 3)
    return root
