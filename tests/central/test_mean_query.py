"""Means: a sum and a count in one release, and what is shown of them."""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from changeling_central.changes.answer_query import answer_query, column_of, mean_of, names_in
from changeling_central.changes.release_graph import Level

VALUES = ["-3", "0", "2.5", "4", "7", "99", "no number", "nan"]


@pytest.mark.parametrize(
    "text", ["mean of answer from 0 to 8", "mean of x from -2 to 3 by 0.5", "mean of x from 5 to 6"]
)
@pytest.mark.parametrize("fixed", [False, True])
def test_no_two_states_of_an_entry_differ_by_more_than_is_stated(text, fixed):
    """Every pair of answers, a coming and a going included, column by column in order of size."""
    query = answer_query(text, VALUES, fixed=fixed)
    table = np.array(query.table)
    for a, b in product(range(len(table)), repeat=2):
        if fixed and a and b:
            continue
        reach = -np.sort(-np.abs(table[b] - table[a]))
        stated = np.array(query.moving if a and b else query.appearing)
        assert np.all(reach <= np.sort(stated)[::-1]), (a, b)


def test_without_noise_count_sum_and_mean_are_those_of_the_clipped_answers():
    """Of what is a number; rounded to the unit from the middle of the range."""
    mean, query = (
        mean_of("mean of answer from 0 to 8 by 0.5"),
        answer_query("mean of answer from 0 to 8 by 0.5", VALUES),
    )
    level = Level(np.array(query.table).sum(0).astype(float), 0.0)
    shown = {row.name: row.value for row in mean.shown(level)}
    clipped = [0, 0, 2.5, 4, 7, 8]
    assert shown == {
        "count of answer": 6.0,
        "sum of answer": pytest.approx(sum(clipped)),
        "mean of answer": pytest.approx(np.mean(clipped)),
    }


def test_standard_errors_of_a_mean_are_those_of_its_law():
    """20,000 draws of Gaussian noise on both columns: within 3%, which a right one misses less than once in 10^6."""
    mean, random = mean_of("mean of answer from 0 to 10"), np.random.default_rng(3)
    sigma, true = 40.0, np.array([-800.0, 5 * 2000.0])
    draws = [mean.shown(Level(true + random.normal(0, sigma, 2), sigma**2)) for _ in range(20_000)]
    for place in range(3):
        values = np.array([rows[place].value for rows in draws])
        assert values.std() == pytest.approx(draws[0][place].error, rel=0.03)
    assert np.mean([rows[2].value for rows in draws]) == pytest.approx(5 - 800 / 2000, abs=0.01)


def test_no_sum_is_divided_by_a_count_that_may_be_nothing():
    """Below three standard errors there is no mean, and count and sum are published all the same."""
    mean = mean_of("mean of answer from 0 to 10")
    assert [len(mean.shown(Level(np.array([0.0, 5 * count]), 25.0))) for count in (-9.0, 2.9, 3.1)] == [2, 2, 3]
    assert sqrt(25.0) / mean.half == 1


def test_all_answers_that_are_not_shown_are_in_one_column_of_their_own():
    """As asked for in the query, and no name of theirs shows; a shown answer of that name is refused."""
    query = answer_query("each answer in ('a', 'b') or other", ["b", "x", "y"])
    assert query.names == ("a", "b", "other")
    assert query.table == ((0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1))
    assert answer_query("each answer or other", ["x"], ["a"]).names == ("a", "other")
    assert answer_query("each answer in ('a', 'b')", ["b", "x"]).table == ((0, 0), (0, 1), (0, 0))
    with pytest.raises(ValueError, match="'other' is one of the answers"):
        answer_query("each answer in ('other', 'a') or other", ["a"])


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


def test_a_query_about_two_columns_is_refused():
    """By their names."""
    with pytest.raises(ValueError, match="about age, city"):
        column_of("age == '3' and city == 'Rome'")


@pytest.mark.parametrize("text", ["mean of x from 3 to 3", "mean of x from 4 to 3", "mean of x from 0 to 1 by 0"])
def test_a_mean_of_no_range_is_refused(text):
    """Its noise would hide nothing."""
    with pytest.raises(ValueError, match="low < high"):
        answer_query(text, ["1"])
