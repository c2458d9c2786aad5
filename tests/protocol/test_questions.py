"""Several questions in a survey, numbers, and what all of them cost together."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import inf, nan, prod

import pytest
from changeling_protocol import (
    MOST_QUESTIONS,
    OFFSETS,
    AtMost,
    Breakdown,
    Calendar,
    Constraint,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
    UnderstatedEpsilon,
    plan_cost,
)

from ..enumeration import changelogs, defined_law, group_inputs, log_from_below, worst_joint_ratio, worst_ratio_of_pairs
from .examples import AUTHORITY, PINNED, survey

ANY = Odds(2, 1)
CALENDAR = Calendar(0, 60, 3)
NUMBER = Question.of_number("minutes", "How long?", ["0", "10", "30"], AtMost(2), "min")


def changes(answers: int, question: int, odds: Odds = ANY, last: int = 3) -> Track:
    return Track(1, KaryChange(MutationSpace(answers), odds), 0, last, question=question)


def state(answers: int, question: int, last: int = 3) -> Track:
    return Track(1, KaryResponse(StateSpace(answers), ANY), 0, last, 1, question)


CASES: dict[str, tuple[Group, tuple[int, ...], tuple[Constraint, ...]]] = {
    "two alike": (
        Group.jointly([changes(1, 0), changes(1, 1)], Joint(Odds(7, 2), 2, (1, 1), (1, 1))),
        (1, 1),
        (AtMost(1), AtMost(1)),
    ),
    "other constraints": (
        Group.jointly([changes(1, 0, last=2), changes(1, 1, last=2)], Joint(Odds(7, 2), 3, (1, 2), (2, 2))),
        (1, 1),
        (AtMost(2), TimeBounded(61)),
    ),
    "states and changes": (
        Group.jointly([state(1, 0), changes(1, 1)], Joint(Odds(9, 1), 2, (2, 1), (1, 2))),
        (1, 1),
        (AtMost(3), AtMost(2)),
    ),
    "a number, and a choice": (
        Group.jointly([changes(3, 0, last=2), state(1, 1, last=2)], Joint(Odds(5, 1), 2, (1, 1), (2, 1))),
        (3, 1),
        (NUMBER.constraint, AtMost(1)),
    ),
    "three": (
        Group.jointly([changes(1, q, last=2) for q in range(3)], Joint(Odds(5, 1), 2, (1, 1, 1), (1, 1, 1))),
        (1, 1, 1),
        (AtMost(1), AtMost(1), AtMost(1)),
    ),
}


def lives_of(group: Group, answers: tuple[int, ...], constraints: tuple[Constraint, ...], calendar: Calendar):
    """Every life of an entry: its state at each time of each question, and the true input of every node."""
    each = [list(changelogs(*asked)) for asked in zip(answers, [calendar] * len(answers), constraints, strict=True)]
    for states in product(*each):
        inputs = tuple(tuple(group_inputs(Group((track,)), states[track.question])[0][1]) for track in group.tracks)
        yield tuple(zip(*states, strict=True)), inputs


@pytest.mark.heavy
@pytest.mark.parametrize("name", CASES)
def test_all_questions_together_cost_no_more_than_is_stated(name):
    """Over every pair of lives of all questions, and every transcript."""
    group, answers, constraints = CASES[name]
    calendar = Calendar(0, 60, max(track.last for track in group.tracks))
    every = dict(lives_of(group, answers, constraints, calendar))
    cost = plan_cost(ReleasePlan((group,)), calendar, constraints)
    loss = log_from_below(worst_joint_ratio(group, list(every.values())))
    assert 0 < loss <= cost


def test_reports_drawn_by_themselves_add_up_over_questions_each_under_its_constraint():
    """The cost is the sum; as answers are free of each other, the worst pair of lives is the worst of each question."""
    group = Group((changes(1, 0, Odds(3, 1)), changes(1, 1, Odds(5, 2))))
    constraints = (AtMost(1), TimeBounded(61))
    worst = prod(
        worst_ratio_of_pairs(Group((track,)), list(changelogs(1, CALENDAR, constraints[track.question])))
        for track in group.tracks
    )
    cost = plan_cost(ReleasePlan((group,)), CALENDAR, constraints)
    each = [plan_cost(ReleasePlan((Group((track,)),)), CALENDAR, constraints) for track in group.tracks]
    assert max(each) < log_from_below(Fraction(worst)) <= cost
    assert abs(cost - sum(each)) < Decimal("1e-20")


def test_the_view_of_one_question_has_the_law_that_its_reports_have():
    """What a joint group sends about one question, with the others' reports summed out, is what the view's kernel says:
    whatever the others' answers are."""
    group, _, _ = CASES["states and changes"]
    view = group.about(1)
    for first in (0, 1):
        inputs = ((first,), (0, 1, 2))
        told = Group(tuple(replace(t, reported=None, last=1) if t.question == 0 else t for t in group.tracks))
        whole = Group.jointly(told.tracks, group.joint)
        law: dict[tuple[int, ...], Fraction] = {}
        for symbols, chance in defined_law(whole, inputs).items():
            law[symbols[1:]] = law.get(symbols[1:], Fraction(0)) + chance
        for symbols, chance in law.items():
            assert chance == sent(view, symbols, inputs[1])


def sent(view: Group, symbols: tuple[int, ...], inputs: tuple[int, ...]) -> Fraction:
    """How likely a view's only track gives these symbols, drawn one after another as a device does."""
    used, score, chance = [0] * len(view.kernel.joint.slots), 0, Fraction(1)
    (track,) = view.tracks
    for symbol, true in zip(symbols, inputs, strict=True):
        odds = Odds(1, 1) if true == 0 else view.kernel.conditional_odds(0, used, score)
        randomizer = track.randomizer
        total = randomizer.favoured_total(true, odds)
        drawn = [randomizer.favoured_symbol_at(at, true, odds) for at in range(total)]
        chance *= Fraction(drawn.count(symbol), total)
        if true:
            used[0] += 1
            score = view.kernel.scored(0, score, randomizer.agrees(symbol, true))
    return chance


def asked(*questions: Question, plan: ReleasePlan | None = None, **others) -> Survey:
    tracks = tuple(changes(len(each.answers), place, Odds(3, 1)) for place, each in enumerate(questions))
    plan = plan or ReleasePlan(tuple(Group((track,)) for track in tracks))
    return survey(plan, questions=questions, calendar=CALENDAR, **others)


def test_a_survey_of_several_questions_comes_back_from_its_bytes():
    """With numbers, and strata of their offsets; the view of one question is a survey of that alone."""
    made = asked(Question("drink", "What?", ("tea", "coffee"), AtMost(3)), NUMBER)
    assert Survey.from_signed(made.signed_by(AUTHORITY), PINNED) == made
    assert (made.strata, made.epsilon_micro) == (OFFSETS, made.epsilon_micro)
    view = made.about(1)
    assert (view.answers, view.constraint, view.id) == (NUMBER.answers, NUMBER.constraint, made.id)
    assert [len(group.tracks) for group in view.plan.groups] == [0, 1]
    assert made.plan.numbers_about(1) == (1,)
    with pytest.raises(ValueError, match="2 questions: say about which"):
        _ = made.answers
    with pytest.raises(UnderstatedEpsilon):
        replace(made, epsilon_micro=made.epsilon_micro - 1)


def test_a_hundred_questions_are_one_survey_and_more_than_the_limit_are_none():
    """One report of each in one joint group: worked out, signed and read; slots that are alike are counted together."""
    questions = [Question(f"q{at}", "Which?", ("a", "b", "c", "d"), AtMost(1)) for at in range(100)]
    tracks = [Track(1, SignedSubset(MutationSpace(4), ANY, spoken=Fraction(1)), 0, 3, question=at) for at in range(100)]
    group = Group.jointly(tracks, Joint(Odds(2981, 1), 30, (1,) * 100, (1,) * 100))
    made = asked(*questions, plan=ReleasePlan((group,)))
    assert Survey.from_signed(made.signed_by(AUTHORITY), PINNED) == made
    assert float(made.epsilon) == pytest.approx(8.0, abs=1e-3)
    many = [replace(questions[0], name=str(at)) for at in range(MOST_QUESTIONS + 1)]
    with pytest.raises(ValueError, match=f"1 to {MOST_QUESTIONS} questions, got {MOST_QUESTIONS + 1}"):
        asked(*many)


def test_the_mean_of_levels_is_that_of_numbers_and_a_level_is_reached_just_at_its_threshold():
    """Over all offsets a number is rounded to itself, to within half a step of the offsets; at every threshold exactly
    the entries of that offset and those below answer the level above."""
    for number in [Fraction(n, 7) for n in range(0, 211)]:
        levels = [NUMBER.rounded(number, offset).answer for offset in range(OFFSETS)]
        width = 10 if number < 10 else 20
        mean = Fraction(sum(NUMBER.levels[level] for level in levels)) / OFFSETS
        assert abs(mean - number) <= Fraction(width, 2 * OFFSETS)
    for offset in range(OFFSETS):
        at = NUMBER.threshold(1, offset)
        assert [NUMBER.rounded(at - Fraction(1, 10**9), offset).answer, NUMBER.rounded(at, offset).answer] == [0, 1]
    assert NUMBER.rounded(-1, 0) == (0, True)
    assert NUMBER.rounded(30.5, 0) == (2, True)


@pytest.mark.parametrize("value", [nan, inf, -inf, "12", True, None, Decimal("NaN")], ids=str)
def test_what_is_no_finite_number_is_a_plain_error(value):
    """It is not repeated, as it may be an answer."""
    with pytest.raises(ValueError, match="takes a") as refused:
        NUMBER.rounded(value, 0)
    assert str(value) not in str(refused.value)


@pytest.mark.parametrize("levels", [["0", "0.0"], [0.5, 1], ["0", "x"], [], ["0", "9" * 99]])
def test_levels_that_do_not_rise_or_are_no_decimals_are_refused(levels):
    """With what was wrong; what a survey can be signed with is in tests/vectors."""
    with pytest.raises(ValueError, match=r"level"):
        Question.of_number("minutes", "How long?", levels, AtMost(2))


def test_offsets_count_among_the_strata():
    """A survey with numbers has room for an eighth as many combinations, and no breakdown of the offset's name."""
    wide = Breakdown("region", tuple(map(str, range(129))))
    assert asked(NUMBER, breakdowns=(Breakdown("region", wide.values[:128]),)).strata == 1024
    with pytest.raises(ValueError, match="8 offsets of numbers have at most 1024 combinations, got 1032"):
        asked(NUMBER, breakdowns=(wide,))
    with pytest.raises(ValueError, match="none 'offset'"):
        asked(NUMBER, breakdowns=(Breakdown("offset", ("a",)),))
