"""Health tells when a server takes reports that it cannot count."""

import pytest
from changeling_aggregator.server import fold_loop
from changeling_aggregator.server.service import Service, Settings
from changeling_aggregator.store import Store

from ..protocol.examples import PINNED
from .serving import eventually, in_process


def test_a_fold_that_fails_again_and_again_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 after the third failure in a row; ok again with the first that succeeds. Its age is that of the last."""
    monkeypatch.setattr(fold_loop, "EVERY_SECONDS", 0.05)
    folding = fold_loop.fold

    def broken(*_: object, closing: bool) -> None:  # noqa: ARG001
        raise OSError("no space left")

    service = Service(store, Settings(PINNED, None, lambda: 1_800_000_000.0))
    with in_process(service) as get:
        assert get("/health").json()["status"] == "ok"
        monkeypatch.setattr(fold_loop, "fold", broken)
        assert eventually(lambda: get("/health").status_code, 503)
        told = get("/health").json()
        assert told["status"] == "bad"
        assert told["troubles"][0] == {"name": "fold", "severity": "bad", "detail": "the fold fails: the log says why"}
        assert told["fold_failures"] >= 3
        assert told["fold_age"] > 0
        monkeypatch.setattr(fold_loop, "fold", folding)
        assert eventually(lambda: get("/health").json()["status"], "ok")
