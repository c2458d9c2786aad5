"""Lives of a store in which engines take turns and runs fail in all ways: each closing counts once."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from changeling_aggregator import Unwritable
from changeling_aggregator.fold import fold
from changeling_aggregator.segments import Folder, place_at
from changeling_aggregator.segments.parquet import read_ids
from changeling_aggregator.store import LoggedRequest, Store
from changeling_aggregator.testing import Append, appender, counted_rows, reference_rows
from changeling_protocol import UnixMilliseconds, encode
from changeling_spark import runs, tasks

from .here import Case, Here, OnSpark, contents
from .test_runs import lost_at


def to(store: Store, stream: int) -> Append:
    return lambda bodies, now: store.append({stream: bodies}, now)


class Life(Case):
    """Two stores with one log; in one of them it lies in segments in part, and engines take turns there."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.chance = random.Random(seed)
        segments = Folder(folder / "segments", make=True)
        in_files = [appender(self.store, segments.name) for _ in range(2)]
        in_rows = [appender(self.theirs) for _ in range(2)]
        both = [[to(store, at) for at in self.streams] for store in (self.store, self.theirs)]
        self._appends = [*zip(*both, strict=True), *zip(in_files, in_rows, strict=True)]
        self._requests: list[LoggedRequest] = []

    @property
    def over(self) -> bool:
        return self._at >= len(self.log.requests)

    def append(self, requests: int = 60) -> None:
        """The next of the log, to one of five streams, the same in both stores."""
        for at, _, request in self.log.requests[self._at : self._at + requests]:
            arrival = UnixMilliseconds(int(at * 1000))
            for append in self.chance.choice(self._appends):
                append([request], arrival)
            self._requests.append(LoggedRequest(arrival, 1, len(self._requests), request))
        self._at += requests

    @property
    def now(self) -> float:
        """A time by which all that is in the log has arrived."""
        return self.log.requests[min(self._at, len(self.log.requests)) - 1][0] + 1.0

    def on_spark(self, executors: Here | None = None, *, closing: bool = False) -> None:
        OnSpark(self.store, self.place.name, executors).fold(self.now, closing=closing)


def known_ids(store: Store) -> dict[tuple[bytes, int], list[bytes]]:
    """All ids of closings that are not sealed, wherever they lie; each as often as it does."""
    ids: dict[tuple[bytes, int], list[bytes]] = {}
    with store.view() as view:
        packed = [
            (key, b"".join(view.read_run(key, run.number))) for key, runs_ in view.runs().items() for run in runs_
        ]
        for file in view.id_files():
            sealed = view.surveys()[file.survey].sealed
            some = read_ids(place_at(file.place), file.name, sealed)
            packed += [((file.survey, period), ids_) for period, ids_ in some]
    for key, some_ids in packed:
        ids.setdefault(key, []).extend(some_ids[at : at + 16] for at in range(0, len(some_ids), 16))
    return {key: sorted(some) for key, some in ids.items()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files, tasks and buckets."""
    monkeypatch.setattr(tasks, "SEGMENT_REQUESTS", 3)
    monkeypatch.setattr(tasks, "ID_FILE_BYTES", 16 * 20)
    monkeypatch.setattr(tasks, "TASK_BYTES", 3000)
    monkeypatch.setattr(runs, "BUCKET_CLOSINGS", 700)


def troubles(life: Life) -> Iterator[Callable[[pytest.MonkeyPatch], object]]:
    """Ways in which a run comes to no end."""
    chance = life.chance

    def breaks(error: BaseException) -> Callable[[pytest.MonkeyPatch], object]:
        last = chance.randrange(4)

        def breaking(bucket: int) -> None:
            if bucket >= last:
                raise error

        return lambda _: life.on_spark(Here(then=breaking))

    def full(patch: pytest.MonkeyPatch) -> None:
        puts, put = [chance.randrange(12)], Folder.put

        def failing(folder: Folder, name: str, content: bytes) -> None:
            puts[0] -= 1
            if puts[0] < 0:
                raise Unwritable("the place is full")
            put(folder, name, content)

        patch.setattr(Folder, "put", failing)
        life.on_spark()

    def no_transaction(patch: pytest.MonkeyPatch, *, kept: bool) -> None:
        lost_at(patch, 3, OSError("the connection is lost"), kept=kept)
        life.on_spark()

    while True:
        yield chance.choice(
            [
                breaks(OSError("the cluster is gone")),
                breaks(KeyboardInterrupt()),
                full,
                partial(no_transaction, kept=True),
                partial(no_transaction, kept=False),
            ]
        )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(12, 20))])
def test_whatever_befalls_the_engines_each_closing_counts_once(tmp_path: Path, seed: int) -> None:
    """Byte by byte what the embedded fold comes to, and what the reference does; with the ids, each once."""
    life = Life(tmp_path, seed)
    coming = troubles(life)
    with life.store.view() as view:
        keys, surveys = view.private_keys(), view.surveys()
    while not life.over:
        life.append(life.chance.choice([1, 5, 12]))
        for _ in range(life.chance.choice([0, 1, 3])):
            with suppress(OSError, Unwritable, KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
                next(coming)(patch)
        closing = life.chance.random() < 0.4
        if life.chance.random() < 0.6:
            life.on_spark(closing=closing)
        else:
            fold(life.store, life.now, batch=life.chance.choice([2, 9]), closing=closing)
        fold(life.theirs, life.now, closing=closing)
        ours, theirs = contents(life.store), contents(life.theirs)
        for table in ("tallies", "refusals", "cursors"):
            assert ours[table] == theirs[table], table
        assert known_ids(life.store) == known_ids(life.theirs)
    assert counted_rows(life.store) == reference_rows(life._requests, surveys, keys)
    life.store.append({1: [encode({"envelopes": [bytes(200)]})]}, UnixMilliseconds(int(life.now * 1000)))
    life.on_spark()
    assert life.lying() == life.named()
    life.close()
