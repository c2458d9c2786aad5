"""The house keeps the bounds that make it one that a person can hold."""

import json
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
MOST_FILES = (21, 45, 39, 27)
"""Of each journey; the aim is 20 for a device and 25 for the others. A device's passes what a store is, and the file
that keeps it, as a database may."""


def test_the_journeys_of_the_page_are_those_that_data_travel():
    """They are walked by execution; `python -m benchmarks.journeys --write` writes the page anew."""
    walked = subprocess.run(
        [sys.executable, "-m", "benchmarks.journeys", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert walked.returncode == 0, walked.stderr
    lengths = [int(length) for length in walked.stdout.split()]
    assert all(length <= most for length, most in zip(lengths, MOST_FILES, strict=True))


def test_an_addition_touches_little():
    """What registers itself touches no existing file; a route touches its path and the table of routes."""
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json; from benchmarks import house; print(json.dumps(house.touched_by_additions()))",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    touched = json.loads(said.stdout)
    assert touched["2_toy_randomizer_touches"] == 0
    assert touched["2_toy_mechanism_touches"] == 0
    assert touched["2_toy_store_touches"] == 0
    assert touched["2_new_route_touches"] <= 2


def test_a_class_name_is_used_once():
    """Whoever reads a name need not ask which of two it is."""
    said = subprocess.run(
        [sys.executable, "-c", "from benchmarks import house; print(*house.repeated_classes())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == []


def test_a_bare_install_brings_six_distributions():
    """An app embeds a client of HTTP with its two parts, a codec, cryptography, and where a platform keeps files."""
    bare = {Requirement(text).name for text in requires("changeling-client") or [] if "extra ==" not in text}
    assert bare == {"httpx", "httpcore", "certifi", "msgpack", "cryptography", "platformdirs"}
