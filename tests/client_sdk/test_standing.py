"""What an entry says at a closing of those before it, and which stratum it is in."""

import itertools
from dataclasses import replace

import httpx
import pytest
from changeling_client import BadEnrolment
from changeling_protocol import Breakdown, Standing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..protocol.examples import hierarchical, survey
from .device import LATE, PLAIN, START, TRUTHFUL, Clock, FakeServer, client

KNOWN, NEW, MISSED = Standing
SHORT = survey(hierarchical(3, 8, (1, 2, 4), TRUTHFUL), grace=85)
"""A closing may be answered and sent until 85 seconds after it: still when the next one is due."""
SPARSE = survey(hierarchical(3, 8, (2,), TRUTHFUL), grace=85)
"""Its closings are those of the even periods."""
PUBLIC = (Breakdown("platform", ("linux", "mac")), Breakdown("channel", ("release", "beta")))
TOLD = replace(PLAIN, breakdowns=PUBLIC, stratum_changes=2)


def standings(server: FakeServer) -> dict[int, Standing]:
    return {closing.period: closing.standing for closing in server.closings()}


STANDINGS = {
    "the first is new, those answered with it are known": (
        PLAIN,
        130,
        [LATE - START],
        {3: NEW, **dict.fromkeys(range(4, 9), KNOWN)},
    ),
    "periods at which no node ends are no closings": (SPARSE, 130, [260], {4: NEW}),
    "who misses the first closings says so once": (SHORT, 0, [260, 320], {3: MISSED, 4: KNOWN, 5: KNOWN}),
    "who is offline for a while stays known": (SHORT, 0, [80, 320], {1: NEW, 4: KNOWN, 5: KNOWN}),
}


@pytest.mark.parametrize("name", STANDINGS)
def test_a_closing_says_whether_the_entry_is_known(joined, name):
    """Of an entry that enrols so many seconds after the start, and flushes at these, whatever it has to say."""
    asked, enrols, flushes, said = STANDINGS[name]
    _, device, server, _ = joined(asked, now=START + enrols)
    for moment in flushes:
        device.at(START + moment).flush()
    assert standings(server) == said


@pytest.mark.parametrize("first", [1, 2], ids=["new", "missed"])
def test_if_the_first_answer_never_left_the_next_one_is_missed(joined, first):
    """The closing that was to say that the entry takes part waited until its grace was over. Sent again before, it
    stays what it is."""
    _, device, server, clock = joined(SHORT)
    server.reply = lambda request: httpx.Response(503) if request.method == "POST" else None
    clock.now = START + 60 + (80 if first == 2 else 0) + 20
    device.flush()
    device.flush()
    clock.now = START + (first + 4) * 60 + 20
    server.bodies.clear()
    server.reply = lambda _: None
    device.flush()
    device.at(LATE).flush()
    told = standings(server)
    assert min(told) == first + 3
    assert told[min(told)] is MISSED
    assert {told[period] for period in told if period > min(told)} == {KNOWN}


def test_a_retry_repeats_standing_stratum_and_id(joined):
    """Though the stratum has changed, and closings were answered since."""
    handle, device, server, _ = joined(TOLD, stratum={"platform": "mac", "channel": "release"})
    server.reply = lambda request: httpx.Response(503) if request.method == "POST" else None
    device.at(START + 80).flush()
    handle.stratum({"platform": "mac", "channel": "beta"})
    device.at(START + 140).flush()
    server.reply = lambda _: None
    device.flush()
    (first, *_), *later = ([*closings] for closings in _by_envelope(server))
    assert (first.period, first.standing, first.stratum) == (1, NEW, 2)
    assert [closings[0] for closings in later] == [first, first]
    assert [(each.period, each.standing, each.stratum) for each in later[-1]] == [(1, NEW, 2), (2, KNOWN, 3)]


def _by_envelope(server):
    firsts = itertools.groupby(server.answers(), key=lambda answer: answer[0].period == 1)
    runs: list[list] = []
    for is_first, answers in firsts:
        for closing, _ in answers:
            if is_first:
                runs.append([closing])
            else:
                runs[-1].append(closing)
    return runs


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 150), st.booleans()), min_size=1, max_size=8), st.integers(0, 200))
def test_over_any_life_a_server_that_hears_all_learns_of_an_entry_once(tmp_path_factory, steps, enrols):
    """Offline, late, with a server that is down at times: of the closings that arrive, the first alone says that the
    entry takes part, as long as nothing that said so was dropped after the server had it; and it is new only at the
    first closing after enrolment."""
    server, clock = FakeServer(SHORT), Clock(START + enrols)
    with client(tmp_path_factory.mktemp("device"), server, clock) as device:
        device.join(SHORT.id)
        arrived: dict[int, Standing] = {}
        for wait, up in steps:
            clock.now += wait
            server.reply = (lambda _: None) if up else (lambda _: httpx.Response(503))
            server.bodies.clear()
            device.flush()
            if up:
                for closing in server.closings():
                    assert arrived.setdefault(closing.period, closing.standing) == closing.standing
    said = [period for period in sorted(arrived) if arrived[period] is not KNOWN]
    first = max(-(-enrols // 60), 1)
    assert len(said) <= 1
    assert all(arrived[period] is (NEW if period == first else MISSED) for period in said)
    if said and said[0] != min(arrived):
        assert arrived[said[0]] is MISSED  # one that was known went before it, while the first was dropped


def test_a_survey_with_breakdowns_needs_a_stratum(tmp_path):
    """One value for each, declared; and a survey without takes none. Nothing is joined otherwise."""
    server = FakeServer(TOLD, PLAIN)
    with client(tmp_path, server, Clock()) as device:
        for wrong in (None, {}, {"platform": "linux"}, {"platform": "linux", "channel": "gamma"}):
            with pytest.raises(BadEnrolment, match="channel"):
                device.join(TOLD.id, stratum=wrong)
        with pytest.raises(BadEnrolment, match="colour"):
            device.join(TOLD.id, stratum={"platform": "linux", "channel": "beta", "colour": "red"})
        with pytest.raises(BadEnrolment, match="platform"):
            device.join(PLAIN.id, stratum={"platform": "linux"})
        assert device.ledger().spent == 0


def test_every_entry_is_in_the_stratum_that_is_told_until_it_changes(joined):
    """A change counts from the next closing on, for its entry alone; the ledger says what is public."""
    told = {"platform": "mac", "channel": "release"}
    handle, device, server, _ = joined(TOLD, entries=2, stratum=told)
    assert handle.ledger(1).public == told
    device.at(START + 80).flush()
    handle.stratum({"channel": "beta", "platform": "mac"}, entry=1)
    assert device.join(TOLD.id, entries=2).ledger(1).public == {"platform": "mac", "channel": "beta"}
    device.at(LATE).flush()
    strata = [closing.stratum for closing in server.closings()]
    assert strata == [2, 2] + [2] * 7 + [3] * 7


def test_a_stratum_changes_as_often_as_the_survey_allows(begin):
    """The same again is no change; one more change, an undeclared value or an unknown entry changes nothing."""
    device = begin(TOLD).device
    linux, mac = ({"platform": platform, "channel": "release"} for platform in ("linux", "mac"))
    handle = device.join(TOLD.id, stratum=linux)
    for told in (linux, mac, mac, linux, linux):
        handle.stratum(told)
    for wrong, words in (
        (mac, "2 times"),
        ({"platform": "linux", "channel": "gamma"}, "gamma"),
        ({}, "a value for each"),
    ):
        with pytest.raises(ValueError, match=words):
            handle.stratum(wrong)
    with pytest.raises(ValueError, match="numbered 0 to 0"):
        handle.stratum(linux, entry=1)
    assert handle.ledger().public == linux
