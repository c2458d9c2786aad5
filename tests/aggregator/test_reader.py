"""The reader for notebooks: what a server shows, as arrays and frames."""

from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import numpy as np
import pytest
from changeling_protocol import SealingKey, Survey
from changeling_reader import Reader, ServerAnswered

from .devices import envelope, report
from .serving import ServerProcess


@pytest.fixture(scope="module")
def asked(server: ServerProcess) -> Survey:
    """A survey with two periods answered, and one that is lost between them."""
    key: SealingKey = server.key
    survey = server.new_survey()
    server.move_clock(survey.calendar.time(4) + 16)
    for node, track in ((1, 0), (2, 1)):
        assert server.upload(*(envelope(survey, key, [report(node, n % 13, track=track)]) for n in range(26))) == []
    server.fold()
    return survey


@pytest.fixture
def reader(server: ServerProcess) -> Iterator[Reader]:
    with Reader(server.url) as opened:
        yield opened


def test_a_series_has_arrays_a_frame_and_a_plot(reader: Reader, asked: Survey) -> None:
    """Lost periods are nan; a row of the frame for each time and answer; bands are wider than intervals."""
    import matplotlib

    matplotlib.use("agg")
    series = reader.series(asked.id.hex(), covariance=True)
    assert series.values.shape == (4, 3)
    assert np.isnan(series.values).all(1).tolist() == [False, True, True, True]
    assert series.end.tolist() == [1, 2, 3, 4]
    assert series.times[0] == np.datetime64(asked.calendar.time(1), "s")
    assert series.covariance is not None
    variances = np.diagonal(series.covariance, axis1=1, axis2=2)
    assert np.allclose(series.standard_errors[0] ** 2, variances[0])
    assert (series.simultaneous[0, :, 1] > series.intervals[0, :, 1]).all()
    frame = series.frame()
    assert frame.shape[0] == 12
    assert frame["value"].tolist()[:3] == series.values[0].tolist()
    assert frame["share"].iloc[0] == pytest.approx(series.values[0, 0] / series.entries[0])
    assert (series.epsilon, series.answers) == (float(asked.epsilon), asked.answers)
    assert not series.diagnostics["impossible"]
    shown = series._repr_html_()
    assert shown.count("<tr>") == 5
    assert f"{series.shares[0, 0]:.1%} ({series.intervals[0, 0, 0] / series.entries[0]:.1%} to" in shown
    assert shown.count("<td>-</td>") == 9
    axes = series.plot()
    assert axes.get_title() == asked.question
    alone = reader.histogram(asked.id.hex(), period=1).plot()
    assert alone.get_ylabel() == "entries heard"


def test_figures_are_about_those_heard_unless_all_who_enrolled_are_named(reader: Reader, asked: Survey) -> None:
    """By name they are scaled up to all who ever enrolled, and every answer says whom it is about."""
    heard = reader.series(asked.id.hex())
    assert heard.population == "heard"
    assert heard.entries.tolist() == heard.heard.tolist()
    reader._population = "enrolled"
    enrolled = reader.series(asked.id.hex())
    assert enrolled.population == "enrolled"
    assert enrolled.entries.tolist() == enrolled.enrolled.tolist()
    np.testing.assert_allclose(enrolled.shares[0], heard.shares[0])
    assert enrolled.plot().get_ylabel() == "entries that ever enrolled"


def test_the_surveys_of_a_server_are_listed(reader: Reader, asked: Survey) -> None:
    """Each with its id, by which it is asked for, and whether it is open."""
    (row,) = (each for each in reader.surveys() if each["id"] == asked.id.hex())
    assert (row["question"], row["last_period"], row["public"]) == (asked.question, asked.calendar.periods, True)


def test_histograms_changes_windows_and_status(reader: Reader, asked: Survey) -> None:
    """Each as one call; by period, by time, by strata; the same numbers."""
    first = reader.histogram(asked.id.hex(), period=1)
    by_time = reader.histogram(asked.id.hex(), at=datetime.fromtimestamp(asked.calendar.time(1), UTC))
    change = reader.change(asked.id.hex(), 0, 1, confidence=None)
    windows = reader.windows(asked.id.hex(), 1)
    assert first.values.tolist() == by_time.values.tolist() == change.values.tolist()
    assert np.allclose(windows.values[0], first.values[0])
    assert (windows.start[0], windows.end[0], len(change)) == (0, 1, 1)
    assert np.isnan(change.intervals).all()
    assert reader.status(asked.id.hex())["shown_periods"] == 4


def test_what_has_not_changed_is_not_sent_again(server: ServerProcess, asked: Survey) -> None:
    """The second time the server answers 304 and nothing else."""
    sent: list[int] = []

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            sent.append(response.status_code)
            return response

    with Reader(server.url, transport=Watched()) as reader:
        first, second = (reader.series(asked.id.hex()) for _ in range(2))
    assert sent == [200, 304]
    np.testing.assert_array_equal(first.values, second.values)


def test_a_refusal_says_why_and_a_token_stays_off_plain_http(reader: Reader, asked: Survey) -> None:
    with pytest.raises(ServerAnswered, match="period 7 has not closed") as refused:
        reader.histogram(asked.id.hex(), period=7)
    assert (refused.value.status, refused.value.code) == (409, "not_estimable")
    with pytest.raises(ServerAnswered, match="declares the breakdowns"):
        reader.series(asked.id.hex(), strata={"system": ["linux"]})
    with pytest.raises(ValueError, match="use https"):
        Reader("http://surveys.example.org", token="secret")
    with pytest.raises(ValueError, match="time zone"):
        reader.histogram(asked.id.hex(), at=datetime(2027, 1, 1))
