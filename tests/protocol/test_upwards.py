"""What a survey costs is the same number in every program, whatever its decimal context."""

import decimal
from collections.abc import Iterator
from decimal import ROUND_FLOOR, Context, Decimal, FloatOperation, Inexact, Rounded, localcontext

import pytest
from changeling_client import Client, TooCostly
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Survey,
    Track,
    UnderstatedEpsilon,
    from_micro,
    micro,
    plan_cost,
    rounded_up,
    signed,
)

from .examples import AUTHORITY, PINNED, mixed, survey

CONTEXTS = {
    "one digit": Context(prec=1),
    "rounding down": Context(prec=3, rounding=ROUND_FLOOR),
    "few exponents": Context(prec=5, Emax=1, Emin=-1),
    "every inexact result an error": Context(prec=2, traps=[Inexact, Rounded, FloatOperation]),
    "no errors at all": Context(prec=1, traps=[]),
}


@pytest.fixture(params=CONTEXTS, autouse=True)
def of_the_app(request: pytest.FixtureRequest) -> Iterator[None]:
    """The context of the app, as the current one and, for new threads and contexts, as the default."""
    default = decimal.DefaultContext.copy()
    chosen = CONTEXTS[request.param]
    decimal.DefaultContext.prec, decimal.DefaultContext.traps = chosen.prec, chosen.traps
    with localcontext(chosen):
        yield
    decimal.DefaultContext.prec, decimal.DefaultContext.traps = default.prec, default.traps


def outside(compute):
    """What is computed under Python's own context."""
    with localcontext(Context(prec=28, traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow])):
        return compute()


def test_a_plan_costs_the_same():
    """To the last of 50 digits; so do odds, millionths and floats."""
    plan, calendar = mixed(3, 8), Calendar(0, 60, 8)
    for closed in (False, True):
        assert plan_cost(plan, calendar, AtMost(3), closed) == outside(
            lambda closed=closed: plan_cost(plan, calendar, AtMost(3), closed)
        )
    assert survey(plan).per_week == outside(lambda: survey(plan).per_week)
    cost = plan_cost(plan, calendar, AtMost(3))
    assert len(cost.as_tuple().digits) > 40
    assert micro(cost) == outside(lambda: micro(cost))
    assert rounded_up(cost) == outside(lambda: rounded_up(cost))
    assert from_micro(18_000_001) == Decimal("18.000001")
    for epsilon in (1.5, 26.9, Decimal("0.1")):
        assert Odds.within(epsilon) == outside(lambda epsilon=epsilon: Odds.within(epsilon))


def test_a_survey_that_understates_is_refused_and_one_that_does_not_is_read():
    """18 is not taken for 10: a millionth too little is seen."""
    dear = survey()
    encoded = dear.signed_by(AUTHORITY)
    assert Survey.from_signed(encoded, PINNED) == dear
    fields = dear.as_fields()
    for stated in (dear.epsilon_micro - 1, dear.epsilon_micro * 10 // 18):
        with pytest.raises(UnderstatedEpsilon, match="state at least"):
            Survey.from_signed(signed("survey", {**fields, "epsilon_micro": stated}, AUTHORITY), PINNED)


def test_a_client_adds_up_what_it_spends_and_keeps_to_its_bound(tmp_path):
    """Two surveys of 9 are 18, which is more than 17.999999."""
    track = Track(1, KaryResponse(MutationSpace(2), Odds(3, 1)), 0, 8)
    plan, calendar = ReleasePlan((Group((track,)),)), Calendar(1_800_000_000, 60, 8)
    first, second = (survey(plan, answers=("yes", name), calendar=calendar) for name in ("no", "never"))
    both = from_micro(first.epsilon_micro + second.epsilon_micro)
    for name, bound, fits in (("a", both, True), ("b", from_micro(micro(both) - 1), False)):
        with Client(
            path=tmp_path / name,
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


def test_these_contexts_would_have_mattered():
    """Each of them spoils the plain sum, or raises: the tests above see something."""
    with pytest.raises((AssertionError, decimal.DecimalException)):
        assert Decimal("9.123456") + Decimal("9.123456") == outside(lambda: Decimal("9.123456") * 2)
