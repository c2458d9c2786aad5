"""Histograms through real HTTP: the right numbers, and nothing that must not be shown."""

from typing import Any

import numpy as np
import pytest
from changeling_protocol import Breakdown, SealingKey, Standing, Survey
from changeling_statistics import counterpart_of, histogram_change

from .devices import envelope, report
from .serving import ServerProcess, survey_path

SYSTEM, CHANNEL = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))
UNKNOWN = {"system:windows": "windows", "colour:red": "colour", "system": "system"}


@pytest.fixture(scope="module")
def key(server: ServerProcess) -> SealingKey:
    return server.key


def answer(
    server: ServerProcess,
    key: SealingKey,
    survey: Survey,
    node: int,
    symbols: list[int],
    track: int = 0,
    standing: Standing = Standing.NEW,
) -> None:
    """A device per symbol reports on a node."""
    for i in range(0, len(symbols), 64):
        envelopes = [
            envelope(survey, key, [report(node, s, track=track, standing=standing)]) for s in symbols[i : i + 64]
        ]
        assert server.upload(*envelopes) == []


def get(server: ServerProcess, survey: Survey, what: str, **query: str | int) -> tuple[int, dict[str, Any]]:
    server.fold()
    response = server.http.get(f"{survey_path(survey)}/{what}", params=query)
    content: dict[str, Any] = response.json()
    return response.status_code, content


def test_the_histogram_is_the_sum_of_its_nodes_with_their_covariance(server: ServerProcess, key: SealingKey) -> None:
    """Period 3 is covered by a node of two periods and one of one; values and covariances add up."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(3) + 60)
    wide, narrow = [0] * 20 + [4, 5, 5, 12], [0] * 20 + [1, 2, 3, 3]
    answer(server, key, survey, 1, wide, track=1)
    answer(server, key, survey, 3, narrow, standing=Standing.KNOWN)
    status, found = get(server, survey, "histogram", period=3, covariance="true")
    parts = [
        histogram_change(counterpart_of(track.randomizer).tally(np.array(symbols, np.uint64)), track.randomizer)
        for track, symbols in ((survey.plan.tracks[1], wide), (survey.plan.tracks[0], narrow))
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
    assert (found["survey"], found["question"], found["answers"], found["period"]) == (
        survey.id.hex(),
        survey.question,
        ["tea", "coffee", "neither"],
        3,
    )


def test_a_negative_variance_is_null(server: ServerProcess, key: SealingKey) -> None:
    """JSON has no NaN: where an estimated variance is below zero the standard error is null."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + 60)
    answer(server, key, survey, 1, [0])
    _, found = get(server, survey, "histogram", covariance="true")
    negative = [found["covariance"][i][i] < 0 for i in range(3)]
    assert [error is None for error in found["standard_errors"]] == negative


def test_the_series_ends_with_the_last_period_that_is_shown(server: ServerProcess, key: SealingKey) -> None:
    """A period is shown once its close, the skew and the spread are over; `until` takes any closed one."""
    survey = server.new_survey()
    close = survey.calendar.time(2)
    server.move_clock(close + 1)
    for track, node in ((0, 1), (0, 2), (1, 1)):
        answer(server, key, survey, node, [0] * 10, track=track)
    _, found = get(server, survey, "series")
    assert [at["period"] for at in found["series"]] == [1]
    _, found = get(server, survey, "series", until=2)
    assert [(at["period"], at["values"] is None) for at in found["series"]] == [(1, False), (2, True)]
    assert get(server, survey, "histogram", period=2)[0] == 409
    server.move_clock(close + survey.skew + survey.spread + 1)
    _, found = get(server, survey, "series")
    assert [at["period"] for at in found["series"]] == [1, 2]
    _, alone = get(server, survey, "histogram")
    assert alone["period"] == 2
    assert found["nodes"] == alone["nodes"]
    assert not any("nodes" in at for at in found["series"]), "of T times they would make T² lines"
    assert found["series"][1]["values"] == pytest.approx(alone["values"])


def test_what_is_missing_is_named(server: ServerProcess, key: SealingKey) -> None:
    """Open periods, nodes without reports, and those that wait until they are sealed are not estimable: 409, which."""
    survey = server.new_survey(minimum=5)
    assert "nothing of this survey is shown yet" in get(server, survey, "histogram")[1]["detail"]
    server.move_clock(survey.calendar.time(1) + 16)
    answer(server, key, survey, 1, [0] * 5)
    status, found = get(server, survey, "histogram", period=1)
    assert (status, found["code"]) == (409, "not_estimable")
    assert "(0, 1]" in found["detail"]
    status, found = get(server, survey, "histogram", period=2)
    assert (status, found["code"], found["detail"]) == (409, "not_estimable", "period 2 has not closed")
    server.move_clock(survey.calendar.time(1) + survey.grace + 1)
    assert get(server, survey, "histogram", period=1)[0] == 200


def test_a_histogram_is_found_by_time(server: ServerProcess, key: SealingKey) -> None:
    """The end of the last period until then: at its very end, or before the next one's."""
    survey = server.new_survey()
    calendar = survey.calendar
    server.move_clock(calendar.time(2) + 16)
    answer(server, key, survey, 1, [0])
    answer(server, key, survey, 1, [0], track=1)
    for time, period in ((calendar.time(1), 1), (calendar.time(1) + 59, 1), (calendar.time(2), 2)):
        assert get(server, survey, "histogram", time=time)[1]["period"] == period


def test_a_sealed_node_says_so(server: ServerProcess, key: SealingKey) -> None:
    """Once its grace is over; and then no answer that rests on it is provisional."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(1) + survey.grace)
    answer(server, key, survey, 1, [0])
    for later, sealed in ((0, False), (1, True)):
        server.move_clock(survey.calendar.time(1) + survey.grace + later)
        found = get(server, survey, "histogram", period=1)[1]
        assert (found["nodes"][0]["sealed"], found["provisional"]) == (sealed, not sealed)


def test_changes_over_windows_come_from_the_same_releases(server: ServerProcess, key: SealingKey) -> None:
    """A window, the sliding series of its width, and what later releases add when all are used."""
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(2) + survey.skew + survey.spread + 1)
    for track, node in ((0, 1), (0, 2), (1, 1)):
        answer(server, key, survey, node, list(range(13)), track=track)
    status, window = get(server, survey, "change", after=1, until=2)
    assert (status, window["after"], window["until"], window["upper_bound"]) == (200, 1, 2, False)
    assert len(window["nodes"]) == 3
    _, found = get(server, survey, "windows", width=1)
    assert [(at["after"], at["until"]) for at in found["series"]] == [(0, 1), (1, 2)]
    assert found["series"][1]["values"] == pytest.approx(window["values"])
    assert found["nodes"] == window["nodes"]
    _, first = get(server, survey, "series", until=1)
    _, all_ = get(server, survey, "series", until=1, method="retrospective")
    assert [len(each["nodes"]) for each in (first, all_)] == [1, 3]
    assert get(server, survey, "windows", width=9)[1]["nodes"] == []
    _, online = get(server, survey, "histogram", period=1, covariance="true", population="enrolled")
    _, later = get(
        server, survey, "histogram", period=1, covariance="true", population="enrolled", method="retrospective"
    )
    assert len(online["nodes"]) == 1
    assert len(later["nodes"]) == 3
    assert np.trace(later["covariance"]) < np.trace(online["covariance"])


def test_what_is_no_question_is_refused(server: ServerProcess) -> None:
    """With what is wrong, as 422: periods that are none, impossible windows, strata that nobody declared."""
    survey = server.new_survey(breakdowns=(SYSTEM,))
    server.move_clock(survey.calendar.time(2) + 60)
    for what, query, says in (
        *(("histogram", {"period": each}, "period") for each in ("0", "9", "-1", "one", "9" * 5000)),
        *(("histogram", {"time": each}, "") for each in ("noon", "1", "9" * 400, "0001-01-01T00:00+23:59")),
        ("change", {}, "after"),
        ("change", {"after": "1", "until": "1"}, "0 <= start < end"),
        ("change", {"after": "-1", "until": "1"}, "after"),
        ("windows", {"width": "0"}, "width: Expected `int` >= 1"),
        ("windows", {"width": "x"}, "width"),
        ("histogram", {"method": "maybe"}, "online or retrospective"),
        *(("histogram", {"stratum": each, "period": "1"}, named) for each, named in UNKNOWN.items()),
    ):
        response = server.http.get(f"{survey_path(survey)}/{what}", params=query)
        assert (response.status_code, response.json()["code"]) == (422, "invalid"), query
        assert says in response.json()["detail"]


def test_a_union_of_strata_is_what_its_entries_said(server: ServerProcess, key: SealingKey) -> None:
    """Everybody, one value, two values; who is enrolled and heard is of the same entries."""
    survey = server.new_survey(breakdowns=(SYSTEM, CHANNEL), minimum=3)
    server.move_clock(survey.calendar.time(1) + 1)
    sizes = {0: 25, 1: 20, 2: 30, 3: 35}
    for stratum, size in sizes.items():
        envelopes = [envelope(survey, key, [report(1, 1, stratum=stratum)]) for _ in range(size)]
        assert server.upload(*envelopes) == []
    server.move_clock(survey.calendar.time(1) + 30)
    for query, entries in (
        ({}, 110),
        ({"stratum": "system:mac"}, 65),
        ({"stratum": "channel:beta"}, 55),
        ({"stratum": ["system:linux", "channel:release"]}, 25),
        ({"stratum": ["system:linux", "system:mac"]}, 110),
    ):
        status, found = get(server, survey, "histogram", period=1, **query)  # type: ignore[arg-type]
        assert status == 200
        assert (found["enrolled"], found["heard"], found["nodes"][0]["reports"]) == (entries,) * 3
        assert found["provisional"]


def test_an_entry_of_a_small_stratum_is_seen_only_among_all(server: ServerProcess, key: SealingKey) -> None:
    """Two entries, of a minimum of three: once sealed everybody is shown, but neither their stratum nor all others."""
    survey = server.new_survey(breakdowns=(SYSTEM,), minimum=3)
    server.move_clock(survey.calendar.time(1) + 30)
    for stratum, size in {0: 2, 1: 9}.items():
        server.upload(*(envelope(survey, key, [report(1, 1, stratum=stratum)]) for _ in range(size)))
    assert get(server, survey, "histogram", period=1)[0] == 409
    server.fold()
    server.move_clock(survey.calendar.time(1) + survey.grace + 1)
    statuses = [get(server, survey, "histogram", period=1, stratum=f"system:{value}")[0] for value in SYSTEM.values]
    assert statuses == [409, 409]
    assert get(server, survey, "histogram", period=1)[0] == 200
