"""A real browser before a real server, which shows what a simulated fleet reported.

Both end with their module: while playwright runs, no test in the same process can run an event loop of its own.
"""

import shutil
import time
from collections.abc import Iterator

import pytest
from changeling_aggregator.store import TokenScope
from changeling_protocol import Survey
from playwright.sync_api import Browser, sync_playwright

from ..aggregator.fleet import fleet_store
from ..aggregator.serving import ServerProcess, eventually

CHROMIUM = shutil.which("chromium")
PATIENCE_MS = 90_000
READER, OPERATOR = "a token for reading", "a token for reading and folding"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: `make test-heavy` brings it where it can")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Survey]]:
    """A server, and its survey whose results are open and published; it has another, whose are not."""
    folder = tmp_path_factory.mktemp("fleet")
    survey = fleet_store(folder / "server.db", time.time())
    server = ServerProcess(folder)
    server.add_token(READER, TokenScope.READ)
    server.add_token(OPERATOR, TokenScope.READ, TokenScope.FOLD)
    with server:
        edition = f"/v1/surveys/{survey.id.hex()}/editions/latest/series.json"
        assert eventually(lambda: server.http.get(edition).status_code, 200)
        yield server, survey
