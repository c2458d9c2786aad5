"""Estimates over HTTP: the right numbers in every form, nothing that must not be shown; made once, a few at a time."""

import asyncio
import csv
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from threading import Event
from urllib.parse import urlencode

import msgpack
import numpy as np
import pytest
from changeling_aggregator import Overloaded
from changeling_aggregator.server import results, service
from changeling_aggregator.store import Store
from changeling_protocol import Breakdown, Standing, SurveyId
from changeling_statistics import counterpart_of, histogram_change

from ..protocol.examples import survey
from .devices import report
from .serving import OpenSurvey, in_process

SYSTEM, CHANNEL = Breakdown("system", ("linux", "mac")), Breakdown("channel", ("release", "beta"))


class Asked(OpenSurvey):
    """A survey on a server of its own, and what is worked out for whoever asks; `http` asks the server."""

    http = None

    def answer(self, node, symbols, track=0, standing=Standing.NEW, stratum=0):
        """A device per symbol reports on a node."""
        how = {"track": track, "standing": standing, "stratum": stratum}
        self.take(*(self.sealed(report(node, symbol, **how)) for symbol in symbols))

    def get(self, what, **query):
        """The status and the content, after a fold."""
        self.take()
        answer = self.http(self.path(f"{what}?{urlencode(query, doseq=True)}"))
        return answer.status_code, answer.json()


@pytest.fixture
def asked(tmp_path):
    """Makes a survey, with its clock so many seconds beyond the close of a period."""
    with ExitStack() as stack:
        made = []

        def make(close, later, breakdowns=(), **fields):
            store = Store.open(tmp_path / f"{len(made)}.db")
            made.append(at := Asked(store, replace(survey(**fields), breakdowns=breakdowns)))
            at.move(close, later)
            at.http = stack.enter_context(in_process(at.service))
            return at

        yield make


@pytest.fixture
def solved(monkeypatch):
    """All that is worked out."""
    solved, figures = [], results.histogram_figures
    monkeypatch.setattr(results, "histogram_figures", lambda *args: solved.append(args) or figures(*args))
    return solved


@pytest.fixture
def series(asked):
    """A survey of whose periods three are answered, and the path of its series."""
    at = asked(3, 20)
    at.take(at.sealed(report(1, 3), report(2, 3), report(3, 3)))
    return at, at.path("series")


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
    at.move_to_due(2)
    found, alone = at.get("series")[1], at.get("histogram")[1]
    assert [each["period"] for each in found["series"]] == [1, 2]
    assert (alone["period"], found["nodes"]) == (2, alone["nodes"])
    assert not any("nodes" in each for each in found["series"]), "of T times they would make T² lines"
    assert found["series"][1]["values"] == pytest.approx(alone["values"])
    for close, later, period in ((1, 0, 1), (1, 59, 1), (2, 0, 2)):
        assert at.get("histogram", time=at.survey.calendar.time(close) + later)[1]["period"] == period


def test_closings_that_were_sealed_without_reports_are_not_said_to_be_open(asked):
    """Nothing is shown of them, now or later; whether one had too few reports or none is not said."""
    at = asked(0, 0, minimum=5)
    assert "none has been sealed" in at.get("series")[1]["detail"]
    at.move(1, at.survey.grace + 30)
    said = at.get("series")[1]["detail"]
    assert "up to period 1 are sealed, with too few reports to be shown, or none" in said


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
    at.move_to_due(2)
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


COMPARED = "comparison?until=2"
REFUSED = {
    **{f"histogram?period={each}": "period" for each in ("0", "9", "-1", "one", "9" * 5000)},
    **{f"histogram?time={each}": "" for each in ("noon", "1", "9" * 400, "0001-01-01T00:00%2B23:59")},
    "histogram?method=maybe": "online or retrospective",
    "histogram?period=1&stratum=system:windows": "windows",
    "histogram?period=1&stratum=colour:red": "colour",
    "histogram?period=1&stratum=system": "system",
    "series?x=1": "'x'",
    "series?until=1&until=2": "until",
    "series?" + "y" * 60_000: "y" * 40,
    "series?confidence=2": "confidence",
    "series?confidence=0.0": "confidence",
    "series?window=3": "'window'",
    "series?format=xml": "format",
    "series?until=1&time=2027-01-15T08:00Z": "until and time",
    "change": "after",
    "change?after=1&until=1": "0 <= start < end",
    "change?after=-1&until=1": "after",
    "windows?width=0": "width: Expected `int` >= 1",
    "windows?width=x": "width",
    COMPARED: "against, after, or both",
    f"{COMPARED}&against=system:mac": "apart",
    f"{COMPARED}&stratum=system:mac&against=system:mac": "apart",
    f"{COMPARED}&stratum=system:linux&against=system:windows": "windows",
    f"{COMPARED}&after=2": "not before",
    f"{COMPARED}&after=1&covariance=true": "no parameter",
    f"{COMPARED}&after=1&method=smoothed": "retrospective",
    **{f"numbers?until=2&quantile={each}": "quantile" for each in ("0.51", "x")},
    **{f"numbers?until=2&above={each}": "above" for each in ("nan", "1&above=2&above=3&above=4&above=5")},
    "numbers?until=2": "not for a number",
}
"""What is asked, and a word of what is said of it."""


def test_what_is_no_question_is_refused_by_name_and_remembered_nowhere(asked, solved):
    """422: unknown parameters, repeated and long ones, periods that are none, impossible windows, strata that nobody
    declared, arms that overlap, figures of what is no number. Nothing is worked out or kept for them."""
    at = asked(2, 60, breakdowns=(SYSTEM,))
    for what, named in REFUSED.items():
        refused = at.http(at.path(what))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), what[:80]
        assert named in refused.json()["detail"]
        assert len(refused.content) < 400 or what.startswith("histogram?time")
    assert not solved
    assert not at.service.estimating._kept


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


def test_the_same_question_is_answered_once_until_the_answer_changes(series, solved):
    """Asked again, nothing is solved again; a new report, another period or another question is another answer. Who
    shows the tag of an answer gets 304 and nothing is worked out, until something else is shown; each form has its own.
    """
    at, path = series
    first = at.http(path)
    tag = {"if-none-match": first.headers["etag"]}
    assert at.http(path).content == at.http(path + "?until=3&method=online").content == first.content
    for told in (tag, {"if-none-match": '"other", W/' + first.headers["etag"]}):
        assert (at.http(path, told).status_code, at.http(path, told).content) == (304, b"")
    assert len(solved) == 1
    assert at.http(path + "?until=1").json()["series"] == first.json()["series"][:1]
    assert at.http(path + "?format=csv", tag).status_code == 200
    assert len(solved) == 3
    at.take(at.sealed(report(2, 3)))
    again = at.http(path, tag)
    assert (again.status_code, again.json()["series"] != first.json()["series"], len(solved)) == (200, True, 4)
    at.take(at.sealed(report(4, 3)))
    at.move(4, 20)
    at.take()
    assert len(at.http(path).json()["series"]) == len(first.json()["series"]) + 1


@pytest.mark.parametrize("method", ["online", "retrospective", "smoothed"])
def test_csv_json_and_messagepack_say_the_same(series, method):
    """Every figure of each answer, with its intervals and bounds, to the last digit."""
    at, path = series
    path += f"?confidence=0.9&method={method}&format="
    told = at.http(path + "json").json()
    assert msgpack.unpackb(at.http(path + "msgpack").content) == told
    rows = list(csv.DictReader(StringIO(at.http(path + "csv").text)))
    assert len(rows) == 3 * len(told["answers"])
    for number, row in enumerate(rows):
        each, at = told["series"][number // 3], number % 3
        assert row["answer"] == told["answers"][at]
        for column, figure in (("estimate", each["values"][at]), ("standard_error", each["standard_errors"][at])):
            assert row[column] == ("" if figure is None else repr(figure))
        for name in ("intervals", "simultaneous", "bounds"):
            sides = ["" if end is None else repr(end) for end in each[name][at]]
            assert [row[f"{name}_low"], row[f"{name}_high"]] == sides
        for name in ("entries", "enrolled", "heard", "false_entries", "provisional", "upper_bound", "period"):
            assert row[name] == str(each[name])
        assert row["epsilon"] == repr(told["epsilon"])


class Slow:
    """Has answers made, which wait until they are let go; notes which were."""

    def __init__(self):
        self.making, self.go_on, self.made = service.Estimating(), Event(), []

    def ask(self, name, network=None, opens=None, key=None, fails=False):
        """The task of somebody who waits for this answer."""

        def make():
            self.made.append(name)
            self.go_on.wait(100)
            if fails:
                raise ValueError("no")
            return name.encode()

        return asyncio.create_task(self.making.answer(key or name, make, network, opens))


@pytest.fixture
def slow():
    made = Slow()
    yield made
    made.go_on.set()
    made.making.close()


async def test_few_are_made_at_a_time_and_few_wait(monkeypatch, slow):
    """Two are made, three wait, the one too many is told to come again; once they are done there is room again."""
    monkeypatch.setattr(service, "MOST_WAITING", 3)
    waiting = [slow.ask(name) for name in "abcde"]
    while len(slow.made) < 2:
        await asyncio.sleep(0.01)
    assert sorted(slow.made) == ["a", "b"]
    with pytest.raises(Overloaded):
        await slow.ask("f")
    slow.go_on.set()
    assert await asyncio.gather(*waiting) == [b"a", b"b", b"c", b"d", b"e"]
    assert await slow.ask("f") == b"f"


async def test_networks_take_turns_and_the_page_opens_always(monkeypatch, slow):
    """One asks for much, and has one thread: others are answered beside it, the page's own at once, and it is kept."""
    monkeypatch.setattr(service, "MOST_OF_NETWORK", 3)
    monkeypatch.setattr(service, "MOST_KEPT", 1)
    greedy, tasks = "192.0.2.0/24", []
    for network, names in ((greedy, "abcd"), ("198.51.100.0/24", "ef"), ("203.0.113.0/24", "g")):
        tasks += [slow.ask(name, network) for name in names]
        await asyncio.sleep(0.05)
    assert slow.made == ["a", "e"]
    with pytest.raises(Overloaded):
        await slow.ask("more", greedy)
    tasks.append(slow.ask("page", greedy, SurveyId(bytes(16))))
    await asyncio.sleep(0.05)
    assert slow.made == ["a", "e", "page"]
    slow.go_on.set()
    await asyncio.gather(*tasks)
    assert slow.made[3:5] in (["g", "b"], ["g", "f"])
    assert sorted(slow.made) == [*"abcdefg", "page"]
    assert (slow.making.kept("page"), slow.making.kept("a")) == (b"page", None)


async def test_what_nobody_waits_for_any_more_is_not_made(slow):
    """Sixty-six readers ask and go, as often as they like: the next question has room, and waits for two at most."""
    for _ in range(3):
        gone = [slow.ask(f"{n}") for n in range(66)]
        await asyncio.sleep(0.05)
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
    patient = slow.ask("mine")
    await asyncio.sleep(0.05)
    slow.go_on.set()
    assert await patient == b"mine"
    assert (set(slow.made[:2]), slow.made[2:]) == ({"0", "1"}, ["mine"])


async def test_an_answer_is_made_once_even_by_many_who_ask_at_once(slow):
    """One who goes takes it from nobody; an error is told to all and not kept."""
    many = [slow.ask("x", key="key") for _ in range(20)]
    errors = [slow.ask("bad", fails=True) for _ in range(5)]
    await asyncio.sleep(0.05)
    many.pop().cancel()
    slow.go_on.set()
    assert set(await asyncio.gather(*many)) == {b"x"}
    assert [str(each) for each in await asyncio.gather(*errors, return_exceptions=True)] == ["no"] * 5
    assert await slow.ask("y", key="key") == b"x"
    assert await slow.ask("z", key="bad") == b"z"
    assert sorted(slow.made) == ["bad", "x", "z"]


@pytest.mark.parametrize(("bound", "most"), [("MOST_KEPT_BYTES", 5), ("MOST_KEPT", 2)])
async def test_what_is_kept_is_bounded(monkeypatch, slow, bound, most):
    """Of answers that exceed it together the one asked for longest ago goes."""
    monkeypatch.setattr(service, bound, most)
    slow.go_on.set()
    for name in ("aa", "bb", "aa", "cc", "aa", "bb"):
        await slow.ask(name)
    assert slow.made == ["aa", "bb", "cc", "bb"]
