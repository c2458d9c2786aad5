"""Privacy regions against every test there is, closed forms, and laws over databases (CW)."""

import re
import sys
from fractions import Fraction
from itertools import pairwise, permutations, product
from math import comb, exp, inf, log
from pathlib import Path

import numpy as np
import pytest
from changeling_papers import FiniteMechanism, PrivacyRegion, cw_region, region_of, save_region_plot
from changeling_protocol import KaryResponse, MutationSpace, Odds, SignedSubset, StateSpace
from changeling_statistics import randomizer_curve

ROOT = Path(__file__).parents[2]
F = Fraction
RATIOS = [F(1), F(8, 7), F(3, 2), F(2), F(3), F(11, 2), F(40)]


def random_matrix(seed, outputs, databases):
    """Column-stochastic, with zeros and ties."""
    weights = np.random.default_rng(seed).integers(0, 5, (outputs, databases))
    weights[0] += weights.sum(0) == 0
    return FiniteMechanism.of(
        [[F(int(w), int(t)) for w, t in zip(row, weights.sum(0), strict=True)] for row in weights]
    )


MECHANISMS = {
    **{f"random {seed}": random_matrix(seed, 2 + seed % 4, 2 + seed % 3) for seed in range(6)},
    "one is certain": FiniteMechanism.of([[1, "1/2"], [0, "1/2"]]),
    "disjoint": FiniteMechanism.of([[1, 0], [0, 1]]),
    "silent": FiniteMechanism.of([["1/3", "1/3"], ["2/3", "2/3"]]),
}
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def every_test(mechanism):
    """(Pr[M(x) ∈ S], Pr[M(x') ∉ S]) of every set S of outputs and every ordered pair of neighbours."""
    for x, y in {way for pair in mechanism.neighbours for way in permutations(pair)}:
        p, q = mechanism.column(x), mechanism.column(y)
        for chosen in product((0, 1), repeat=mechanism.outputs):
            yield (
                sum((a for a, c in zip(p, chosen, strict=True) if c), F(0)),
                sum((b for b, c in zip(q, chosen, strict=True) if not c), F(0)),
            )


@every_mechanism
def test_the_vertices_are_those_of_the_hull_of_every_test(mechanism):
    """Over all sets of outputs and all ordered pairs: each is a test, in order round a polygon that only turns left,
    with no test on the right of an edge."""

    def turn(a, b, c):
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    vertices, tests = region_of(mechanism).vertices, set(every_test(mechanism))
    assert set(vertices) <= tests
    for a, b, c in zip(vertices, vertices[1:] + vertices[:1], vertices[2:] + vertices[:2], strict=True):
        assert turn(a, b, c) > 0 or len(vertices) == 2
        assert all(turn(a, b, test) >= 0 for test in tests)


@every_mechanism
def test_every_listed_pair_is_reached_by_a_test_and_least(mechanism):
    """Its line is a tangent; one part in a billion less δ is not private at that ε; ε falls and δ rises down the
    list."""
    region, tests = region_of(mechanism), list(every_test(mechanism))
    assert all(region.holds(*point) for point in tests)
    for (f, m), (g, n) in pairwise(region.best_tests):
        assert not region.holds((f + g) / 2 - F(1, 1000), (m + n) / 2 - F(1, 1000))
    for corner in region.corners():
        assert min(corner.ratio * f + m for f, m in tests) == 1 - corner.delta
        assert region.allows(corner.ratio, corner.delta)
        assert not region.allows(corner.ratio, corner.delta - F(1, 10**9))
    listed = [(corner.ratio, corner.delta) for corner in region.corners()]
    assert listed == sorted(listed, key=lambda pair: (-pair[0], pair[1]))


@every_mechanism
def test_private_is_what_the_definition_says_of_all_sets(mechanism):
    """Theorems 1 and 2: δ at e^ε = ratio is the largest Pr[M(x) ∈ S] - e^ε Pr[M(x') ∈ S], and no less is allowed."""
    region, tests = region_of(mechanism), list(every_test(mechanism))
    for ratio in RATIOS:
        largest = max(f - ratio * (1 - m) for f, m in tests)
        assert region.delta_at_ratio(ratio) == max(largest, F(0))
        assert region.delta_at(log(ratio)) == pytest.approx(max(float(largest), 0.0), abs=1e-12)
        assert region.epsilon_at(region.delta_at_ratio(ratio)) <= log(ratio) + 1e-12


@pytest.mark.parametrize(("m", "a", "b"), [(2, 3, 1), (3, 5, 2), (7, 20, 3)])
def test_the_region_of_k_rr_is_its_closed_form(m, a, b):
    """δ(ε) = max(0, p - e^ε q); corners (0, 1), (q, 1 - p), (1 - p, q), (1, 0); from matrix and protocol alike."""
    p, q = F(a, a + (m - 1) * b), F(b, a + (m - 1) * b)
    of_matrix = region_of(FiniteMechanism.of([[p if o == u else q for u in range(m)] for o in range(m)]))
    assert of_matrix == PrivacyRegion(randomizer_curve(KaryResponse(StateSpace(m, null=False), Odds(a, b))).points)
    assert list(of_matrix.best_tests) == list(dict.fromkeys([(F(0), F(1)), (q, 1 - p), (1 - p, q), (F(1), F(0))]))
    expected = [(F(a, b), F(0))] + ([(F(1), p - q)] if m > 2 else [])
    assert [(corner.ratio, corner.delta) for corner in of_matrix.corners()] == expected
    for ratio in RATIOS:
        assert of_matrix.delta_at_ratio(ratio) == max(F(0), p - ratio * q)


def test_the_canonical_mechanism_fills_its_own_bound():
    """The worst (ε, δ)-private mechanism (Kairouz, Oh, Viswanath 2017) has the region R(ε, δ) and no other line."""
    ratio, delta = F(5, 2), F(1, 10)
    high, low = (1 - delta) * ratio / (1 + ratio), (1 - delta) / (1 + ratio)
    region = region_of(FiniteMechanism.of([[delta, 0], [high, low], [low, high], [0, delta]]))
    assert [(corner.ratio, corner.delta) for corner in region.corners()] == [(ratio, delta)]
    meet = (1 - delta) / (1 + ratio)
    assert region.best_tests == ((F(0), 1 - delta), (meet, meet), (1 - delta, F(0)), (F(1), F(0)))
    assert region.epsilon_at(delta / 2) == inf


def test_the_region_of_a_long_alphabet_needs_no_list():
    """Signed subsets of 9 answers: 2.7 million symbols, region by its registered closed form; it ends at its loss."""
    randomizer = SignedSubset(MutationSpace(9), Odds(7, 2), 3)
    region = PrivacyRegion(randomizer_curve(randomizer).points)
    assert region.epsilon_at(0) == pytest.approx(float(max(randomizer.losses.mutations, randomizer.losses.appears)))


def test_a_union_of_pairs_need_not_be_convex_and_its_hull_is_taken():
    """Between a test of one pair and a test of another lies a point of neither pair's region; (ε, δ) stay the same."""
    rows = [["9/10", "1/10", 0, 0], ["1/10", "9/10", 0, 0], [0, 0, "1/2", 0], [0, 0, "1/2", "1/2"], [0, 0, 0, "1/2"]]
    mechanism = FiniteMechanism.of(rows, [(0, 1), (2, 3)])
    pairs = [region_of(FiniteMechanism(mechanism.rows, (pair,))) for pair in mechanism.neighbours]
    whole = region_of(mechanism)
    found = [
        ((f + g) / 2, (m + n) / 2)
        for one, other in permutations(pairs, 2)
        for f, m in one.best_tests
        for g, n in other.best_tests
        if not any(pair.holds((f + g) / 2, (m + n) / 2) for pair in pairs)
    ]
    assert found
    assert all(whole.holds(*point) for point in found)
    for ratio in RATIOS:
        assert whole.delta_at_ratio(ratio) == max(pair.delta_at_ratio(ratio) for pair in pairs)


def test_only_the_neighbours_count_and_a_tabled_function_is_its_matrix():
    """A path of three databases: its ends are told apart better, and are no neighbours. Outputs in order of appearance,
    probability 0 where a database does not know one."""
    rows = [["1/2", "1/4", "1/8"], ["1/2", "3/4", "7/8"]]
    path, complete = FiniteMechanism.of(rows, [(1, 0), (1, 2)]), FiniteMechanism.of(rows)
    assert (region_of(path).corners()[0].ratio, region_of(complete).corners()[0].ratio) == (2, 4)
    tabled = FiniteMechanism.tabled([0, 1], lambda x: {x: "3/4", "other": F(1, 4)}, lambda x, y: x != y)
    assert tabled == FiniteMechanism.of([["3/4", 0], ["1/4", "1/4"], [0, "3/4"]])


@pytest.mark.parametrize(
    ("rows", "neighbours", "named"),
    [
        ([], None, "rows are of one length"),
        ([[1, 1], [0]], None, "rows are of one length"),
        ([["1/2", "1/3"], ["1/2", "1/3"]], None, "column 1 adds up to 2/3"),
        ([["3/2", 1], ["-1/2", 0]], None, "column 0 holds a negative probability, -1/2"),
        ([[0.1, 1], [0.9, 0]], None, "write 0.1 as a string"),
        ([[1, 1]], [(0, 2)], r"0 to 1, got \(0, 2\)"),
        ([[1, 1]], [(1, 1)], r"got \(1, 1\)"),
    ],
)
def test_what_is_no_mechanism_is_named(rows, neighbours, named):
    """Shapes, columns that are no law, floats, and pairs that are none; nor is δ asked for at an ε below 0."""
    with pytest.raises(ValueError, match=named):
        FiniteMechanism.of(rows, neighbours)
    with pytest.raises(ValueError, match="at least 1, got 1/2"):
        region_of(MECHANISMS["silent"]).allows(F(1, 2), F(0))
    with pytest.raises(ValueError, match="0 or more"):
        region_of(MECHANISMS["silent"]).delta_at(-0.1)


OUTPUTS = [
    r"(?s).*shape: \(3, 7\).*",
    r"\(1, .*\) \(1,\) .* which keep to the constraint\n",
    r"168 \(1,\) 7\.286\n",
    r"5\.2 3\.24\n1/4\n",
    r"\d+ -?\d+ \d\.\d+\n",
    rf"epsilon {log(5):.4f} at delta 0\nepsilon {log(5 / 2):.4f} at delta 1/8\n{3 / 4 - exp(0.5) / 4:.11f}\d+\n",
]
"""The last by hand: x' makes the third output 5 times likelier, then the second 5/2 times; δ(ε) = 3/4 - e^ε/4 below."""


@pytest.mark.heavy
def test_the_examples_of_the_docs_run(tmp_path, monkeypatch, capsys):
    """Those of the guide print what stands here."""
    monkeypatch.chdir(tmp_path)
    guide = (ROOT / "docs/central/guide.md").read_text()
    for example, output in zip(re.findall(r"```python\n(.*?)```", guide, re.DOTALL), OUTPUTS, strict=True):
        exec(compile(example, "docs/central/guide.md", "exec"), {})
        assert re.fullmatch(output, capsys.readouterr().out)
    assert (tmp_path / "region.png").stat().st_size > 10_000


def test_a_plot_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    """And one of nothing is refused; with it there is a picture."""
    save_region_plot({name: region_of(MECHANISMS[name]) for name in ("silent", "disjoint")}, tmp_path / "regions.png")
    assert (tmp_path / "regions.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no regions"):
        save_region_plot({}, tmp_path / "none.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match="changeling\\[papers\\]"):
        save_region_plot({"silent": region_of(MECHANISMS["silent"])}, tmp_path / "none.png")
    assert [path.name for path in tmp_path.iterdir()] == ["regions.png"]


HALF = F(1, 2)
RATIOS_CW = [F(1), F(9, 8), F(3, 2), F(3), F(12)]
BITS = list(product((0, 1), repeat=4))


def count(noise):
    """The number of ones, moved up or down by one with probability `noise` each."""

    def outputs(bits):
        law = {sum(bits) + move: noise if move else 1 - 2 * noise for move in (-1, 0, 1)}
        return {y: p for y, p in law.items() if p}

    return FiniteMechanism.tabled(BITS, outputs, lambda x, y: sum(a != b for a, b in zip(x, y, strict=True)) == 1)


def given_first(bit, ones=HALF):
    """Independent bits that are one with probability `ones`, the first of them known."""
    return tuple(F(0) if x[0] != bit else ones ** sum(x[1:]) * (1 - ones) ** (3 - sum(x[1:])) for x in BITS)


@pytest.mark.parametrize("noise", [F(0), F(1, 8)])
@pytest.mark.parametrize("ones", [F(1, 2), F(1, 5)])
def test_delta_is_the_definitions_over_every_database(noise, ones):
    """max over sets and both orders of Pr[M(X) ∈ S | secret] - e^ε Pr[M(alt X) ∈ S | secret], summed by hand."""
    mechanism, worlds = count(noise), [given_first(bit, ones) for bit in (1, 0)]
    region = cw_region(mechanism, [worlds])
    laws = []
    for world in worlds:
        law = dict.fromkeys(range(-1, 6), F(0))
        for bits, chance in zip(BITS, world, strict=True):
            for move in (-1, 0, 1):
                law[sum(bits) + move] += chance * (noise if move else 1 - 2 * noise)
        laws.append(law)
    for ratio in RATIOS_CW:
        assert region.delta_at_ratio(ratio) == max(
            sum(max(F(0), one[y] - ratio * other[y]) for y in one) for one, other in (laws, laws[::-1])
        )


def test_the_datas_randomness_protects_where_the_mechanism_draws_nothing():
    """An exact count is not private at any ε; of three fair bits unknown its CW loss is a shifted binomial's."""
    exact = count(F(0))
    assert region_of(exact).delta_at(100.0) == 1.0
    region = cw_region(exact, [(given_first(1), given_first(0))])
    assert [(corner.ratio, corner.delta) for corner in region.corners()] == [(F(3), F(1, 8)), (F(1), F(comb(3, 1), 8))]


def test_the_worst_pair_of_laws_counts():
    """An observer who may know the law to be either of two: at each ε the larger δ."""
    mechanism = count(F(1, 8))
    pairs = [(given_first(1, ones), given_first(0, ones)) for ones in (F(1, 2), F(1, 10))]
    both, alone = cw_region(mechanism, pairs), [cw_region(mechanism, [pair]) for pair in pairs]
    for ratio in RATIOS_CW:
        assert both.delta_at_ratio(ratio) == max(each.delta_at_ratio(ratio) for each in alone)


@pytest.mark.parametrize(
    ("laws", "named"),
    [
        ([], "at least one pair"),
        ([((F(1),), (F(1),))], "a law over 16 databases has as many probabilities, got 1"),
        ([((F(1, 2),) * 16, (F(1, 16),) * 16)], "adds up to 8"),
    ],
)
def test_what_is_no_law_is_named(laws, named):
    """None, too short, or not adding up to 1."""
    with pytest.raises(ValueError, match=named):
        cw_region(count(F(0)), laws)
