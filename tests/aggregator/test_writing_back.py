"""What uploads wrote is put to its place while they go on."""

from threading import Event

import pytest
from changeling_aggregator.server import writing_back
from changeling_aggregator.server.writing_back import WritingBack
from changeling_aggregator.store import Store


def test_a_store_is_written_back_again_and_again_though_that_fails_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk today keeps nobody from trying tomorrow."""
    monkeypatch.setattr(writing_back, "EVERY_SECONDS", 0.001)
    tried, again = Event(), Event()

    def write_back() -> None:
        if not tried.is_set():
            tried.set()
            raise OSError("the disk is full")
        again.set()

    monkeypatch.setattr(store, "write_back", write_back)
    writing = WritingBack(store)
    writing.start()
    assert again.wait(60)
    writing.close()
