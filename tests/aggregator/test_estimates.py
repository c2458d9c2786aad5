"""Histograms through real HTTP: the right numbers, and nothing that must not be shown."""

import numpy as np
import pytest
from changeling_protocol import Breakdown, Standing
from changeling_statistics import counterpart_of, histogram_change

from .devices import envelope, report
from .serving import survey_path

SYSTEM, CHANNEL = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))


@pytest.fixture
def asked(server):
    """What makes a survey like no other, and moves the clock so many seconds beyond the close of a period."""
    key = server.key

    class Asked:
        def __init__(self, close, later, **fields):
            self.survey = server.new_survey(**fields)
            self.path = survey_path(self.survey)
            self.move(close, later)

        def move(self, close, later):
            server.move_clock(self.survey.calendar.time(close) + later)

        def answer(self, node, symbols, track=0, standing=Standing.NEW, stratum=0):
            """A device per symbol reports on a node."""
            said = [report(node, symbol, track=track, standing=standing, stratum=stratum) for symbol in symbols]
            assert server.upload(*(envelope(self.survey, key, [each]) for each in said)) == []

        def get(self, what, **query):
            """The status and the content, after a fold."""
            server.fold()
            response = server.http.get(f"{self.path}/{what}", params=query)
            return response.status_code, response.json()

    return Asked


def test_the_histogram_is_the_sum_of_its_nodes_with_their_covariance(asked):
    """Period 3 is covered by a node of two periods and one of one; values and covariances add up."""
    at = asked(3, 60)
    wide, narrow = [0] * 20 + [4, 5, 5, 12], [0] * 20 + [1, 2, 3, 3]
    at.answer(1, wide, track=1)
    at.answer(3, narrow, standing=Standing.KNOWN)
    status, found = at.get("histogram", period=3, covariance="true")
    parts = [
        histogram_change(counterpart_of(track.randomizer).tally(np.array(symbols, np.uint64)), track.randomizer)
        for track, symbols in ((at.survey.plan.tracks[1], wide), (at.survey.plan.tracks[0], narrow))
    ]
    covariance = sum(part.covariance for part in parts)
    assert status == 200
    assert found["values"] == pytest.approx(sum(part.values for part in parts).tolist())
    assert np.allclose(found["covariance"], covariance)
    assert found["standard_errors"] == pytest.approx(np.sqrt(np.diagonal(covariance)).tolist())
    assert found["nodes"] == [
        {"track": 1, "start": 0, "end": 2, "reports": 24, "sealed": False},
        {"track": 0, "start": 2, "end": 3, "reports": 24, "sealed": False},
    ]
    told = [found[name] for name in ("survey", "question", "answers", "period")]
    assert told == [at.survey.id.hex(), at.survey.question, ["tea", "coffee", "neither"], 3]


def test_the_series_ends_with_the_last_period_that_is_shown(asked):
    """A period is shown once its close, the skew and the spread are over; `until` takes any closed one. By time the
    histogram is that of the last close until then: at its very end, or before the next one's."""
    at = asked(2, 1)
    for track, node in ((0, 1), (0, 2), (1, 1)):
        at.answer(node, [0] * 10, track=track)
    assert [each["period"] for each in at.get("series")[1]["series"]] == [1]
    _, found = at.get("series", until=2)
    assert [(each["period"], each["values"] is None) for each in found["series"]] == [(1, False), (2, True)]
    assert at.get("histogram", period=2)[0] == 409
    at.move(2, at.survey.skew + at.survey.spread + 1)
    found, alone = at.get("series")[1], at.get("histogram")[1]
    assert [each["period"] for each in found["series"]] == [1, 2]
    assert (alone["period"], found["nodes"]) == (2, alone["nodes"])
    assert not any("nodes" in each for each in found["series"]), "of T times they would make T² lines"
    assert found["series"][1]["values"] == pytest.approx(alone["values"])
    for close, later, period in ((1, 0, 1), (1, 59, 1), (2, 0, 2)):
        assert at.get("histogram", time=at.survey.calendar.time(close) + later)[1]["period"] == period


def test_what_is_missing_is_named_and_a_sealed_node_says_so(asked):
    """Open periods, nodes without reports, and those that wait until they are sealed are not estimable: 409, which.
    Once the grace is over no answer is provisional."""
    at = asked(0, 0, minimum=5)
    assert "nothing of this survey is shown yet" in at.get("histogram")[1]["detail"]
    at.move(1, 16)
    at.answer(1, [0] * 5)
    for period, said in ((1, "(0, 1]"), (2, "period 2 has not closed")):
        status, found = at.get("histogram", period=period)
        assert (status, found["code"]) == (409, "not_estimable")
        assert said in found["detail"]
    at.move(1, at.survey.grace + 1)
    assert at.get("histogram", period=1)[0] == 200
    at = asked(1, 0)
    at.move(1, at.survey.grace)
    at.answer(1, [0])
    for later, sealed in ((0, False), (1, True)):
        at.move(1, at.survey.grace + later)
        found = at.get("histogram", period=1)[1]
        assert (found["nodes"][0]["sealed"], found["provisional"]) == (sealed, not sealed)


def test_changes_over_windows_come_from_the_same_releases(asked):
    """A window, the sliding series of its width, and what later releases add when all are used."""
    at = asked(0, 0)
    at.move(2, at.survey.skew + at.survey.spread + 1)
    for track, node in ((0, 1), (0, 2), (1, 1)):
        at.answer(node, list(range(13)), track=track)
    status, window = at.get("change", after=1, until=2)
    assert (status, window["after"], window["until"], window["upper_bound"]) == (200, 1, 2, False)
    assert len(window["nodes"]) == 3
    _, found = at.get("windows", width=1)
    assert [(each["after"], each["until"]) for each in found["series"]] == [(0, 1), (1, 2)]
    assert found["series"][1]["values"] == pytest.approx(window["values"])
    assert found["nodes"] == window["nodes"]
    assert at.get("windows", width=9)[1]["nodes"] == []
    how = {"period": 1, "covariance": "true", "population": "enrolled"}
    online, later = (at.get("histogram", **how, method=each)[1] for each in ("online", "retrospective"))
    assert [len(each["nodes"]) for each in (online, later)] == [1, 3]
    assert np.trace(later["covariance"]) < np.trace(online["covariance"])


def test_what_is_no_question_is_refused(asked):
    """With what is wrong, as 422: periods that are none, impossible windows, strata that nobody declared."""
    at = asked(2, 60, breakdowns=(SYSTEM,))
    for what, query, says in (
        *(("histogram", {"period": each}, "period") for each in ("0", "9", "-1", "one", "9" * 5000)),
        *(("histogram", {"time": each}, "") for each in ("noon", "1", "9" * 400, "0001-01-01T00:00+23:59")),
        ("change", {}, "after"),
        ("change", {"after": "1", "until": "1"}, "0 <= start < end"),
        ("change", {"after": "-1", "until": "1"}, "after"),
        ("windows", {"width": "0"}, "width: Expected `int` >= 1"),
        ("windows", {"width": "x"}, "width"),
        ("histogram", {"method": "maybe"}, "online or retrospective"),
        ("histogram", {"stratum": "system:windows", "period": "1"}, "windows"),
        ("histogram", {"stratum": "colour:red", "period": "1"}, "colour"),
        ("histogram", {"stratum": "system", "period": "1"}, "system"),
    ):
        status, refused = at.get(what, **query)
        assert (status, refused["code"]) == (422, "invalid"), query
        assert says in refused["detail"]


def test_a_union_of_strata_is_what_its_entries_said(asked):
    """Everybody, one value, two values; who is enrolled and heard is of the same entries."""
    at = asked(1, 1, breakdowns=(SYSTEM, CHANNEL), minimum=3)
    for stratum, size in enumerate((25, 20, 30, 35)):
        at.answer(1, [1] * size, stratum=stratum)
    at.move(1, 30)
    for query, entries in (
        ({}, 110),
        ({"stratum": "system:mac"}, 65),
        ({"stratum": "channel:beta"}, 55),
        ({"stratum": ["system:linux", "channel:release"]}, 25),
        ({"stratum": ["system:linux", "system:mac"]}, 110),
    ):
        status, found = at.get("histogram", period=1, **query)
        assert status == 200
        assert (found["enrolled"], found["heard"], found["nodes"][0]["reports"]) == (entries,) * 3
        assert found["provisional"]


def test_an_entry_of_a_small_stratum_is_seen_only_among_all(asked):
    """Two entries, of a minimum of three: once sealed everybody is shown, but neither their stratum nor all others."""
    at = asked(1, 30, breakdowns=(SYSTEM,), minimum=3)
    for stratum, size in enumerate((2, 9)):
        at.answer(1, [1] * size, stratum=stratum)
    assert at.get("histogram", period=1)[0] == 409
    at.move(1, at.survey.grace + 1)
    strata = [{"stratum": f"system:{value}"} for value in SYSTEM.values]
    assert [at.get("histogram", period=1, **each)[0] for each in (*strata, {})] == [409, 409, 200]
