"""A randomizer that no package knows: this file defines and registers both its halves, and nothing else changes.

It goes through the contract, the planner, the ledger, real devices, a real server, fold and estimate.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest
from changeling_aggregator.store import Store
from changeling_aggregator.testing import tallies_in
from changeling_protocol import KaryResponse, Odds, OddsRandomizer, StateSpace, Survey, register
from changeling_reader import ServerClient
from changeling_simulations import Population
from changeling_statistics import (
    CountedCounterpart,
    Estimate,
    Floats,
    Likelihoods,
    NodeTally,
    class_variances,
    compare_plans,
    loss_statement,
    merged,
    read_rows,
    register_counterpart,
    series,
)
from changeling_statistics.planning.candidates import best_state
from changeling_statistics.testing import RandomizerContract

from demo.deployment import Deployment, joined, replay
from tests.command_line import changeling as main

from ..aggregator.serving import TOKEN, ServerProcess
from ..planning.wishes import wish
from ..protocol.examples import AUTHORITY, PINNED


@register
@dataclass(frozen=True, slots=True)
class HadamardResponse(OddsRandomizer):
    """A state hashed to one bit: a random row of a Hadamard matrix, and its sign at the state, kept with odds a:b.

    The matrix has 2^k rows, more than states; the sign of row h at input v is the parity of the bits of h & (v + 1).
    Symbol 2h + s says row h and sign s. (Acharya, Sun, Zhang 2019)
    """

    kind: ClassVar[str] = "hadamard"
    space: StateSpace

    @property
    def rows(self) -> int:
        return 1 << self.space.size.bit_length()

    @property
    def symbols(self) -> int:
        return 2 * self.rows

    def total(self, true: int = 0) -> int:  # noqa: ARG002
        return self.rows * (self.odds.favoured + self.odds.other)

    def weight(self, symbol: int, true: int) -> int:
        return self.odds.favoured if symbol % 2 == self.sign(symbol // 2, true) else self.odds.other

    def symbol_at(self, drawn: int, true: int) -> int:
        if not 0 <= true < self.space.size:
            raise ValueError(f"inputs are numbered 0 to {self.space.size - 1}, and this one is not")
        row, rest = divmod(drawn, self.odds.favoured + self.odds.other)
        return 2 * row + (self.sign(row, true) ^ (rest >= self.odds.favoured))

    def said(self, symbol: int, states: Sequence[str]) -> str:  # noqa: ARG002
        return f"row {symbol // 2}, sign {symbol % 2}"

    @staticmethod
    def sign(row: int, true: int) -> int:
        return (row & (true + 1)).bit_count() % 2


@dataclass(frozen=True)
class HadamardCounterpart(CountedCounterpart[HadamardResponse]):
    """ŝ_v = c·Σ ±1, whether a report has the sign of v; c = (a + b)/(a - b). One report's covariance is c² I - e e'."""

    answers_alike = True

    @property
    def scale(self) -> float:
        a, b = self.randomizer.odds.favoured, self.randomizer.odds.other
        return (a + b) / (a - b)

    @cached_property
    def agreement(self) -> Floats:
        """+1 where a symbol has an answer's sign, else -1; shape (symbols, z)."""
        space, symbols = self.randomizer.space, range(self.randomizer.symbols)
        answers = range(space.size - space.answers, space.size)
        return np.array([[1 - 2 * (o % 2 ^ self.randomizer.sign(o // 2, v)) for v in answers] for o in symbols], float)

    def estimate(self, tally: NodeTally) -> Estimate:
        counts = self.scale * tally.slots @ self.agreement
        return Estimate(counts, tally.reports * self.scale**2 * np.eye(len(counts)) - np.diag(counts))

    def report_covariance(self, true: int) -> Floats:
        _, answer = self.randomizer.space.pair(true)
        z = self.randomizer.space.answers
        held = np.eye(z + 1)[answer, 1:]
        return self.scale**2 * np.eye(z) - np.diag(held)

    def likelihoods(self, u: int, v: int) -> Likelihoods:  # noqa: ARG002
        a, b, total = self.randomizer.odds.favoured, self.randomizer.odds.other, self.randomizer.total()
        half = self.randomizer.rows // 2
        return merged([(a, a, half), (b, b, half), (a, b, half), (b, a, half)], total, total)


def offers(space: StateSpace, odds: Odds) -> Iterator[HadamardResponse]:
    yield HadamardResponse(space, odds)


register_counterpart(HadamardResponse, HadamardCounterpart, states=offers)


class TestToy(RandomizerContract):
    """The same claims as of all others."""

    small: ClassVar = [
        HadamardResponse(StateSpace(1), Odds(3, 1)),
        HadamardResponse(StateSpace(2), Odds(7, 2)),
        HadamardResponse(StateSpace(3, null=False), Odds(3, 2)),
    ]
    larger: ClassVar = [HadamardResponse(StateSpace(9), Odds(20, 1))]


ANSWERS, PERIODS, PEOPLE = 99, 4, 48
WISH = wish(answers=ANSWERS, epsilon="1", periods=PERIODS)
START = WISH.calendar.start
LIVES = [(f"person {i}", START + 1 + 120 * late, f"{i % 5 + late}") for i in range(PEOPLE) for late in (0, 1)]
"""Everybody has an answer from the first minute on, and another one from the third. That one of the four periods is
heard from by nobody, and so a gap, has a chance of 4·(3/4)^48 = 4e-6."""


@pytest.fixture(scope="module")
def planned():
    """A panel by the planner as it is: nobody told it of the toy but the toy."""
    return compare_plans(WISH).choose("panel")


@pytest.fixture(scope="module")
def changelog():
    lived = read_rows(LIVES)
    rest = (f"an answer that nobody gives, {i}" for i in range(ANSWERS - len(lived.answers)))
    return replace(lived, answers=(*lived.answers, *rest))


@pytest.fixture(scope="module")
def survey(planned, changelog) -> Survey:
    return WISH.survey(planned.plan, changelog.answers)


class ToyServer(ServerProcess):
    """`changeling serve` in a process that knows the toy, as do all that it starts: they import what it was run as."""

    module = __name__


def test_the_planner_chooses_the_toy_where_it_is_best(planned):
    """Of 100 states at ε = 1 sets of the best size do not fit into a symbol; k-RR has seven times the variance."""
    (track,) = planned.plan.tracks
    assert type(track.randomizer) is HadamardResponse
    rival = KaryResponse(track.randomizer.space, track.randomizer.odds)
    assert class_variances(rival, False).came > 7 * class_variances(track.randomizer, False).came
    few = best_state(16, False, Decimal(1), 1)
    assert few is not None
    assert type(few) is not HadamardResponse


def test_a_survey_of_the_toy_is_charged_predicted_and_signed(planned, survey):
    """It costs its whole budget and no more, has finite errors, and comes back from its signed fields."""
    assert Decimal("0.999") < survey.cost <= 1
    losses = loss_statement(replace(survey, relay="https://relay.example.org"), 1e-6, 10**6)
    assert losses.shuffled.epsilon < losses.approximate.epsilon <= losses.pure.epsilon <= 1
    assert np.isfinite(planned.prediction.errors).all()
    assert Survey.from_signed(survey.signed_by(AUTHORITY), PINNED) == survey


@pytest.mark.heavy
def test_the_toy_goes_from_real_devices_through_a_real_server_to_estimates(planned, survey, changelog, tmp_path):
    """Every report is counted, and what the server publishes is the estimate of its tallies, near the truth."""
    with ToyServer(tmp_path, "--movable-clock") as server:
        server.new_key()
        server.publish(survey)
        with ServerClient(server.url, token=TOKEN) as admin:
            deployment = Deployment(server.url, survey, PINNED[0], admin)
            with joined(changelog, deployment, tmp_path) as devices:
                assert list(replay(changelog, deployment, devices)) == [PEOPLE] * PERIODS
            deployment.seal()
            published = deployment.series()
    store = Store.open(tmp_path / "server.db")
    with store.view() as view:
        tallies, refused = tallies_in(view, survey), view.refusals(survey.id)
    store.close()
    assert not refused
    assert sum(tally.reports for tally in tallies.values()) == PEOPLE
    truth = Population.from_changelog(changelog, survey.calendar, survey.constraint).frozen_histogram()
    predicted = planned.prediction.worst * np.sqrt(WISH.devices * PEOPLE)
    for over_http, here in zip(published, series(survey, tallies, PERIODS), strict=True):
        np.testing.assert_allclose(over_http["values"], here.estimate.values, rtol=1e-9, atol=1e-9)
        away = here.estimate.values - truth[here.period]
        assert np.sqrt((away**2).mean()) < 4 * predicted


if __name__ == "__main__":
    sys.exit(main())
