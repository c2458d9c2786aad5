"""Every randomizer, several parameters each, small enough to enumerate; and what enumeration says of one."""

from fractions import Fraction
from math import lcm

import numpy as np
from changeling_protocol import (
    BALANCED,
    CustomResponse,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    UnaryEncoding,
)
from changeling_statistics import counterpart_of, histogram_change


def steep(space):
    """A custom matrix with unlike weights and column totals, and more symbols than inputs."""
    m = space.size
    rows = [tuple(9 + v if o == v else 1 + (3 * o + 5 * v + o * v) % 4 for v in range(m)) for o in range(m)]
    return CustomResponse(space, (*rows, tuple(2 + v % 3 for v in range(m))))


def only_what_is_estimated(space):
    """A signed subset's matrix for even d: its symbols tell the changes of the histogram, not the mutations."""
    signed = SignedSubset(space, Odds(3, 1), BALANCED, Fraction(1, 2))
    return CustomResponse(
        space, tuple(tuple(signed.weight(o, v) for v in range(space.size)) for o in range(signed.symbols))
    )


RANDOMIZERS = [
    KaryResponse(MutationSpace(1), Odds(3, 1)),
    KaryResponse(MutationSpace(2), Odds(7, 2)),
    KaryResponse(MutationSpace(3), Odds(3, 2)),
    KaryResponse(MutationSpace(2, repeats=True), Odds(2, 1)),
    KaryResponse(MutationSpace(3, null=False), Odds(7, 2)),
    KaryResponse(StateSpace(2), Odds(3, 2)),
    KaryResponse(StateSpace(3, null=False), Odds(5, 1)),
    KaryResponse(StateSpace(1, null=False), Odds(5, 1)),
    *(
        SignedSubset(MutationSpace(z), odds, pluses, spoken)
        for z, pluses in [(1, BALANCED), (2, BALANCED), (2, 1), (3, BALANCED), (3, 1)]
        for odds, spoken in [(Odds(3, 1), Fraction(1)), (Odds(7, 2), Fraction(2, 5))]
    ),
    *(
        SignedSubset(MutationSpace(z, null=False), odds, pluses, spoken)
        for z, pluses in [(2, BALANCED), (3, BALANCED), (3, 1), (4, BALANCED), (4, 1)]
        for odds, spoken in [(Odds(3, 1), Fraction(1)), (Odds(7, 2), Fraction(2, 5))]
    ),
    KaryChange(MutationSpace(1), Odds(3, 1)),
    KaryChange(MutationSpace(2), Odds(7, 2)),
    KaryChange(MutationSpace(2, null=False), Odds(3, 1)),
    KaryChange(MutationSpace(3, null=False), Odds(7, 2)),
    SubsetSelection(StateSpace(1), Odds(3, 1), 1),
    SubsetSelection(StateSpace(2), Odds(7, 2), 1),
    SubsetSelection(StateSpace(3), Odds(3, 1), 2),
    SubsetSelection(StateSpace(3), Odds(7, 2), 3),
    SubsetSelection(StateSpace(3, null=False), Odds(7, 2), 2),
    UnaryEncoding(StateSpace(1), Odds(3, 1)),
    UnaryEncoding(StateSpace(3), Odds(3, 1)),
    UnaryEncoding(StateSpace(3, null=False), Odds(5, 2)),
    steep(MutationSpace(1)),
    steep(MutationSpace(2)),
    steep(MutationSpace(2, repeats=True)),
    steep(MutationSpace(2, null=False)),
    steep(StateSpace(3)),
    steep(StateSpace(2, null=False)),
    only_what_is_estimated(MutationSpace(3)),
]

LARGER = [
    SignedSubset(MutationSpace(4), Odds(20, 1), BALANCED, Fraction(1, 6)),
    SignedSubset(MutationSpace(5), Odds(20, 1), BALANCED, Fraction(1, 6)),
    SignedSubset(MutationSpace(5), Odds(3, 1), 2),
    SignedSubset(MutationSpace(5, null=False), Odds(20, 1), BALANCED, Fraction(1, 6)),
    SignedSubset(MutationSpace(6, null=False), Odds(3, 1), 2, Fraction(1, 2)),
    KaryChange(MutationSpace(4), Odds(20, 1)),
    SubsetSelection(StateSpace(5), Odds(7, 2), 3),
    UnaryEncoding(StateSpace(5), Odds(3, 1)),
]
"""Where vectors and sets have rests of more than two states, which z <= 3 never shows."""


def name(randomizer) -> str:
    space = randomizer.space
    kind = f"{type(space).__name__[0]}{space.answers}{'+' * getattr(space, 'repeats', False)}"
    rest = [randomizer.kind, *(f"{value}" for value in randomizer.as_fields().values())]
    return f"{kind}{'' if getattr(space, 'null', True) else '-closed'}-{'-'.join(rest)}"[:60].replace(" ", "")


def possible(space) -> list[int]:
    """The inputs that occur: all but the pairs (r, r) of the paper's alphabet."""
    return [u for u in range(space.size) if u == 0 or not space.reports_changes or space.pair(u)[0] != space.pair(u)[1]]


def matrices(randomizer):
    """P (symbols, inputs) and M_δv (z, inputs), spelled out."""
    space = randomizer.space
    P = np.array(
        [[randomizer.weight(o, u) / randomizer.total(u) for u in range(space.size)] for o in range(randomizer.symbols)]
    )
    M = np.zeros((space.answers + 1, space.size))
    for u in range(space.size):
        old, new = space.pair(u)
        M[new, u] += 1
        M[old, u] -= 1
    return P, M[1:]


def one_report(randomizer, symbol):
    return histogram_change(counterpart_of(randomizer).tally(np.array([symbol], dtype=np.uint64)), randomizer)


def worst_fraction(randomizer, above, below) -> Fraction:
    """The largest Pr(o|u)/Pr(o|v) over all symbols, u of `above`, v of `below`; 1 where there are none."""
    common = lcm(*(randomizer.total(u) for u in {*above, *below}))
    rows = [
        {u: randomizer.weight(o, u) * (common // randomizer.total(u)) for u in {*above, *below}}
        for o in range(randomizer.symbols)
    ]
    return max((Fraction(row[u], row[v]) for row in rows for u in above for v in below), default=Fraction(1))


def covariance_around(decoded, chances, truth):
    """Of decoded values, a row per outcome, with these chances."""
    away = decoded - truth
    return (away * chances[:, None]).T @ away


def expected_covariance(counterpart) -> bool:
    """Check the estimated covariance of one report for every true input; returns whether it is labelled as a bound.

    Unbiased; or, where labelled, never below the exact one in any direction.
    """
    randomizer = counterpart.randomizer
    P, M = matrices(randomizer)
    tallies = [counterpart.tally(np.array([symbol], np.uint64)) for symbol in range(randomizer.symbols)]
    estimates = [counterpart.estimate(tally) for tally in tallies]
    decoded = np.array([estimate.values for estimate in estimates])
    for u in possible(randomizer.space):
        expected = sum(P[o, u] * estimate.covariance for o, estimate in enumerate(estimates))
        exact = covariance_around(decoded, P[:, u], M[:, u])
        scale = max(1, abs(exact).max())
        if estimates[0].upper_bound:
            assert np.linalg.eigvalsh(expected - exact)[0] > -1e-9 * scale
        else:
            np.testing.assert_allclose(expected, exact, atol=1e-9 * scale)
    return estimates[0].upper_bound
