"""Small streaming mechanisms, each with a trait that a bound could stumble over."""

from fractions import Fraction
from itertools import product

from changeling_papers import StreamingMechanism

from benchmarks.small_streams import both_reported, noisy_count, told

HALF = (Fraction(1, 2), Fraction(1, 2))


def flipped(bits):
    return (1 - bits[0], *bits[1:])


def independent(right):
    """c = 1: nothing is held over."""
    return StreamingMechanism.of(HALF, 1, lambda bits: dict(enumerate(told(bits[0], right))), lambda _: (0,))


def wherever_it_is():
    """A row of a block of 2 that is altered in whichever place it has come to: one alteration per place, and none."""

    def respond(bits):
        return dict(enumerate(told(bits[0] ^ bits[1], Fraction(2, 3))))

    return StreamingMechanism.of(
        (Fraction(1, 3), Fraction(2, 3)), 2, respond, lambda x: (0, x[1]), lambda x: (x[0], 0), lambda x: x
    )


def quiet_half():
    """Like both_reported, but half the time it says nothing: an output whose own ε and γ are 0."""

    def respond(bits):
        old, new = (told(bit, Fraction(9, 10)) for bit in bits)
        said = {(u, v): old[u] * new[v] / 2 for u, v in product((0, 1), repeat=2)}
        return {**said, "nothing": Fraction(1, 2)}

    return StreamingMechanism.of(HALF, 2, respond, flipped)


def uneven():
    """What is told of the older bit depends on the newer: nearly all where it is 1, little where it is 0."""

    def respond(bits):
        right = Fraction(9, 10) if bits[1] else Fraction(3, 5)
        return dict(enumerate(told(bits[0], right)))

    return StreamingMechanism.of(HALF, 2, respond, lambda bits: (1, *bits[1:]))


def two_slopes():
    """Two outputs that speak for the database, 13/5 and 7/5 to 1, and one that speaks against it, 3 to 1."""
    laws = [{"a": "3/5", "b": "3/10", "c": "1/10"}, {"a": "1/5", "b": "1/5", "c": "3/5"}]
    return StreamingMechanism.of((Fraction(4, 5), Fraction(1, 5)), 1, lambda bits: laws[bits[0]], lambda _: (1,))


STREAMS = {
    "independent": independent(Fraction(3, 4)),
    "two-sided": both_reported(Fraction(3, 4), Fraction(2, 3), HALF),
    "biased bits": both_reported(Fraction(3, 4), Fraction(2, 3), (Fraction(1, 5), Fraction(4, 5))),
    "count of two": noisy_count(2, HALF),
    "count of three": noisy_count(3, (Fraction(2, 3), Fraction(1, 3))),
    "wherever it is": wherever_it_is(),
    "quiet half": quiet_half(),
    "uneven": uneven(),
    "two slopes": two_slopes(),
}
