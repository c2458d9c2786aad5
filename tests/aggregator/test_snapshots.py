"""Whoever polls sees snapshots: what is shown changes in lots of many reports and members, whatever comes in when."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.folding import take_snapshots
from changeling_aggregator.server import ServerSettings, Service
from changeling_aggregator.store import Store, TokenScope, Transaction
from changeling_aggregator.testing import fold_out_of_turn
from changeling_protocol import (
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
    UnixSeconds,
)

from ..protocol.examples import PINNED, survey
from .devices import Log, Said, envelope, report
from .serving import in_process

MINIMUM = 5
PEOPLE = 10 * (MINIMUM - 1)
SYSTEM = Breakdown("system", ("linux", "mac"))
PLAN = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(3), Odds(3, 1)), 0, 8),)),))
ASKED = survey(PLAN, calendar=Calendar(1_800_000_000, 60, 8), grace=600, minimum=MINIMUM)
DUE = ASKED.calendar.time(1) + ASKED.skew + ASKED.spread + 1

Get = Callable[..., httpx.Response]


class Polled:
    """A server's store, its clock, and everything that anybody can read of a survey."""

    def __init__(self, store: Store, asked: Survey) -> None:
        self.log, self.now = Log.of(store, asked), float(DUE)
        self.service = Service(store, ServerSettings(PINNED, lambda: self.now))

    def send(self, said: Said) -> None:
        self.log.append(self.now, envelope(self.log.survey, self.log.key, [said]))
        self.service.folding.fold_now()

    def all_that_is_seen(self, get: Get) -> list[tuple[int, bytes]]:
        """But for what says how the server is doing, whatever was uploaded: the date, and how long ago it folded."""
        path = f"/v1/surveys/{self.log.survey.id.hex()}"
        questions = ["histogram?period=1", "histogram", "series", "change?after=0&until=1", "windows?width=1", "status"]
        if self.log.survey.breakdowns:
            questions += ["histogram?period=1&stratum=system:linux", "histogram?period=1&stratum=system:mac"]
        answers = [get(f"{path}/{question}") for question in questions]
        return [(answer.status_code, answer.content) for answer in answers]


@pytest.mark.heavy
def test_polling_before_and_after_each_upload_learns_nothing(store: Store) -> None:
    """Twelve devices answer one after another, and whoever asks for everything in between sees not one byte change.

    The first forty are shown together; of those after them nothing, until there are as many as the minimum more.
    """
    polled = Polled(store, ASKED)
    with in_process(polled.service) as get:
        before = polled.all_that_is_seen(get)
        for _ in range(PEOPLE - 1):
            polled.send(report(1, 1))
            assert polled.all_that_is_seen(get) == before
        polled.send(report(1, 1))
        shown = polled.all_that_is_seen(get)
        assert shown != before
        for late in range(1, 12):
            polled.send(report(1, late % 4))
            now = polled.all_that_is_seen(get)
            assert (now == shown) == (late % MINIMUM != 0)
            shown = now


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_whatever_order_uploads_come_in_differences_are_about_enough(store: Store, seed: int) -> None:
    """A union of strata differs from itself at an earlier moment, or from a part of it, by nothing or by enough."""
    asked = replace(ASKED, breakdowns=(SYSTEM,))
    polled, chance = Polled(store, asked), random.Random(seed)
    path = f"/v1/surveys/{asked.id.hex()}/histogram?period=1"
    seen: dict[str, list[tuple[int, int]]] = {"": [], "&stratum=system:linux": [], "&stratum=system:mac": []}

    def look(get: Get) -> None:
        for query, found in seen.items():
            answer = get(path + query)
            content = answer.json() if answer.status_code == 200 else None
            found.append((content["nodes"][0]["reports"], content["heard"]) if content else (0, 0))

    shares = chance.choice([0.5, 0.1, 0.02])
    with in_process(polled.service) as get:
        look(get)
        for _ in range(150):
            polled.send(report(1, chance.randrange(4), stratum=int(chance.random() < shares)))
            look(get)
        polled.now = asked.calendar.time(1) + asked.grace + 1.0
        polled.service.folding.fold_now()
        look(get)
    whole, *parts = (np.array(found) for found in seen.values())
    for larger, smaller in [(whole, whole), *((part, part) for part in parts), *((whole, part) for part in parts)]:
        more = (larger[:, None] - smaller[None, :])[np.tril_indices(len(larger))]
        assert (more >= 0).all(), "what is shown only grows"
        assert not ((more > 0) & (more < MINIMUM)).any()


def test_a_restart_and_a_second_server_show_the_same(store: Store) -> None:
    """What is shown is kept in the store, with its number: entity tags agree as well."""
    polled = Polled(store, ASKED)
    for _ in range(PEOPLE + MINIMUM - 1):
        polled.log.append_reports(polled.now, [report(1, 1)])
        fold(store, polled.now)
    other = Service(store, ServerSettings(PINNED, lambda: polled.now))
    path = f"/v1/surveys/{ASKED.id.hex()}/histogram"
    answers = []
    for service in (polled.service, other):
        with in_process(service) as get:
            answers.append(get(path))
    assert answers[0].json()["nodes"][0]["reports"] == PEOPLE
    assert answers[0].content == answers[1].content
    assert answers[0].headers["etag"] == answers[1].headers["etag"]


def test_what_is_folded_while_a_snapshot_is_prepared_is_in_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown, and what is remembered of it, is of one moment: that of the transaction that writes it."""
    log, transaction = Log.of(store, ASKED), Store.transaction
    log.append(DUE, *(envelope(ASKED, log.key, [report(1, 1)]) for _ in range(PEOPLE)))
    fold_out_of_turn(store)

    def overtaken(of: Store) -> AbstractContextManager[Transaction]:
        monkeypatch.setattr(Store, "transaction", transaction)
        log.append(DUE, *(envelope(ASKED, log.key, [report(1, 1)]) for _ in range(MINIMUM)))
        fold_out_of_turn(store)
        return transaction(of)

    monkeypatch.setattr(Store, "transaction", overtaken)
    take_snapshots(store, UnixSeconds(DUE))
    with store.view() as view:
        (lot,) = view.shown_strata(ASKED.id).values()
        looked = view.surveys()[ASKED.id].looked
        assert (lot.attendance.heard, looked.folded) == (PEOPLE + MINIMUM, view.log_state().folded)


def test_sealing_shows_what_was_left_where_it_is_enough(store: Store) -> None:
    """A closing that was too small to be shown is shown once sealed; then it is no longer provisional."""
    polled = Polled(store, ASKED)
    with in_process(polled.service) as get:
        path = f"/v1/surveys/{ASKED.id.hex()}/histogram?period=1"
        for _ in range(MINIMUM):
            polled.send(report(1, 1))
        assert get(path).status_code == 409
        polled.now = ASKED.calendar.time(1) + ASKED.grace + 1.0
        polled.service.folding.fold_now()
        answer = get(path).json()
        assert (answer["nodes"][0]["reports"], answer["provisional"]) == (MINIMUM, False)


def test_an_envelope_sent_again_moves_nothing_in_status(store: Store) -> None:
    """A captured envelope sent a hundred times moves no byte of it; the operator sees the refusals."""
    polled = Polled(store, ASKED)
    service = Service(store, ServerSettings(PINNED, lambda: polled.now))
    with store.transaction() as writing:
        writing.add_token("token", "me", [*TokenScope], UnixSeconds(0.0))
    service.registry.refresh()
    with in_process(service) as get:
        path = f"/v1/surveys/{ASKED.id.hex()}/status"
        captured = [envelope(ASKED, polled.log.key, [report(1, 1)]) for _ in range(PEOPLE)]
        polled.log.append(polled.now, *captured)
        service.folding.fold_now()
        before = get(path)
        polled.log.append(polled.now, *[captured[0]] * 100)
        service.folding.fold_now()
        assert get(path).content == before.content
        told: dict[str, Any] = get(path, {"authorization": "Bearer token"}).json()
        assert told["refused"] == {"duplicate": 100}
        assert get(path, {"authorization": "Bearer other"}).status_code == 401
