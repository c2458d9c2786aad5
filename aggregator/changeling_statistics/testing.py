"""The contract that every randomizer keeps, by enumeration: one that somebody adds proves itself with it.

The device's half, its counterpart and the sampler of simulations are tried together. Beside it stands the exact law of
what the device of a joint group sends, read off the device's own code. Needs pytest; nothing that runs imports it.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import product
from math import lcm
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest
from changeling_protocol import (
    Group,
    Memory,
    NodeNumber,
    Odds,
    Randomizer,
    Report,
    Space,
    TrackNumber,
    first_memory,
    randomizer_as_fields,
    randomizer_from_fields,
    registered,
    respond,
    symbol_bytes,
    symbol_column,
)
from scipy.stats import chi2_contingency, chisquare

from .accounting import curve_of, worst_curve
from .estimate import Estimate, Floats
from .estimation.releases import histogram_change, superpopulation_change
from .randomizers.counterpart import (
    Counterpart,
    PairKind,
    all_pairs,
    class_variances,
    counterpart_of,
    input_classes,
    listed_likelihoods,
)

__all__ = [
    "FALSE_ALARM",
    "RandomizerContract",
    "expected_covariance",
    "log_from_below",
    "matrices",
    "name",
    "one_report",
    "possible",
    "questions",
    "transcripts",
    "worst_of_laws",
    "worst_of_two_lives",
]

FALSE_ALARM = 1e-6
"""The chance that a right sampler fails one of the chi-squared tests below, were its seed drawn anew."""


class RandomizerContract:
    """The contract of every randomizer. Inherit it under a name that begins with `Test`, and name examples.

    small: few enough symbols and totals to enumerate every draw. larger: what small ones never show.

        class TestMine(RandomizerContract):
            small = [MyResponse(StateSpace(2), Odds(7, 2))]
            larger = [MyResponse(StateSpace(9), Odds(20, 1))]
    """

    small: ClassVar[list[Randomizer]] = []
    larger: ClassVar[list[Randomizer]] = []

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Hands the examples to the tests by the names of their arguments."""
        for argument, examples in (("small_one", self.small), ("randomizer", [*self.small, *self.larger])):
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, examples, ids=name)

    def test_the_sampler_has_exactly_the_stated_probabilities(self, small_one: Any) -> None:
        """Of all integers below the total each symbol is selected by exactly its weight, and the weights add up."""
        for true in range(small_one.space.size):
            total = small_one.total(true)
            counted = Counter(small_one.symbol_at(drawn, true) for drawn in range(total))
            weights = {symbol: small_one.weight(symbol, true) for symbol in range(small_one.symbols)}
            assert counted == {symbol: weight for symbol, weight in weights.items() if weight}
            assert sum(weights.values()) == total

    def test_a_response_is_the_symbol_of_one_integer_below_the_total(self, randomizer: Any) -> None:
        """So the coins of a report decide it, and nothing else does."""
        for true in range(randomizer.space.size):
            for seed in range(8):
                drawn = random.Random(seed).randrange(randomizer.total(true))
                coins = _Coins(drawn)
                response = randomizer.respond(true, coins)
                assert coins.asked == [randomizer.total(true)]
                assert response == randomizer.symbol_at(drawn, true)
                assert 0 <= response < randomizer.symbols

    def test_the_losses_are_the_enumerated_ones_rounded_up(self, randomizer: Any) -> None:
        """By kind of the two inputs: never below the largest log ratio over all symbols, above by less than 1e-40."""
        space, losses = randomizer.space, randomizer.losses
        inputs = possible(space)
        mutations = [u for u in inputs if u] if space.reports_changes else inputs
        still = [0] if space.reports_changes else inputs
        insertions = [u for u in mutations if space.pair(u)[0] == 0]
        for stated, above, below in [
            (losses.mutations, mutations, mutations),
            (losses.appears, mutations, still),
            (losses.vanishes, still, mutations),
            (losses.insertions, insertions, insertions),
        ]:
            excess = stated - log_from_below(_worst_fraction(randomizer, above, below))
            assert 0 <= excess < Decimal("1e-40")

    def test_inputs_outside_the_space_are_refused_without_being_shown(self, small_one: Any) -> None:
        """An error never holds an answer."""
        for outside in (small_one.space.size, 777, -1):
            with pytest.raises(ValueError, match="numbered") as raised:
                small_one.respond(outside, _Coins(0))
            assert "777" not in str(raised.value)

    def test_a_randomizer_comes_back_from_its_fields(self, randomizer: Any) -> None:
        """What a survey signs of a randomizer is all of it, integers only; anything else is refused."""
        fields, answers = randomizer_as_fields(randomizer), randomizer.space.answers
        assert registered()[fields["kind"]] is type(randomizer)
        assert randomizer_from_fields(fields, answers) == randomizer
        assert len({randomizer, randomizer_from_fields(fields, answers)}) == 1
        broken = [{}, {**fields, "more": 1}, {**fields, "kind": "other"}, {**fields, "space": "other"}]
        for key in fields:
            broken += [{k: v for k, v in fields.items() if k != key}, {**fields, key: [True]}, {**fields, key: 0.5}]
        for wrong in broken:
            with pytest.raises(ValueError, match="randomizer"):
                randomizer_from_fields(wrong, answers)

    def test_no_two_symbols_are_the_same_in_words_or_bytes(self, small_one: Any) -> None:
        """The words for the person whose reports they are hold all that was sent; in an upload each is as long."""
        states = [f"state {i}" for i in range(small_one.space.answers + 1)]
        assert len({small_one.said(symbol, states) for symbol in range(small_one.symbols)}) == small_one.symbols
        width = symbol_bytes(small_one)
        assert small_one.symbols < 256**width, "there is a value for none beside them"
        columns = {
            symbol_column([Report(TrackNumber(0), NodeNumber(1), symbol)], width) for symbol in range(small_one.symbols)
        }
        assert {len(column) for column in columns} == {width}
        assert len(columns) == small_one.symbols

    def test_a_decoded_report_has_the_enumerated_mean_and_covariance(self, randomizer: Any) -> None:
        """For every true input that occurs; others are refused. What is estimated of the covariance is unbiased, or a
        labelled upper bound in every direction; and one input of a class has the variance of all."""
        counterpart, space = counterpart_of(randomizer), randomizer.space
        assert expected_covariance(counterpart) in (True, False)
        found = class_variances(randomizer, False)
        for stated, inputs in zip((found.none, found.came, found.moved), input_classes(space, False), strict=True):
            exact = [np.diag(counterpart.report_covariance(u)).mean() for u in inputs]
            assert not exact or stated == pytest.approx(np.mean(exact), abs=1e-12)
        with pytest.raises(ValueError, match="numbered"):
            counterpart.report_covariance(space.size)

    def test_what_nodes_decode_to_is_the_sum_of_their_reports_one_by_one_or_at_once(self, randomizer: Any) -> None:
        """Values and covariances: so those of many entries are as unbiased as those of one. What tells who changed is
        unbiased for that, where it is told."""
        generator, counterpart = np.random.default_rng(3), counterpart_of(randomizer)
        each = counterpart.estimates(
            [counterpart.tally(np.array([symbol], np.uint64)) for symbol in range(randomizer.symbols)]
        )
        drawn = [generator.integers(0, randomizer.symbols, 200).astype(np.uint64) for _ in range(3)]
        tallies = [counterpart.tally(symbols) for symbols in drawn]
        decoded = counterpart.estimates(tallies)
        for at, (symbols, tally) in enumerate(zip(drawn, tallies, strict=True)):
            alone, told = counterpart.estimate(tally), symbols.astype(np.intp)
            for values in (decoded.values[at], each.values[told].sum(0)):
                np.testing.assert_allclose(values, alone.values, atol=1e-8)
            for covariance in (decoded.covariances[at], each.covariances[told].sum(0)):
                np.testing.assert_allclose(covariance, alone.covariance, rtol=1e-9, atol=1e-8)
            assert decoded.upper_bound == alone.upper_bound
        P, M = matrices(randomizer)
        for u in possible(randomizer.space):
            if each.products is not None:
                expected = np.einsum("o,oyz->yz", P[:, u], each.products)
                np.testing.assert_allclose(expected, np.outer(M[:, u], M[:, u]), atol=1e-9)
            if not np.isnan(each.changed).any():
                assert P[:, u] @ each.changed == pytest.approx(float(u > 0), abs=1e-9)

    def test_the_superpopulation_covariance_is_that_of_multinomial_reports(self, randomizer: Any) -> None:
        """A {diag(O) - OO'/n} A', A from single reports."""
        symbols = np.random.default_rng(4).integers(0, randomizer.symbols, 50).astype(np.uint64)
        O = np.bincount(symbols.astype(int), minlength=randomizer.symbols)
        A = np.array([one_report(randomizer, symbol).values for symbol in range(randomizer.symbols)]).T
        found = superpopulation_change(counterpart_of(randomizer).tally(symbols), randomizer).covariance
        np.testing.assert_allclose(found, A @ (np.diag(O) - np.outer(O, O) / 50) @ A.T, rtol=1e-9, atol=1e-8)

    def test_tallies_add_up_and_those_of_many_nodes_are_as_each_is(self, randomizer: Any) -> None:
        """Every report counts once, in any division, in as many slots as are stated; also where nodes have nothing or
        few reports, and of no node there is no tally."""
        generator, counterpart = np.random.default_rng(8), counterpart_of(randomizer)
        symbols = generator.integers(0, randomizer.symbols, 300).astype(np.uint64)
        whole, parts = counterpart.tally(symbols), counterpart.tally(symbols[200:]) + counterpart.tally(symbols[:200])
        assert (whole.reports, parts.reports, len(whole.slots)) == (300, 300, counterpart.slots)
        np.testing.assert_array_equal(whole.slots, parts.slots)
        for count, reports in ((3, 300), (2000, 10), (0, 0)):
            symbols = generator.integers(0, randomizer.symbols, reports).astype(np.uint64)
            of = 2 * generator.integers(0, max(count // 2, 1), reports)
            tallies = counterpart.tallies(symbols, of, count)
            assert len(tallies) == count
            assert {tally.slots.dtype for tally in tallies} <= {np.dtype(np.int64)}
            nothing = counterpart.tally(symbols[:0])
            told = {node: counterpart.tally(symbols[of == node]) for node in {*of.tolist()}}
            alone = [told.get(node, nothing) for node in range(count)]
            assert [tally.reports for tally in tallies] == [tally.reports for tally in alone]
            np.testing.assert_array_equal([tally.slots for tally in tallies], [tally.slots for tally in alone])

    def test_likelihoods_telling_pairs_and_blanket_are_those_of_the_listed_alphabet(self, small_one: Any) -> None:
        """The classes of symbols give every pair of inputs its curve, of each kind the telling pairs give the worst,
        and where there is a blanket the truth has its one probability, every other symbol the other."""
        counterpart = counterpart_of(small_one)
        for kind in PairKind:
            every = all_pairs(small_one.space, kind)
            curves = {pair: curve_of(listed_likelihoods(small_one, *pair)) for pair in every}
            assert {pair: curve_of(counterpart.likelihoods(*pair)) for pair in every} == curves
            telling = [curves[pair] for pair in counterpart.telling_pairs(kind)]
            assert bool(telling) == bool(every)
            assert not every or worst_curve(telling) == worst_curve(curves.values())
        if (blanket := counterpart.blanket) is not None:
            m = blanket.symbols
            stated = np.full((m, m), blanket.other) + (blanket.truth - blanket.other) * np.eye(m)
            np.testing.assert_allclose(matrices(small_one)[0], stated, atol=1e-15)

    def test_the_device_and_the_aggregated_sampler_are_not_told_apart(self, small_one: Any) -> None:
        """2,000 symbols by the device's law, which was enumerated, against one draw: chi-squared, per input."""
        n, size = 2000, small_one.space.size
        counterpart, generator, (P, _) = counterpart_of(small_one), np.random.default_rng(7), matrices(small_one)
        for true in sorted({0, size // 2, size - 1}):
            devices = counterpart.tally(generator.choice(small_one.symbols, n, p=P[:, true]).astype(np.uint64))
            sampled = counterpart.sample(n * np.eye(size, dtype=np.int64)[true], generator)
            assert sampled.reports == devices.reports == n
            table = np.array([devices.slots, sampled.slots])
            table = table[:, table.sum(0) > 0]
            assert table.shape[1] == 1 or chi2_contingency(table).pvalue > FALSE_ALARM

    def test_several_nodes_are_drawn_as_one_is(self, randomizer: Any) -> None:
        """A row of slots for a row of counts, with every report in it; decoded, each holds the truth within six of
        its exact standard deviations."""
        counterpart, size = counterpart_of(randomizer), randomizer.space.size
        counts = np.random.default_rng(5).integers(0, 3000, (3, size))
        counts[0] = 0
        _, M = matrices(randomizer)
        slots = counterpart.sample_slots(counts, np.random.default_rng(6))
        assert slots.shape == (3, counterpart.slots)
        assert not slots[0].any()
        inputs = possible(randomizer.space)
        counts[:, [u for u in range(size) if u not in inputs]] = 0
        for row in counts[1:]:
            drawn = counterpart.sample(row, np.random.default_rng(6))
            exact = sum(row[u] * counterpart.report_covariance(u) for u in inputs)
            away = counterpart.estimate(drawn).values - M @ row
            assert drawn.reports == row.sum()
            assert np.all(np.abs(away) < 6 * np.sqrt(np.diag(exact)) + 1e-9)

    def test_symbols_that_agree_and_that_do_not_are_drawn_as_the_device_draws_them(self, small_one: Any) -> None:
        """Reports of every input that tells, and of the base, against their exact law: chi-squared; a node's tally
        holds all of them."""
        n, size, even = 3000, small_one.space.size, Odds(1, 1)
        nobody, generator = np.zeros(size, np.int64), np.random.default_rng(11)
        if not hasattr(small_one, "favoured_symbol_at") or (small_one.space.reports_changes and small_one.tells(0)):
            with pytest.raises(ValueError, match="joint"):
                counterpart_of(small_one).sample_joint(nobody, nobody, 1, generator)
            return
        telling = [true for true in range(size) if small_one.tells(true)]
        for true in telling:
            symbols = Counter(
                small_one.favoured_symbol_at(drawn, true, even) for drawn in range(small_one.favoured_total(true, even))
            )
            base = np.array([symbols[symbol] for symbol in range(small_one.symbols)], float)
            agrees = np.array([small_one.agrees(symbol, true) for symbol in range(small_one.symbols)])
            assert base[agrees].sum() / base.sum() == pytest.approx(float(small_one.agreement))
            some = n * np.eye(size, dtype=np.int64)[true]
            for agreed, others, unknown, law in (
                (some, nobody, 0, base * agrees),
                (nobody, some, 0, base * ~agrees),
                (nobody, nobody, n, base),
            ):
                if not law.any():  # where there is one state, all agree with it
                    continue
                tally = counterpart_of(small_one).sample_joint(agreed, others, unknown, generator)
                assert tally.reports == tally.slots.sum() == n
                assert not tally.slots[law == 0].any()
                seen, expected = tally.slots[law > 0], n * law[law > 0] / law.sum()
                assert len(seen) == 1 or chisquare(seen, expected).pvalue > FALSE_ALARM


def name(randomizer: Any) -> str:
    """A short name of a randomizer with its parameters, as tests are called by."""
    space = randomizer.space
    kind = f"{type(space).__name__[0]}{space.answers}{'+' * getattr(space, 'repeats', False)}"
    rest = [randomizer.kind, *(f"{value}" for value in randomizer.as_fields().values())]
    return f"{kind}{'' if getattr(space, 'null', True) else '-closed'}-{'-'.join(rest)}"[:60].replace(" ", "")


def possible(space: Space) -> list[int]:
    """The inputs that occur: all but the pairs (r, r) of the paper's alphabet."""
    return [u for u in range(space.size) if u == 0 or not space.reports_changes or space.pair(u)[0] != space.pair(u)[1]]


def matrices(randomizer: Randomizer) -> tuple[Floats, Floats]:
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


def one_report(randomizer: Randomizer, symbol: int) -> Estimate:
    """The estimate from a single report."""
    return histogram_change(counterpart_of(randomizer).tally(np.array([symbol], dtype=np.uint64)), randomizer)


def _worst_fraction(randomizer: Randomizer, above: Iterable[int], below: Iterable[int]) -> Fraction:
    """The largest Pr(o|u)/Pr(o|v) over all symbols, u of `above`, v of `below`; 1 where there are none."""
    common = lcm(*(randomizer.total(u) for u in {*above, *below}))
    rows = [
        {u: randomizer.weight(o, u) * (common // randomizer.total(u)) for u in {*above, *below}}
        for o in range(randomizer.symbols)
    ]
    return max((Fraction(row[u], row[v]) for row in rows for u in above for v in below), default=Fraction(1))


def expected_covariance(counterpart: Counterpart[Any]) -> bool:
    """Check one report, enumerated for every true input; returns whether its covariance is labelled as a bound.

    Its values are unbiased, and the covariance that is stated for an input is exact. The one that is estimated is
    unbiased; or, where labelled, never below the exact one in any direction.
    """
    randomizer = counterpart.randomizer
    P, M = matrices(randomizer)
    tallies = [counterpart.tally(np.array([symbol], np.uint64)) for symbol in range(randomizer.symbols)]
    estimates = [counterpart.estimate(tally) for tally in tallies]
    decoded = np.array([estimate.values for estimate in estimates])
    for u in possible(randomizer.space):
        expected = sum(P[o, u] * estimate.covariance for o, estimate in enumerate(estimates))
        away = decoded - M[:, u]
        exact = (away * P[:, u, None]).T @ away
        scale = max(1, abs(exact).max())
        np.testing.assert_allclose(decoded.T @ P[:, u], M[:, u], atol=1e-10)
        np.testing.assert_allclose(counterpart.report_covariance(u), exact, atol=1e-9 * scale)
        if estimates[0].upper_bound:
            assert np.linalg.eigvalsh(expected - exact)[0] > -1e-9 * scale
        else:
            np.testing.assert_allclose(expected, exact, atol=1e-9 * scale)
    return estimates[0].upper_bound


class _Coins:
    """One integer, for every draw. `asked` keeps what each draw was to be below."""

    def __init__(self, drawn: int) -> None:
        self.drawn, self.asked = drawn, list[int]()

    def below(self, n: int) -> int:
        """The integer."""
        self.asked.append(n)
        return self.drawn


def log_from_below(ratio: Fraction) -> Decimal:
    """ln of a ratio, less 1e-60: what a charge that is rounded up must never be below."""
    with localcontext(prec=90):
        return Decimal(ratio.numerator).ln() - Decimal(ratio.denominator).ln() - Decimal("1e-60")


Question: TypeAlias = tuple[int, int]
"""What a closing asks an entry of a joint group: the track's place in the group, and the true input."""
Law: TypeAlias = Mapping[tuple[int, ...], tuple[Fraction, Memory | None]]
"""The probability of each transcript, and what the entry remembers after it."""


def questions(group: Group, states: Sequence[int], after: int = 0) -> list[Question]:
    """Questions to an entry with these states at the closings after a period, in order."""
    return [
        (place, track.randomizer.space.index(states[track.node(number).start], states[period]))
        for period in range(after + 1, len(states))
        for place, track in enumerate(group.tracks)
        if (number := track.ending_at(period)) is not None
    ]


def transcripts(group: Group, asked: Sequence[Question], memory: Memory | None = None) -> Law:
    """The exact law of what a device sends, of all integers that it might draw.

    memory: what it remembers to begin with; None for a new entry's.
    """
    law: dict[tuple[int, ...], tuple[Fraction, Memory | None]] = {
        (): (Fraction(1), first_memory(group) if memory is None else memory)
    }
    for place, true in asked:
        law = {
            (*sent, symbol): (chance * likely, left)
            for sent, (chance, kept) in law.items()
            for symbol, (likely, left) in _outcomes(group, place, true, kept).items()
        }
    return law


@cache
def _outcomes(group: Group, place: int, true: int, memory: Memory | None) -> dict[int, tuple[Fraction, Memory | None]]:
    """Each symbol that a device may send for a node, with its probability, and what the entry remembers after it."""
    coins = _Coins(0)
    drawn = [respond(group, place, true, memory, coins)]
    (total,) = coins.asked
    drawn += [respond(group, place, true, memory, coins) for coins.drawn in range(1, total)]
    left = dict(drawn)
    counted = Counter(symbol for symbol, _ in drawn)
    return {symbol: (Fraction(count, total), left[symbol]) for symbol, count in counted.items()}


def worst_of_laws(laws: Iterable[Mapping[tuple[int, ...], Fraction]]) -> Fraction:
    """The largest ratio of the probabilities of a transcript under any two of these laws, which all have the same."""
    most: dict[tuple[int, ...], Fraction] = {}
    least: dict[tuple[int, ...], Fraction] = {}
    for law in laws:
        for sent, chance in law.items():
            most[sent] = max(chance, most.get(sent, chance))
            least[sent] = min(chance, least.get(sent, chance))
    return max(most[sent] / least[sent] for sent in most)


def worst_of_two_lives(group: Group, changelogs: Sequence[Sequence[int]]) -> Fraction:
    """The largest such ratio of all that two lives of a store send, the second from a copy of the first.

    Over every period after which the copy was made, and every two pairs of changelogs that are alike until then.
    """
    worst = Fraction(1)
    for copied in range(len(changelogs[0]) - 1):
        pairs = [(a, b) for a, b in product(changelogs, changelogs) if a[: copied + 1] == b[: copied + 1]]
        worst = max(worst, worst_of_laws(_two_lives(group, one, other, copied) for one, other in pairs))
    return worst


def _two_lives(group: Group, one: Sequence[int], other: Sequence[int], copied: int) -> dict[tuple[int, ...], Fraction]:
    first, again = questions(group, one, copied), questions(group, other, copied)
    law = {}
    for begun, (chance, memory) in transcripts(group, questions(group, one[: copied + 1])).items():
        if not first:
            law[begun] = chance
            continue
        lives = transcripts(group, first, memory).items(), transcripts(group, again, memory).items()
        for (sent, (p, _)), (more, (q, _)) in product(*lives):
            law[*begun, *sent, *more] = chance * p * q
    return law
