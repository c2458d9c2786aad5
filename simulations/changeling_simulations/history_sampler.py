"""The tallies of a history group, without drawing entries; and what each entry sends, where entries are drawn.

With probability γ an entry is true to its history at all times. Else it sends a possible history that has nothing to do
with its own, which is drawn time by time: entries that have reported alike so far are one row of a table.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from changeling_protocol import Group, HistoryKernel, HistoryState, NodeNumber
from changeling_statistics import Counts, NodeTally
from numpy.typing import NDArray

from .population import Population

Symbols = NDArray[np.intp]


def history_nodes(
    population: Population, group: Group, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[int, NodeNumber, NodeTally]]:
    """Draws the tally of every node of a history group, in order.

    members: how many entries of each of the population's histories are in the group, shape (rows,).
    Yields the track's place in the group, the node's number, and its tally.
    """
    kernel = group.histories
    true = generator.binomial(members, float(kernel.told))
    others = Counter({HistoryState(true=False): int(members.sum() - true.sum())})
    for place, track in enumerate(group.tracks):
        for number in track.node_numbers():
            slots = population.mutation_counts(track, track.node(number), true)
            others = _one_more(kernel, others, generator)
            for state, count in others.items():
                slots[state.last] += count
            yield place, number, NodeTally(int(members.sum()), slots)


def _one_more(
    kernel: HistoryKernel, entries: Counter[HistoryState], generator: np.random.Generator
) -> Counter[HistoryState]:
    """The entries by what they remember, once each has drawn one more report of the base."""
    after: Counter[HistoryState] = Counter()
    possible = kernel.possible
    for state, count in entries.items():
        chances = np.full(possible.states, chance_of_change(kernel, state) / (possible.states - 1))
        chances[state.last] = 0.0
        chances[state.last] = 1.0 - chances.sum()
        drawn = generator.multinomial(count, chances)
        for symbol in np.flatnonzero(drawn).tolist():
            after[possible.after(state, symbol, true=False)] += int(drawn[symbol])
    return after


def chance_of_change(kernel: HistoryKernel, state: HistoryState) -> float:
    """How likely the next report of the base is not the last one again; exact, but for one rounding to a float."""
    stays, changes = kernel.possible.going_on(state)
    changing = (kernel.possible.states - 1) * changes
    return changing / (stays + changing)


class SentHistories:
    """What each of some entries of a history group sends.

    kernel: the group's. entries: how many there are. generator: draws everything.
    """

    def __init__(self, kernel: HistoryKernel, entries: int, generator: np.random.Generator) -> None:
        self._kernel, self._generator = kernel, generator
        self._true = generator.random(entries) < float(kernel.told)
        self._drawn = 0
        self._last, self._first, self._changed = (np.zeros(entries, np.intp) for _ in range(3))

    def next(self, inputs: Symbols) -> Symbols:
        """The symbols at the group's next time, whether they are sent or not; (entries,). inputs: the truth."""
        possible, generator = self._kernel.possible, self._generator
        codes, of_entry = np.unique(self._first * (possible.times + 1) + self._changed, return_inverse=True)
        states = (
            HistoryState(self._drawn, 0, first, changed)
            for first, changed in (divmod(code, possible.times + 1) for code in codes.tolist())
        )
        chances = np.array([chance_of_change(self._kernel, state) for state in states])
        changes = generator.random(len(self._last)) < chances[of_entry]
        other = generator.integers(possible.states - 1, size=len(self._last))
        symbols = np.where(changes, other + (other >= self._last), self._last)
        self._drawn += 1
        answered = (self._first == 0) & ((symbols > 0) | (not possible.null))
        self._changed += changes & (self._first > 0)
        self._first[answered] = self._drawn
        self._last = symbols
        return np.where(self._true, inputs, symbols)
