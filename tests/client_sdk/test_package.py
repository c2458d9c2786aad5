"""The package as an app embeds it."""

import subprocess
import sys

import changeling_client
import pytest
from changeling_client import errors
from changeling_protocol import ChangelingError


def modules_after(statement: str) -> set[str]:
    printed = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(printed.stdout.split())


def test_importing_brings_next_to_nothing():
    """An app that imports the SDK at its start loads nothing else of ours, no cryptography and no database."""
    modules = modules_after("from changeling_client import Client")
    ours = {module for module in modules if module.startswith("changeling_")}
    assert ours == {"changeling_client", "changeling_client.client"}
    assert not modules & {"cryptography", "msgpack", "sqlite3", "dataclasses", "logging"}


def test_a_client_brings_neither_numbers_nor_the_network():
    """With all that it needs to record, there is no numpy, and httpx comes only when something is first sent."""
    modules = modules_after("import changeling_client.device, changeling_client.reports")
    assert "changeling_protocol" in modules
    assert not modules & {
        "numpy",
        "scipy",
        "httpx",
        "changeling_statistics",
        "changeling_aggregator",
        "changeling_simulations",
    }


@pytest.mark.parametrize("name", changeling_client.__all__)
def test_every_public_name_says_what_it_is(name):
    """Each has a docstring of its own."""
    assert getattr(changeling_client, name).__doc__


def test_the_errors_tree_is_the_one_that_is_drawn():
    """errors.py opens with every error it defines, and all have one root."""
    defined = [
        value for value in vars(errors).values() if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    assert issubclass(errors.ClientError, ChangelingError)
    for error in defined:
        assert issubclass(error, errors.ClientError)
        assert error.__name__ in (errors.__doc__ or "")
        assert error.__name__ in changeling_client.__all__
