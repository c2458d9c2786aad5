"""The embedded fold against the contract of fold engines, on each database, and with a log in a folder or a bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.fold import FoldEngine, FoldProcess
from changeling_aggregator.store import Store
from changeling_aggregator.testing import FoldEngineContract
from changeling_aggregator.testing.bucket import small_bucket

from ..contracts.stores import PLACES


class TestFoldProcess(FoldEngineContract):
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
    def engine(self, store: Store, place: str | None) -> Iterator[FoldEngine]:  # noqa: ARG002
        """place: made before, as the process takes the bucket's credentials from the environment it starts with."""
        process = FoldProcess(store.place, store.at_rest)
        yield process
        process.close()
