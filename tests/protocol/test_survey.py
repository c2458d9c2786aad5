"""Signed surveys: read as they were signed, refused if altered or understated, of one cost in every program; and what
joining one can ask of a device is bounded, whatever its authority signed."""

import decimal
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal, FloatOperation, Inexact, Rounded, localcontext
from fractions import Fraction
from hashlib import sha256
from re import findall
from typing import Any

import pytest
from changeling_client import Client, TooCostly
from changeling_protocol import (
    LAST_INSTANT,
    MOST_MUTATIONS,
    MOST_PERIODS,
    MOST_TRACKS,
    AtMost,
    AtMostWithin,
    Calendar,
    CustomResponse,
    Group,
    Hybrid,
    KaryResponse,
    MalformedBytes,
    MutationSpace,
    Node,
    Odds,
    Randomizer,
    ReleasePlan,
    SignedSubset,
    Survey,
    TimeBounded,
    Track,
    UnderstatedEpsilon,
    decode,
    from_micro,
    log_ratio,
    micro,
    rounded_up,
    signed,
)
from changeling_protocol.signing import payload_bytes
from changeling_protocol.wire import MOST_BODY_BYTES

from ..vectors.generate import HERE, text
from ..vectors.making.examples import SURVEYS
from .examples import AUTHORITY, PINNED, hierarchical, survey


@pytest.mark.parametrize("name", SURVEYS)
def test_a_signed_survey_comes_back_with_its_name(name):
    """What was signed is what is read, and its id is the hash of the signed bytes."""
    encoded = SURVEYS[name].signed_by(AUTHORITY)
    read = Survey.from_signed(encoded, PINNED)
    assert read == SURVEYS[name]
    assert read.id == sha256(decode(encoded)["payload"]).digest()[:16]


MANY = ["mixed", "joint", "history, closed", "several questions, a number among them"]
"""Surveys of which everything is tried; of the others booleans alone, and what is left out or too many."""
FORMS = None, -1, 0, 2, 2**64 - 1, "", "1.0", b"", [], [2, 4], [1, 1], {}


@pytest.mark.parametrize("name", SURVEYS)
def test_whatever_stands_in_place_of_a_value_is_refused_or_is_what_is_written_again(name):
    """Each value at any depth replaced by each of these, each list with its items turned round or one twice, each map
    with an item less, or with a question that is null beside the others: so no second form of any survey is taken, or
    one survey would have two ids. Python takes True for 1; in a survey it is no form of it."""
    taken = 0
    for fields in with_others(SURVEYS[name].as_fields(), (True, False, *(FORMS if name in MANY else ()))):
        if not fields or not isinstance(fields, dict):
            continue
        payload = payload_bytes("survey", fields)
        with suppress(MalformedBytes, UnderstatedEpsilon):
            assert Survey.from_payload(payload).payload == payload
            assert not {"True", "False"} & set(findall(r"\w+", repr({**fields, "closed": None})))
            taken += 1
    assert taken > (20 if name in MANY else 0)


def with_others(value: Any, forms: tuple[Any, ...]) -> Iterator[Any]:
    """The value with each that is in it, in turn, replaced, and each item of a map left out."""
    if isinstance(value, dict):
        yield from ({**value, name: other} for name in value for other in with_others(value[name], forms))
        yield from ({other: value[other] for other in value if other != name} for name in value)
        yield from ([{**value, "question": None}] if "question" not in value else [])
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in with_others(each, forms))
        yield from (value[::-1], [*value, *value[-1:]])
    yield from forms


def test_changes_without_null_start_after_the_first_period():
    """In the first period of a closed cohort answers appear, and there an insertion would have no input."""
    track = Track(1, SignedSubset(MutationSpace(3, null=False), Odds(3, 1)), 1, 8)
    assert survey(ReleasePlan((Group((track,)),)), closed=True).plan.tracks == (track,)
    with pytest.raises(ValueError, match="in the first period answers appear"):
        survey(ReleasePlan((Group((replace(track, first=0),)),)), closed=True)


def test_odds_beyond_64_bits_are_not_signed():
    """A survey's bytes have no room for them."""
    with pytest.raises(ValueError, match="2\\^64 - 1"):
        survey(hierarchical(3, 8, (1,), Odds(2**64, 1))).signed_by(AUTHORITY)


CONTEXTS = {
    "one digit": Context(prec=1),
    "rounding down": Context(prec=3, rounding=ROUND_FLOOR),
    "few exponents": Context(prec=5, Emax=1, Emin=-1),
    "every inexact result an error": Context(prec=2, traps=[Inexact, Rounded, FloatOperation]),
    "no errors at all": Context(prec=1, traps=[]),
}


@pytest.fixture(params=CONTEXTS)
def decimals_of_the_app(request: pytest.FixtureRequest) -> Iterator[None]:
    """The decimal context of the app, as the current one and, for new threads and contexts, as the default."""
    default = decimal.DefaultContext.copy()
    chosen = CONTEXTS[request.param]
    decimal.DefaultContext.prec, decimal.DefaultContext.traps = chosen.prec, chosen.traps
    log_ratio.cache_clear()
    with localcontext(chosen):
        with pytest.raises((AssertionError, decimal.DecimalException)):  # it would matter
            assert Decimal("9.123456") + Decimal("9.123456") == Decimal("18.246912")
        yield
    decimal.DefaultContext.prec, decimal.DefaultContext.traps = default.prec, default.traps


@pytest.mark.usefixtures("decimals_of_the_app")
def test_a_survey_costs_the_same_in_every_program():
    """Every figure of the vectors; and odds within an epsilon, and what rounds a cost up."""
    assert text("costs") == (HERE / "costs.json").read_text(encoding="utf-8")
    assert (rounded_up(Decimal("18.000001")), from_micro(18_000_001)) == (18.000001, Decimal("18.000001"))
    for epsilon, exact in ((1.5, Decimal("1.5")), (26.875, Decimal("26.875")), (Decimal("0.1"), Decimal("0.1"))):
        odds = Odds.within(epsilon)
        with localcontext(Context(prec=60)):
            assert 0 <= exact - odds.epsilon < Decimal("1e-9")


@pytest.mark.usefixtures("decimals_of_the_app")
def test_a_survey_never_states_less_than_its_plan_costs():
    """Neither one made here nor one that a dishonest authority signed: a millionth too little is seen."""
    honest = survey()
    assert Survey.from_signed(honest.signed_by(AUTHORITY), PINNED) == honest
    assert replace(honest, epsilon_micro=honest.epsilon_micro + 1).epsilon_micro > honest.epsilon_micro
    for stated in (honest.epsilon_micro - 1, honest.epsilon_micro * 10 // 18):
        with pytest.raises(UnderstatedEpsilon, match="state at least"):
            replace(honest, epsilon_micro=stated)
        with pytest.raises(UnderstatedEpsilon):
            Survey.from_signed(signed("survey", {**honest.as_fields(), "epsilon_micro": stated}, AUTHORITY), PINNED)


@pytest.mark.usefixtures("decimals_of_the_app")
def test_a_client_adds_up_what_it_spends_and_keeps_to_its_bound(tmp_path):
    """Two surveys of 9 are 18, which is more than 17.999999."""
    calendar = Calendar(1_800_000_000, 60, 8)
    first, second = (survey(answers=("yes", name), calendar=calendar) for name in ("no", "never"))
    both = from_micro(first.epsilon_micro + second.epsilon_micro)
    for bound, fits in ((both, True), (from_micro(micro(both) - 1), False)):
        with Client(
            path=tmp_path / str(fits),
            server="https://statistics.example",
            authority=PINNED,
            max_epsilon=bound,
            background=False,
            clock=lambda: 1_800_000_000.0,
        ) as client:
            client.join(first.id, signed=first.signed_by(AUTHORITY))
            if fits:
                client.join(second.id, signed=second.signed_by(AUTHORITY))
                assert client.ledger().spent == both
            else:
                with pytest.raises(TooCostly):
                    client.join(second.id, signed=second.signed_by(AUTHORITY))


START = 1_800_000_000
MOST_NODES, MOST_DRAWN_NODES, MOST_CLASSES, MOST_ANSWERS, MOST_ITEMS = 2**18, 2**14, 16, 1000, 2**15
PLAIN = KaryResponse(MutationSpace(2), Odds(3, 1))
WORST = Hybrid((*(TimeBounded(1000 + i) for i in range(MOST_CLASSES - 1)), AtMost(MOST_MUTATIONS)))
"""As many classes as there may be."""


def one_group(*tracks: Track) -> ReleasePlan:
    return ReleasePlan((Group(tracks),))


def tracks() -> Survey:
    """Tracks, answers and kinds of odds to the limit."""
    spoken, periods = Fraction(1, 3), MOST_NODES // MOST_TRACKS
    subsets = (
        SignedSubset(MutationSpace(MOST_ANSWERS), Odds(2**64 - 1 - i, 2**40 + 1 + i), pluses=1, spoken=spoken)
        for i in range(MOST_TRACKS)
    )
    plan = one_group(*(Track(1, subset, 0, periods) for subset in subsets))
    return dear(plan, periods, answers=MOST_ANSWERS)


def drawn_nodes() -> Survey:
    """Nodes drawn to the limit, among as many as there may be."""
    return dear(one_group(Track(1, PLAIN, 0, MOST_NODES, reported=MOST_DRAWN_NODES)), MOST_NODES)


def weights() -> Survey:
    """A custom randomizer with as many weights as a signed survey holds."""
    space = MutationSpace(13)
    rows = (MOST_ITEMS - 1000) // (space.size + 1)
    generator = random.Random(1)
    matrix = tuple(tuple(generator.randrange(2**63, 2**64) for _ in range(space.size)) for _ in range(rows))
    return dear(one_group(Track(1, CustomResponse(space, matrix), 0, 8)), 8, answers=13)


def small_weights() -> Survey:
    """Small custom randomizers on as many tracks as a signed survey holds of them."""
    space, generator = MutationSpace(2), random.Random(2)
    values_of_a_track = 80
    matrices = (
        tuple(tuple(generator.randrange(2**63, 2**64) for _ in range(space.size)) for _ in range(7))
        for _ in range(MOST_ITEMS // values_of_a_track)
    )
    return dear(one_group(*(Track(1, CustomResponse(space, matrix), 0, 8) for matrix in matrices)), 8)


def dear(plan: ReleasePlan, periods: int, answers: int = 2) -> Survey:
    names = tuple(str(i) for i in range(answers))
    return survey(plan, answers=names, calendar=Calendar(START, 60, periods), constraint=WORST)


JOIN = """
import os, resource, sys, time
from changeling_client import Client

folder, authority, *surveys = sys.argv[1:]

def join(survey):
    signed = open(f"{folder}/{survey}", "rb").read()
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    with Client(
        path=f"{folder}/{os.getpid()}.db",
        server="https://statistics.example",
        authority=[bytes.fromhex(authority)],
        max_epsilon=10**9,
        witness=None,
        background=False,
        clock=lambda: 1_800_000_000.0,
    ) as client:
        client.join(survey, signed=signed)
    seconds = time.process_time() - began
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - kilobytes, flush=True)
    os._exit(0)

for survey in surveys:
    if os.fork():
        assert os.wait()[1] == 0
    else:
        join(survey)
"""
"""A device's process: for each survey a fork that has never seen it prints the seconds of processor time that joining
took, and by how many kilobytes more than before the process has grown at most."""


@pytest.mark.heavy
@pytest.mark.timed
def test_joining_the_dearest_surveys_takes_a_device_less_than_a_second_and_50_megabytes(tmp_path):
    """From signed bytes to an entry on disk."""
    surveys = {made.id.hex(): made for made in (tracks(), drawn_nodes(), weights(), small_weights())}
    for name, made in surveys.items():
        (tmp_path / name).write_bytes(made.signed_by(AUTHORITY))
        assert (tmp_path / name).stat().st_size <= MOST_BODY_BYTES
    words = (sys.executable, "-c", JOIN, str(tmp_path), PINNED[0].hex(), *surveys)
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    seconds, kilobytes = zip(*(map(float, line.split()) for line in printed), strict=True)
    assert len(seconds) == len(surveys)
    assert max(seconds) < 1
    assert 0 < max(kilobytes) < 50_000


def grouped(randomizer: Randomizer, *counts: int) -> ReleasePlan:
    return ReleasePlan(tuple(Group((Track(1, randomizer, 0, count),)) for count in counts))


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: Node(3, 3), "0 <= start < end"),
        (lambda: Calendar(0, 1, 2**31), f"1 to {MOST_PERIODS} periods"),
        (lambda: AtMostWithin(0, 5), "k >= 1"),
        (lambda: AtMostWithin(2, 0), "at least one second"),
        (lambda: Calendar(0, 1, MOST_PERIODS + 1), f"1 to {MOST_PERIODS} periods"),
        (lambda: Calendar(0, LAST_INSTANT // 8 + 1, 8), "year 9999"),
        (lambda: Calendar(2**63, 1, 1), "year 9999"),
        (lambda: AtMost(MOST_MUTATIONS + 1), f"at most {MOST_MUTATIONS} mutations"),
        (lambda: TimeBounded(LAST_INSTANT + 1), f"at most {LAST_INSTANT} seconds"),
        (lambda: Hybrid((AtMost(1),) * (MOST_CLASSES + 1)), f"at most {MOST_CLASSES} classes"),
        (lambda: grouped(PLAIN, *[1] * (MOST_TRACKS + 1)), f"at most {MOST_TRACKS} tracks"),
        (lambda: grouped(PLAIN, MOST_NODES, 1), f"at most {MOST_NODES} nodes"),
        (
            lambda: Group((Track(1, PLAIN, 0, 2**20, reported=MOST_DRAWN_NODES + 1),)),
            f"draws at most {MOST_DRAWN_NODES}",
        ),
        (lambda: survey(answers=tuple(map(str, range(MOST_ANSWERS + 1)))), f"1 to {MOST_ANSWERS} answers"),
        (lambda: survey(grace=LAST_INSTANT), "year 9999"),
    ],
)
def test_beyond_a_limit_is_refused_by_name(make, limit):
    """One more than each limit: the sentence says what the limit is and what was asked."""
    with pytest.raises(ValueError, match=limit) as refused:
        make()
    assert "got" in str(refused.value)


@pytest.mark.timed
@pytest.mark.parametrize(
    "changed", [{"calendar": [START, 1, 2**31 - 1]}, {"questions": {"answers": [str(i) for i in range(20_000)]}}]
)
def test_a_signed_survey_beyond_a_limit_is_malformed(changed):
    """Whoever signed it; nothing is worked out that grows with what it asks."""
    fields = survey().as_fields()
    asked = [{**fields["questions"][0], **changed.get("questions", {})}]
    began = time.process_time()
    with pytest.raises(MalformedBytes):
        Survey.from_signed(signed("survey", {**fields, **changed, "questions": asked}, AUTHORITY), PINNED)
    assert time.process_time() - began < 0.5


def test_the_fields_that_a_survey_lacks_or_has_beyond_its_own_are_named():
    """Of a draft that was written by hand, say."""
    fields = survey().as_fields()
    del fields["grace"]
    fields |= {"skew": "1h", "minimun": 5, "x" * 100: 1}
    with pytest.raises(MalformedBytes) as refused:
        Survey.from_fields(fields)
    named = f"missing: grace; not known: 'minimun', '{'x' * 39}; of another type: skew"
    assert str(refused.value) == f"not a survey: {named}"
    with pytest.raises(MalformedBytes, match="a map of questions"):
        Survey.from_fields([])
