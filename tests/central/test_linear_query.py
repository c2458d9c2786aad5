"""Linear queries: changes that add up, and sensitivities that no entry exceeds."""

import tracemalloc
from contextlib import nullcontext
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from changeling_central import (
    Level,
    LinearQuery,
    answer_query,
    best_weight,
    clipped_sum,
    counting,
    histogram_query,
    linear_query,
)
from changeling_central.queries import column_of, mean_of, names_in
from changeling_protocol import AtMost
from changeling_statistics import read_rows

from ..statistics.test_changelog import random_rows
from .examples import histories, moves_of, mutations_of, node_changes

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
        changes = node_changes(query, changelog.mutations(), [0, *times])
        expected = [np.sum([f(("", *changelog.answers)[s]) for s in column], axis=0) for column in states.T]
        assert np.array_equal(changes.cumsum(0), expected)


@pytest.mark.parametrize(("low", "high"), SUMS)
@pytest.mark.parametrize("fixed", [False, True])
def test_no_entry_moves_a_clipped_sum_by_more_than_is_stated_and_one_moves_it_so_far(low, high, fixed):
    """Over every history of an entry, each node. The paper's |hi - lo| fails where 0 is outside [lo, hi]."""
    query = clipped_sum({"low": low - 9, "high": high + 9}, ["low", "high"], low, high, fixed=fixed)
    every = map(moves_of, histories(2, AtMost(4), 4, fixed))
    moved = [np.abs(node_changes(query, mutations_of(moves), BOUNDS)).max() for moves in every]
    assert max(moved) == query.moving[0]
    assert query.moving[0] == (max(abs(low), abs(high)) if fixed else max(high, 0) - min(low, 0))
    if low > 0:
        assert max(moved) > abs(high - low), "the paper's sensitivity would do"


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
    """Whichever answers there are, the columns are those of the query: all others are in one of their own, as asked
    for, and no name of theirs shows; a shown answer of that name is refused."""
    for query in (
        answer_query("each answer in ('United', 'Nowhere')", ANSWERS),
        answer_query("each answer", ANSWERS, ["United", "Nowhere"]),
    ):
        assert query.names == ("United", "Nowhere")
        assert query.table == ((0, 0), (0, 0), (1, 0), (0, 0))
    others = answer_query("each answer in ('a', 'b') or other", ["b", "x", "y"])
    assert others.names == ("a", "b", "other")
    assert others.table == ((0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1))
    assert answer_query("each answer or other", ["x"], ["a"]).names == ("a", "other")
    with pytest.raises(ValueError, match="'other' is one of the answers"):
        answer_query("each answer in ('other', 'a') or other", ["a"])
    with pytest.raises(ValueError, match="would come from the data"):
        answer_query("each answer", ANSWERS)


@pytest.mark.parametrize("tenth", [1, 3, 9])
def test_no_number_that_somebody_gives_stops_a_mean(tenth):
    """Units far finer than a float of the bounds: the bounds count as they are written."""
    answers = ["1e308", "-1e308", "1000000.05", "nan", "inf", "1e400", "9" * 400, "weird", ""]
    query = answer_query(f"mean of answer from 1000000 to 1000000.{tenth} by 0.0000000000001", answers)
    assert np.abs(query.cells).max() == query.appearing[0]
    assert query.table[4:] == ((0, 0),) * 6


@pytest.mark.parametrize("answer", ["secret", "nan", "-inf", "1e999"])
@pytest.mark.parametrize(("low", "high"), [(0, 5), (2, 5), (-5, -2)])
def test_what_is_no_number_adds_nothing_to_a_sum(answer, low, high):
    """A refusal would tell that one entry gave it. The sensitivity is the same, and sums are rounded to units."""
    query = answer_query(f"sum of answer from {low} to {high}", ["1", answer])
    assert query.table == ((0,), (min(max(1, low), high),), (0,))
    without = answer_query(f"sum of answer from {low} to {high}", ["1"])
    assert (query.moving, query.appearing) == (without.moving, without.appearing)
    halves = answer_query("sum of answer from 0 to 10 by 0.5", ["2.3", "70"])
    assert (halves.unit, halves.table, halves.moving) == (Fraction(1, 2), ((0,), (5,), (20,)), (20,))


def test_a_query_of_very_many_answers_is_checked_in_little_memory():
    """In pairs 8,000 distinct numbers take 500 MB, and 400 columns as much: both stay below 20 MB, and a unit too much
    is seen."""
    tracemalloc.start()
    numbers = [str(number) for number in range(8000)]
    query = answer_query("sum of answer from 0 to 1e9", numbers)
    names = [str(name) for name in range(400)]
    histogram_query(names, names)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20e6
    assert query.moving == (10**9,)
    LinearQuery(("sum",), query.table, (7999,), (7999,))
    with pytest.raises(ValueError, match="moves shifts a column by more"):
        LinearQuery(("sum",), query.table, (7999,), (7998,))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_query_is_refused_exactly_where_its_rows_are_further_apart_than_is_stated(width, monkeypatch):
    """200 random tables and bounds, against all pairs one by one, and each row against NULL; in pieces of a few pairs
    too. NULL counts 0."""
    random, refused = np.random.default_rng(width), 0
    for number in range(200):
        table = [(0,) * width, *(tuple(row) for row in random.integers(-2, 3, (4, width)).tolist())]
        appearing = (2,) * width if number % 3 else tuple(random.integers(1, 4, random.integers(1, width + 1)).tolist())
        moving = tuple(random.integers(0, 6, random.integers(0, width + 1)).tolist())
        monkeypatch.setattr(f"{linear_query.__name__}.MOST_COMPARED", (1, 10**6)[number % 2])

        def apart(one, other, bound):
            sizes = sorted((abs(a - b) for a, b in zip(one, other, strict=True)), reverse=True)
            most = sorted((*bound, *[0] * (width - len(bound))), reverse=True)
            return any(size > worst for size, worst in zip(sizes, most, strict=True))

        beyond = [apart(row, table[0], appearing) for row in table]
        beyond += [apart(one, other, moving) for one in table for other in table]
        refused += any(beyond)
        with pytest.raises(ValueError, match=r"(appears|moves) shifts") if any(beyond) else nullcontext():
            LinearQuery(tuple("abc"[:width]), tuple(table), appearing, moving)
    assert 20 < refused < 200
    with pytest.raises(ValueError, match="NULL"):
        LinearQuery(("a",), ((1,), (1,)), (1,), (1,))


def test_too_many_pairs_are_not_compared_unless_the_bound_is_plainly_wide_enough(monkeypatch):
    """With the columns' ranges stated, no pair need be looked at."""
    monkeypatch.setattr(f"{linear_query.__name__}.MOST_PAIRS", 10)
    table = ((0, 0), (1, 0), (0, 1), (1, 1))
    with pytest.raises(ValueError, match="too many to compare in pairs"):
        LinearQuery(("a", "b"), table, (1, 1), (1,))
    LinearQuery(("a", "b"), table, (1, 1), (1, 1))


NO_QUERIES = [
    "", "answer", "answer = 'a'", "answer in 'a'", "__import__('os')", "sum of answer from 1 to x",
    "each answer in (1, 2)", "answer == 'a' == 'b'",
]  # fmt: skip


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
        ("answer == 'a' and answer == 'b'", "true of no answer"),
        ("answer == 'a' or answer != 'a'", "true of every answer: say `any answer`"),
        ("age == '3' and city == 'Rome'", "about age, city"),
        ("mean of x from 3 to 3", "low < high"),
        ("mean of x from 4 to 3", "low < high"),
        ("mean of x from 0 to 1 by 0", "low < high"),
        ("sum of answer from 5 to 1", "low <= high"),
        ("sum of answer from 0 to 1e17", r"2\^53 units"),
        *((text, "not a query") for text in NO_QUERIES),
    ],
)
def test_what_is_no_query_or_surely_not_meant_is_refused_with_what_to_write(text, said):
    """Whatever answers came. Nothing is evaluated but comparisons of a column; and a query that counts nothing, or a
    mean of no range, would spend the budget on nothing."""
    for answers in (ANSWERS, ["1", "2"], []):
        with pytest.raises(ValueError, match=said):
            answer_query(text, answers)


def test_of_declared_answers_a_query_names_no_other():
    """A slip of the pen would spend the budget on zeros. It does not depend on the answers that came."""
    for text in ("answer == 'Untied'", "answer != 'Untied'", "each answer in ('United', 'Untied')"):
        for answers in (ANSWERS, ["Untied"], []):
            with pytest.raises(ValueError, match="'Untied', which is none of the answers: United, Delta"):
                answer_query(text, answers, ["United", "Delta"])
    with pytest.raises(ValueError, match="true of no answer"):
        answer_query("answer not in ('United', 'Delta')", ANSWERS, ["United", "Delta"])
    assert answer_query("answer in ('United', 'Delta')", ANSWERS, ["United", "Delta"]).table[1:] == ((1,), (1,), (0,))
    assert answer_query("answer == 'United'", ANSWERS, ["United", "Delta"]).table == ((0,), (0,), (1,), (0,))
    assert answer_query("any answer", ANSWERS, ["United"]).table == ((0,), (1,), (1,), (1,))


VALUES = ["-3", "0", "2.5", "4", "7", "99", "no number", "nan"]
WEIGHTS = [1.0, 1.5, None]


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_the_weight_of_the_count_is_that_of_the_least_worst_error(k, gaussian):
    """Among weights from 0.5 to 3, of a row of changes: within a percent of the least."""

    def worst(weight):
        extent = answer_query("mean of x from 0 to 2000", [], weight=weight).extent
        norm = 1 if gaussian else 0
        moved = extent.appears[norm] + (k - 1) * extent.moves[norm]
        return (moved if gaussian else moved**2) * (1 + 1 / weight**2)

    best = best_weight(AtMost(k), False, "gaussian" if gaussian else None, Fraction(0))
    assert worst(best) <= 1.01 * min(worst(weight) for weight in np.linspace(0.5, 3, 200))


def test_a_simplex_is_told_from_rows_outside_of_it():
    """A row between the corners is taken, one outside is refused, and so are corners that span none."""
    corners = ((0, 0), (2, 3), (-2, 3))

    def between(corners, *rows):
        return LinearQuery(("a", "b"), ((0, 0), *rows), (4, 4), (8, 4), corners=corners)

    assert between(corners, (2, 3), (1, 2), (-1, 2)).extent.appears == (5, 13)
    for row in ((2, 2), (0, 4), (0, -1), (3, 3)):
        with pytest.raises(ValueError, match="not between"):
            between(corners, row)
    with pytest.raises(ValueError, match="span a simplex"):
        between(((0, 0), (1, 1), (2, 2)))


@pytest.mark.parametrize("weight", WEIGHTS)
def test_without_noise_count_sum_and_mean_are_those_of_the_clipped_answers(weight):
    """Of what is a number; rounded to the unit from the middle of the range."""
    text = "mean of answer from 0 to 8 by 0.5"
    mean, query = mean_of(text, weight), answer_query(text, VALUES, weight=weight)
    level = Level(np.array(query.table).sum(0).astype(float), 0.0)
    shown = {row.name: row.value for row in mean.shown(level)}
    clipped = [0, 0, 2.5, 4, 7, 8]
    assert shown == {
        "count of answer": 6.0,
        "sum of answer": pytest.approx(sum(clipped)),
        "mean of answer": pytest.approx(np.mean(clipped)),
    }


@pytest.mark.parametrize("weight", [1.5, None])
def test_standard_errors_of_a_mean_are_those_of_its_law(weight):
    """15,000 draws of Gaussian noise on both columns: within 3%, which a right one misses less than once in 10^6."""
    mean, random = mean_of("mean of answer from 0 to 10", weight), np.random.default_rng(3)
    sigma, total, weighted = 40.0, -800.0, mean.of_one * 2000.0
    true = np.array([total, weighted] if weight else [weighted + total, weighted - total])
    draws = [mean.shown(Level(true + random.normal(0, sigma, 2), sigma**2)) for _ in range(15_000)]
    for place in range(3):
        values = np.array([rows[place].value for rows in draws])
        assert values.std() == pytest.approx(draws[0][place].error, rel=0.03)
    assert np.mean([rows[2].value for rows in draws]) == pytest.approx(5 - 800 / 2000, abs=0.01)


def test_no_sum_is_divided_by_a_count_that_may_be_nothing():
    """Below three standard errors there is no mean, and count and sum are published all the same."""
    mean = mean_of("mean of answer from 0 to 10")
    assert [len(mean.shown(Level(np.array([0.0, 5 * count]), 25.0))) for count in (-9.0, 2.9, 3.1)] == [2, 2, 3]
    assert sqrt(25.0) / mean.half == 1


@pytest.mark.parametrize(
    ("text", "column", "names"),
    [
        ("any city", "city", []),
        ("each city in ('Rome', 'Paris')", "city", ["Rome", "Paris"]),
        ("each answer or other", "answer", []),
        ("sum of price from 0 to 9", "price", []),
        ("mean of price from 0 to 9 by 0.1", "price", []),
        ("city == 'Rome' or not city in ('Paris', 'Rome')", "city", ["Rome", "Paris"]),
        ("'Rome' == city", "city", ["Rome"]),
    ],
)
def test_a_query_is_about_the_column_that_it_names(text, column, names):
    """Whatever its form, and the answers it names are known without the data."""
    assert (column_of(text), names_in(text)) == (column, names)
    assert answer_query(text, ["Rome", "3"], ["Rome", "Paris"]).width >= 1
