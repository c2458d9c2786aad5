"""The main job through real clients, real HTTP and a real server process, beside the aggregated sampler."""

import csv
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from changeling_aggregator.store import Store
from changeling_protocol import AtMost, Calendar
from changeling_simulations import Population, changelog_path, paper_survey, sample_tallies
from changeling_statistics import parse_duration, parse_instant, read_rows, series, write_survey

from demo.deployment import deployed
from demo.replay import joined, replay

PEOPLE, PERIODS = 150, 4
CALENDAR = Calendar(int(parse_instant("1993-06-30")), parse_duration("78w"), PERIODS)


pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """150 people who lived through six years: survey, population, tallies, published series and refusals."""
    folder = tmp_path_factory.mktemp("main-job")
    with changelog_path("school-to-work").open() as file:
        rows = [(row["entry"], row["time"], row["answer"]) for row in csv.DictReader(file)]
    changelog = read_rows(row for row in rows if int(row[0]) <= PEOPLE)
    asked = paper_survey(changelog.answers, CALENDAR, AtMost(3), epsilon=Decimal(24), layers=3)
    write_survey(folder / "survey.json", replace(asked, skew=300, spread=3600, grace=7 * 86_400))
    with deployed(folder, folder / "survey.json") as deployment:
        with joined(changelog, deployment, folder) as people:
            sent = list(replay(changelog, deployment, people))
            ledgers = [handle.ledger() for handle in people.handles]
        deployment.fold()
        published, survey = deployment.series(), deployment.survey
    store = Store.open(folder / "server.db")
    with store.view() as view:
        tallies, refused = view.tallies(survey.id), view.refusals(survey.id)
    store.close()
    population = Population.from_changelog(changelog, survey.calendar, AtMost(3))
    return survey, population, tallies, published, refused, sent, ledgers


def test_every_entry_answers_every_node_once(lived):
    """Each closing of each client is acknowledged, each node of each layer holds one report a person, none refused."""
    survey, _, tallies, _, refused, sent, ledgers = lived
    assert sent == [PEOPLE] * PERIODS
    assert {key: tally.reports for key, tally in tallies.items()} == {
        (number, node): PEOPLE for number, track in enumerate(survey.plan.tracks) for node in range(1, track.count + 1)
    }
    assert not refused
    assert {(ledger.answered_period, ledger.waiting, ledger.dropped) for ledger in ledgers} == {(PERIODS, 0, 0)}


def test_what_is_published_is_what_the_tallies_say(lived):
    """The series over HTTP equals the estimates computed from the server's tallies."""
    survey, _, tallies, published, *_ = lived
    for over_http, here in zip(published, series(survey, tallies, PERIODS), strict=True):
        np.testing.assert_allclose(over_http["values"], here.estimate.values, rtol=1e-12)
        np.testing.assert_allclose(over_http["covariance"], here.estimate.covariance, rtol=1e-9)


def test_real_clients_and_the_sampler_have_the_same_distribution(lived):
    """Pearson's statistic of the clients' tallies against their expectations lies where the sampler's own does.

    Within 6 standard deviations of 500 draws; it has some 300 degrees of freedom, so a false alarm has a chance
    below 1e-6. The sampler's seed is fixed; the clients' secrets are the operating system's, as always.
    """
    survey, population, tallies, *_ = lived
    generator = np.random.default_rng(11)
    expected = {}
    for number, track in enumerate(survey.plan.tracks):
        response = track.randomizer
        p, q = (response.weight(0, true) / response.total(true) for true in (0, 1))
        for node in range(1, track.count + 1):
            s = population.mutation_counts(track, track.node(node))
            expected[number, node] = q * s.sum() + (p - q) * s

    def statistic(observed):
        return sum(((observed[key].slots - e) ** 2 / e).sum() for key, e in expected.items())

    drawn = [statistic(sample_tallies(population, survey, generator)) for _ in range(500)]
    assert abs(statistic(tallies) - np.mean(drawn)) < 6 * np.std(drawn)
