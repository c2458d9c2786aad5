"""Differences between arms and times over HTTP, for the reader and on the command line."""

import httpx
import numpy as np
import pytest
from changeling_protocol import Breakdown, SealingKey, Standing, Survey
from changeling_reader import Reader

from .devices import envelope, report
from .serving import Cli, ServerProcess, survey_path

ARM = Breakdown("arm", ("A", "B", "none"))


@pytest.fixture(scope="module")
def asked(server: ServerProcess) -> Survey:
    """Arm B answers another way than A from the start, and changes more; period 3 is not answered."""
    key: SealingKey = server.key
    survey = server.new_survey(breakdowns=(ARM,), minimum=3)
    server.move_clock(survey.calendar.time(3) + 60)
    envelopes = []
    for stratum, symbols in ((0, (1, 2, 3, 1)), (1, (1, 1, 1, 2))):
        for node, standing in ((1, Standing.NEW), (2, Standing.KNOWN)):
            said = [
                report(node, symbols[n % 4] if n < 40 else 0, standing=standing, stratum=stratum) for n in range(60)
            ]
            envelopes += [envelope(survey, key, [each]) for each in said]
    assert server.upload(*envelopes) == []  # in one request, as the server folds by itself too: it counts all or none
    server.fold()
    return survey


def ask(server: ServerProcess, survey: Survey, **query: str | int) -> httpx.Response:
    return server.http.get(f"{survey_path(survey)}/comparison", params=query)  # type: ignore[arg-type]


def test_arms_differ_by_their_shares_with_interval_and_p_value(server: ServerProcess, asked: Survey) -> None:
    """The difference is that of the two arms' own shares; where p is below 5% the 95% interval leaves out 0."""
    with Reader(server.url) as reader:
        found = reader.compare(asked.id.hex(), {"arm": ["B"]}, {"arm": ["A"]}, until=3)
        arms = [reader.series(asked.id.hex(), until=3, strata={"arm": [arm]}).shares for arm in ("B", "A")]
    assert found.values.shape == (3, 3)
    assert np.allclose(found.values[:2], (arms[0] - arms[1])[:2])
    assert found.entries.tolist() == [[60, 60], [60, 60], [0, 0]]
    inside = (found.intervals[:2, :, 0] <= 0) & (found.intervals[:2, :, 1] >= 0)
    assert (inside == (found.p_values[:2] >= 0.05)).all()
    assert (found.p_together[:2] >= found.p_values[:2].min(1)).all()
    assert np.isnan(found.values[2]).all()
    frame = found.frame()
    assert frame.shape[0] == 9
    assert frame["values"].iloc[0] == found.values[0, 0]


def test_both_arms_changes_and_one_arms_own_are_compared_likewise(server: ServerProcess, asked: Survey) -> None:
    """After period 1 a difference in differences is that of the two differences; without an arm, the change itself."""
    with Reader(server.url) as reader:
        both = reader.compare(asked.id.hex(), {"arm": ["B"]}, {"arm": ["A"]}, after=1, until=2)
        own = [reader.compare(asked.id.hex(), {"arm": [arm]}, after=1, until=2) for arm in ("B", "A")]
        change = reader.change(asked.id.hex(), 1, 2, strata={"arm": ["B"]})
    assert np.allclose(both.values, own[0].values - own[1].values)
    assert np.allclose(own[0].values, change.shares)
    assert both.entries.shape == (1, 2)
    assert own[0].entries.shape == (1, 1)


def test_a_comparison_is_csv_too(server: ServerProcess, asked: Survey) -> None:
    rows = ask(
        server, asked, stratum="arm:B", against="arm:A", format="csv", until=3, confidence=0.95
    ).text.splitlines()
    assert rows[0].startswith("period,time,after,answer,difference,standard_error,interval_low,interval_high,p_value")
    assert len(rows) == 1 + 9
    assert rows[-1].split(",")[4:9] == [""] * 5


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({}, "against, after, or both"),
        ({"against": "arm:A"}, "apart"),
        ({"stratum": "arm:A", "against": "arm:A"}, "apart"),
        ({"stratum": "arm:B", "against": "arm:Z"}, "Z"),
        ({"after": 2, "until": 2}, "not before"),
        ({"after": 1, "covariance": "true"}, "no parameter"),
        ({"after": 1, "method": "smoothed"}, "retrospective"),
    ],
)
def test_what_is_no_comparison_is_refused_with_the_reason(
    server: ServerProcess, asked: Survey, query: dict[str, str | int], named: str
) -> None:
    found = ask(server, asked, **query)
    assert found.status_code == 422
    assert named in found.json()["detail"]


def test_the_command_prints_differences_in_points(server: ServerProcess, asked: Survey, cli: Cli) -> None:
    """`changeling series --compare` prints each difference with its interval and p; a lost period says why."""
    arms = ("--stratum", "arm:B", "--compare", "arm:A", "--since", "1", "--until", "3")
    printed = cli("series", asked.id.hex(), "--server", server.url, *arms)
    assert "since the end of period 1" in printed
    assert "p=" in printed
    assert "needs (2, 3]" in printed
