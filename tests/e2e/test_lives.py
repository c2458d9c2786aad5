"""Plans of every kind through real clients, real HTTP and a real server process, beside the aggregated sampler."""

import csv
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from changeling_aggregator.store import Store
from changeling_protocol import (
    AtMost,
    Calendar,
    CustomResponse,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    UnaryEncoding,
)
from changeling_simulations import Population, changelog_path, paper_survey, sample_tallies
from changeling_statistics import parse_duration, parse_instant, read_rows, series, write_survey

from demo.deployment import deployed
from demo.replay import joined, replay

from ..protocol.examples import survey

pytestmark = pytest.mark.heavy

PEOPLE, PERIODS, Z = 60, 6, 6
CALENDAR = Calendar(int(parse_instant("1993-06-30")), parse_duration("52w"), PERIODS)
STATES, CHANGES = StateSpace(Z), MutationSpace(Z)
CUSTOM = CustomResponse(STATES, tuple(tuple(9 if o == u else 1 for u in range(Z + 1)) for o in range(Z + 1)))
EVERY_KIND = ReleasePlan(
    (
        Group((Track(1, SubsetSelection(STATES, Odds(90, 1), 2), 0, PERIODS, reported=3),), share=2),
        Group((Track(2, UnaryEncoding(STATES, Odds(90, 1)), 0, PERIODS, reported=1),)),
        Group((Track(1, CUSTOM, 0, PERIODS),)),
        Group(tuple(Track(w, SignedSubset(CHANGES, Odds(50, 1), spoken=Fraction(1, 8)), 0, PERIODS) for w in (1, 3))),
        Group(
            (
                Track(1, KaryResponse(STATES, Odds(60, 1)), 0, 1),
                Track(1, SignedSubset(CHANGES, Odds(50, 1), pluses=2, spoken=Fraction(1)), 1, PERIODS),
            )
        ),
    )
)


def asked_of(kind, answers):
    if kind == "main job":
        asked = paper_survey(answers, CALENDAR, AtMost(3), epsilon=Decimal(24), layers=3)
        return replace(asked, skew=300, spread=3600, grace=7 * 86_400)
    times = {"skew": 60, "spread": 600, "grace": 10**6}
    return survey(EVERY_KIND, answers=answers, calendar=CALENDAR, constraint=AtMost(12), **times)


@pytest.fixture(scope="module", params=["main job", "every kind"])
def lived(request, tmp_path_factory):
    """People who lived through six years: survey, population, tallies and the series that is published."""
    folder = tmp_path_factory.mktemp("lived")
    with changelog_path("school-to-work").open() as file:
        rows = [(row["entry"], row["time"], row["answer"]) for row in csv.DictReader(file)]
    changelog = read_rows(row for row in rows if int(row[0]) <= PEOPLE)
    write_survey(folder / "survey.json", asked_of(request.param, changelog.answers))
    with deployed(folder, folder / "survey.json") as deployment:
        with joined(changelog, deployment, folder) as people:
            assert list(replay(changelog, deployment, people)) == [PEOPLE] * PERIODS
            ledgers = [handle.ledger() for handle in people.handles]
        deployment.seal()
        published, asked = deployment.series(), deployment.survey
    assert {(ledger.answered_period, ledger.waiting, ledger.dropped) for ledger in ledgers} == {(PERIODS, 0, 0)}
    store = Store.open(folder / "server.db")
    with store.view() as view:
        tallies, refused = view.tallies(asked.id), view.refusals(asked.id)
    store.close()
    assert not refused
    return asked, Population.from_changelog(changelog, asked.calendar, asked.constraint), tallies, published


def test_every_entry_reports_the_nodes_of_its_group_and_no_others(lived):
    """Each closing of each client is acknowledged. Tracks of one group have the same reporters; random nodes add up to
    r an entry; the groups to everybody."""
    asked, _, tallies, _ = lived
    reports = np.zeros((len(asked.plan.tracks), PERIODS), int)
    for (track, node), tally in tallies.items():
        reports[track, node - 1] = tally.reports
    members = []
    for group in range(len(asked.plan.groups)):
        sizes = set()
        for number, track in asked.plan.numbered(group):
            if track.reported is None:
                sizes |= set(reports[number, : track.count].tolist())
            else:
                sizes.add(reports[number].sum() / track.reported)
        assert len(sizes) == 1
        members.append(sizes.pop())
    assert sum(members) == PEOPLE


def test_the_published_series_is_the_estimate_of_the_tallies(lived):
    """Over HTTP, from all groups and kinds of reports in one solve."""
    asked, _, tallies, published = lived
    for over_http, here in zip(published, series(asked, tallies, PERIODS), strict=True):
        np.testing.assert_allclose(over_http["values"], here.estimate.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(over_http["covariance"], here.estimate.covariance, rtol=1e-9, atol=1e-9)
        assert over_http["upper_bound"] == here.estimate.upper_bound


def test_real_clients_and_the_sampler_have_the_same_distribution(lived):
    """Pearson's statistic of the clients' tallies against their expectations lies where the sampler's own does.

    Within 6 standard deviations of 500 draws; it has some 300 degrees of freedom, so a false alarm has a chance
    below 1e-6. The sampler's seed is fixed; the clients' coins are the operating system's, as always.
    """
    asked, population, tallies, _ = lived
    if len(asked.plan.groups) > 1:
        pytest.skip("which entries report what is known of one group alone")
    generator = np.random.default_rng(11)
    expected = {}
    for number, track in enumerate(asked.plan.tracks):
        response = track.randomizer
        p, q = (response.weight(0, true) / response.total(true) for true in (0, 1))
        for node in range(1, track.count + 1):
            s = population.mutation_counts(track, track.node(node))
            expected[number, node] = q * s.sum() + (p - q) * s

    def statistic(observed):
        return sum(((observed[key].slots - e) ** 2 / e).sum() for key, e in expected.items())

    drawn = [statistic(sample_tallies(population, asked, generator)) for _ in range(500)]
    assert abs(statistic(tallies) - np.mean(drawn)) < 6 * np.std(drawn)
