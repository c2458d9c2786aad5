"""Bounds of streaming composition, against the exact law of all that is released, by listing every history: of small
mechanisms, each with a trait that a bound could stumble over."""

from fractions import Fraction
from itertools import product
from math import prod

import pytest
from changeling_papers import FiniteMechanism, StreamingMechanism, region_of_laws, stream_bound

HALF = (Fraction(1, 2), Fraction(1, 2))


def transcript_law(stream, mechanisms, z):
    """Pr[y_1, …, y_t | the newest k-1 blocks are z], transcripts in lexicographic order; one mechanism a step."""
    steps, k = len(mechanisms), stream.blocks
    masses = {outputs: Fraction(0) for outputs in product(range(stream.real.outputs), repeat=steps)}
    databases = list(product(range(len(stream.law)), repeat=k))
    for hidden in product(range(len(stream.law)), repeat=steps):
        held = (*hidden, *z)
        weight = prod((stream.law[value] for value in hidden), start=Fraction(1))
        columns = [each.column(databases.index(held[s : s + k])) for s, each in enumerate(mechanisms)]
        for outputs in masses:
            masses[outputs] += weight * prod((column[y] for column, y in zip(columns, outputs, strict=True)))
    return tuple(masses.values())


def transcript_region(stream, steps):
    """The exact privacy region of t steps: of the laws in the two worlds, for every z and choice of alterations."""
    altered = [*product(stream.altered, repeat=steps)]
    laws = {z: transcript_law(stream, [stream.real] * steps, z) for z in stream.known()}
    return region_of_laws((real, transcript_law(stream, each, z)) for z, real in laws.items() for each in altered)


def told(bit, right):
    """The probabilities of reporting 0 and 1 of a bit, true with probability `right`."""
    return (1 - right, right) if bit else (right, 1 - right)


def reported(bit, right):
    """The law of such a report."""
    return dict(enumerate(told(bit, right)))


def flipped(bits):
    return (1 - bits[0], *bits[1:])


def raised(bits):
    return (1, *bits[1:])


def both_reported(right_old, right_new, law):
    """Two bits held, each reported by randomized response; altered: the older turned round. Of fair bits a single
    step tells nothing, and two steps what was said of the same bit first as the newer, then as the older."""

    def respond(bits):
        old, new = told(bits[0], right_old), told(bits[1], right_new)
        return {(u, v): old[u] * new[v] for u, v in product((0, 1), repeat=2)}

    return StreamingMechanism.of(law, 2, respond, flipped)


def noisy_count(blocks, law):
    """The count of ones held plus noise that halves at each step away, cut to the counts there are; altered: the
    oldest is 1."""

    def respond(bits):
        weights = {y: Fraction(1, 2 ** abs(y - sum(bits))) for y in range(blocks + 1)}
        return {y: weight / sum(weights.values()) for y, weight in weights.items()}

    return StreamingMechanism.of(law, blocks, respond, raised)


def quiet_half(bits):
    """As of two-sided bits, but half the time it says nothing: an output whose own ε and γ are 0."""
    old, new = (told(bit, F(9, 10)) for bit in bits)
    return {(u, v): old[u] * new[v] / 2 for u, v in product((0, 1), repeat=2)} | {"nothing": F(1, 2)}


F = Fraction
TWO_SLOPES = [{"a": "3/5", "b": "3/10", "c": "1/10"}, {"a": "1/5", "b": "1/5", "c": "3/5"}]
"""Two outputs that speak for the database, 13/5 and 7/5 to 1, and one that speaks against it, 3 to 1."""
STREAMS = {
    # nothing is held over
    "independent": StreamingMechanism.of(HALF, 1, lambda bits: reported(bits[0], F(3, 4)), lambda _: (0,)),
    "two-sided": both_reported(F(3, 4), F(2, 3), HALF),
    "biased bits": both_reported(F(3, 4), F(2, 3), (F(1, 5), F(4, 5))),
    "count of two": noisy_count(2, HALF),
    "count of three": noisy_count(3, (F(2, 3), F(1, 3))),
    # a row of a block of 2 that is altered in whichever place it has come to: one alteration per place, and none
    "wherever it is": StreamingMechanism.of(
        (F(1, 3), F(2, 3)),
        2,
        lambda bits: reported(bits[0] ^ bits[1], F(2, 3)),
        *(lambda x: (0, x[1]), lambda x: (x[0], 0), lambda x: x),
    ),
    "quiet half": StreamingMechanism.of(HALF, 2, quiet_half, flipped),
    # what is told of the older bit depends on the newer: nearly all where it is 1, little where it is 0
    "uneven": StreamingMechanism.of(HALF, 2, lambda bits: reported(bits[0], F(9, 10) if bits[1] else F(3, 5)), raised),
    "two slopes": StreamingMechanism.of((F(4, 5), F(1, 5)), 1, lambda bits: TWO_SLOPES[bits[0]], raised),
}
RATIOS = [F(1), F(9, 8), F(3, 2), F(2), F(4), F(10)]
every_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)


@every_stream
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_no_transcript_tells_more_than_the_theorem(stream, steps):
    """Over every z, transcript and choice of alterations δ is 0 from ε_max + (t-1)γ on, and the exact δ(ε) is never
    above `curve`, at any corner of either and between."""
    bound, true = stream_bound(stream), transcript_region(stream, steps)
    assert true.delta_at_ratio(bound.ratio(steps)) == 0
    curve = bound.curve(steps)
    for ratio in [*RATIOS, *(c.ratio for c in true.corners()), *(c.ratio for c in curve.corners())]:
        assert true.delta_at_ratio(ratio) <= curve.delta_at_ratio(ratio)


@every_stream
def test_the_parts_of_the_bound_are_their_definitions(stream):
    """ε_max over equal z, γ over all pairs (z, z'), both directions, from laws summed block by block; γ >= ε_max. Of
    one step `curve` is the transcript's region."""
    real = {z: transcript_law(stream, [stream.real], z) for z in stream.known()}
    altered = [(z, transcript_law(stream, [each], z)) for each in stream.altered for z in stream.known()]
    pairs = [(z, w, p, q) for z, p in real.items() for w, q in altered]
    ratios = [(z, w, max(max(a / b, b / a) for a, b in zip(p, q, strict=True))) for z, w, p, q in pairs]
    bound = stream_bound(stream)
    assert bound.slope == max(ratio for z, w, ratio in ratios if z == w)
    assert bound.cross == max(ratio for _, _, ratio in ratios) >= bound.slope
    assert bound.curve(1) == transcript_region(stream, 1)


def test_independent_databases_attain_the_bound_and_dependent_ones_come_as_close_as_one_likes():
    """c = 1: ε_t = t·ε_max, reached by the transcript. With half of the database held over and one step telling
    nothing, at 2 steps e^ε reaches 2.99 of 3."""
    stream = STREAMS["independent"]
    for steps in (1, 2, 4):
        assert transcript_region(stream, steps).corners()[0].ratio == stream_bound(stream).ratio(steps) == 2**steps
    half = both_reported(F(999, 1000), F(3, 4), HALF)
    bound = stream_bound(half)
    assert (bound.slope, bound.ratio(2)) == (1, 3)
    assert F(299, 100) < transcript_region(half, 2).corners()[0].ratio < 3


def test_pairs_do_not_add_up_step_by_step():
    """A step is (0, 0)-private, and t·(0, 0) false at t = 2: the transcript's e^ε is 7/5 and its δ(0) 1/6."""
    stream = STREAMS["two-sided"]
    assert stream_bound(stream).slope == 1
    true = transcript_region(stream, 2)
    assert true.corners()[0].ratio == F(7, 5)
    assert true.delta_at_ratio(F(1)) == F(1, 6)


def test_an_outputs_own_gamma_does_not_compose():
    """An output of slope 1, shift 0, own γ = 0: ε_i + (t-1)γ_i at t·δ_i would be (0, 0); the truth is e^ε = 41/9."""
    stream = STREAMS["quiet half"]
    last = stream.real.outputs - 1
    laws = [stream.given(each, z) for each in (stream.real, *stream.altered) for z in stream.known()]
    assert {law[last] for law in laws} == {F(1, 2)}
    assert transcript_region(stream, 2).corners()[0].ratio == F(41, 9)
    assert transcript_region(stream, 2).delta_at_ratio(F(1)) > 0


def test_a_pair_of_one_z_is_none_of_another():
    """Where the known bit is 0 a step is (ln 5/4, 0)-private: a pair of the paper's set that the mechanism breaks."""
    stream = STREAMS["uneven"]
    p, q = (stream.given(each, (0,)) for each in (stream.real, stream.altered[0]))
    assert max(max(a / b, b / a) for a, b in zip(p, q, strict=True)) == F(5, 4)
    assert transcript_region(stream, 1).delta_at_ratio(F(5, 4)) > 0


def test_one_direction_of_the_ratio_is_not_enough():
    """The largest P⁰/P¹, as the paper prints it, is 13/5; the other way round an output is 3 times likelier."""
    stream = STREAMS["two slopes"]
    p, q = stream.given(stream.real, ()), stream.given(stream.altered[0], ())
    forward = max(a / b for a, b in zip(p, q, strict=True))
    assert forward == F(13, 5)
    assert transcript_region(stream, 1).delta_at_ratio(forward) > 0
    assert stream_bound(stream).slope == 3


@every_stream
@pytest.mark.parametrize("steps", [2, 3])
def test_a_pair_that_holds_for_every_z_composes_with_gamma(stream, steps):
    """What is true of other pairs: (ε_i + (t-1)γ, δ_i), for each corner (ε_i, δ_i) of one step over all z."""
    bound, true = stream_bound(stream), transcript_region(stream, steps)
    for corner in bound.known.corners():
        assert true.delta_at_ratio(corner.ratio * bound.cross ** (steps - 1)) <= corner.delta


def test_the_printed_delta_is_the_shift_of_the_smallest_slope():
    """δ_max = P⁰(a) - 7/5·P¹(a) = 6/25 where the slopes are 13/5 and 7/5: the δ of one step there, and so true of it;
    of several the true δ at ε_t is 0."""
    bound, one = stream_bound(STREAMS["two slopes"]), transcript_region(STREAMS["two slopes"], 1)
    assert one.delta_at_ratio(F(7, 5)) >= F(13, 25) - F(7, 5) * F(1, 5) == F(6, 25)
    assert bound.curve(3).delta_at_ratio(bound.ratio(3)) == 0


def test_a_mechanism_without_noise_breaks_assumption_1():
    """An output that some z rules out, and other z do not: named, with the z; whichever world it is in."""

    def exact(bits):
        return {sum(bits): 1}

    with pytest.raises(ValueError, match=r"output 0 never comes from the database where the known blocks are \(1,\)"):
        StreamingMechanism.of(HALF, 2, exact, flipped)
    with pytest.raises(ValueError, match=r"output 0 never comes from alteration 0 where the known blocks are \(\)"):
        StreamingMechanism.of(HALF, 1, exact, lambda _: (1,))


def test_an_output_that_never_comes_breaks_nothing():
    """Assumption 1 (b): outside W all are 0."""
    rows = [["3/4", "1/4"], ["1/4", "3/4"], [0, 0]]
    real = FiniteMechanism.of(rows, [])
    stream = StreamingMechanism(HALF, 1, real, (FiniteMechanism.of([row[::-1] for row in rows], []),))
    assert stream_bound(stream).slope == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"law": ["1/2", "1/4"]}, "the law of a block adds up to 3/4"),
        ({"law": [1, 0]}, "leave the others out"),
        ({"blocks": 0}, "at least 1 block"),
        ({"alterations": []}, "has an alteration"),
    ],
)
def test_what_is_no_stream_is_named(change, named):
    """Laws, blocks and alterations."""
    given = {"law": HALF, "blocks": 1, "alterations": [lambda bits: bits], **change}
    with pytest.raises(ValueError, match=named):
        StreamingMechanism.of(
            given["law"], given["blocks"], lambda bits: reported(sum(bits), F(3, 4)), *given["alterations"]
        )


def test_matrices_of_another_shape_and_step_0_are_named():
    """Two blocks of two values are four columns; steps are counted from 1."""
    square = FiniteMechanism.of([["1/2", "1/2"], ["1/2", "1/2"]])
    with pytest.raises(ValueError, match="2 outputs by 4 databases, got 2 by 2"):
        StreamingMechanism(HALF, 2, square, (square,))
    bound = stream_bound(STREAMS["independent"])
    for asked in (bound.ratio, bound.epsilon, bound.curve):
        with pytest.raises(ValueError, match="counted from 1, got 0"):
            asked(0)
