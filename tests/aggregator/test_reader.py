"""What a server shows to notebooks and command lines: series, differences, numbers; and what freezing does to them."""

import os
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import matplotlib
import numpy as np
import pytest
from changeling_client import Client
from changeling_protocol import (
    OFFSETS,
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    MalformedBytes,
    Odds,
    Question,
    ReleasePlan,
    Standing,
    StateSpace,
    Survey,
    Track,
)
from changeling_protocol.wire import SURVEYS
from changeling_reader import Reader, ServerAnswered, ServerClient

from ..coins import SeededCoins
from ..protocol.examples import AUTHORITY, PINNED
from .devices import envelope, report
from .serving import survey_path

matplotlib.use("agg")
ARM = Breakdown("arm", ("A", "B", "none"))
MINUTES = Question.of_number("minutes", "How long?", ["0", "60", "120"], AtMost(3), unit="min")
DRINK = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(3))


@pytest.fixture(scope="module")
def asked(server):
    """Arm B answers another way than A from the start, and changes more; period 3 is not answered."""
    key = server.key
    survey = server.new_survey(breakdowns=(ARM,), minimum=3)
    server.move_clock(survey.calendar.time(4) + 16)
    envelopes = []
    for stratum, symbols in ((0, (1, 2, 3, 1)), (1, (1, 1, 1, 2))):
        for node, standing, devices in ((1, Standing.NEW, 60), (2, Standing.KNOWN, 50)):
            for n in range(devices):
                said = report(node, symbols[n % 4] if n < 40 else 0, standing=standing, stratum=stratum)
                envelopes.append(envelope(survey, key, [said]))
    assert server.upload(*envelopes) == []  # in one request, as the server folds by itself too: it counts all or none
    server.fold()
    return survey


@pytest.fixture
def reader(server):
    with Reader(server.url) as opened:
        yield opened


def test_a_series_has_arrays_a_frame_and_a_plot(reader, asked):
    """Lost periods are nan; a row of the frame for each time and answer; bands are wider than intervals."""
    series = reader.series(asked.id.hex(), until=3, covariance=True)
    assert series.values.shape == (3, 3)
    assert np.isnan(series.values).all(1).tolist() == [False, False, True]
    assert series.end.tolist() == [1, 2, 3]
    assert series.times[0] == np.datetime64(asked.calendar.time(1), "s")
    variances = np.diagonal(series.covariance, axis1=1, axis2=2)
    assert np.allclose(series.standard_errors[0] ** 2, variances[0])
    assert (series.simultaneous[0, :, 1] > series.intervals[0, :, 1]).all()
    frame = series.frame()
    assert frame.shape[0] == 9
    assert frame["value"].tolist()[:3] == series.values[0].tolist()
    assert frame["share"].iloc[0] == pytest.approx(series.values[0, 0] / series.entries[0])
    assert (series.epsilon, series.answers) == (float(asked.epsilon), asked.answers)
    assert series.diagnostics["impossible"]  # as no honest devices send so little else than 0
    shown = series._repr_html_()
    assert (shown.count("<tr>"), shown.count("<td>-</td>")) == (4, 3)
    assert f"{series.shares[0, 0]:.1%} ({series.intervals[0, 0, 0] / series.entries[0]:.1%} to" in shown
    assert series.plot().get_title() == asked.question
    assert reader.histogram(asked.id.hex(), period=1).plot().get_ylabel() == "entries heard"


def test_figures_are_about_those_heard_unless_all_who_enrolled_are_named(reader, asked):
    """By name they are scaled up to all who ever enrolled, and every answer says whom it is about."""
    heard = reader.series(asked.id.hex(), until=2)
    assert (heard.population, heard.entries.tolist()) == ("heard", [120, 100])
    reader._population = "enrolled"
    enrolled = reader.series(asked.id.hex(), until=2)
    assert (enrolled.population, enrolled.entries.tolist()) == ("enrolled", [120, 120])
    np.testing.assert_allclose(enrolled.shares[0], heard.shares[0])
    assert enrolled.plot().get_ylabel() == "entries that ever enrolled"


def test_surveys_histograms_changes_windows_and_status(reader, asked):
    """Each as one call; by period, by time; the same numbers."""
    id_ = asked.id.hex()
    (row,) = (each for each in reader.surveys() if each["id"] == id_)
    assert (row["question"], row["last_period"], row["public"]) == (asked.question, asked.calendar.periods, True)
    first = reader.histogram(id_, period=1)
    by_time = reader.histogram(id_, at=datetime.fromtimestamp(asked.calendar.time(1), UTC))
    change, windows = reader.change(id_, 0, 1, confidence=None), reader.windows(id_, 1)
    assert first.values.tolist() == by_time.values.tolist() == change.values.tolist()
    assert np.allclose(windows.values[0], first.values[0])
    assert (windows.start[0], windows.end[0], len(change)) == (0, 1, 1)
    assert np.isnan(change.intervals).all()
    assert reader.status(id_)["shown_periods"] == 2  # nobody was heard at later ones


def test_what_has_not_changed_is_not_sent_again(server, asked):
    """The second time the server answers 304 and nothing else."""
    sent = []

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request):
            response = super().handle_request(request)
            sent.append(response.status_code)
            return response

    with Reader(server.url, transport=Watched()) as reader:
        first, second = (reader.series(asked.id.hex()) for _ in range(2))
    assert sent == [200, 304]
    np.testing.assert_array_equal(first.values, second.values)


def test_a_refusal_says_why(reader, asked):
    with pytest.raises(ServerAnswered, match="period 8 has not closed") as refused:
        reader.histogram(asked.id.hex(), period=8)
    assert (refused.value.status, refused.value.code) == (409, "not_estimable")
    with pytest.raises(ServerAnswered, match="declares the breakdowns"):
        reader.series(asked.id.hex(), strata={"system": ["linux"]})
    with pytest.raises(ValueError, match="time zone"):
        reader.histogram(asked.id.hex(), at=datetime(2027, 1, 1))


def test_a_survey_is_the_one_that_was_asked_for_and_an_answer_has_figures(asked):
    """Whatever else a server sends is refused: a survey's id is its hash."""
    sent = {SURVEYS: b"[" * 100_000, f"{SURVEYS}/{asked.id.hex()}/status": b"[]"}

    def answer(request):
        return httpx.Response(200, content=sent.get(request.url.path, asked.signed_by(AUTHORITY)))

    with ServerClient("https://s.example", transport=httpx.MockTransport(answer)) as client:
        assert client.survey(asked.id.hex()).id == asked.id
        for call in (lambda: client.survey("ab" * 16), client.surveys, lambda: client.status(asked.id.hex())):
            with pytest.raises(MalformedBytes):
                call()


def test_arms_differ_by_their_shares_with_interval_and_p_value(server, reader, asked, cli):
    """The difference is that of the two arms' own shares; where p is below 5% the 95% interval leaves out 0. In CSV and
    on the command line too, where a lost period says why."""
    id_ = asked.id.hex()
    found = reader.compare(id_, {"arm": ["B"]}, {"arm": ["A"]}, until=3)
    arms = [reader.series(id_, until=3, strata={"arm": [arm]}).shares for arm in ("B", "A")]
    assert np.allclose(found.values[:2], (arms[0] - arms[1])[:2])
    assert found.entries.tolist() == [[60, 60], [50, 50], [0, 0]]
    inside = (found.intervals[:2, :, 0] <= 0) & (found.intervals[:2, :, 1] >= 0)
    assert (inside == (found.p_values[:2] >= 0.05)).all()
    assert (found.p_together[:2] >= found.p_values[:2].min(1)).all()
    assert np.isnan(found.values[2]).all()
    frame = found.frame()
    assert frame.shape[0] == 9
    assert frame["values"].iloc[0] == found.values[0, 0]
    query = {"stratum": "arm:B", "against": "arm:A", "format": "csv", "until": 3}
    rows = server.http.get(f"{survey_path(asked)}/comparison", params=query).text.splitlines()
    assert rows[0].startswith("period,time,after,answer,difference,standard_error,interval_low,interval_high,p_value")
    assert len(rows) == 1 + 9
    assert rows[-1].split(",")[4:9] == [""] * 5
    words = ("--stratum", "arm:B", "--compare", "arm:A", "--since", "1", "--until", "3")
    printed = cli("series", id_, "--server", server.url, *words)
    assert all(said in printed for said in ("since the end of period 1", "p=", "needs (2, 3]"))


def test_both_arms_changes_and_one_arms_own_are_compared_likewise(reader, asked):
    """After period 1 a difference in differences is that of the two differences; without an arm, the change itself."""
    id_ = asked.id.hex()
    both = reader.compare(id_, {"arm": ["B"]}, {"arm": ["A"]}, after=1, until=2)
    own = [reader.compare(id_, {"arm": [arm]}, after=1, until=2) for arm in ("B", "A")]
    assert np.allclose(both.values, own[0].values - own[1].values)
    assert np.allclose(own[0].values, reader.change(id_, 1, 2, strata={"arm": ["B"]}).shares)
    assert (both.entries.shape, own[0].entries.shape) == ((1, 2), (1, 1))


def published(server, questions, start, *, closed=True):
    """A survey that asks these once, of a period that begins then: all of a closed cohort, else each in a group."""
    tracks = [
        Track(1, KaryResponse(StateSpace(len(each.answers), null=not closed), Odds(2**32, 1)), 0, 1, question=place)
        for place, each in enumerate(questions)
    ]
    plan = ReleasePlan((Group(tuple(tracks)),) if closed else tuple(Group((each,)) for each in tracks))
    how = {"calendar": Calendar(start, 60, 8), "skew": 5, "spread": 5, "grace": 30, "minimum": 3}
    return server.publish(Survey.at_cost(questions=questions, plan=plan, closed=closed, **how))


def told(server, survey, said):
    """What entries of each offset say of the first period, by group, until it is shown for good."""
    server.move_clock(survey.calendar.time(1) + 16)
    for offset in range(OFFSETS):
        sealed = [envelope(survey, server.key, each, group=group) for group, each in said(offset)]
        assert server.upload(*sealed) == []
    server.fold()
    server.move_clock(survey.calendar.time(1) + 60)
    server.fold()
    return survey


@pytest.fixture(scope="module")
def two(server):
    """A survey that asks for a drink and for the minutes: all but one in 2e9 say tea, and 45 minutes."""

    def said(offset):
        for _ in range(8):
            id_, minutes = os.urandom(16), MINUTES.rounded(45, offset).answer
            yield 0, [report(1, symbol, track=at, id_=id_, stratum=offset) for at, symbol in enumerate((0, minutes))]

    return told(server, published(server, (DRINK, MINUTES), server.now), said)


def test_mean_median_and_shares_are_those_of_the_numbers(server, reader, two, cli):
    """Within what rounding adds, which is told: a sixteenth of a level's width. In CSV and a table too."""
    found = reader.numbers(two.id.hex(), question="minutes", quantiles=[0.25, 0.5], above=[20, 90])
    assert found.rounding == 60 / 16
    assert abs(found.mean[0, 0] - 45) <= found.rounding
    assert found.mean[0, 1] <= 45 <= found.mean[0, 2]
    assert all(abs(each[0, 0] - 45) < 30 for each in found.quantiles.values())
    assert found.above[20][0, 0] > 0.9
    assert found.above[90][0, 0] < 0.1
    assert (found.unit, found.levels, found.heard.tolist()) == ("min", (0, 60, 120), [64])
    query = {"question": "minutes", "format": "csv", "above": 60}
    rows = server.http.get(f"{survey_path(two)}/numbers", params=query).text.splitlines()
    assert [row.split(",")[2] for row in rows] == ["figure", "mean", "quantile", "share at or above"]
    words = ("--question", "minutes", "--mean", "--above", "60")
    printed = cli("series", two.id.hex(), "--server", server.url, *words)
    assert "median" in printed
    assert "3.75 min" in printed


def test_the_frozen_among_those_that_hold_a_number_bound_what_freezing_does_to_it(server, reader, cli):
    """Half of the entries hold a number, and an eighth of all, so a quarter of those, are frozen."""

    def said(offset):
        level = 1 + MINUTES.rounded(45, offset).answer
        for group, symbols in enumerate((4 * [0, level], [0, 0, 0, 0, 1, 1, 1, 2])):
            for each in symbols:
                yield group, [report(1, each, track=group, stratum=offset)]

    questions = (MINUTES, Question.of_freezing(MINUTES))
    survey = told(server, published(server, questions, server.now, closed=False), said)
    share, bound = reader.numbers(survey.id.hex(), question="minutes").freezing[0]
    assert share == pytest.approx(1 / 4)
    assert share < bound < 1
    asks = ("--mean", "--question", "minutes")
    printed = " ".join(cli("series", survey.id.hex(), "--server", server.url, *asks).split())
    assert "Freezing: 25.0% of them" in printed
    assert f"at most, and the mean by {120 * bound:.4g} min" in printed
    query = {"format": "csv", "question": "minutes"}
    rows = server.http.get(f"{survey_path(survey)}/numbers", params=query).text.splitlines()
    assert rows[0].endswith(",freezing_bound")
    assert float(rows[1].split(",")[-1]) == pytest.approx(bound)


def test_every_method_and_command_takes_a_question(server, reader, two, cli):
    """Each answers about the question that is named, and none does where none is, of two."""
    id_ = two.id.hex()
    drinks = (
        reader.histogram(id_, period=1, question="drink"),
        reader.series(id_, until=1, question="drink"),
        reader.change(id_, 0, 1, question="drink"),
        reader.windows(id_, 1, 1, question="drink"),
    )
    assert {each.question for each in drinks} == {DRINK.text}
    assert all(each.shares[0] == pytest.approx([1, 0], abs=1e-6) for each in drinks)
    with pytest.raises(ServerAnswered, match="drink, minutes"):
        reader.series(id_)
    for words in ("histogram --period 1", "series --until 1", "change --after 0 --until 1"):
        command, *more = words.split()
        assert DRINK.text in cli(command, id_, "--server", server.url, *more, "--question", "drink")


ENTRIES, HEAVY, PERIODS = 200, 120, 3
"""Most entries change in every period, and the survey counts one change after the first answer."""
TRUTH = np.array([[ENTRIES, 0], [ENTRIES - HEAVY, HEAVY], [ENTRIES, 0]])
"""How many hold tea and coffee at the end of each period."""
ONCE = Question("drink", "What do you drink?", ("tea", "coffee"), AtMost(2))


@pytest.fixture(scope="module")
def frozen(server, tmp_path_factory):
    """Half of the entries, by lot, tell the drink, and half whether they are frozen, nearly all of them the truth."""
    track = Track(1, KaryResponse(StateSpace(2), Odds(2**32, 1)), 0, PERIODS)
    _ = server.key
    survey = server.publish(
        Survey.at_cost(
            questions=(ONCE, Question.of_freezing(ONCE)),
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


def holds(intervals, truth):
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


def series_of(reader, survey):
    return reader.series(survey.id.hex(), question="drink", confidence=0.99)


def test_heavy_changers_true_shares_lie_outside_the_band_and_within_band_and_bound(reader, frozen):
    """At 99%, with fixed coins. Until anybody is frozen both hold; in the end the band misses by 60 points. The
    freezing question itself has a series, and no bound of its own."""
    found = series_of(reader, frozen)
    assert found.entries.tolist() == [ENTRIES] * PERIODS
    assert holds(found.intervals, TRUTH).all(1).tolist() == [True, True, False]
    assert holds(found.widened, TRUTH).all()
    assert abs(found.freezing[:, 0] / ENTRIES - [0, 0, HEAVY / ENTRIES]).max() < 0.15
    assert (found.freezing[:, 1] >= found.freezing[:, 0]).all()
    own = reader.series(frozen.id.hex(), question="drink-frozen")
    assert own.answers == ("no", "yes")
    assert np.isnan(own.freezing).all()
    assert np.isnan(own.widened).all()
    assert own.values[2, 1] == pytest.approx(found.freezing[2, 0])


def test_a_change_since_an_earlier_period_is_bounded_by_those_that_are_frozen_at_its_end(reader, frozen):
    """Heavy changers went back to tea, and the server sees none of it."""
    found, series = reader.change(frozen.id.hex(), 2, 3, question="drink", confidence=0.99), series_of(reader, frozen)
    moved = TRUTH[2] - TRUTH[1]
    assert not holds(found.intervals[0], moved).any()
    assert holds(found.widened[0], moved).all()
    assert np.allclose(found.freezing, series.freezing[2:])
    windows = reader.windows(frozen.id.hex(), 1, question="drink", confidence=0.99)
    assert np.allclose(windows.freezing, series.freezing)


def test_a_difference_between_arms_or_times_is_bounded_by_the_frozen_of_all_that_it_is_between(
    server, reader, frozen, cli
):
    """Who changes often and who never does hold the same in the end, and the interval leaves that out."""
    id_, how = frozen.id.hex(), {"question": "drink", "confidence": 0.99}
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
    rows = server.http.get(f"{survey_path(frozen)}/comparison", params=query).text.splitlines()
    assert rows[0].endswith(",freezing_bound")
    own = reader.compare(id_, after=2, until=PERIODS, **how)
    assert float(rows[-1].split(",")[-1]) == pytest.approx(own.freezing_bound[0])
    assert np.isnan(reader.compare(id_, *arms, until=PERIODS, question="drink", confidence=None).freezing_bound).all()


def test_the_bound_is_in_json_csv_the_table_and_the_frame(server, reader, frozen, cli):
    """Everywhere the same; without intervals there is an estimate and no bound."""
    id_, path, asks = frozen.id.hex(), f"{survey_path(frozen)}/series", {"question": "drink", "confidence": "0.95"}
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
