"""Measure 3 of the central releases: sigma-counting, the paper's two studies.

Columns are binary, 11 and 21 of them. A query leaves each column alone with probability 0.8 and else asks for one of
its values. "simulated" rows have independent columns; "census" ones have the dependence of a census: four kinds of
person, which decide how likely each column is. Budgets are equal: epsilon 1 for all queries of a study.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from changeling_central import BudgetExhausted, Noise
from changeling_central.testing import SeededNoise
from changeling_papers import (
    Algebra,
    Atoms,
    Benchmark,
    Domain,
    OnlineCounting,
    Query,
    SigmaCounting,
    Table,
    clustered,
    grouped,
)
from changeling_statistics import Counts, Floats

ROWS, EPSILON, SEED = 30_000, Fraction(1), 3
QUERIES = (100, 1_000, 10_000)
RUNS = {11: 40, 21: 2}
"""How often the noise is drawn, by the number of columns."""
KINDS, LARGEST = ("simulated", "census"), (21, 10_000)
"""The largest study takes minutes of its own, and is `largest`."""
LEFT_ALONE = 0.8
ASKED = 200
"""Of one large algebra so many queries are answered, as each adds up a great many atoms; of the others all are."""


@dataclass(frozen=True, slots=True)
class Study:
    """counts: the truth of each query, shape (queries,). runs: how often the noise is drawn."""

    table: Table
    queries: list[Query]
    counts: Floats
    runs: int


def measure() -> dict[str, float]:
    """Ratios are the benchmark's mean squared error over the method's, above 1 where the method is better.

    `ordered` is of the values that are never out of order, `unbiased` of the estimates before clipping.
    """
    figures: dict[str, float] = {}
    for kind in KINDS:
        for columns in RUNS:
            for n in QUERIES:
                if (columns, n) != LARGEST:
                    figures |= of_study(kind, columns, n)
    return figures


def largest() -> dict[str, float]:
    """The same of 10,000 queries over 21 columns."""
    return {name: figure for kind in KINDS for name, figure in of_study(kind, *LARGEST).items()}


def of_study(kind: str, columns: int, n: int) -> dict[str, float]:
    """The figures of one study, each with its name."""
    name = f"{kind}_{columns}_columns_{n}_queries"
    return {f"3_{key}_{name}": figure for key, figure in compared(made_up(kind, columns, n)).items()}


def compared(study: Study) -> dict[str, float]:
    """S2, S3 and S4 over S1. An answer is the sum of its atoms, which are looked up once for all runs."""
    noise, n = SeededNoise(SEED), len(study.queries)
    one = SigmaCounting(Algebra.of(study.queries), EPSILON)
    few = slice(None) if one.algebra.atoms < 10_000 else slice(ASKED)
    of_one = [one.algebra.members(query) for query in study.queries[few]]
    clusters = grouped(study.queries, EPSILON)
    places = [clusters.place(query) for query in study.queries]
    paid, online = Benchmark(EPSILON, EPSILON / n).noise, Streamed.of(study)
    errors: list[tuple[float, ...]] = []
    for _ in range(study.runs):
        _, noisy = one.step(one.start(), study.table, noise)
        held, _ = clusters.step(clusters.start(), study.table, noise)
        each = [state.noisy for state in held.each]
        errors.append(
            (
                float((paid.draw(noise, n) ** 2).mean()),
                *squared([(noisy, atoms) for atoms in of_one], study.counts[few]),
                *squared([(each[place[0]], place[1]) for place in places if place is not None], study.counts),
            )
        )
    streamed: Floats = np.mean([online.errors(study, noise) for _ in range(max(1, study.runs // 8))], 0)
    means = np.concatenate([np.mean(errors, 0), streamed])
    names = [f"{system}_ratio_{of}" for system in ("s2", "s3", "s4") for of in ("ordered", "unbiased")]
    return {
        "atoms": float(one.algebra.atoms),
        "benchmark_rmse": float(np.sqrt(means[0])),
        **{name: float(means[0] / error) for name, error in zip(names, means[1:], strict=True)},
        "s3_algebras": float(len(clusters.algebras)),
        "s4_expected_free_share": online.expected_free,
    }


def squared(answers: Sequence[tuple[Counts | None, Atoms | None]], counts: Floats) -> tuple[float, float]:
    """Mean squared errors of values and of estimates: of the atoms' noisy counts, clipped or not, added up."""
    held = [noisy[atoms] for noisy, atoms in answers if noisy is not None and atoms is not None]
    values = np.array([np.maximum(one, 0).sum() for one in held]) - counts
    estimates = np.array([one.sum() for one in held]) - counts
    return float((values**2).mean()), float((estimates**2).mean())


@dataclass(frozen=True, slots=True)
class Streamed:
    """S4: the first half of the queries known ahead, the others arriving one by one.

    How many of these will be free is expected from the known queries alone: of their second half, those that the
    algebras of their first half hold. Shares of the budget are then those of `clusters`, a query of its own weighing 1.
    """

    known: list[Query]
    mechanism: OnlineCounting
    share: Fraction
    expected_free: float

    @classmethod
    def of(cls, study: Study) -> "Streamed":
        half = len(study.queries) // 2
        known, coming = study.queries[:half], len(study.queries) - half
        tried = clustered(known[: half // 2])
        held = [any(cluster.algebra.members(query) is not None for cluster in tried) for query in known[half // 2 :]]
        free = sum(held) / len(held)
        paying = 1 + round((1 - free) * coming)
        weight = sum(cluster.root for cluster in clustered(known))
        share = EPSILON * round(weight / (weight + paying) * 10**6) / 10**6
        return cls(known, OnlineCounting(study.table.domain, EPSILON, (EPSILON - share) / paying), share, free)

    def errors(self, study: Study, noise: Noise) -> tuple[float, float]:
        """Squared errors of all answers. What was not expected to pay and does is answered 0 once nothing is left."""
        mechanism = self.mechanism
        state = mechanism.grouped(mechanism.start(), study.table, self.share, noise, self.known)
        answers: list[tuple[int, int]] = []
        for query in study.queries:
            try:
                state, answer = mechanism.step(state, (study.table, query), noise)
                answers.append((answer.value, answer.estimate))
            except BudgetExhausted:
                answers.append((0, 0))
        ordered, unbiased = ((np.array(answers) - study.counts[:, None]) ** 2).mean(0)
        return float(ordered), float(unbiased)


def made_up(kind: str, columns: int, n: int) -> Study:
    random = np.random.default_rng(SEED + columns)
    names = [f"c{i}" for i in range(columns)]
    domain = Domain.of(**{name: [False, True] for name in names})
    chances = random.uniform(0.1, 0.6, (4, columns))
    kinds = random.choice(4, ROWS, p=[0.4, 0.3, 0.2, 0.1]) if kind == "census" else np.zeros(ROWS, np.int64)
    cells = random.random((ROWS, columns)) < chances[kinds]
    table = domain.table({name: cells[:, i] for i, name in enumerate(names)})
    queries: list[Query] = []
    while len(queries) < n:
        asked = random.choice(3, columns, p=[LEFT_ALONE, (1 - LEFT_ALONE) / 2, (1 - LEFT_ALONE) / 2])
        parts = [f"{'not ' * (how == 1)}{name}" for name, how in zip(names, asked.tolist(), strict=True) if how]
        if parts:
            queries.append(Query.of(domain, " and ".join(parts)))
    counts = np.array([query.count(table) for query in queries], np.float64)
    return Study(table, queries, counts, RUNS[columns])
