"""A population: how many entries have which history, at the ends of a calendar's periods; and a survey of it.

Entries with the same history are one row with a weight, so a billion entries take no more room than their distinct
histories. Each history is kept twice: as it truly was, and frozen, as the devices report it under the constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

import numpy as np
from changeling_protocol import Calendar, Constraint, Node, Survey, Track
from changeling_statistics import Changelog, Counts, admitted, hierarchical_plan
from numpy.typing import NDArray

States: TypeAlias = NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """The distinct histories of a population over T periods, and how many entries have each.

    answers: the names of the states 1..z; state 0 is NULL.
    true: the states at the ends of periods 0..T, shape (rows, T+1); at period 0, before the calendar, all are NULL.
    frozen: the same of what the devices report on, where the constraint has frozen some entries.
    weights: how many entries have each history, shape (rows,).
    Raises ValueError if the shapes do not fit, or there is no entry.

    >>> states = np.array([[0, 1, 1], [0, 1, 2]], np.uint16)  # one answer all along; a change in the second period
    >>> Population(("tea", "coffee"), states, states, np.array([30, 10])).histogram().tolist()
    [[0, 0], [40, 0], [30, 10]]
    """

    answers: tuple[str, ...]
    true: States
    frozen: States
    weights: Counts

    def __post_init__(self) -> None:
        if not self.true.shape == self.frozen.shape == (len(self.weights), self.periods + 1):
            raise ValueError("a population's true and frozen states must have a row per weight")
        if self.true[:, 0].any() or self.frozen[:, 0].any():
            raise ValueError("before the calendar every entry is NULL")
        if self.entries < 1:
            raise ValueError("a population must have an entry")

    @classmethod
    def from_changelog(cls, changelog: Changelog, calendar: Calendar, constraint: Constraint) -> "Population":
        """The population of a changelog's entries, who all join as the calendar starts.

        An answer held by then is inserted then; mutations after the last period are left out.
        constraint: what freezes an entry in its `frozen` history.
        """
        inside = changelog.since(calendar.start)
        ends = [calendar.time(i) for i in range(1, calendar.periods + 1)]
        true = inside.states_at(ends)
        frozen = inside.take(admitted(inside, constraint)).states_at(ends)
        return cls.of_states(changelog.answers, true, frozen)

    @classmethod
    def of_states(
        cls, answers: tuple[str, ...], true: NDArray[np.integer], frozen: NDArray[np.integer] | None = None
    ) -> "Population":
        """The population of entries with these states at the ends of periods 1..T, (entries, T); all begin with NULL.

        frozen: the same of what they report, if that is something else.
        """
        histories, weights = _distinct(np.hstack([true, true if frozen is None else frozen]).astype(np.uint16))
        held, told = (np.pad(states, ((0, 0), (1, 0))) for states in np.hsplit(histories, 2))
        return cls(answers, held, told, weights)

    @classmethod
    def of_freezing(cls, changelog: Changelog, calendar: Calendar, constraint: Constraint) -> "Population":
        """What the entries of `from_changelog` answer to the freezing question: no, and yes once a mutation is refused.

        >>> from changeling_protocol import AtMost
        >>> from changeling_statistics import read_rows
        >>> rows = [(1, 5, "tea"), (1, 90_000, "coffee"), (2, 5, "tea")]
        >>> Population.of_freezing(read_rows(rows), Calendar(0, "1d", 2), AtMost(1)).histogram().tolist()
        [[0, 0], [2, 0], [1, 1]]
        """
        inside = changelog.since(calendar.start)
        ends = [calendar.time(i) for i in range(1, calendar.periods + 1)]
        answered = inside.states_at(ends) > 0
        refused = inside.take(~admitted(inside, constraint))
        frozen = replace(refused, state=np.ones_like(refused.state)).states_at(ends) > 0
        begun = np.maximum.accumulate(answered | frozen, axis=1)
        return cls.of_states(("no", "yes"), begun.astype(np.uint16) + frozen)

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self.weights.sum())

    @property
    def periods(self) -> int:
        """T, how many periods the histories last."""
        return len(self.true[0]) - 1

    def resampled(self, entries: int, generator: np.random.Generator) -> "Population":
        """A population of entries that are drawn from this one with replacement (the bootstrap).

        entries: how many, at least 1; a billion takes no longer than one. generator: draws them.
        Raises ValueError for fewer than one.
        """
        if entries < 1:
            raise ValueError(f"a population must have an entry, got {entries}")
        weights = generator.multinomial(entries, self.weights / self.entries)
        drawn = weights > 0
        return replace(self, true=self.true[drawn], frozen=self.frozen[drawn], weights=weights[drawn])

    def histogram(self) -> Counts:
        """The true histograms at times 0..T, shape (T+1, z), in entries."""
        return self._count(self.true)

    def frozen_histogram(self) -> Counts:
        """The histograms of the frozen histories, for which estimates are unbiased; shape (T+1, z), in entries."""
        return self._count(self.frozen)

    def inputs(self, track: Track, node: Node) -> NDArray[np.intp]:
        """The input that each history gives a track's randomizer on a node, shape (rows,)."""
        return inputs_of(track, self.frozen[:, node.start], self.frozen[:, node.end])

    def mutation_counts(self, track: Track, node: Node, weights: Counts | None = None) -> Counts:
        """How many entries have each input of a track's randomizer on a node: s, shape (m,).

        weights: how many entries of each row report on the node, shape (rows,); if not given, all of them.
        """
        weights = self.weights if weights is None else weights
        return weighted_counts(self.inputs(track, node), weights, track.randomizer.space.size)

    def _count(self, states: States) -> Counts:
        d = len(self.answers) + 1
        return np.array([weighted_counts(column, self.weights, d)[1:] for column in states.T])


def inputs_of(track: Track, old: NDArray[np.integer], new: NDArray[np.integer]) -> NDArray[np.intp]:
    """The inputs that entries give a track's randomizer on a node: their states at its start and end, shape (n,).

    Raises ValueError for a state that is none of the track's.
    """
    space = track.randomizer.space
    d = space.answers + 1
    pairs = old.astype(np.intp) * d + new
    index = np.zeros(d * d, np.intp)
    for pair in np.flatnonzero(np.bincount(pairs, minlength=d * d)).tolist():
        index[pair] = space.index(*divmod(pair, d))
    inputs: NDArray[np.intp] = index[pairs]
    return inputs


def _distinct(rows: States) -> tuple[States, Counts]:
    """The distinct rows and how often each occurs; np.unique by rows does this twenty times slower."""
    rows = rows[np.lexsort(rows.T)]
    first = np.flatnonzero(np.concatenate([[True], np.any(rows[1:] != rows[:-1], axis=1)]))
    return rows[first], np.diff(first, append=len(rows))


def weighted_counts(values: NDArray[np.integer], weights: Counts, size: int) -> Counts:
    """The sum of the weights of each value from 0 on, shape (size,).

    Added as floats, which is exact below 2^53 entries.
    """
    return np.bincount(values, weights, size).astype(np.int64)


def paper_survey(
    answers: Sequence[str],
    calendar: Calendar,
    constraint: Constraint,
    *,
    epsilon: Decimal,
    branching: int = 2,
    layers: int = 1,
) -> Survey:
    """A survey whose entries all report on every layer of a hierarchy through k-RR, as in Pan 2023.

    answers: the names of the answers.
    calendar, constraint: the survey's.
    epsilon: the most that an entry may lose over the whole calendar.
    branching: c; layers have nodes of 1, c, c², … periods.
    layers: how many; one is the flat release.
    What only devices and a server need (skew, spread, grace, minimum) is filled with the least there is.
    Raises ValueError if there is no such plan.

    >>> from changeling_protocol import AtMost
    >>> daily = Calendar(0, "1d", 8)
    >>> [track.width for track in paper_survey(("tea",), daily, AtMost(2), epsilon=Decimal(8), layers=2).plan.tracks]
    [1, 2]
    """
    plan = hierarchical_plan(len(answers), calendar, constraint, epsilon=epsilon, branching=branching, layers=layers)
    return Survey.at_cost(
        question="a simulation",
        answers=answers,
        calendar=calendar,
        constraint=constraint,
        plan=plan,
        skew=0,
        spread=1,
        grace=2,
        minimum=1,
    )


def closed_cohort(
    entries: int, answers: int, periods: int, most_changes: int, generator: np.random.Generator
) -> Population:
    """Entries who all answer from the first period on and change their answer 0 to `most_changes` times, a row each.

    The first answer is uniform. Every number of changes is equally likely, at independent uniform periods from the
    second to the last, each to a uniformly random other answer. Two may fall into one period; a node sees their sum.

    >>> closed_cohort(1000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1)).entries
    1000
    """
    state = generator.integers(1, answers + 1, entries)
    changes = generator.integers(0, most_changes + 1, entries)
    times = np.sort(
        np.where(
            np.arange(most_changes) < changes[:, None],
            generator.integers(2, periods + 1, (entries, most_changes)),
            periods + 1,
        )
    )
    states = np.zeros((entries, periods + 1), np.uint16)
    states[:, 1:] = state[:, None]
    for change in range(most_changes):
        state = 1 + (state - 1 + generator.integers(1, answers, entries)) % answers
        after = np.arange(periods + 1) >= times[:, change, None]
        states = np.where(after, state[:, None], states).astype(np.uint16)
    names = tuple(f"answer {i}" for i in range(1, answers + 1))
    return Population(names, states, states, np.ones(entries, np.int64))
