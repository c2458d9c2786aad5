"""Lives in which engines take turns, fail and are killed, surveys end and closings are sealed in between."""

import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

import pytest
from changeling_aggregator.errors import Unwritable
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.folding import in_turn
from changeling_aggregator.segments import Folder, place_at
from changeling_aggregator.segments.parquet import read_ids
from changeling_aggregator.store import IdFile, LoggedRequest, Store
from changeling_aggregator.testing import append_segment
from changeling_protocol import UnixMilliseconds
from changeling_spark import folding as running
from changeling_spark import inputs as pieces
from changeling_spark.folding import fold_once
from changeling_spark.inputs import Piece
from changeling_spark.tasks import Run
from sqlalchemy import Connection

from ..aggregator.devices import body
from .here import Here
from .hostile_log import SURVEYS, contents, prepared
from .recount import recount, stored


class Failing(Here):
    """Ends after so many buckets, by raising this."""

    def __init__(self, buckets: int, error: BaseException) -> None:
        super().__init__()
        self._left, self._error = buckets, error

    def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
        for part in super().__call__(run, tasks):
            if self._left == 0:
                raise self._error
            self._left -= 1
            yield part
        raise self._error


class Life:
    """Two stores with one log; in one of them it lies in segments in part, and engines take turns there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        store = Store.open(folder / "ours.db")
        self.log, self.rows = prepared(store, seed)
        store.close()
        shutil.copy(folder / "ours.db", folder / "theirs.db")
        self.ours, self.theirs = (Store.open(folder / f"{name}.db") for name in ("ours", "theirs"))
        self.place = str(Folder(folder / "place", make=True).path)
        segments = Folder(folder / "segments", make=True)
        with self.ours.transaction() as writing:
            self._segments = [writing.open_stream(segments.name, token_hex(8)) for _ in range(2)]
        with self.theirs.transaction() as writing:
            for _ in range(2):
                writing.open_stream(None)
        self.ever: dict[tuple[int, int], LoggedRequest] = {}
        with self.ours.view() as view:
            self._keys = view.private_keys()
        self._at = 0

    def append(self, requests: int) -> None:
        """The next of the log, to one of five streams, the same in both stores."""
        for at, _, request in self.log.requests[self._at : self._at + requests]:
            stream = self.chance.choice([*self.rows, *self._segments])
            for store in (self.ours, self.theirs):
                write = append_segment if store is self.ours and stream in self._segments else Store.append
                write(store, stream, [request], UnixMilliseconds(int(at * 1000)))
        self._at += requests
        with self.theirs.view() as view:
            for each in view.kept_requests():
                self.ever[each.stream, each.position] = each

    @property
    def now(self) -> float:
        """A time by which all that is in the log has arrived."""
        return self.log.requests[min(self._at, len(self.log.requests)) - 1][0] + 1.0

    def on_spark(self, executors: Here, closing: bool) -> None:
        in_turn(
            self.ours, self.now, closing, lambda writing: fold_once(self.ours, executors, self.place, self.now, writing)
        )

    def end(self) -> None:
        self.ours.close()
        self.theirs.close()

    def recounted(self) -> dict[str, list[tuple[object, ...]]]:
        return recount(self.ever.values(), {each.id: each for each in SURVEYS}, self._keys)


def known_ids(store: Store) -> dict[tuple[bytes, int], list[bytes]]:
    """All ids of closings that are not sealed, wherever they lie; each as often as it does."""
    ids: dict[tuple[bytes, int], list[bytes]] = {}
    with store.view() as view:
        keys = [(survey, *run) for survey in view.signed_surveys() for run in view.runs_of_survey(survey)]
        packed = [
            ((survey, period), b"".join(view.read_run((survey, period), number))) for survey, period, number in keys
        ]
        for file in view.id_files():
            sealed = view.sealed_period(file.survey)
            packed += [
                ((file.survey, period), some) for period, some in read_ids(place_at(file.place), file.name, sealed)
            ]
    for key, some in packed:
        ids.setdefault(key, []).extend(some[at : at + 16] for at in range(0, len(some), 16))
    return {key: sorted(some) for key, some in ids.items()}


def lying(life: Life) -> set[str]:
    return {path.name for path in Path(life.place).iterdir()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files, tasks and buckets."""
    monkeypatch.setattr("changeling_spark.inputs._SEGMENT_REQUESTS", 3)
    monkeypatch.setattr("changeling_spark.inputs._FILE_BYTES", 16 * 20)
    monkeypatch.setattr(pieces, "TASK_BYTES", 3000)
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 700)


def troubles(life: Life) -> Iterator[Callable[[], object]]:
    """Ways in which a run comes to no end."""
    chance = life.chance

    def breaks(error: BaseException) -> Callable[[], object]:
        return lambda: life.on_spark(Failing(chance.randrange(4), error), closing=False)

    def full() -> None:
        puts, put = [chance.randrange(12)], Folder.put

        def failing(folder: Folder, name: str, content: bytes) -> None:
            puts[0] -= 1
            if puts[0] < 0:
                raise Unwritable("the place is full")
            put(folder, name, content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Folder, "put", failing)
            life.on_spark(Here(), closing=False)

    def no_transaction(*, kept: bool) -> Callable[[], object]:
        def writing() -> None:
            times = [0]

            @contextmanager
            def lost() -> Iterator[Connection]:
                times[0] += 1
                with life.ours.transaction() as writing:
                    yield writing
                    if times[0] == 2 and not kept:
                        raise OSError("the writing is lost")
                if times[0] == 2:
                    raise OSError("the connection is lost")

            fold_once(life.ours, Here(), life.place, life.now, lost)

        return writing

    while True:
        yield chance.choice(
            [
                breaks(OSError("the cluster is gone")),
                breaks(KeyboardInterrupt()),
                full,
                no_transaction(kept=True),
                no_transaction(kept=False),
            ]
        )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "seed",
    [
        11,
        pytest.param(12, marks=pytest.mark.heavy),
        *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(13, 31)),
    ],
)
def test_whatever_befalls_the_engines_each_closing_counts_once(tmp_path: Path, seed: int) -> None:
    """Byte by byte what the embedded fold comes to, and what a recount by hand does; with the ids, each once."""
    life = Life(tmp_path, seed)
    coming = troubles(life)
    while life._at < len(life.log.requests):
        life.append(life.chance.choice([1, 5, 12]))
        for _ in range(life.chance.choice([0, 1, 3])):
            with suppress(OSError, Unwritable, KeyboardInterrupt):
                next(coming)()
        closing = life.chance.random() < 0.4
        if life.chance.random() < 0.6:
            life.on_spark(Here(), closing)
        else:
            fold(life.ours, life.now, batch=life.chance.choice([2, 9]), closing=closing)
        fold(life.theirs, life.now, closing=closing)
        ours, theirs = contents(life.ours), contents(life.theirs)
        for table in ("tallies", "attendance", "refusals", "held"):
            assert ours[table] == theirs[table], table
        assert [row[:2] for row in ours["cursors"]] == [row[:2] for row in theirs["cursors"]]
        assert known_ids(life.ours) == known_ids(life.theirs)
    assert stored(life.ours) == life.recounted()
    life.ours.append(life.rows[0], [body(bytes(200))], UnixMilliseconds(int(life.now * 1000)))
    life.on_spark(Here(), closing=False)
    with life.ours.view() as view:
        assert lying(life) == {each.name for each in view.id_files()}
    life.end()
