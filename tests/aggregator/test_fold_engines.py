"""The embedded fold against the contract of fold engines, in this process and in one of its own."""

from collections.abc import Iterator

import pytest
from changeling_aggregator.fold import FoldEngine, FoldProcess, FoldReport, SeenIds, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import FoldEngineContract
from changeling_aggregator.testing.services import small_bucket
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
    """On each database, and with a log in a bucket."""

    @pytest.fixture(params=[*PLACES, "bucket"])
    def where(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def store(self, where: str, request: pytest.FixtureRequest) -> Iterator[Store]:
        opened = PLACES[where if where in PLACES else "sqlite"](request).open()
        yield opened
        opened.close()

    @pytest.fixture
    def place(self, where: str) -> Iterator[str | None]:
        if where == "bucket":
            with small_bucket() as bucket:
                yield bucket.place
        else:
            yield None

    @pytest.fixture
    def engine(self, store: Store) -> FoldEngine:
        return Embedded(store)


def test_a_fold_in_a_process_of_its_own_counts_the_same(store: Store) -> None:
    """By the same code, whose log lies in a file; and stands by while another folds."""
    engine = FoldProcess(store.place, store.at_rest)
    FoldEngineContract().test_it_counts_what_the_reference_counts(store, engine, None)
    engine.close()
