"""The package as an app embeds it."""

import re
import subprocess
import sys

import changeling_client
import pytest
from changeling_protocol import ChangelingError

from ..protocol.examples import PINNED


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
    modules = modules_after("from changeling_client import Client, Flushed, SurveyReports")
    assert "changeling_protocol" in modules
    assert not modules & {
        "numpy",
        "scipy",
        "httpx",
        "changeling_client.handover",
        "changeling_protocol.editions",
        "changeling_statistics",
        "changeling_aggregator",
        "changeling_simulations",
    }


ON_REQUEST = {"async_client", "explanation", "reports", "postgresql", "handover", "testing", "editions"}
"""What the bound of the wheel's test on what every app loads leaves out."""
LIFE = """
from changeling_client import Client
client = Client(server="http://127.0.0.1:9", authority=[{key!r}], max_epsilon=1, path={path!r}, background=False)
client.join(bytes(16)).record("tea")
assert "could not be reached" in client.flush().trouble
client.close()
"""


def test_an_app_that_records_and_reports_loads_nothing_that_is_there_on_request(tmp_path):
    """No second kind of client, store or report, nothing to explain, and nothing for tests."""
    (key,) = PINNED
    life = LIFE.format(key=key, path=str(tmp_path / "store.db"))
    loaded = subprocess.run(
        [sys.executable, "-c", f"{life}import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    assert "changeling_client.flushing" in loaded
    assert not [name for name in loaded.split() if name.startswith("changeling_") and {*name.split(".")} & ON_REQUEST]


@pytest.mark.parametrize("name", changeling_client.__all__)
def test_every_public_name_says_what_it_is(name):
    """Each has a docstring of its own."""
    assert getattr(changeling_client, name).__doc__


def test_the_errors_tree_is_the_one_that_is_drawn():
    """errors.py opens with every error it defines, and all have one root."""
    named = [getattr(changeling_client, name) for name in changeling_client.__all__]
    errors = {each for each in named if isinstance(each, type) and issubclass(each, ChangelingError)}
    drawn = sys.modules[changeling_client.ClientError.__module__].__doc__
    assert {each.__name__ for each in errors} == set(re.findall(r"[├└]── (\w+)", drawn)) | {"ClientError"}
    assert all(issubclass(error, changeling_client.ClientError) for error in errors)
