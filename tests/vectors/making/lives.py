"""Whole lives of devices: what an app records and when it flushes, and what then leaves the device.

Our own client lives them, with coins that keep what was drawn, in front of a server that opens every envelope. Clocks
are true and the server is in reach, so that nothing but the survey, the records and the coins decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from changeling_client import SurveyHandle
from changeling_protocol import AtMost, Calendar, Odds, Survey, TimeBounded, open_envelope

from ...client_sdk.device import PRIVATE, Clock, FakeServer, client
from ...coins import SeededCoins
from ...protocol.examples import AUTHORITY, PINNED, hierarchical, joint_plan, mixed, survey
from .examples import SURVEYS
from .notation import Case, LoggedCoins

Event = tuple[Any, ...]
"""Seconds since the calendar's start, to the millisecond; what is done; with what."""


@dataclass(frozen=True)
class Life:
    """What happens to a device of one survey.

    joined: when, in seconds since the calendar's start. events: in order. seed: of its coins.
    """

    name: str
    survey: Survey
    events: Sequence[Event]
    joined: float = 0
    seed: int = 0
    entries: int = 1
    answers: Sequence[str] | None = None
    stratum: Mapping[str, str] | None = None


_CHANGES: Sequence[Event] = (
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
_OFTEN: Sequence[Event] = [(60 * i + 75, "flush") for i in range(8)]
_CLOSED = replace(SURVEYS["closed"], grace=600)
_BOUNDED = survey(hierarchical(3, 8, (1, 2), Odds(3, 1)), constraint=TimeBounded(100))
_SHORT = survey(hierarchical(3, 8, (2, 4), Odds(3, 1)), grace=85)
_SIGNED = SURVEYS["states"].asking(constraint=AtMost(3))
_LONG = survey(
    hierarchical(3, 130, (1, 65), Odds(3, 1)),
    calendar=Calendar(1_800_000_000, 3600, 130),
    constraint=AtMost(2),
    grace=10**6,
)


def _lives() -> Iterator[Life]:
    for seed in range(4):
        yield Life(f"a group of three, {seed}", survey(mixed(3, 8)), _CHANGES, seed=seed)
        yield Life(f"a joint response, {seed}", survey(joint_plan(3, 8)), _CHANGES, seed=seed)
        yield Life(f"a closed cohort, {seed}", _CLOSED, _CHANGES, seed=seed, answers=["neither"])
        yield Life(f"sets and weights of its own, {seed}", _SIGNED, _CHANGES, seed=seed)
    for seed in range(3):
        asked = SURVEYS["a question that devices answer by themselves"]
        yield Life(f"changes that are turned down, {seed}", asked, _CHANGES, seed=seed)
    yield Life("a history", SURVEYS["history"], _CHANGES)
    yield Life("a history in a closed cohort", SURVEYS["history, closed"], _CHANGES, answers=["neither"])
    late = replace(SURVEYS["history, time-bounded"], grace=85)
    offline: Sequence[Event] = [(200, "record", "tea"), (400, "flush"), (520, "flush")]
    yield Life("a history of an entry that enrolled late and was offline", late, offline, joined=70)
    yield Life("nothing is ever recorded", survey(joint_plan(3, 8)), _OFTEN)
    within = [(101, "record", "tea"), (101.001, "retract"), (120, "record", "coffee")]
    yield Life("changes within a time", _BOUNDED, [*_CHANGES[:4], *within, *_CHANGES[5:]])
    yield Life("enrolled late", survey(), _CHANGES[6:], joined=190)
    yield Life(
        "offline until some closings are past their grace",
        _SHORT,
        [(5, "record", "tea"), (350, "flush"), (380, "flush")],
    )
    yield Life(
        "offline, and back in between",
        _SHORT,
        [(5, "record", "tea"), (140, "flush"), (200, "record", "coffee"), (470, "flush"), (510, "flush")],
    )
    yield Life(
        "a server that keeps nothing for a while",
        survey(),
        [
            (5, "record", "tea"),
            (80, "flush, not kept"),
            (100, "record", "coffee"),
            (200, "flush, not kept"),
            (500, "flush"),
        ],
    )
    yield Life(
        "what was not kept goes past its grace",
        _SHORT,
        [(5, "record", "tea"), (140, "flush, not kept"), (270, "flush"), (400, "flush")],
    )
    yield Life("more periods than one upload spans", _LONG, [(5, "record", "tea"), (3600 * 130 + 60, "flush")])
    yield Life(
        "two entries",
        survey(mixed(3, 8)),
        [(5, "record", "tea", 1), (80, "flush"), (90, "record", "coffee", 0), (600, "flush")],
        entries=2,
    )
    yield Life(
        "a stratum that changes",
        SURVEYS["strata"],
        [
            (5, "record", "tea"),
            (80, "flush"),
            (90, "stratum", {"platform": "other", "channel": "beta"}),
            (600, "flush"),
        ],
        stratum={"platform": "mac", "channel": "release"},
    )


def cases() -> list[Case]:
    """A case for each life."""
    return [lived(life) for life in _lives()]


def lived(life: Life) -> Case:
    """A life as a case: what our client did, and the coins it took."""
    server, clock = FakeServer(life.survey), Clock()
    coins = LoggedCoins(SeededCoins(life.seed))
    start = life.survey.calendar.start

    def set_to(seconds: float) -> int:
        clock.now = start + seconds
        return round(clock.now * 1000)

    with TemporaryDirectory() as folder, client(Path(folder), server, clock, coins) as device:
        joined_ms = set_to(life.joined)
        handle = device.join(life.survey.id, entries=life.entries, answers=life.answers, stratum=life.stratum)
        drawn = coins.taken()
        events = []
        for seconds, what, *with_what in life.events:
            at_ms = set_to(seconds)
            if what.startswith("flush"):
                done = _flushed(device, server, keeps=what == "flush")
            else:
                done = _told(handle, what, with_what)
            events.append({"at_ms": at_ms, "does": what, **done, "coins": coins.taken()})
    return {
        "kind": "life",
        "name": life.name,
        "survey": life.survey.signed_by(AUTHORITY).hex(),
        "authority": [key.hex() for key in PINNED],
        "joined_ms": joined_ms,
        "entries": life.entries,
        "answers": life.answers,
        "stratum": life.stratum,
        "coins": drawn,
        "events": events,
    }


def _told(handle: SurveyHandle, what: str, with_what: list[Any]) -> dict[str, Any]:
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


def _flushed(device: Any, server: FakeServer, keeps: bool) -> dict[str, Any]:
    """One flush: the plaintexts that were sent, and how many closings were dropped.

    keeps: whether the server takes what it is sent; if not, it answers 503.
    """
    server.bodies.clear()
    server.reply = lambda request: httpx.Response(503) if request.method == "POST" and not keeps else None
    flushed = device.flush()
    plaintexts = [open_envelope(envelope, PRIVATE).hex() for envelope in server.envelopes]
    return {"dropped": flushed.dropped, "plaintexts": plaintexts}
