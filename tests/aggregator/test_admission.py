"""An operator's own rule for uploads, as it may be in earnest: tokens of a service, each for one body, by HMAC."""

import asyncio
import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping

import httpx
import pytest
from changeling_aggregator.server import requests
from changeling_aggregator.server.service import Admission

from .devices import body, envelope, report
from .serving import ServerHere

SECRET = b"what the rule and whoever gives out tokens have in common"


def rule() -> Admission:
    """Takes each token once, and fails in three ways."""
    seen = set()

    async def admit(headers: Mapping[str, str], content: bytes) -> str | None:
        nonce, _, shown = headers.get("x-attestation", "").partition(".")
        if nonce == "hang":
            await asyncio.sleep(3600)
        if nonce == "raise":
            raise ValueError(f"what is {shown}?")
        if nonce == "odd":
            return {"token": shown}  # type: ignore[return-value]
        if not hmac.compare_digest(token(content, nonce), f"{nonce}.{shown}"):
            return "this upload is not attested"
        if nonce in seen:
            return "this token was used before"
        seen.add(nonce)
        return None

    return admit


def token(content: bytes, nonce: str | None = None) -> str:
    """What the service gives out for a body."""
    nonce = os.urandom(8).hex() if nonce is None else nonce
    told = hmac.new(SECRET, nonce.encode() + hashlib.sha256(content).digest(), "sha256")
    return f"{nonce}.{told.hexdigest()}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHere]:
    """With that rule."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "ADMISSION_SECONDS", 0.5)
        with ServerHere(tmp_path_factory.mktemp("attested"), admission=rule()) as running:
            running.move_clock(1_800_000_000)
            yield running


def test_what_is_attested_counts_once_and_nothing_else_does(server: ServerHere) -> None:
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
    server.move_clock(server.now + 16)
    assert server.reports(asked) == {(0, 1): 2}


@pytest.mark.parametrize("how", ["hang", "raise", "odd"])
def test_a_rule_that_fails_admits_nothing_and_tells_no_token(
    server: ServerHere, how: str, caplog: pytest.LogCaptureFixture
) -> None:
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
    server.move_clock(server.now + 16)
    assert server.reports(asked) == {(0, 1): 1}
    assert secret not in caplog.text
    kind = {"hang": "raised TimeoutError", "raise": "raised ValueError", "odd": "returned dict"}[how]
    assert f"the rule for admission {kind}" in caplog.text
    assert "Traceback" not in caplog.text
