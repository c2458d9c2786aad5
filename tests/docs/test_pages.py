"""The pages hold together: what they link, name and cite is there, and their examples give what they say."""

import doctest
import re

import pytest

from .blocks import PAGES, ROOT, named

CODE = [
    file
    for folder in ("protocol", "client_sdk", "aggregator", "simulations", "benchmarks", "tests")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
WRITTEN = {
    name for file in CODE for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
}
DOCTESTED = [
    pytest.param(page, marks=[pytest.mark.heavy] * (page.stem == "planning"))
    for page in PAGES
    if "    >>> " in page.read_text()
]
CITED = re.compile(r'(docs/[\w/]+\.md)(?:, "([^"]+)")?')


def headings(page):
    """The page's headings, in order, outside of code."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return re.findall(r"^#+ (.+)$", prose, re.MULTILINE)


def anchor(heading):
    """The fragment that a page's heading is linked by: lower case, punctuation dropped, spaces as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_and_anchor_leads_somewhere(page):
    """Files are there, relative to the page, and have the heading that an anchor names."""
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        target, _, fragment = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link
        if fragment:
            assert fragment in map(anchor, headings(file)), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_test_that_is_named_exists(page):
    """A promise or a proof that points to a test file, or to one test of it, is not left behind when that moves."""
    quoted = re.findall(r"`(\S+)`", page.read_text())
    for name in quoted:
        if re.fullmatch(r"tests/\S+\.py", name):
            assert (ROOT / name).is_file(), name
        elif name.startswith("test_"):
            assert name in WRITTEN, name


def test_what_code_cites_of_the_docs_is_there():
    """A docstring names a page, and maybe a heading of it: docs/notation.md, "Estimation"."""
    for file in CODE:
        for page, heading in CITED.findall(re.sub(r"\s*\n[\s#]*", " ", file.read_text())):
            assert (ROOT / page).is_file(), f"{named(file)}: {page}"
            if heading:
                assert heading in headings(ROOT / page), f"{named(file)}: {page}, {heading}"


@pytest.mark.parametrize("page", DOCTESTED, ids=named)
def test_the_examples_of_a_page_give_what_it_says(page, tmp_path, monkeypatch):
    """All of a page run one after the other, as a reader would, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_the_make_targets_of_pages_exist():
    """As `make demo`, in code marks or console lines."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = {target for page in PAGES for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text())}
    assert told
    assert told <= targets
