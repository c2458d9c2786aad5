"""Whoever reads all that there is, as often as they like, sees no single device in the differences: what is shown are
snapshots, which change in lots of many reports and members, whatever comes in when."""

from dataclasses import replace
from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from changeling_aggregator.fold.folding import take_snapshots
from changeling_aggregator.server import ServerSettings, Service
from changeling_aggregator.store import Store, TokenScope
from changeling_aggregator.testing import fold_out_of_turn
from changeling_protocol import (
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    ReleasePlan,
    StateSpace,
    Track,
    UnixSeconds,
)

from ..protocol.examples import PINNED, survey
from .devices import report
from .serving import OpenSurvey, in_process

MINIMUM = 5
ENOUGH = 10 * (MINIMUM - 1)
"""The first lot of a closing, of everybody or of a stratum, is shown from so many reports on."""
STRATA = ("linux", "mac", "bsd")
UNIONS = [chosen for size in (1, 2, 3) for chosen in combinations(range(3), size)]
TIMED = {"date", "x-request-id"}
PLAN = ReleasePlan((Group((Track(1, KaryResponse(StateSpace(3), Odds(3, 1)), 0, 8),)),))
ASKED = survey(PLAN, calendar=Calendar(1_800_000_000, 60, 8), minimum=MINIMUM)
KINDS = ("histogram", "histogram?period=1", "series", "change?after=0&until=2", "windows?width=1", "windows?width=2")


def stratified(union):
    return "&".join(f"stratum=system:{STRATA[at]}" for at in union)


QUESTIONS = (
    *KINDS,
    *("status", "histogram?period=2", "histogram?period=7", "series?until=9", "change?after=1", "windows"),
    *(
        f"series?method={method}&format={form}&confidence=0.9&covariance=true"
        for method, form in product(("online", "retrospective", "smoothed"), ("json", "msgpack", "csv"))
    ),
    *(f"{kind}{'&' if '?' in kind else '?'}{stratified(union)}" for kind, union in product(KINDS, UNIONS)),
)
"""Each kind of answer; methods and forms; what is no question; and each kind of each union of strata."""


class Watched(OpenSurvey):
    """A survey whose first period is due, or as many as are told; and whoever reads everything."""

    def __init__(self, store, strata=(), due=1):
        breakdowns = (Breakdown("system", strata),) if strata else ()
        super().__init__(store, replace(ASKED, breakdowns=breakdowns))
        self.move_to_due(due)
        self.questions = QUESTIONS if strata else QUESTIONS[:12]

    def device(self, symbol=1, stratum=0, node=1):
        return self.sealed(report(node, symbol, stratum=stratum))

    def seal(self):
        """The first period's grace is over."""
        self.move(1, self.survey.grace + 1)
        self.take()

    def seen(self, get):
        """Every answer, with its status, headers and size, but for the time and the number of the request."""
        answers = {question: get(self.path(question)) for question in self.questions}
        return {
            question: (
                each.status_code,
                {*each.headers.items()} - {(name, each.headers[name]) for name in TIMED},
                each.content,
            )
            for question, each in answers.items()
        }


@pytest.mark.heavy
def test_polling_before_and_after_each_upload_learns_nothing(store):
    """Twelve devices answer one after another, and whoever asks for everything in between sees not one byte change.

    The first forty are shown together; of those after them nothing, until there are as many as the minimum more.
    """
    watched = Watched(store)
    with in_process(watched.service) as get:
        before = watched.seen(get)
        for _ in range(ENOUGH - 1):
            watched.take(watched.device())
            assert watched.seen(get) == before
        watched.take(watched.device())
        shown = watched.seen(get)
        assert shown != before
        for late in range(1, 12):
            watched.take(watched.device(late % 4))
            now = watched.seen(get)
            assert (now == shown) == (late % MINIMUM != 0)
            shown = now


@pytest.mark.heavy
def test_no_device_moves_a_byte_of_anything_that_is_read(store):
    """Between lots neither bodies, sizes, headers, entity tags, statuses nor errors change.

    Whatever one device says, of whatever stratum; whether its envelope comes again; whether it can be opened at all.
    """
    watched, chance = Watched(store, STRATA, due=2), Random(1)
    everybody = [(chance.randrange(3), stratum, node) for stratum in range(3) for node in (1, 2) for _ in range(ENOUGH)]
    chance.shuffle(everybody)
    with in_process(watched.service) as get:
        before = watched.seen(get)
        watched.take(watched.device(*everybody[0]))
        assert watched.seen(get) == before
        watched.take(*(watched.device(*said) for said in everybody[1:]))
        shown = watched.seen(get)
        assert {name for name in shown if shown[name] != before[name]} >= {"status", "histogram?period=2"}
        for stratum in range(3):
            late = [watched.device(symbol % 3, stratum) for symbol in range(MINIMUM - 1)]
            again = [*late, late[0][:-1] + b"\x00", b"\x00" * len(late[0])]
            for together in (late[:1], late[1:], again):
                watched.take(*together)
                assert watched.seen(get) == shown
            watched.take(watched.device(0, stratum))
            shown = watched.seen(get)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_whatever_order_uploads_come_in_differences_are_about_enough(store, seed):
    """A union of strata differs from itself at an earlier moment, or from a part of it, by nothing or by enough."""
    watched, chance = Watched(store, STRATA[:2]), Random(seed)
    seen = {"": [], "&stratum=system:linux": [], "&stratum=system:mac": []}

    def look(get):
        for query, found in seen.items():
            answer = get(watched.path(f"histogram?period=1{query}"))
            content = answer.json() if answer.status_code == 200 else None
            found.append((content["nodes"][0]["reports"], content["heard"]) if content else (0, 0))

    shares = chance.choice([0.5, 0.1, 0.02])
    with in_process(watched.service) as get:
        look(get)
        for _ in range(150):
            watched.take(watched.device(chance.randrange(4), int(chance.random() < shares)))
            look(get)
        watched.seal()
        look(get)
    whole, *parts = (np.array(found) for found in seen.values())
    for larger, smaller in [(whole, whole), *((part, part) for part in parts), *((whole, part) for part in parts)]:
        more = (larger[:, None] - smaller[None, :])[np.tril_indices(len(larger))]
        assert (more >= 0).all(), "what is shown only grows"
        assert not ((more > 0) & (more < MINIMUM)).any()


@pytest.mark.parametrize("seed", range(6))
def test_no_sum_or_difference_of_unions_is_about_fewer_than_the_minimum(store, seed):
    """Of all unions that are shown of a sealed closing no linear combination is about a few entries of a stratum.

    Enumerated: every set of strata that has reports, but fewer than the minimum together, is outside their span.
    """
    watched, chance = Watched(store, STRATA), Random(seed)
    sizes = [chance.choice([0, 1, 3, 4, 12]) for _ in STRATA]
    told = [watched.device(chance.randrange(3), stratum) for stratum, size in enumerate(sizes) for _ in range(size)]
    with in_process(watched.service) as get:
        watched.take(*told)
        watched.seal()
        shown = []
        for union in UNIONS:
            answer = get(watched.path(f"histogram?period=1&{stratified(union)}"))
            if answer.status_code == 200:
                assert answer.json()["nodes"][0]["reports"] == sum(sizes[at] for at in union)
                shown.append([int(at in union and sizes[at] > 0) for at in range(3)])
    span = np.array(shown, float).reshape(-1, 3)
    for few in UNIONS:
        if 0 < sum(sizes[at] for at in few) < MINIMUM:
            wanted = np.array([[int(at in few and sizes[at] > 0) for at in range(3)]], float)
            assert np.linalg.matrix_rank(np.concatenate([span, wanted])) > np.linalg.matrix_rank(span), (sizes, few)


def test_a_restart_and_a_second_server_show_the_same(store):
    """What is shown is kept in the store, with its number: entity tags agree as well."""
    watched = Watched(store)
    for _ in range(ENOUGH + MINIMUM - 1):
        watched.take(watched.device())
    other = Service(store, ServerSettings(PINNED, lambda: watched.now))
    answers = []
    for service in (watched.service, other):
        with in_process(service) as get:
            answers.append(get(watched.path("histogram")))
    assert answers[0].json()["nodes"][0]["reports"] == ENOUGH
    assert answers[0].content == answers[1].content
    assert answers[0].headers["etag"] == answers[1].headers["etag"]


def test_what_is_folded_while_a_snapshot_is_prepared_is_in_it(store, monkeypatch):
    """What is shown, and what is remembered of it, is of one moment: that of the transaction that writes it."""
    watched, transaction = Watched(store), Store.transaction
    watched.log.append(watched.now, *(watched.device() for _ in range(ENOUGH)))
    fold_out_of_turn(store)

    def overtaken(of):
        monkeypatch.setattr(Store, "transaction", transaction)
        watched.log.append(watched.now, *(watched.device() for _ in range(MINIMUM)))
        fold_out_of_turn(store)
        return transaction(of)

    monkeypatch.setattr(Store, "transaction", overtaken)
    take_snapshots(store, UnixSeconds(watched.now))
    with store.view() as view:
        (lot,) = view.shown_strata(ASKED.id).values()
        looked = view.surveys()[ASKED.id].looked
        assert (lot.attendance.heard, looked.folded) == (ENOUGH + MINIMUM, view.log_state().folded)


def test_sealing_shows_what_was_left_where_it_is_enough(store):
    """A closing that was too small to be shown is shown once sealed; then it is no longer provisional."""
    watched = Watched(store)
    with in_process(watched.service) as get:
        path = watched.path("histogram?period=1")
        for _ in range(MINIMUM):
            watched.take(watched.device())
        assert get(path).status_code == 409
        watched.seal()
        answer = get(path).json()
        assert (answer["nodes"][0]["reports"], answer["provisional"]) == (MINIMUM, False)


def test_an_envelope_sent_again_moves_nothing_in_status(store):
    """A captured envelope sent a hundred times moves no byte of it; the operator sees the refusals."""
    watched = Watched(store)
    with store.transaction() as writing:
        writing.add_token("token", "me", [*TokenScope], UnixSeconds(0.0))
    watched.service.registry.refresh()
    with in_process(watched.service) as get:
        path = watched.path("status")
        captured = [watched.device() for _ in range(ENOUGH)]
        watched.take(*captured)
        before = get(path)
        watched.take(*[captured[0]] * 100)
        assert get(path).content == before.content
        assert get(path, {"authorization": "Bearer token"}).json()["refused"] == {"duplicate": 100}
        assert get(path, {"authorization": "Bearer other"}).status_code == 401
