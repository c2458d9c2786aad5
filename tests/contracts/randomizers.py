"""Every randomizer, several parameters each, small enough to enumerate."""

from fractions import Fraction

from changeling_protocol import (
    BALANCED,
    BasedResponse,
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
        for z, pluses, odds, spoken in [
            (1, BALANCED, Odds(3, 1), Fraction(1)),
            (2, BALANCED, Odds(3, 1), Fraction(1)),
            (2, BALANCED, Odds(7, 2), Fraction(2, 5)),
            (2, 1, Odds(7, 2), Fraction(2, 5)),
            (3, BALANCED, Odds(7, 2), Fraction(2, 5)),
            (3, 1, Odds(3, 1), Fraction(1)),
        ]
    ),
    *(
        SignedSubset(MutationSpace(z, null=False), odds, pluses, spoken)
        for z, pluses, odds, spoken in [
            (2, BALANCED, Odds(7, 2), Fraction(2, 5)),
            (3, BALANCED, Odds(3, 1), Fraction(1)),
            (3, BALANCED, Odds(7, 2), Fraction(2, 5)),
            (3, 1, Odds(3, 1), Fraction(1)),
            (4, BALANCED, Odds(3, 1), Fraction(1)),
            (4, 1, Odds(7, 2), Fraction(2, 5)),
        ]
    ),
    BasedResponse(StateSpace(1), 3, 2, 1),
    BasedResponse(StateSpace(2), 4, 1, 2),
    BasedResponse(StateSpace(3), 5, 7, 2),
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
