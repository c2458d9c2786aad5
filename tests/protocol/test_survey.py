"""Signed surveys: read as they were signed, refused if altered or understated, and of one cost in every program."""

import decimal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal, FloatOperation, Inexact, Rounded, localcontext
from hashlib import sha256
from typing import Any

import pytest
from changeling_client import Client, TooCostly
from changeling_protocol import (
    Calendar,
    Group,
    MalformedBytes,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    Survey,
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


@pytest.mark.parametrize("name", SURVEYS)
def test_true_is_no_form_of_one_in_a_survey(name):
    """Python takes them for equal: two surveys that are the same to every program would have two ids."""
    changed = [*with_booleans(SURVEYS[name].as_fields())]
    assert len(changed) > 20
    for fields in changed:
        with pytest.raises(MalformedBytes):
            Survey.from_signed(signed("survey", fields, AUTHORITY), PINNED)


@pytest.mark.parametrize("name", SURVEYS)
def test_a_question_that_is_null_is_no_second_form_of_the_first(name):
    """What is left out for the first question is left out: else one survey has many ids, and none of them its bytes."""
    fields = SURVEYS[name].as_fields()
    for group in fields["plan"]:
        for named in group.get("tracks", [group.get("history")]):
            if "question" not in named:
                named["question"] = None
                with pytest.raises(MalformedBytes):
                    Survey.from_signed(signed("survey", fields, AUTHORITY), PINNED)
                del named["question"]


def with_booleans(value: Any) -> Iterator[Any]:
    """The value with each of its whole numbers, in turn, replaced by each boolean."""
    if isinstance(value, dict):
        yield from ({**value, name: other} for name in value for other in with_booleans(value[name]))
    elif isinstance(value, list):
        yield from (
            [*value[:i], other, *value[i + 1 :]] for i, each in enumerate(value) for other in with_booleans(each)
        )
    elif type(value) is int:
        yield from (True, False)


FORMS = -1, 0, 2, 2**64 - 1, "", "1.0", b"", [], [2, 4], [1, 1], {}
"""No None: that a null question is taken for the first is tested above."""


@pytest.mark.parametrize("name", ["mixed", "joint", "history, closed", "several questions, a number among them"])
def test_whatever_stands_in_place_of_a_value_is_refused_or_is_what_is_written_again(name):
    """Each value at any depth replaced by each of these, and each list with its items turned round or one twice: so no
    second form of any survey is taken."""
    taken = 0
    for fields in with_others(SURVEYS[name].as_fields()):
        if not fields or not isinstance(fields, dict):
            continue
        payload = payload_bytes("survey", fields)
        with suppress(MalformedBytes, UnderstatedEpsilon):
            assert Survey.from_payload(payload).payload == payload
            taken += 1
    assert taken > 20


def with_others(value: Any) -> Iterator[Any]:
    """The value with each that is in it, in turn, replaced, and each item of a map left out."""
    if isinstance(value, dict):
        yield from ({**value, name: other} for name in value for other in with_others(value[name]))
        yield from ({other: value[other] for other in value if other != name} for name in value)
    elif isinstance(value, list):
        yield from ([*value[:i], other, *value[i + 1 :]] for i, each in enumerate(value) for other in with_others(each))
        yield from (value[::-1], [*value, *value[-1:]])
    yield from FORMS


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
