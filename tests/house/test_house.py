"""The house keeps the bounds that make it one that a person can hold: journeys, doors, what an addition touches."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import requires
from inspect import isclass, isfunction
from pathlib import Path

import pytest
from changeling_protocol import ChangelingError
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
MOST_FILES = (20, 39, 30, 25)
"""Of each journey; the aim is 20 for a device and 25 for the others, which the first and the last keep."""


@pytest.mark.heavy
def test_the_journeys_of_the_page_are_those_that_data_travel():
    """They are walked by execution; `python -m benchmarks.journeys --write` writes the page anew."""
    walked = subprocess.run(
        [sys.executable, "-m", "benchmarks.journeys", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert walked.returncode == 0, walked.stderr
    lengths = [int(length) for length in walked.stdout.split()]
    assert all(length <= most for length, most in zip(lengths, MOST_FILES, strict=True))


def test_an_addition_touches_little_and_a_class_name_is_used_once():
    """What registers itself touches no existing file, a route two; whoever reads a name need not ask which it is."""
    asked = "import json; from benchmarks import house; "
    asked += "print(json.dumps([house.touched_by_additions(), [*house.repeated_classes()]]))"
    said = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    touched, repeated = json.loads(said.stdout)
    assert [touched[f"2_toy_{each}_touches"] for each in ("randomizer", "mechanism", "store")] == [0, 0, 0]
    assert touched["2_new_route_touches"] <= 2
    assert repeated == []


def test_a_bare_install_brings_six_distributions():
    """An app embeds a client of HTTP with its two parts, a codec, cryptography, and where a platform keeps files."""
    bare = {Requirement(text).name for text in requires("changeling-client") or [] if "extra ==" not in text}
    assert bare == {"httpx", "httpcore", "certifi", "msgpack", "cryptography", "platformdirs"}


PACKAGES = ["changeling_client", "changeling_statistics", "changeling_central", "changeling_simulations"]
HEAVY = ["scipy.stats", "scipy.optimize", "polars", "pandas", "matplotlib", "dp_accounting", "opendp", "sqlalchemy"]
HEAVY += ["starlette", "uvicorn", "typer", "rich", "httpx"]
NO_STATISTICS = ["numpy", "scipy", "polars", "pandas", "matplotlib", "sqlalchemy", "uvicorn", "changeling_statistics"]


@pytest.mark.parametrize("package", [*PACKAGES, "changeling_papers"])
def test_every_exported_name_is_there_and_says_what_it_is(package):
    """Each has a docstring of its own."""
    door = import_module(package)
    for name in door.__all__:
        value = getattr(door, name)
        assert value.__doc__ or not (isclass(value) or isfunction(value)), name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_of_the_package_is_exported_and_has_one_root(package):
    """errors.py opens with a tree in which each of them stands."""
    try:
        errors = import_module(f"{package}.errors")
    except ModuleNotFoundError:
        return  # it raises the errors of the packages below it
    defined = [
        value for value in vars(errors).values() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    root = defined[0]
    for error in defined:
        assert issubclass(error, root)
        assert issubclass(root, ChangelingError)
        assert error.__name__ in import_module(package).__all__
        assert error.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("; ".join(f"from {package} import *" for package in PACKAGES), HEAVY),
        ("import changeling_commands", [*HEAVY, "numpy"]),
        ("from changeling_simulations.__main__ import main; assert main(['--help']) == 0", NO_STATISTICS),
    ],
    ids=["all names of the front doors", "the door of the commands", "the help of changeling-sim"],
)
def test_what_opens_quickly_imports_nothing_heavy(code, heavy):
    """What takes long to import is imported where it is first used."""
    asked = f"import sys; {code}; print(*[name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


PATCH = ROOT / "docs/patches/new_route.patch"
SOURCES = ("protocol", "client_sdk", "aggregator", "simulations", "benchmarks", "demo", "tests", "pyproject.toml")


def test_the_patch_applies():
    """Whoever changes a line that a patch shows keeps the patch up to date."""
    subprocess.run(["git", "apply", "--check", str(PATCH)], cwd=ROOT, check=True)


@pytest.mark.heavy
def test_what_the_patch_adds_works(tmp_path):
    """By the test that it brings, in a copy of the sources, where nothing of this tree is imported."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "apply", str(PATCH)], cwd=tmp_path, check=True)
    folders = ("protocol", "client_sdk", "aggregator", "simulations", ".")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tmp_path / folder) for folder in folders)}
    command = [sys.executable, "-m", "pytest", "tests/aggregator/test_costs.py", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
