"""The freezing question from real devices to what readers see: true shares lie within band and bound, and not within
the band alone."""

from dataclasses import replace

import numpy as np
import pytest
from changeling_client import Client
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)
from changeling_reader import Reader

from tests.coins import SeededCoins

from ..protocol.examples import PINNED
from .serving import survey_path

ENTRIES, HEAVY, PERIODS = 200, 120, 3
"""Most entries change in every period, and the survey counts one change after the first answer."""
TRUTH = np.array([[ENTRIES, 0], [ENTRIES - HEAVY, HEAVY], [ENTRIES, 0]])
"""How many hold tea and coffee at the end of each period."""
DRINK = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(2))


@pytest.fixture(scope="module")
def asked(server, tmp_path_factory):
    """Half of the entries, by lot, tell the drink, and half whether they are frozen, nearly all of them the truth."""
    track = Track(1, KaryResponse(StateSpace(2), Odds(2**32, 1)), 0, PERIODS)
    _ = server.key
    survey = server.publish(
        Survey.at_cost(
            questions=(DRINK, Question.of_freezing(DRINK)),
            calendar=Calendar(server.now, 3600, PERIODS),
            plan=ReleasePlan(tuple(Group((replace(track, question=place),)) for place in range(2))),
            skew=5,
            spread=5,
            grace=7200,
            minimum=3,
            breakdowns=(Breakdown("changes", ("often", "never")),),
        )
    )
    calendar, now = survey.calendar, float(survey.calendar.start)
    how = {"authority": PINNED, "max_epsilon": 100, "background": False, "clock": lambda: now}
    with Client(path=tmp_path_factory.mktemp("devices") / "store.db", server=server.url, **how) as device:
        device._device.coins = SeededCoins(24)  # the groups that entries draw, so that it is one case
        handle = device.join(survey.id, entries=HEAVY, stratum={"changes": "often"})
        device.flush()
        handle.add_entries(ENTRIES - HEAVY, stratum={"changes": "never"})
        for period in range(1, PERIODS + 1):
            now = calendar.time(period) - 600.0
            for entry in range(ENTRIES):
                handle.record(("coffee", "tea")[period % 2] if entry < HEAVY else "tea", entry=entry)
            now = calendar.time(period) + 20.0
            server.move_clock(now)
            assert device.flush().waiting == 0
            server.fold()
    server.move_clock(calendar.time(PERIODS) + 7300)
    server.fold()
    return survey


@pytest.fixture
def reader(server):
    with Reader(server.url) as opened:
        yield opened


def holds(intervals, truth):
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


def series_of(reader, survey):
    return reader.series(survey.id.hex(), question="drink", confidence=0.99)


def test_heavy_changers_true_shares_lie_outside_the_band_and_within_band_and_bound(reader, asked):
    """At 99%, with fixed coins. Until anybody is frozen both hold; in the end the band misses by 60 points. The
    freezing question itself has a series, and no bound of its own."""
    found = series_of(reader, asked)
    assert found.entries.tolist() == [ENTRIES] * PERIODS
    assert holds(found.intervals, TRUTH).all(1).tolist() == [True, True, False]
    assert holds(found.widened, TRUTH).all()
    assert abs(found.freezing[:, 0] / ENTRIES - [0, 0, HEAVY / ENTRIES]).max() < 0.15
    assert (found.freezing[:, 1] >= found.freezing[:, 0]).all()
    frozen = reader.series(asked.id.hex(), question="drink-frozen")
    assert frozen.answers == ("no", "yes")
    assert np.isnan(frozen.freezing).all()
    assert np.isnan(frozen.widened).all()
    assert frozen.values[2, 1] == pytest.approx(found.freezing[2, 0])


def test_a_change_since_an_earlier_period_is_bounded_by_those_that_are_frozen_at_its_end(reader, asked):
    """Heavy changers went back to tea, and the server sees none of it."""
    found, series = reader.change(asked.id.hex(), 2, 3, question="drink", confidence=0.99), series_of(reader, asked)
    moved = TRUTH[2] - TRUTH[1]
    assert not holds(found.intervals[0], moved).any()
    assert holds(found.widened[0], moved).all()
    assert np.allclose(found.freezing, series.freezing[2:])
    windows = reader.windows(asked.id.hex(), 1, question="drink", confidence=0.99)
    assert np.allclose(windows.freezing, series.freezing)


def test_a_difference_between_arms_or_times_is_bounded_by_the_frozen_of_all_that_it_is_between(
    server, reader, asked, cli
):
    """Who changes often and who never does hold the same in the end, and the interval leaves that out."""
    id_, how = asked.id.hex(), {"question": "drink", "confidence": 0.99}
    arms = {"changes": ["often"]}, {"changes": ["never"]}
    found = reader.compare(id_, *arms, until=PERIODS, **how)
    truth = np.array([[0, 0], [-1, 1], [0, 0]])
    assert holds(found.intervals, truth).all(1).tolist() == [True, True, False]
    assert holds(found.widened, truth).all()
    assert abs(found.freezing - [[0, 0], [0, 0], [1, 0]]).max() < 0.05
    since = reader.compare(id_, *arms, after=2, until=PERIODS, **how)
    assert not holds(since.intervals[0], truth[2] - truth[1]).any()
    assert holds(since.widened[0], truth[2] - truth[1]).all()
    assert since.freezing_bound[0] > found.freezing_bound[2]
    assert (found.frame()["freezing_bound"].to_numpy() == np.repeat(found.freezing_bound, 2)).all()
    words = ("--question", "drink", "--stratum", "changes:often", "--since", "2")
    printed = cli("series", id_, "--server", server.url, *words)
    assert "Beyond its interval a difference may be off by" in " ".join(printed.split())
    query = {"question": "drink", "after": 2, "format": "csv", "confidence": 0.99}
    rows = server.http.get(f"{survey_path(asked)}/comparison", params=query).text.splitlines()
    assert rows[0].endswith(",freezing_bound")
    own = reader.compare(id_, after=2, until=PERIODS, **how)
    assert float(rows[-1].split(",")[-1]) == pytest.approx(own.freezing_bound[0])
    assert np.isnan(reader.compare(id_, *arms, until=PERIODS, question="drink", confidence=None).freezing_bound).all()


def test_the_bound_is_in_json_csv_the_table_and_the_frame(server, reader, asked, cli):
    """Everywhere the same; without intervals there is an estimate and no bound."""
    id_, path, asks = asked.id.hex(), f"{survey_path(asked)}/series", {"question": "drink", "confidence": "0.95"}
    plain = server.http.get(path, params=asks).json()["series"][2]["freezing"]
    assert plain["entries"] < plain["bound"] < ENTRIES
    rows = server.http.get(path, params={**asks, "format": "csv"}).text.splitlines()
    assert rows[0].endswith("epsilon,freezing_entries,freezing_bound")
    assert [float(each) for each in rows[-1].split(",")[-2:]] == pytest.approx([plain["entries"], plain["bound"]])
    assert reader.series(id_, question="drink").frame()["freezing_bound"].iloc[-1] == pytest.approx(plain["bound"])
    assert np.isnan(reader.histogram(id_, question="drink", confidence=None).freezing[0, 1])
    printed = " ".join(cli("histogram", id_, "--server", server.url, "--question", "drink").split())
    assert f"Freezing: {plain['entries'] / ENTRIES:.1%} of them have made a change that is not counted" in printed
    assert f"by {plain['bound'] / ENTRIES:.1%} at most" in printed
    smoothed, late = (reader.series(id_, question="drink", method=each) for each in ("smoothed", "retrospective"))
    assert np.allclose(smoothed.freezing, late.freezing)
