"""Predicates, domains and tables of sigma-counting, against Python's own evaluation of the same words."""

import random
import re
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pytest
from changeling_papers import Domain, Query

DOMAIN = Domain.of(age=range(5), city=["Paris", "Rome", "Oslo"], smoker=[False, True])
ROWS = [dict(zip(DOMAIN.names, row, strict=True)) for row in product(*DOMAIN.values)]


def column_wise(rows):
    return {name: [row[name] for row in rows] for name in DOMAIN.names}


def made_up(random, depth=3):
    """A random predicate, in words that Python evaluates alike."""
    kind = random.randrange(3 if depth else 1)
    if kind == 1:
        return f"not ({made_up(random, depth - 1)})"
    if kind == 2:
        joint = random.choice([" and ", " or "])
        return "(" + joint.join(made_up(random, depth - 1) for _ in range(random.randrange(2, 4))) + ")"
    compared = [
        f"age {random.choice(['<', '<=', '>', '>=', '==', '!='])} {random.randrange(-1, 7)}",
        f"{random.randrange(-1, 3)} < age <= {random.randrange(6)}",
        f"{random.randrange(5)} >= age",
        f"age in ({random.randrange(5)}, {random.randrange(5)})",
        "city != 'Oslo'",
    ]
    return random.choice([*compared, "city == 'Rome'", "city not in ('Paris', 'Oslo')", "smoker", "smoker == False"])


def test_a_query_counts_the_rows_that_python_says_satisfy_it():
    """500 random predicates over random tables: the count is that of Python's eval, row by row."""
    chance = random.Random(1)
    for _ in range(500):
        text, rows = made_up(chance), chance.choices(ROWS, k=chance.randrange(12))
        table = DOMAIN.table(column_wise(rows))
        assert Query.of(DOMAIN, text).count(table) == sum(bool(eval(text, {}, row)) for row in rows)


def test_queries_that_mean_the_same_have_one_key_and_no_others():
    """Over 300 random predicates, two keys are equal exactly if the predicates hold of the same rows."""
    chance = random.Random(2)
    texts = [made_up(chance, 2) for _ in range(300)]
    meant = {text: tuple(bool(eval(text, {}, row)) for row in ROWS) for text in texts}
    keys = {text: Query.of(DOMAIN, text).key for text in texts}
    assert len(set(keys.values())) == len(set(meant.values())) > 30
    assert len({(keys[text], meant[text]) for text in texts}) == len(set(keys.values()))


def test_a_column_that_makes_no_difference_is_not_constrained():
    """`age >= 2 or age < 2` constrains nothing, `smoker and age >= 0` only smoker."""
    assert Query.of(DOMAIN, "age >= 2 or age < 2").columns == ()
    assert Query.of(DOMAIN, "smoker and age >= 0").columns == (2,)
    assert Query.of(DOMAIN, "smoker and age >= 0").key == Query.of(DOMAIN, "smoker").key


@pytest.mark.parametrize("frame", [dict, pd.DataFrame, pl.DataFrame], ids=["mapping", "pandas", "polars"])
def test_tables_come_from_mappings_and_frames(frame):
    """The same table, whatever holds the columns; columns that are not declared are left alone. One without rows has no
    types of its own, and is taken: refused, it would tell that there is nobody."""
    columns = {**column_wise(ROWS), "other": list(range(len(ROWS)))}
    table = DOMAIN.table(frame(columns))
    assert Query.of(DOMAIN, "age < 2 and city == 'Rome'").count(table) == 4
    nobody = DOMAIN.table(frame({name: [] for name in DOMAIN.names}))
    assert Query.of(DOMAIN, "age >= 0").count(nobody) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age >", "not a query"),
        ("income > 3", "there is no column 'income'"),
        ("city == 'Pariss'", "no declared value of city"),
        ("city == 3", "holds str values, with 3"),
        ("age == '3'", "holds int values"),
        ("age", "holds int values, with True"),
        ("age > 1.5", "is no constant"),
        ("age + 1 > 2", "no comparison of a column"),
        ("__import__('os')", "no comparison of a column"),
        ("city is 'Rome'", "no comparison of a column"),
        ("age < age", "is no constant"),
        ("", "not a query"),
        ("age\0 < 2", "not a query"),
        ("age > -True", "is no constant"),
        ("not " * 5000 + "smoker", "nested too deeply"),
    ],
)
def test_what_is_no_query_is_named(text, said):
    """Every mistake is a ValueError that says what is wrong with it."""
    with pytest.raises(ValueError, match=said):
        Query.of(DOMAIN, text)


def test_of_a_row_outside_the_domain_the_column_is_named_alone():
    """Neither the row's number nor what it holds: errors are logged, and both are told by the data."""
    good = {"age": [1, 1], "city": ["Rome", "Rome"], "smoker": [True, True]}
    for bad, said in (
        ({"city": ["Rome", "Atlantis"]}, "column 'city' holds what is not declared"),
        ({"age": [99, 1]}, "column 'age' holds what is not declared"),
        ({"city": ["Rome"]}, "column 'city' has 1 rows, 'age' has 2"),
        ({"age": [1.0, float("nan")]}, "declares int values, the table holds float64"),
    ):
        with pytest.raises(ValueError, match=said) as refused:
            DOMAIN.table({**good, **bad})
        assert "not declared" not in said or not re.search(r"\d|Atlantis", str(refused.value))
    with pytest.raises(ValueError, match="no column 'smoker'"):
        DOMAIN.table({"age": [1], "city": ["Rome"]})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "a domain has columns"),
        ({"a": []}, "declares 0 values"),
        ({"a": [1, "x"]}, "either texts, whole numbers or bools"),
        ({"a": [1.5]}, "either texts, whole numbers or bools"),
        ({"a": [True, 1]}, "either texts, whole numbers or bools"),
        ({"a": ["x", "x"]}, "declares a value twice"),
        ({"not a name": [1]}, "is an identifier"),
        ({"class": [1]}, "is an identifier and no keyword"),
        ({"\ufb01t": [1]}, "is an identifier and no keyword"),
        ({"a": [0, 2**63]}, "more than 64 bits"),
    ],
)
def test_a_domain_is_checked_when_made(columns, said):
    """Columns that no query could name, and values that no table could hold, are refused with their column."""
    with pytest.raises(ValueError, match=said):
        Domain.of(**columns)


def test_a_huge_range_is_refused_before_it_is_written_down():
    """A million values are read, and one more, however many there are."""
    many = iter(range(2_000_000))
    with pytest.raises(ValueError, match="declares more than 1,000,000 values"):
        Domain.of(a=many)
    assert next(many) == 1_000_001


TEXTS = Domain.of(a=["x", "3", "nan", "null\0"])


@pytest.mark.parametrize("odd", ["x\0", 3, float("nan"), None, ["x"], b"x"], ids=repr)
def test_only_the_very_text_is_taken_for_a_text(odd):
    """NumPy would drop a NUL at the end, and write numbers as texts that may be declared; such a row is refused."""
    with pytest.raises(ValueError, match="column 'a' holds what is not declared"):
        TEXTS.table(pd.DataFrame({"a": pd.Series(["x", odd], dtype=object)}))
    if not isinstance(odd, list | bytes):
        with pytest.raises(ValueError, match="column 'a' holds what is not declared"):
            TEXTS.table({"a": ["x", odd]})
    with pytest.raises(ValueError, match="declares str values, the table holds"):
        TEXTS.table({"a": [b"x", b"3"]})
    assert Query.of(TEXTS, "a == 'null\\0'").count(TEXTS.table({"a": ["x", "null\0"]})) == 1


def test_whole_numbers_are_compared_exactly_whatever_their_width():
    """2^64 - 1 is not -1, nor 2^63 the least of 64 bits, though the bits are the same."""
    wide = Domain.of(a=[-1, -(2**63), 2**63 - 1])
    assert Query.of(wide, "a > 0").count(wide.table({"a": np.array([2**63 - 1], np.uint64)})) == 1
    for value in (2**64 - 1, 2**63):
        with pytest.raises(ValueError, match="holds what is not declared"):
            wide.table({"a": np.array([value], np.uint64)})
