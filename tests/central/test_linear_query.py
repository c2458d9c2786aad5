"""Linear queries: changes that add up, and sensitivities that no entry exceeds."""

from fractions import Fraction

import numpy as np
import pytest
from changeling_aggregator.central.changes.answer_query import answer_query
from changeling_aggregator.central.changes.linear_query import LinearQuery, clipped_sum, counting, histogram_query
from changeling_aggregator.changelog import Changelog
from changeling_protocol import AtMost

from ..aggregator.test_changelog import random_rows
from .examples import CALENDAR, histories, mutations_of

SUMS = [(-3, 4), (5, 10), (-10, -5), (0, 7), (-2, 0)]
BOUNDS = [0, 2, 4, 6, 8]


def test_changes_add_up_to_the_query_at_every_time():
    """For a count, a histogram and a clipped sum: Σ f over a replay."""
    changelog = Changelog.from_rows(random_rows(1))
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


@pytest.mark.parametrize("answer", ["secret", "nan", ""])
def test_a_sum_of_what_is_no_number_is_refused_without_saying_what_it_is(answer):
    """The answer may be one entry's; and what was raised on the way is not shown either."""
    with pytest.raises(ValueError, match=r"^a sum of answers needs numbers, and an answer is none$") as raised:
        answer_query("sum of answer from 0 to 5", ["1", answer])
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "text",
    ["", "answer", "answer = 'a'", "answer == 1", "other == 'a'", "answer in 'a'", "answer < 'a'", "__import__('os')",
     "sum of answer from 1 to x", "sum of answer from 5 to 1", "each answer in (1, 2)", "answer == 'a' == 'b'"],
)  # fmt: skip
def test_what_is_no_query_is_refused(text):
    """Nothing is evaluated but comparisons of `answer`."""
    with pytest.raises(ValueError, match=r"not a query|low <= high"):
        answer_query(text, ["1", "2"])
