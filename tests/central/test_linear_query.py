"""Linear queries: changes that add up, and sensitivities that no entry exceeds."""

import tracemalloc
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
from changeling_central import LinearQuery, answer_query, clipped_sum, counting, histogram_query, linear_query
from changeling_protocol import AtMost
from changeling_statistics import read_rows

from ..aggregator.test_changelog import random_rows
from .examples import CALENDAR, histories, mutations_of

SUMS = [(-3, 4), (5, 10), (-10, -5), (0, 7), (-2, 0)]
BOUNDS = [0, 2, 4, 6, 8]


def test_changes_add_up_to_the_query_at_every_time():
    """For a count, a histogram and a clipped sum: Σ f over a replay."""
    changelog = read_rows(random_rows(1))
    times = [10, 50, 51, 201]
    states = changelog.states_at(times)
    values = {"no": -7.0, "perhaps": 2.6, "yes": 30.0}
    queries = [
        (counting(changelog.answers, ["yes", "no"], "n"), lambda a: [a in ("yes", "no")]),
        (histogram_query(changelog.answers, ["yes", "no"]), lambda a: [a == "yes", a == "no"]),
        (clipped_sum(values, changelog.answers, -5, 20), lambda a: [{"no": -5, "perhaps": 3, "yes": 20}.get(a, 0)]),
    ]
    for query, f in queries:
        changes = query.node_changes(changelog.mutations(), [0, *times])
        expected = [np.sum([f(("", *changelog.answers)[s]) for s in column], axis=0) for column in states.T]
        assert np.array_equal(changes.cumsum(0), expected)


@pytest.mark.parametrize(("low", "high"), SUMS)
@pytest.mark.parametrize("fixed", [False, True])
def test_no_entry_moves_a_clipped_sum_by_more_than_is_stated_and_one_moves_it_so_far(low, high, fixed):
    """Over every history of an entry, each node. The paper's |hi - lo| fails where 0 is outside [lo, hi]."""
    query = clipped_sum({"low": low - 9, "high": high + 9}, ["low", "high"], low, high, fixed=fixed)
    moved = [
        np.abs(query.node_changes(mutations_of(states), BOUNDS)).max() for states in histories(2, AtMost(4), 4, fixed)
    ]
    assert max(moved) == query.moving[0]
    assert query.moving[0] == (max(abs(low), abs(high)) if fixed else max(high, 0) - min(low, 0))
    if low > 0:
        assert max(moved) > abs(high - low), "the paper's sensitivity would do"


@pytest.mark.parametrize("fixed", [False, True])
def test_no_entry_moves_a_histogram_further_than_its_shifts(fixed):
    """Over every history: nodes shifted, columns, and the sum over the cadence, which is reached."""
    query = histogram_query(["a", "b"], ["a", "b"], fixed)
    for k in (1, 2, 3, 4):
        most = sum(shift * count for shift, count in query.shifts(min(k, CALENDAR.periods)).items())
        sums = [
            np.abs(query.node_changes(mutations_of(states), BOUNDS)).sum()
            for states in histories(2, AtMost(k), 8, fixed)
        ]
        assert max(sums) <= most
        if k < 3 or not fixed:
            assert max(sums) == most


def test_a_table_that_moves_further_than_it_states_is_refused():
    """In size and in the number of columns; NULL counts 0."""
    for table, appearing, moving in (
        (((0,), (5,)), (4,), (5,)),
        (((0,), (5,), (-1,)), (5,), (5,)),
        (((0, 0), (1, 0), (0, 1)), (1,), (1,)),
        (((1,), (1,)), (1,), (1,)),
    ):
        names = tuple(str(i) for i in range(len(table[0])))
        with pytest.raises(ValueError, match=r"stated|NULL"):
            LinearQuery(names, table, appearing, moving)


ANSWERS = ["Delta", "United", "it's"]


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("answer == 'United'", [0, 1, 0]),
        ("answer != 'United'", [1, 0, 1]),
        ("answer in ('United', 'Delta')", [1, 1, 0]),
        ('answer not in ["United", "it\'s"]', [1, 0, 0]),
        ("not (answer == 'United' or answer == 'Delta')", [0, 0, 1]),
        ("any answer", [1, 1, 1]),
    ],
)
def test_predicates_count_what_they_say(text, counted):
    """NULL never counts."""
    query = answer_query(text, ANSWERS)
    assert [row[0] for row in query.table] == [0, *counted]
    assert query.moving == (1,)


def test_histograms_show_the_names_they_are_given_and_never_those_of_the_data():
    """Whichever answers there are, the columns are those of the query."""
    for query in (
        answer_query("each answer in ('United', 'Nowhere')", ANSWERS),
        answer_query("each answer", ANSWERS, ["United", "Nowhere"]),
    ):
        assert query.names == ("United", "Nowhere")
        assert query.table == ((0, 0), (0, 0), (1, 0), (0, 0))
    with pytest.raises(ValueError, match="would come from the data"):
        answer_query("each answer", ANSWERS)


def test_a_clipped_sum_is_rounded_to_its_unit():
    """Its bounds outwards."""
    query = answer_query("sum of answer from 0 to 10 by 0.5", ["2.3", "70"])
    assert query.unit == Fraction(1, 2)
    assert query.table == ((0,), (5,), (20,))
    assert query.moving == (20,)


@pytest.mark.parametrize("answer", ["secret", "nan", "-inf", "1e999"])
@pytest.mark.parametrize(("low", "high"), [(0, 5), (2, 5), (-5, -2)])
def test_what_is_no_number_adds_nothing_to_a_sum(answer, low, high):
    """A refusal would tell that one entry gave it. Whatever comes, the sensitivity is the same."""
    query = answer_query(f"sum of answer from {low} to {high}", ["1", answer])
    assert query.table == ((0,), (min(max(1, low), high),), (0,))
    without = answer_query(f"sum of answer from {low} to {high}", ["1"])
    assert (query.moving, query.appearing) == (without.moving, without.appearing)


@pytest.mark.heavy
def test_a_query_of_very_many_answers_is_checked_in_little_memory():
    """65,000 distinct numbers took 34 GB, and 1,000 columns 8. Both stay below 100 MB, and a unit too much is seen."""
    tracemalloc.start()
    numbers = [str(number) for number in range(65_000)]
    query = answer_query("sum of answer from 0 to 1e9", numbers)
    names = [str(name) for name in range(1000)]
    histogram_query(names, names)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6
    assert query.moving == (10**9,)
    LinearQuery(("sum",), query.table, (64_999,), (64_999,))
    with pytest.raises(ValueError, match="moves shifts a column by more"):
        LinearQuery(("sum",), query.table, (64_999,), (64_998,))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_query_is_refused_exactly_where_two_of_its_rows_differ_by_more_than_is_stated(width, monkeypatch):
    """200 random tables and bounds, against all pairs one by one; in pieces of a few pairs too."""
    random = np.random.default_rng(width)
    refused = 0
    for number in range(200):
        table = [(0,) * width, *(tuple(row) for row in random.integers(-2, 3, (4, width)).tolist())]
        bound = tuple(random.integers(0, 6, random.integers(0, width + 1)).tolist())
        monkeypatch.setattr(f"{linear_query.__name__}.MOST_COMPARED", (1, 10**6)[number % 2])
        worst = sorted((*bound, *[0] * (width - len(bound))), reverse=True)
        sizes = [sorted((abs(a - b) for a, b in zip(one, other, strict=True)), reverse=True)
                 for one in table for other in table]  # fmt: skip
        covered = all(size <= most for each in sizes for size, most in zip(each, worst, strict=True))
        refused += not covered
        with nullcontext() if covered else pytest.raises(ValueError, match="moves shifts"):
            LinearQuery(tuple("abc"[:width]), tuple(table), (2,) * width, bound)
    assert 20 < refused < 200


def test_too_many_pairs_are_not_compared_unless_the_bound_is_plainly_wide_enough(monkeypatch):
    """With the columns' ranges stated, no pair need be looked at."""
    monkeypatch.setattr(f"{linear_query.__name__}.MOST_PAIRS", 10)
    table = ((0, 0), (1, 0), (0, 1), (1, 1))
    with pytest.raises(ValueError, match="too many to compare in pairs"):
        LinearQuery(("a", "b"), table, (1, 1), (1,))
    LinearQuery(("a", "b"), table, (1, 1), (1, 1))


def test_a_sum_of_more_units_than_a_float_tells_apart_is_refused():
    """Whatever answers came."""
    for answers in ([], ["1"]):
        with pytest.raises(ValueError, match=r"2\^53 units"):
            answer_query("sum of answer from 0 to 1e17", answers)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("answer == ''", "nobody holds an empty answer"),
        ("answer != ''", "nobody holds an empty answer"),
        ("answer in ()", "none of no names"),
        ("answer in ('United', '')", "nobody holds an empty answer"),
        ("each answer in ('',)", "nobody holds an empty answer"),
        ("each answer in ()", "none of no names"),
        ("answer == United", "text stands in quotes: 'United'"),
        ("answer in ('Delta')", r"\('Delta',\)"),
        ("each answer in ('Delta')", r"\('Delta',\)"),
        ("answer == 1", "text stands in quotes"),
        ("answer < 'M'", "none is greater"),
        ("each answer in ('a',) or answer == 'b'", "a histogram is over"),
        ("not " * 5000 + "answer == 'a'", "too long"),
    ],
)
def test_what_is_surely_not_meant_is_refused_with_what_to_write(text, said):
    """It would spend the budget on nothing."""
    with pytest.raises(ValueError, match=said):
        answer_query(text, ANSWERS)


def test_of_declared_answers_a_query_names_no_other():
    """A slip of the pen would spend the budget on zeros. It does not depend on the answers that came."""
    for text in ("answer == 'Untied'", "answer != 'Untied'", "each answer in ('United', 'Untied')"):
        for answers in (ANSWERS, ["Untied"], []):
            with pytest.raises(ValueError, match="'Untied', which is none of the answers: United, Delta"):
                answer_query(text, answers, ["United", "Delta"])
    assert answer_query("answer == 'United'", ANSWERS, ["United", "Delta"]).table == ((0,), (0,), (1,), (0,))
    assert answer_query("any answer", ANSWERS, ["United"]).table == ((0,), (1,), (1,), (1,))


@pytest.mark.parametrize(
    "text",
    ["", "answer", "answer = 'a'", "answer == 1", "answer in 'a'", "answer < 'a'", "__import__('os')",
     "sum of answer from 1 to x", "sum of answer from 5 to 1", "each answer in (1, 2)", "answer == 'a' == 'b'"],
)  # fmt: skip
def test_what_is_no_query_is_refused(text):
    """Nothing is evaluated but comparisons of `answer`."""
    with pytest.raises(ValueError, match=r"not a query|low <= high"):
        answer_query(text, ["1", "2"])
