"""Results of some strata, over HTTP."""

import pytest
from changeling_protocol import Breakdown, SealingKey

from .devices import envelope, report
from .serving import ServerProcess
from .test_estimates import get

SYSTEM, CHANNEL = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))


@pytest.fixture(scope="module")
def key(server: ServerProcess) -> SealingKey:
    return server.key


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


def test_a_stratum_that_nobody_declared_is_refused_by_name(server: ServerProcess) -> None:
    survey = server.new_survey(breakdowns=(SYSTEM,))
    server.move_clock(survey.calendar.time(1) + 30)
    for asked, named in (("system:windows", "windows"), ("colour:red", "colour"), ("system", "system")):
        status, found = get(server, survey, "histogram", period=1, stratum=asked)
        assert status == 422
        assert named in found["detail"]


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


def test_what_is_sealed_is_no_longer_provisional(server: ServerProcess, key: SealingKey) -> None:
    survey = server.new_survey(minimum=1)
    server.move_clock(survey.calendar.time(1) + 30)
    server.upload(*(envelope(survey, key, [report(1, 1)]) for _ in range(3)))
    assert get(server, survey, "histogram", period=1)[1]["provisional"]
    server.move_clock(survey.calendar.time(1) + survey.grace + 1)
    assert not get(server, survey, "histogram", period=1)[1]["provisional"]
