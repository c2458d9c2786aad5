"""The door for tests of the papers' systems: small streaming databases, and by listing every history the exact law of
what is released of them.

Bounds of streaming composition are checked against it, so it uses none of the steps that they are proved by.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import prod

from .regions import FiniteMechanism, Law, PrivacyRegion, region_of_laws
from .streaming import StreamingMechanism


def transcript_law(stream: StreamingMechanism, mechanisms: Sequence[FiniteMechanism], z: tuple[int, ...]) -> Law:
    """Pr[y_1, …, y_t | the newest k-1 blocks are z], transcripts in lexicographic order; one mechanism a step."""
    steps, k = len(mechanisms), stream.blocks
    masses = {outputs: Fraction(0) for outputs in product(range(stream.real.outputs), repeat=steps)}
    for hidden in product(range(len(stream.law)), repeat=steps):
        held = (*hidden, *z)
        weight = prod((stream.law[value] for value in hidden), start=Fraction(1))
        columns = [each.column(stream.column(held[s : s + k])) for s, each in enumerate(mechanisms)]
        for outputs in masses:
            masses[outputs] += weight * prod((column[y] for column, y in zip(columns, outputs, strict=True)))
    return tuple(masses.values())


def transcript_pairs(stream: StreamingMechanism, steps: int) -> Iterator[tuple[Law, Law]]:
    """The laws in the two worlds, for every z and every choice of alterations."""
    for z in stream.known():
        real = transcript_law(stream, [stream.real] * steps, z)
        for altered in product(stream.altered, repeat=steps):
            yield real, transcript_law(stream, altered, z)


def transcript_region(stream: StreamingMechanism, steps: int) -> PrivacyRegion:
    """The exact privacy region of t steps."""
    return region_of_laws(transcript_pairs(stream, steps))


def both_reported(right_old: Fraction, right_new: Fraction, law: Law) -> StreamingMechanism:
    """Two bits held, each reported by randomized response; altered: the older turned round. Of fair bits a single
    step tells nothing, and two steps what was said of the same bit first as the newer, then as the older."""

    def respond(bits: tuple[int, ...]) -> dict[tuple[int, int], Fraction]:
        first, second = told(bits[0], right_old), told(bits[1], right_new)
        return {(u, v): first[u] * second[v] for u, v in product((0, 1), repeat=2)}

    return StreamingMechanism.of(law, 2, respond, lambda bits: (1 - bits[0], bits[1]))


def noisy_count(blocks: int, law: Law) -> StreamingMechanism:
    """The count of ones held plus noise that halves at each step away, cut to the counts there are; altered: the
    oldest is 1."""

    def respond(bits: tuple[int, ...]) -> dict[int, Fraction]:
        weights = {y: Fraction(1, 2 ** abs(y - sum(bits))) for y in range(blocks + 1)}
        return {y: weight / sum(weights.values()) for y, weight in weights.items()}

    return StreamingMechanism.of(law, blocks, respond, lambda bits: (1, *bits[1:]))


def told(bit: int, right: Fraction) -> tuple[Fraction, Fraction]:
    """The probabilities of reporting 0 and 1 of a bit, true with probability `right`."""
    return (1 - right, right) if bit else (right, 1 - right)
