"""An operator's own rule for uploads, as it may be in earnest: tokens of a service, each for one body, by HMAC."""

import hashlib
import hmac
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.store import Store
from changeling_protocol import Survey

from .devices import body, envelope, report
from .serving import ServerProcess

SECRET = b"what the rule and whoever gives out tokens have in common"
RULE = f"""
import asyncio, hashlib, hmac
from changeling_aggregator.server import requests

requests.ADMISSION_SECONDS = 0.5
SECRET, seen = {SECRET!r}, set()


async def admit(headers, body):
    nonce, _, shown = headers.get("x-attestation", "").partition(".")
    if nonce == "hang":
        await asyncio.sleep(3600)
    if nonce == "raise":
        raise ValueError(f"what is {{shown}}?")
    if nonce == "odd":
        return {{"token": shown}}
    told = hmac.new(SECRET, nonce.encode() + hashlib.sha256(body).digest(), "sha256").hexdigest()
    if not hmac.compare_digest(told, shown):
        return "this upload is not attested"
    if nonce in seen:
        return "this token was used before"
    seen.add(nonce)
"""


def token(content: bytes, nonce: str | None = None) -> str:
    """What the service gives out for a body."""
    nonce = os.urandom(8).hex() if nonce is None else nonce
    told = hmac.new(SECRET, nonce.encode() + hashlib.sha256(content).digest(), "sha256")
    return f"{nonce}.{told.hexdigest()}"


def counted(server: ServerProcess, asked: Survey) -> int:
    """How many reports the store has of the first period."""
    server.fold()
    store = Store.open(server.store_path)
    with store.view() as view:
        reports = view.tallies(asked.id)[0, 1].reports
    store.close()
    return reports


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What that server logs."""
    return tmp_path_factory.mktemp("attested") / "log"


@pytest.fixture(scope="module")
def server(log: Path) -> Iterator[ServerProcess]:
    """With that rule."""
    (log.parent / "attested.py").write_text(RULE)
    running = ServerProcess(log.parent, "--movable-clock", "--admission", "attested:admit", log=log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(log.parent), prepend=":")
        with running:
            running.move_clock(1_800_000_000)
            yield running


def test_what_is_attested_counts_once_and_nothing_else_does(server: ServerProcess) -> None:
    """No token, one of another body, one that was used: 403 with the rule's own sentence, and nothing is appended."""
    asked = server.new_survey()
    server.move_clock(asked.calendar.time(1))

    def sent(content: bytes, shown: str | None) -> httpx.Response:
        headers = {} if shown is None else {"x-attestation": shown}
        return server.http.post("/v1/uploads", content=content, headers=headers)

    first, second = (body(envelope(asked, server.key, [report(1)])) for _ in range(2))
    good = token(first)
    for content, shown in ((first, None), (first, "x.y"), (second, good), (first, token(second))):
        refused = sent(content, shown)
        assert (refused.status_code, refused.json()["detail"]) == (403, "this upload is not attested")
    assert sent(first, good).status_code == 200
    assert sent(first, good).json()["detail"] == "this token was used before"
    assert sent(second, token(second)).status_code == 200
    assert counted(server, asked) == 2


@pytest.mark.parametrize("how", ["hang", "raise", "odd"])
def test_a_rule_that_fails_admits_nothing_and_tells_no_token(server: ServerProcess, how: str, log: Path) -> None:
    """503 with Retry-After, so that devices keep what they have; the log names the kind of error, and no word of it."""
    asked = server.new_survey()
    server.move_clock(asked.calendar.time(1))
    content = body(envelope(asked, server.key, [report(1)]))
    secret = os.urandom(16).hex()
    answer = server.http.post("/v1/uploads", content=content, headers={"x-attestation": f"{how}.{secret}"})
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    assert secret not in answer.text
    assert (
        server.http.post("/v1/uploads", content=content, headers={"x-attestation": token(content)}).status_code == 200
    )
    assert counted(server, asked) == 1
    logged = log.read_text()
    assert secret not in logged
    kind = {"hang": "raised TimeoutError", "raise": "raised ValueError", "odd": "returned dict"}[how]
    assert f"the rule for admission {kind}" in logged
    assert "Traceback" not in logged
