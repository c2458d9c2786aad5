"""Whole lives of devices: what an app records and when it flushes, and what then leaves the device.

Our own client lives them, with coins that keep what was drawn, in front of a server that opens every envelope. Clocks
are true and the server is in reach, so that nothing but the survey, the records and the coins decides.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from changeling_protocol import AtMost, Calendar, Odds, TimeBounded, open_envelope

from ...client_sdk.device import PRIVATE, Clock, FakeServer, client
from ...coins import SeededCoins
from ...protocol.examples import hierarchical, joint_plan, mixed, survey
from .examples import SURVEYS, signed_survey
from .notation import LoggedCoins

_CHANGES = (
    (1, "record", "tea"),
    (60, "record", "coffee"),  # in the last millisecond of period 1
    (60.001, "record", "coffee"),
    (80, "flush"),
    (130, "retract"),
    (150, "flush"),
    (240.5, "record", "neither"),
    (250, "record", "tea"),
    (330, "flush"),
    (400, "record", "tea"),
    (520, "flush"),
    (530, "record", "coffee"),
)
_OFTEN = [(60 * i + 75, "flush") for i in range(8)]
_CLOSED = replace(SURVEYS["closed"], grace=600)
_BOUNDED = survey(hierarchical(3, 8, (1, 2), Odds(3, 1)), constraint=TimeBounded(100))
_SHORT = survey(hierarchical(3, 8, (2, 4), Odds(3, 1)), grace=85)
_SIGNED = SURVEYS["states"].asking(constraint=AtMost(3))
_HOURLY = {"calendar": Calendar(1_800_000_000, 3600, 130), "constraint": AtMost(2), "grace": 10**6}
_LONG = survey(hierarchical(3, 130, (1, 65), Odds(3, 1)), **_HOURLY)


def cases():
    """A case for each life."""
    for seed in range(4):
        yield lived(f"a group of three, {seed}", survey(mixed(3, 8)), _CHANGES, seed=seed)
        yield lived(f"a joint response, {seed}", survey(joint_plan(3, 8)), _CHANGES, seed=seed)
        yield lived(f"a closed cohort, {seed}", _CLOSED, _CHANGES, seed=seed, answers=["neither"])
        yield lived(f"sets and weights of its own, {seed}", _SIGNED, _CHANGES, seed=seed)
    for seed in range(3):
        asked = SURVEYS["a question that devices answer by themselves"]
        yield lived(f"changes that are turned down, {seed}", asked, _CHANGES, seed=seed)
    yield lived("a history", SURVEYS["history"], _CHANGES)
    yield lived("a history in a closed cohort", SURVEYS["history, closed"], _CHANGES, answers=["neither"])
    late = replace(SURVEYS["history, time-bounded"], grace=85)
    offline = [(200, "record", "tea"), (400, "flush"), (520, "flush")]
    yield lived("a history of an entry that enrolled late and was offline", late, offline, joined=70)
    yield lived("nothing is ever recorded", survey(joint_plan(3, 8)), _OFTEN)
    within = [(101, "record", "tea"), (101.001, "retract"), (120, "record", "coffee")]
    yield lived("changes within a time", _BOUNDED, [*_CHANGES[:4], *within, *_CHANGES[5:]])
    yield lived("enrolled late", survey(), _CHANGES[6:], joined=190)
    late = [(5, "record", "tea"), (350, "flush"), (380, "flush")]
    yield lived("offline until some closings are past their grace", _SHORT, late)
    back = [(140, "flush"), (200, "record", "coffee"), (470, "flush"), (510, "flush")]
    yield lived("offline, and back in between", _SHORT, [(5, "record", "tea"), *back])
    kept_late = [(80, "flush, not kept"), (100, "record", "coffee"), (200, "flush, not kept"), (500, "flush")]
    yield lived("a server that keeps nothing for a while", survey(), [(5, "record", "tea"), *kept_late])
    too_late = [(140, "flush, not kept"), (270, "flush"), (400, "flush")]
    yield lived("what was not kept goes past its grace", _SHORT, [(5, "record", "tea"), *too_late])
    yield lived("more periods than one upload spans", _LONG, [(5, "record", "tea"), (3600 * 130 + 60, "flush")])
    two = [(5, "record", "tea", 1), (80, "flush"), (90, "record", "coffee", 0), (600, "flush")]
    yield lived("two entries", survey(mixed(3, 8)), two, entries=2)
    moved = (90, "stratum", {"platform": "other", "channel": "beta"})
    told = {"platform": "mac", "channel": "release"}
    events = [(5, "record", "tea"), (80, "flush"), moved, (600, "flush")]
    yield lived("a stratum that changes", SURVEYS["strata"], events, stratum=told)


def lived(name, survey, events, *, joined=0, seed=0, entries=1, answers=None, stratum=None):
    """A life of a device of one survey as a case: what our client did, and the coins it took.

    events: in order, each as seconds since the calendar's start, to the millisecond; what is done; with what.
    joined: when, in seconds since the calendar's start. seed: of its coins.
    """
    server, clock, coins = FakeServer(survey), Clock(), LoggedCoins(SeededCoins(seed))

    def set_to(seconds):
        clock.now = survey.calendar.start + seconds
        return round(clock.now * 1000)

    with TemporaryDirectory() as folder, client(Path(folder), server, clock, coins) as device:
        joined_ms = set_to(joined)
        handle = device.join(survey.id, entries=entries, answers=answers, stratum=stratum)
        drawn, done = coins.taken(), []
        for seconds, what, *with_what in events:
            at_ms = set_to(seconds)
            if what.startswith("flush"):
                came = _flushed(device, server, keeps=what == "flush")
            else:
                came = _told(handle, what, with_what)
            done.append({"at_ms": at_ms, "does": what, **came, "coins": coins.taken()})
    return {
        "kind": "life",
        "name": name,
        **signed_survey(survey),
        "joined_ms": joined_ms,
        "entries": entries,
        "answers": answers,
        "stratum": stratum,
        "coins": drawn,
        "events": done,
    }


def _told(handle, what, with_what):
    match what, with_what:
        case "record", [str(answer), *entry]:
            recorded = handle.record(answer, *entry)
            return {"answer": answer, "entry": entry[0] if entry else 0, "becomes": recorded.value}
        case "retract", []:
            return {"entry": 0, "becomes": handle.retract().value}
        case "stratum", [dict(stratum)]:
            handle.stratum(stratum)
            return {"entry": 0, "stratum": stratum}
    raise AssertionError(what)


def _flushed(device, server, keeps):
    """One flush: the plaintexts that were sent, and how many closings were dropped.

    keeps: whether the server takes what it is sent; if not, it answers 503.
    """
    server.bodies.clear()
    server.reply = lambda request: httpx.Response(503) if request.method == "POST" and not keeps else None
    flushed = device.flush()
    plaintexts = [open_envelope(envelope, PRIVATE).hex() for envelope in server.envelopes]
    return {"dropped": flushed.dropped, "plaintexts": plaintexts}
