"""Whoever reads all that there is to read, as often as they like, sees no single device in the differences."""

from collections.abc import Callable
from itertools import combinations, product
from random import Random

import httpx
import numpy as np
import pytest
from changeling_aggregator.server import ServerSettings, Service
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    Group,
    KaryResponse,
    Odds,
    ReleasePlan,
    StateSpace,
    Survey,
    Track,
)

from ..protocol.examples import PINNED
from .devices import Log, envelope, report
from .serving import in_process, survey_path

MINIMUM = 3
ENOUGH = 10 * (MINIMUM - 1)
STRATA = ("linux", "mac", "bsd")
UNIONS = [chosen for size in (1, 2, 3) for chosen in combinations(range(3), size)]
TIMED = {"date", "x-request-id"}
ASKED = Survey.at_cost(
    question="What do you do?",
    answers=("work", "play"),
    calendar=Calendar(1_800_000_000, 60, 8),
    constraint=AtMost(3),
    plan=ReleasePlan((Group((Track(1, KaryResponse(StateSpace(2), Odds(3, 1)), 0, 8),)),)),
    closed=False,
    skew=1,
    spread=1,
    grace=600,
    minimum=MINIMUM,
    breakdowns=(Breakdown("system", STRATA),),
)
"""Three strata, and a lot of each is shown from ENOUGH reports on."""

Get = Callable[..., httpx.Response]
Seen = dict[str, tuple[int, tuple[tuple[str, str], ...], bytes]]


class Attacked:
    """A server's store, its clock, and all that a reader can ask of it."""

    def __init__(self, store):
        self.log, self.now = Log.of(store, ASKED), float(ASKED.calendar.time(2) + 3)
        self.service = Service(store, ServerSettings(PINNED, lambda: self.now))

    def upload(self, *envelopes):
        self.log.append(self.now, *envelopes)
        self.service.folding.fold_now()

    def sealed(self, stratum, symbol, node=1):
        return envelope(ASKED, self.log.key, [report(node, symbol, stratum=stratum)])

    def seen(self, get):
        """Every answer, with its status, headers and size, but for the time and the number of the request."""
        answers: Seen = {}
        for question in questions():
            answer = get(f"{survey_path(ASKED)}/{question}")
            headers = tuple(sorted((name, value) for name, value in answer.headers.items() if name not in TIMED))
            answers[question] = answer.status_code, headers, answer.content
        return answers


def questions():
    """Each kind of answer, of each union of strata; methods and forms, and what is no question."""
    kinds = (
        "histogram",
        "histogram?period=1",
        "series",
        "change?after=0&until=2",
        "windows?width=1",
        "windows?width=2",
    )
    for kind, union in product(kinds, UNIONS):
        mark = "&" if "?" in kind else "?"
        yield kind + mark + "&".join(f"stratum=system:{STRATA[at]}" for at in union)
    for method, form in product(("online", "retrospective", "smoothed"), ("json", "msgpack", "csv")):
        yield f"series?method={method}&format={form}&confidence=0.9&covariance=true"
    yield from ("status", "histogram?period=2", "histogram?period=7", "series?until=9", "change?after=1", "windows")


@pytest.mark.heavy
def test_no_device_moves_a_byte_of_anything_that_is_read(store):
    """Between lots neither bodies, sizes, headers, entity tags, statuses nor errors change.

    Whatever one device says, of whatever stratum; whether its envelope comes again; whether it can be opened at all.
    """
    attacked, chance = Attacked(store), Random(1)
    everybody = [(stratum, chance.randrange(3), node) for stratum in range(3) for node in (1, 2) for _ in range(ENOUGH)]
    chance.shuffle(everybody)
    with in_process(attacked.service) as get:
        before = attacked.seen(get)
        attacked.upload(attacked.sealed(*everybody[0]))
        assert attacked.seen(get) == before
        attacked.upload(*(attacked.sealed(*said) for said in everybody[1:]))
        shown = attacked.seen(get)
        assert {name for name in shown if shown[name] != before[name]} >= {"status", "histogram?period=2"}
        for stratum in range(3):
            late = [attacked.sealed(stratum, symbol) for symbol in range(MINIMUM - 1)]
            again = [*late, late[0][:-1] + b"\x00", b"\x00" * len(late[0])]
            for together in (late[:1], late[1:], again):
                attacked.upload(*together)
                assert attacked.seen(get) == shown
            attacked.upload(attacked.sealed(stratum, 0))
            shown = attacked.seen(get)


@pytest.mark.parametrize("seed", range(6))
def test_no_sum_or_difference_of_unions_is_about_fewer_than_the_minimum(store, seed):
    """Of all unions that are shown of a sealed closing no linear combination is about a few entries of a stratum.

    Enumerated: every set of strata that has reports, but fewer than the minimum together, is outside their span.
    """
    attacked, chance = Attacked(store), Random(seed)
    sizes = [chance.choice([0, 1, 2, 3, 7]) for _ in STRATA]
    told = [attacked.sealed(stratum, chance.randrange(3)) for stratum, size in enumerate(sizes) for _ in range(size)]
    with in_process(attacked.service) as get:
        if told:
            attacked.upload(*told)
        attacked.now = ASKED.calendar.time(1) + ASKED.grace + 1.0
        attacked.service.folding.fold_now()
        shown = []
        for union in UNIONS:
            query = "&".join(f"stratum=system:{STRATA[at]}" for at in union)
            answer = get(f"{survey_path(ASKED)}/histogram?period=1&{query}")
            if answer.status_code == 200:
                assert answer.json()["nodes"][0]["reports"] == sum(sizes[at] for at in union)
                shown.append([int(at in union and sizes[at] > 0) for at in range(3)])
    span = np.array(shown, float).reshape(-1, 3)
    for few in UNIONS:
        if 0 < sum(sizes[at] for at in few) < MINIMUM:
            wanted = np.array([[int(at in few and sizes[at] > 0) for at in range(3)]], float)
            assert np.linalg.matrix_rank(np.concatenate([span, wanted])) > np.linalg.matrix_rank(span), (sizes, few)
