"""The measures of the house find what they count."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.house import additions, installs, journeys, untyped
from tests.spark.cluster import offspring, seconds_of_all

PAGE = """# Architecture

## Journey 1: from a record to the wire

1. `benchmarks/house/tree.py` first
2. `benchmarks/house/lengths.py` then

## Journey 2: {second}

1. `benchmarks/house/tree.py`
2. `{last}`

## What else there is

1. `nothing.py`
"""


def test_a_journey_is_the_numbered_list_under_its_heading(tmp_path, monkeypatch):
    """A journey that is not listed is missing; a file that is not there, or passed twice, is an error."""
    monkeypatch.setattr(journeys, "PAGE", tmp_path / "architecture.md")
    assert set(journeys.measure().values()) == {None}
    journeys.PAGE.write_text(PAGE.format(second="…", last="benchmarks/house/untyped.py"))
    assert list(journeys.measure().values()) == [2, 2, None, None]
    for last, fault in (("nothing.py", "not there"), ("benchmarks/house/tree.py", "twice")):
        journeys.PAGE.write_text(PAGE.format(second="…", last=last))
        with pytest.raises(ValueError, match=fault):
            journeys.measure()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_what_a_process_has_started_counts_once_it_has_ended_too():
    """Else what a fold took would be less by all that ended within it."""
    before = seconds_of_all(os.getpid())
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert seconds_of_all(os.getpid()) - before > 0.25


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_a_thread_that_ends_meanwhile_hides_no_process(monkeypatch):
    """Of a server threads end at any time, while its processes are looked for."""
    tasks = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: [folder / "0", *tasks(folder)])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in offspring(os.getpid())
        child.kill()


def test_the_journeys_of_the_page_pass_files_that_are_there():
    """As far as the page is written."""
    assert all(files is None or files > 1 for files in journeys.measure().values())


def test_a_file_that_names_a_toy_counts_as_touched(tmp_path, monkeypatch):
    """By its module, or by a class that it defines; the toy itself does not count."""
    toy = tmp_path / "tests/test_a_toy.py"
    toy.parent.mkdir()
    toy.write_text("class Toy: ...\n")
    monkeypatch.setattr(additions, "ROOT", tmp_path)
    assert additions._naming(toy) == 0
    (tmp_path / "tests/table.py").write_text("from .test_a_toy import Toy\n")
    (tmp_path / "tests/other.py").write_text("Toys = 3\n")
    assert additions._naming(toy) == 1
    assert additions._naming(tmp_path / "missing.py") is None


def test_an_addition_touches_little():
    """What registers itself touches no file; a route its path and the table of routes."""
    measured = additions.measure()
    assert measured["2_toy_randomizer_touches"] == 0
    assert measured["2_toy_mechanism_touches"] == 0
    assert measured["2_new_route_touches"] == 2


def test_any_is_counted_by_line_and_not_in_texts(tmp_path):
    """Nor in comments, nor as a part of a name."""
    path = Path(tmp_path / "some.py")
    path.write_text('"""Any."""\nfrom typing import Any  # Any\nAnything = dict[Any, Any]\nx: Any = "Any"\n')
    assert untyped._lines(path) == 3


def test_a_bare_install_is_small():
    """What an app embeds brings few distributions, and each extra brings more."""
    measured = installs.measure()
    assert 4 <= measured["6_wheels_bare"] <= 15
    assert all(measured[f"6_wheels_{extra}"] > measured["6_wheels_bare"] for extra in installs.EXTRAS)
