"""Methods of others beside ours: their errors against draws, their exposure against enumeration, and the command."""

import json
from decimal import Decimal
from itertools import product
from math import inf, log

import numpy as np
import pytest
from changeling_protocol import AtMost, Calendar
from changeling_simulations import compare_methods
from changeling_simulations.comparison import Part, memoised, values_held, whole_history
from changeling_statistics import Wish

DEVICES = 20_000
MEMOISED = ["memoised k-RR", "RAPPOR", "L-OSUE", "LOLOHA", "dBitFlipPM"]
FAR = 5.0
"""Standard deviations: one of the handful of comparisons below fails by chance in less than 10^-5 of all seeds."""


def _wish(answers: int = 3, periods: int = 6, most: int = 3, epsilon: int = 4) -> Wish:
    return Wish(
        answers=answers,
        calendar=Calendar(0, "1d", periods),
        constraint=AtMost(most),
        epsilon=Decimal(epsilon),
        devices=DEVICES,
        closed=True,
        minimum=1,
    )


def _chances(part: Part, value: int) -> np.ndarray:
    return np.asarray(part.remember[value] @ part.tell)


@pytest.mark.parametrize("answers", [2, 4])
def test_the_first_report_costs_no_more_than_its_share(answers: int) -> None:
    wish = _wish(answers)
    for name, method in memoised(wish):
        held = values_held(wish)
        ratios = [np.log(_chances(part, new) / _chances(part, old)).max() for part, old, new in method.parts]
        assert sum(ratios) <= float(wish.epsilon) * (1 if "dBit" in name else 2 / held) + 1e-9


@pytest.mark.parametrize("name", MEMOISED)
def test_the_stated_variance_is_that_of_drawn_reports(name: str) -> None:
    """Of one report of each device at one time; answers are hashed, and bits sampled, by each device."""
    z, generator = 3, np.random.default_rng(8)
    method = next(method for each, method in memoised(_wish(z, epsilon=8)) if each.startswith(name))
    part, rounds, devices = method.parts[0][0], 400, 500
    squares = []
    for _ in range(rounds):
        held = generator.integers(0, z, devices)
        squares.append(
            _estimated(name, part, len(method.parts), held, z, generator) - np.bincount(held, minlength=z) / devices
        )
    errors = (np.array(squares) ** 2).mean(1) * devices
    assert abs(errors.mean() - method.variance) < FAR * errors.std() / np.sqrt(rounds)
    assert method.variance > 0.01


def _told(part: Part, held: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """What is told of each value that is held."""
    laws = np.array([_chances(part, value) for value in range(len(part.remember))]).cumsum(1)
    return (laws[held] < generator.random((len(held), 1))).sum(1)


def _estimated(name: str, part: Part, d: int, held: np.ndarray, z: int, generator: np.random.Generator) -> np.ndarray:
    """The shares as a server would estimate them of one report from each device."""
    n = len(held)
    if name == "memoised k-RR":
        own, other = _chances(part, 0)[0], _chances(part, 0)[1]
        return (np.bincount(_told(part, held, generator), minlength=z) / n - other) / (own - other)
    if name == "LOLOHA":
        g = len(part.remember)
        hashes = generator.integers(0, g, (n, z))
        told = _told(part, hashes[np.arange(n), held], generator)
        return ((hashes == told[:, None]).mean(0) - 1 / g) / (_chances(part, 0)[0] - 1 / g)
    own, other = _chances(part, 1)[1], _chances(part, 0)[1]
    bits = generator.random((n, z)) < np.where(np.eye(z, dtype=bool)[held], own, other)
    asked = np.ones((n, z), bool)
    if name == "dBitFlipPM":
        asked = np.argsort(generator.random((n, z)), axis=1) < d
    return np.where(asked, (bits - other) / (own - other), 0.0).sum(0) / n * z / asked.sum(1).mean()


def test_the_worst_transcript_is_that_of_enumeration() -> None:
    """Every transcript of four reports of two symbols, its chance added up over memories."""
    part = Part(np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([[0.9, 0.1], [0.25, 0.75]]))

    def chance(first: int, second: int, told: tuple[int, ...]) -> float:
        def half(value: int, symbols: tuple[int, ...]) -> np.ndarray:
            return part.remember[value] * np.prod([part.tell[:, each] for each in symbols], axis=0)

        if first == second:
            return float((half(first, told)).sum())
        return float(half(first, told[:2]).sum() * half(second, told[2:]).sum())

    ratios = [log(chance(0, 1, told) / chance(0, 0, told)) for told in product(range(2), repeat=4)]
    assert part.worst(0, 1, 2) == pytest.approx((min(ratios), max(ratios)))


def test_a_memory_that_is_told_as_it_is_gives_a_change_away() -> None:
    methods = dict(memoised(_wish()))
    assert methods["memoised k-RR"].loss(6) == inf
    exposed = methods["memoised k-RR"].exposed(4.0, 6, np.random.default_rng(1))
    own = methods["memoised k-RR"].parts[0][0].remember[0]
    assert abs(exposed - (1 - 2 * own[0] * own[1] - own[1] ** 2)) < FAR * 0.5 / np.sqrt(20_000)


def test_privunit_on_whole_histories_errs_as_drawn() -> None:
    """Its moments along the vector, drawn at some thresholds: none beats the tuned one, and the best comes near it."""
    wish = _wish(answers=2, periods=8, epsilon=4)
    d, drawn = 8, np.random.default_rng(5).standard_normal(1_000_000)
    stated, found = whole_history(wish) ** 2 * wish.devices, []
    for q in (0.5, 0.7, 0.8, 0.9):
        above = 1 / (1 + np.exp(-4) / (1 - q) * q)
        high = drawn > np.quantile(drawn, q)
        chances = np.where(high, above / (1 - q), (1 - above) / q)
        mean, square = (chances * drawn).mean(), (chances * drawn**2).mean()
        found.append(((d - 1 + square) / mean**2 - 1) * 0.25)
    assert stated <= min(found) * 1.01
    assert min(found) <= stated * 1.05


def test_ours_is_the_best_of_those_that_keep_a_whole_life() -> None:
    found = compare_methods(_wish())
    lives = [method for method in found.methods if method.whole_life and method.when != "trusted"]
    assert lives[0].name == "changeling's plan"
    assert all(method.exposed == 0 and method.really == method.promised for method in lives)
    others = [method for method in found.methods if not method.whole_life]
    assert {method.name.split(",")[0] for method in others} == set(MEMOISED)
    json.dumps([method.as_fields() for method in found.methods], allow_nan=False)


def test_an_open_cohort_is_refused() -> None:
    with pytest.raises(ValueError, match="closed cohort"):
        compare_methods(Wish(3, Calendar(0, "1d", 6), AtMost(3), Decimal(4), 1000))
