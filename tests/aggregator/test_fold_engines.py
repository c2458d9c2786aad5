"""The embedded fold against the contract of fold engines, on each database, and with a log in a folder or a bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.fold import FoldEngine, FoldProcess, FoldReport, SeenIds, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import FoldEngineContract
from changeling_aggregator.testing.bucket import small_bucket
from changeling_protocol import UnixSeconds

from ..contracts.stores import PLACES


class Embedded:
    """The fold of this process."""

    def __init__(self, store: Store) -> None:
        self._store, self._seen = store, SeenIds()

    def await_start(self) -> None:
        """It needs no start."""

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        return fold(self._store, now, closing=closing, seen=self._seen)

    def close(self) -> None:
        """Nothing runs."""


class TestEmbeddedFold(FoldEngineContract):
    """In a process of its own on SQLite; in this one, which counts by the same code, wherever else the log lies."""

    @pytest.fixture(params=[*PLACES, "folder", "bucket"])
    def where(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def store(self, where: str, request: pytest.FixtureRequest) -> Iterator[Store]:
        opened = PLACES[where if where in PLACES else "sqlite"](request).open()
        yield opened
        opened.close()

    @pytest.fixture
    def place(self, where: str, tmp_path: Path) -> Iterator[str | None]:
        if where == "bucket":
            with small_bucket() as bucket:
                yield bucket.place
        else:
            (tmp_path / "segments").mkdir()
            yield str(tmp_path / "segments") if where == "folder" else None

    @pytest.fixture
    def engine(self, store: Store, where: str) -> Iterator[FoldEngine]:
        engine = FoldProcess(store.place, store.at_rest) if where == "sqlite" else Embedded(store)
        yield engine
        engine.close()
