"""Attacks on the shared place and on the catalogue: full, moved, with what killed runs left, lines gone."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from changeling_aggregator.errors import Overtaken, SegmentLost, Unwritable
from changeling_aggregator.fold import fold
from changeling_aggregator.segments import Folder, PlacedFile
from changeling_aggregator.store import IdFile, Store
from changeling_aggregator.testing import open_stream_at, sql
from changeling_spark.folding import fold_once
from changeling_spark.inputs import Piece
from changeling_spark.tasks import Run
from sqlalchemy import Connection

from .here import Here
from .hostile_log import AFTER, contents, prepared


class Case:
    """A store with a log in rows, and a place."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder / "server.db")
        self.log, self.streams = prepared(self.store)
        self.place = Folder(folder / "place", make=True)
        self._at = 0

    def append(self, requests: int = 25) -> None:
        self.log.append_to(self.store, self.streams, self._at, self._at + requests)
        self._at += requests

    def run(self, executors: Here | None = None) -> None:
        fold_once(self.store, executors or Here(), self.place.name, AFTER, self.store.writing)

    def begin(self, run: str) -> None:
        """As a run does before it writes."""
        with self.store.transaction() as writing:
            writing.begin_run(self.place.name, run)

    def lying(self) -> set[str]:
        return {each.name for each in self.place.kept("")}

    def named(self) -> set[str]:
        with self.store.view() as view:
            return {each.name for each in view.id_files()}


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    yield made
    made.store.close()


def test_a_place_that_was_full_is_not_filled_by_tries(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever file is the first that has no room: none of that run stays, and with room again all counts."""
    monkeypatch.setattr("changeling_spark.inputs._SEGMENT_REQUESTS", 6)
    case.append()
    before, put = contents(case.store), Folder.put
    for room in range(3):
        left = [room]

        def full(folder: Folder, name: str, content: bytes) -> None:
            left[0] -= 1  # noqa: B023
            if left[0] < 0:  # noqa: B023
                raise Unwritable("there is no room")
            put(folder, name, content)

        with monkeypatch.context() as patch:
            patch.setattr(Folder, "put", full)
            with pytest.raises(Unwritable):
                case.run()
        assert (case.lying(), contents(case.store)) == (set(), before)
    case.run()
    assert case.lying() == case.named()


def test_what_a_killed_run_left_goes_before_the_next_needs_the_room(case: Case) -> None:
    """All of it, whatever kind it is of; what is not a run's stays."""
    case.begin("killed")
    left = {"killed-ids-67.parquet", "killed-staged-1-1.parquet", "killed-ids-68.parquet.part"}
    for name in (*left, "theirs.parquet"):
        (case.place.path / name).write_bytes(b"?")
    case.append()

    class Looking(Here):
        def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
            assert not case.lying() & left
            return super().__call__(run, tasks)

    case.run(Looking())
    assert case.lying() == case.named() | {"theirs.parquet"}


def test_a_place_is_listed_once_for_all_runs(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a run and after it, however many were killed: an object store is paid for each time."""
    for number in range(5):
        case.begin(f"killed{number}")
        (case.place.path / f"killed{number}-ids-67.parquet").write_bytes(b"?")
    case.append()
    listed, kept = [0], Folder.list

    def counted(folder: Folder, *prefixes: str) -> Iterator[PlacedFile]:
        listed[0] += 1
        return kept(folder, *prefixes)

    monkeypatch.setattr(Folder, "list", counted)
    case.run()
    assert listed == [2]
    assert case.lying() == case.named()


def test_who_has_lost_its_turn_deletes_nothing_of_who_has_it(case: Case) -> None:
    """A transaction says whether it still has it, once what is to go was listed: until then nothing goes."""
    case.append()
    theirs = "theirs-ids-67.parquet"
    case.begin("theirs")
    (case.place.path / theirs).write_bytes(b"?")

    @contextmanager
    def lost() -> Iterator[Connection]:
        raise Overtaken("the connection that held the turn to fold was lost")
        yield

    with pytest.raises(Overtaken):
        fold_once(case.store, Here(), case.place.name, AFTER, lost)
    assert case.lying() == {theirs}
    (case.place.path / theirs).unlink()

    times = [0]

    @contextmanager
    def then_lost() -> Iterator[Connection]:
        times[0] += 1
        if times[0] > 3:  # it has swept, begun its run, and counted
            (case.place.path / theirs).write_bytes(b"?")
            raise Overtaken("the connection that held the turn to fold was lost")
        with case.store.transaction() as writing:
            yield writing

    fold_once(case.store, Here(), case.place.name, AFTER, then_lost)
    assert case.lying() >= case.named() | {theirs}


@pytest.mark.parametrize("kept", [True, False])
def test_where_nobody_knows_whether_a_run_counts_its_ids_stay(case: Case, kept: bool) -> None:
    """The connection is lost as the transaction ends: the next run sees whether it was kept, and all counts once."""
    case.append()
    times = [0]

    @contextmanager
    def lost() -> Iterator[Connection]:
        times[0] += 1
        with case.store.transaction() as writing:
            yield writing
            if times[0] == 3 and not kept:
                raise OSError("the writing is lost")
        if times[0] == 3:
            raise OSError("the connection is lost")

    with pytest.raises(OSError, match="lost"):
        fold_once(case.store, Here(), case.place.name, AFTER, lost)
    assert case.lying() >= case.named()
    case.append()
    case.run()
    assert case.lying() == case.named()
    fold(case.store, AFTER, closing=False)
    assert case.lying() == set()


def test_stores_that_share_a_place_delete_nothing_of_each_other(case: Case, tmp_path: Path) -> None:
    """By turns: each keeps its ids, and what a run of the other has left."""
    (tmp_path / "other").mkdir()
    other = Case(tmp_path / "other")
    other.place = case.place
    for _ in range(2):
        for each in (case, other):
            each.append()
            each.run()
    assert case.lying() == case.named() | other.named()
    assert case.named()
    assert other.named()
    assert not case.named() & other.named()
    other.store.close()


def test_ids_follow_to_another_place(case: Case, tmp_path: Path) -> None:
    """And nothing of them stays at the one before."""
    case.append()
    case.run()
    old, case.place = case.place, Folder(tmp_path / "another", make=True)
    case.append()
    case.run()
    assert case.lying() == case.named() != set()
    assert [*old.kept("")] == []


@pytest.mark.parametrize("gone", range(3))
def test_a_line_that_the_catalogue_lost_is_told_by_both_engines(case: Case, tmp_path: Path, gone: int) -> None:
    """Of three segments each in turn: nothing that lies behind it is counted as if nothing had been before."""
    bodies = [body for _, _, body in case.log.requests[:6]]
    folder = Folder(tmp_path / "segments", make=True)
    append = open_stream_at(case.store, folder.name)
    for at in range(0, 6, 2):
        append(bodies[at : at + 2], 10**12)
    sql(case.store, "DELETE FROM files WHERE first = :first", first=1 + 2 * gone)
    before = contents(case.store)
    if gone == 2:  # the last: all that is before it counts
        case.run()
        assert [row[1] for row in contents(case.store)["cursors"]][-1] == 4
        return
    with pytest.raises(SegmentLost, match=f"position {1 + 2 * gone}"):
        case.run()
    assert (contents(case.store), case.lying()) == (before, set())
    with pytest.raises(SegmentLost, match=f"position {1 + 2 * gone}"):
        fold(case.store, AFTER, closing=False)
    assert contents(case.store)["tallies"] == []
