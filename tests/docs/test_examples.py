"""The examples that stand in a page give what the page says."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.glob("**/*.md")) if "    >>> " in page.read_text()]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.heavy] * (page.stem == "planning")) for page in PAGES],
    ids=[page.stem for page in PAGES],
)
def test_the_examples_of_a_page_give_what_it_says(page, tmp_path, monkeypatch):
    """All of a page run one after the other, as a reader would, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    assert doctest.testfile(str(page), module_relative=False).failed == 0
