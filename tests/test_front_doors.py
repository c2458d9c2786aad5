"""What each package exports: enough for its users, nothing that has to be explained, and nothing slow to import."""

import subprocess
import sys
from importlib import import_module
from inspect import isclass, isfunction

import pytest
from changeling_protocol import ChangelingError

PACKAGES = ["changeling_client", "changeling_statistics", "changeling_central", "changeling_simulations"]
HEAVY = ["scipy.stats", "scipy.optimize", "polars", "pandas", "matplotlib", "dp_accounting", "opendp", "sqlalchemy"]
HEAVY += ["starlette", "typer", "rich", "httpx"]


@pytest.mark.parametrize("package", PACKAGES)
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


def test_the_front_doors_open_quickly():
    """All exported names of all of them are imported without what takes long to import."""
    doors = "; ".join(f"from {package} import *" for package in PACKAGES)
    asked = f"import sys; {doors}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
