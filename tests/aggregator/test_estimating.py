"""Answers are made a few at a time, once for what they are made of, and not for those who have gone."""

import asyncio
import csv
from io import StringIO
from threading import Event
from typing import Any

import msgpack
import pytest
from changeling_aggregator import Overloaded
from changeling_aggregator.server import ServerSettings, Service, results, service
from changeling_protocol import Calendar, SurveyId

from ..protocol.examples import PINNED, survey
from .devices import Log, report
from .serving import in_process


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


class Asked:
    """A survey with three periods answered, a server whose clock is set, and what was worked out."""

    def __init__(self, store, monkeypatch):
        self.log = Log.of(store, survey(calendar=Calendar(1_800_000_000, 60, 8), grace=600))
        self.now, self.solved, series = 1_800_000_200.0, list[Any](), results.histogram_figures
        monkeypatch.setattr(results, "histogram_figures", lambda *args: self.solved.append(args) or series(*args))
        self.service = Service(store, ServerSettings(PINNED, lambda: self.now))
        self.path = f"/v1/surveys/{self.log.survey.id.hex()}/series"
        self.reports(1, 2, 3)

    def reports(self, *nodes):
        self.log.append_reports(self.now, [report(node, 3) for node in nodes])
        self.service.folding.fold_now()


@pytest.fixture
def asked(store, monkeypatch):
    return Asked(store, monkeypatch)


def test_the_same_question_is_answered_once_until_the_answer_changes(asked):
    """Asked again, nothing is solved again; a new report, another period or another question is another answer. Who
    shows the tag of an answer gets 304 and nothing is worked out, until something else is shown; each form has its own.
    """
    path, solved = asked.path, asked.solved
    with in_process(asked.service) as get:
        first = get(path)
        tag = {"if-none-match": first.headers["etag"]}
        assert get(path).content == get(path + "?until=3&method=online").content == first.content
        assert (get(path, tag).status_code, get(path, tag).content) == (304, b"")
        assert get(path, {"if-none-match": '"other", W/' + first.headers["etag"]}).status_code == 304
        assert len(solved) == 1
        assert get(path + "?until=1").json()["series"] == first.json()["series"][:1]
        assert get(path + "?format=csv", tag).status_code == 200
        assert len(solved) == 3
        asked.reports(2)
        again = get(path, tag)
        assert (again.status_code, again.json()["series"] != first.json()["series"], len(solved)) == (200, True, 4)
        asked.log.append_reports(asked.now, [report(4, 3)])
        asked.now += 60
        asked.service.folding.fold_now()
        assert len(get(path).json()["series"]) == len(first.json()["series"]) + 1


def test_what_no_question_has_is_refused_by_name_and_remembered_nowhere(asked):
    """Unknown parameters, repeated ones, and long ones: 422, and nothing is worked out or kept for them."""
    with in_process(asked.service) as get:
        for query, named in {
            "x=1": "'x'",
            "until=1&until=2": "until",
            "y" * 60_000: "y" * 40,
            "confidence=2": "confidence",
            "confidence=0.0": "confidence",
            "window=3": "'window'",
            "format=xml": "format",
            "until=1&time=2027-01-15T08:00Z": "until and time",
        }.items():
            refused = get(f"{asked.path}?{query}")
            assert refused.status_code == 422
            assert named in refused.json()["detail"]
            assert len(refused.content) < 400
        assert not asked.solved
        assert not asked.service.estimating._kept


@pytest.mark.parametrize("method", ["online", "retrospective", "smoothed"])
def test_csv_json_and_messagepack_say_the_same(asked, method):
    """Every figure of each answer, with its intervals and bounds, to the last digit."""
    path = f"{asked.path}?confidence=0.9&method={method}&format="
    with in_process(asked.service) as get:
        told = get(path + "json").json()
        assert msgpack.unpackb(get(path + "msgpack").content) == told
        rows = list(csv.DictReader(StringIO(get(path + "csv").text)))
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
