"""The audit of the client: what ships comes through, what is broken is caught, and the bound is a bound.

Coins are seeded. A bound of this file lies above the true loss with a chance of one in twenty at most, for other seeds.
"""

import random
from math import isclose, log

import pytest

from benchmarks.client_audit import CAUGHT, Audit, run
from benchmarks.client_audit_bound import audited, lower_bound
from benchmarks.client_audit_cases import CASES, law
from benchmarks.client_audit_lives import COPIED, bounded, worst_lives
from benchmarks.client_audit_transcripts import transcripts_of_lives
from tests.coins import SeededCoins
from tests.enumeration import changelogs, enumerated_lives_loss

FALSE_ALARM = 0.05
COUNTS = [
    pytest.param("two_symbols", 200, id="one id with two symbols"),
    pytest.param("only_on_change", 200, id="reports only on change"),
    pytest.param("odds_off", 4_000, id="truth odds off by a fifth"),
    pytest.param("unconstrained", 1_600, id="constraint not enforced"),
    pytest.param("slots_reset", 16_000, id="counts of a joint group reset", marks=pytest.mark.heavy),
]


def coins(batch):
    way, client = batch
    return SeededCoins(1_000 * way + client)


@pytest.mark.parametrize("case", CASES)
def test_the_client_as_it_ships_comes_through(case):
    """No bound above the ledger's figure, no contradiction, nothing missing; and some loss is found."""
    found = run(Audit(case, count=1_000), coins, false_alarm=FALSE_ALARM)
    assert not found.caught
    assert found.bound > 0


@pytest.mark.parametrize(("name", "count"), COUNTS)
def test_a_broken_client_is_caught(name, count):
    """Each by what breaks: an id with two symbols, a report that never came, or a bound above the ledger's figure."""
    audit = CAUGHT[name]
    found = run(Audit(audit.case, audit.broken, audit.restless, count), coins, false_alarm=FALSE_ALARM)
    assert found.caught
    assert (found.contradictions > 0) is (name == "two_symbols")
    assert (found.missing > 0) is (name == "only_on_change")


@pytest.mark.parametrize("case", CASES)
def test_the_law_that_pairs_are_chosen_by_attains_the_exact_loss(case):
    """Over all pairs of changelogs, the largest ratio of the law is the enumerated one, which the ledger states."""
    survey, exact = CASES[case].survey, float(CASES[case].exact)
    every = changelogs(len(survey.answers), survey.calendar, survey.constraint)
    laws = [law(survey.plan.groups[0], states) for states in every]
    assert all(sum(each.values()) == 1 for each in laws)
    worst = max(log(one[sent] / other[sent]) for one in laws for other in laws for sent in one)
    assert isclose(worst, exact, rel_tol=1e-12)
    assert exact <= survey.epsilon <= exact + 1e-6


def test_two_lives_of_a_copied_store_tell_more_than_one_and_no_more_than_the_ledger_states():
    """A report of a state that is made twice: above the loss of one life, and not above that of two."""
    case = CASES["states"]
    pair = worst_lives(case, COPIED["states"], 1_000).pair
    heard = [transcripts_of_lives(case.survey, pair[way], COPIED["states"], 1_000, coins((way, 0))) for way in range(2)]
    bound, ledger = bounded(range(2), heard)
    assert [each.missing for each in heard] == [0, 0]
    assert float(case.exact) < bound <= ledger


@pytest.mark.parametrize("name", COPIED)
def test_the_law_of_two_lives_attains_the_enumerated_loss(name):
    """For a copy made when the audit makes it; with a budget for each report the loss is that of one life, twice."""
    case, survey = CASES[name], CASES[name].survey
    enumerated = 2 * case.exact
    if name == "joint":
        enumerated = enumerated_lives_loss(survey.plan, survey.calendar, survey.constraint)
    assert isclose(worst_lives(case, COPIED[name], 1_000).exact, enumerated, rel_tol=1e-12)


def test_a_bound_lies_above_the_true_loss_no_more_often_than_it_says():
    """Of 2,000 audits of two coins at 3:1 with bounds that may fail once in five, at most 400 plus five standard
    errors do; a bound with half the room on either side would fail more often than this test allows."""
    generator = random.Random(6)
    failed = sum(
        audited(
            [generator.random() < 0.6 for _ in range(400)], [generator.random() < 0.2 for _ in range(400)], 0.2
        )
        > log(3)
        for _ in range(2_000)
    )  # fmt: skip
    assert 0 < failed <= 400 + 5 * 18


def test_what_comes_one_way_only_is_told_apart_without_end():
    """The more transcripts, the larger the bound: nothing limits it where the true loss is infinite."""
    assert lower_bound((10**6, 10**6), (0, 10**6)) > lower_bound((10**3, 10**3), (0, 10**3)) > 4
    assert audited(["a"] * 10_000, ["b"] * 10_000) > 6
