"""Plans of every kind through real clients, real HTTP and a real server process."""

import csv
from fractions import Fraction

import numpy as np
import pytest
from changeling_aggregator.store import Store
from changeling_aggregator.testing import tallies_in
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
    parse_duration,
    parse_instant,
)
from changeling_simulations import changelog_path
from changeling_statistics import read_rows, series, write_survey

from demo.deployment import deployed, joined, replay

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


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """People who lived through six years: survey, tallies and the series that is published."""
    folder = tmp_path_factory.mktemp("lived")
    with changelog_path("school-to-work").open() as file:
        rows = [(row["entry"], row["time"], row["answer"]) for row in csv.DictReader(file)]
    changelog = read_rows(row for row in rows if int(row[0]) <= PEOPLE)
    times = {"skew": 60, "spread": 600, "grace": 10**6}
    planned = survey(EVERY_KIND, answers=changelog.answers, calendar=CALENDAR, constraint=AtMost(12), **times)
    write_survey(folder / "survey.json", planned)
    with deployed(folder, folder / "survey.json") as deployment:
        with joined(changelog, deployment, folder) as people:
            assert list(replay(changelog, deployment, people)) == [PEOPLE] * PERIODS
            ledgers = [handle.ledger() for handle in people.handles]
        deployment.seal()
        published, asked = deployment.series(), deployment.survey
    assert {(ledger.answered_period, ledger.waiting, ledger.dropped) for ledger in ledgers} == {(PERIODS, 0, 0)}
    store = Store.open(folder / "server.db")
    with store.view() as view:
        tallies, refused = tallies_in(view, asked), view.refusals(asked.id)
    store.close()
    assert not refused
    return asked, tallies, published


def test_every_entry_reports_the_nodes_of_its_group_and_no_others(lived):
    """Each closing of each client is acknowledged. Tracks of one group have the same reporters; random nodes add up to
    r an entry; the groups to everybody."""
    asked, tallies, _ = lived
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
    asked, tallies, published = lived
    for over_http, here in zip(published, series(asked, tallies, PERIODS), strict=True):
        np.testing.assert_allclose(over_http["values"], here.estimate.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(over_http["covariance"], here.estimate.covariance, rtol=1e-9, atol=1e-9)
        assert over_http["upper_bound"] == here.estimate.upper_bound
