"""What the fold on Spark comes to is, byte by byte, what the embedded fold comes to; its tasks run in this process."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from changeling_aggregator.errors import Overtaken
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.folding import in_turn
from changeling_aggregator.store import IdFile, Store
from changeling_spark import folding as running
from changeling_spark.folding import fold_once
from changeling_spark.inputs import Piece
from changeling_spark.tasks import Run

from ..aggregator.devices import Log, report
from ..protocol.examples import survey
from .here import Here
from .hostile_log import AFTER, contents, prepared


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "place").mkdir()
    return str(tmp_path / "place")


@pytest.fixture(params=["one bucket", "many buckets"])
def buckets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 10**9 if request.param == "one bucket" else 400)


class Pair:
    """The same store twice, with a log that goes to both."""

    def __init__(self, folder: Path, seed: int = 3) -> None:
        folder.mkdir(exist_ok=True)
        store = Store.open(folder / "ours.db")
        self._log, self._streams = prepared(store, seed)
        store.close()
        shutil.copy(folder / "ours.db", folder / "theirs.db")
        self.ours, self.theirs = (Store.open(folder / f"{name}.db") for name in ("ours", "theirs"))

    def append(self, first: int = 0, last: int | None = None) -> None:
        for store in (self.ours, self.theirs):
            self._log.append_to(store, self._streams, first, last)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def on_spark(store: Store, place: str, *, now: float = AFTER, closing: bool = False, most: int = 32) -> None:
    in_turn(store, now, closing, lambda writing: fold_once(store, Here(most), place, now, writing))


def embedded(store: Store, *, now: float = AFTER, closing: bool = False) -> None:
    fold(store, now, batch=7, closing=closing)


@pytest.mark.usefixtures("buckets")
@pytest.mark.parametrize("seed", [3, 4])
def test_one_run_is_as_the_embedded_fold(tmp_path: Path, place: str, seed: int) -> None:
    """Tallies, attendance, refusals, cursors, and what is held: with duplicates, late, early, malformed and foreign."""
    pair = Pair(tmp_path, seed)
    pair.append()
    on_spark(pair.ours, place, most=3)
    embedded(pair.theirs)
    assert contents(pair.ours) == contents(pair.theirs)
    reasons = {row[1] for row in contents(pair.ours)["refusals"]}
    assert reasons >= {"duplicate", "late", "future", "malformed", "unopenable"}
    assert contents(pair.ours)["held"]
    pair.close()


@pytest.mark.usefixtures("buckets")
@pytest.mark.parametrize("turns", ["ss", "es", "se", "sese"], ids=lambda turns: turns)
def test_engines_that_take_turns_see_the_ids_that_the_other_counted(pair: Pair, place: str, turns: str) -> None:
    """Whoever folds which part of the log: Spark (s) or this machine (e)."""
    cut = [60 * turn // len(turns) for turn in range(len(turns) + 1)]
    for turn, first, last in zip(turns, cut, cut[1:], strict=False):
        pair.append(first, last)
        embedded(pair.theirs)
        if turn == "s":
            on_spark(pair.ours, place)
        else:
            embedded(pair.ours)
        assert contents(pair.ours) == contents(pair.theirs)
    with pair.ours.view() as view:
        in_runs = sum(len(view.runs_of_survey(survey)) for survey in view.signed_surveys())
        in_files = view.id_files()
    assert bool(in_files) == (turns[-1] == "s") != bool(in_runs)
    assert {each.name for each in in_files} == {path.name for path in Path(place).iterdir()}


def test_ids_go_with_the_first_run_after_their_closing_is_sealed(pair: Pair, place: str) -> None:
    """And what comes again for it is late, as it is everywhere."""
    pair.append(0, 40)
    on_spark(pair.ours, place)
    pair.append(40)
    for _ in range(2):
        on_spark(pair.ours, place, now=AFTER + 10_000, closing=True)
        embedded(pair.theirs, now=AFTER + 10_000, closing=True)
    assert contents(pair.ours) == contents(pair.theirs)
    again = Log.of(pair.ours, survey(), begins=2**40, expires=2**41)
    again.append(AFTER + 10_000, b"?" * 200)
    on_spark(pair.ours, place, now=AFTER + 10_000, closing=True)
    assert not [*Path(place).iterdir()]


@pytest.mark.usefixtures("buckets")
def test_a_run_that_fails_anywhere_changes_nothing(pair: Pair, place: str) -> None:
    """In opening, in counting, or in the transaction; its files are swept, and the next run counts all."""

    class Failing(Here):
        def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
            parts = [*super().__call__(run, tasks)]
            yield from parts[: len(parts) // 2]
            raise OSError("the cluster is gone")

    pair.append(0, 30)
    on_spark(pair.ours, place)
    pair.append(30)
    before, files = contents(pair.ours), {path.name for path in Path(place).iterdir()}
    with pytest.raises(OSError, match="gone"):
        fold_once(pair.ours, Failing(), place, AFTER, pair.ours.writing)
    assert contents(pair.ours) == before
    assert {path.name for path in Path(place).iterdir()} == files
    on_spark(pair.ours, place)
    embedded(pair.theirs)
    assert contents(pair.ours) == contents(pair.theirs)


def test_of_two_runs_at_once_one_is_overtaken(pair: Pair, place: str) -> None:
    """It keeps nothing, whichever engine was first; and the files of the other stay."""

    class Overtaking(Here):
        def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
            parts = [*super().__call__(run, tasks)]
            fold_once(pair.ours, Here(), place, AFTER, pair.ours.writing)
            return parts

    pair.append()
    with pytest.raises(Overtaken):
        fold_once(pair.ours, Overtaking(), place, AFTER, pair.ours.writing)
    embedded(pair.theirs)
    assert contents(pair.ours) == contents(pair.theirs)
    with pair.ours.view() as view:
        registered = {each.name for each in view.id_files()}
    assert registered == {path.name for path in Path(place).iterdir()}


def test_stores_that_share_a_place_leave_each_others_files_alone(tmp_path: Path, place: str) -> None:
    """Those with ids that count, and what a run that was killed has left, which goes with its own store's next run."""
    ours, theirs = Pair(tmp_path / "1"), Pair(tmp_path / "2", seed=4)

    def files(store: Store) -> set[str]:
        with store.view() as view:
            return {each.name for each in view.id_files()}

    for first in (0, 20):
        ours.append(first, first + 20)
        theirs.append(first, first + 20)
        on_spark(ours.ours, place)
        on_spark(theirs.ours, place)
    assert files(ours.ours)
    assert {path.name for path in Path(place).iterdir()} == files(ours.ours) | files(theirs.ours)
    with ours.ours.transaction() as writing:
        writing.begin_run(place, "killed")
    left = Path(place) / "killed-ids-1.parquet"
    left.write_bytes(b"")
    theirs.append(40)
    on_spark(theirs.ours, place)
    assert left.exists()
    ours.append(40)
    on_spark(ours.ours, place)
    assert {path.name for path in Path(place).iterdir()} == files(ours.ours) | files(theirs.ours)
    for pair in (ours, theirs):
        embedded(pair.theirs)
        assert contents(pair.ours) == contents(pair.theirs)
        pair.close()


def test_a_place_that_is_gone_keeps_no_run_from_being_counted(tmp_path: Path, pair: Pair, place: str) -> None:
    """What another place still has of earlier runs is deleted once it can be reached again."""
    pair.append(0, 30)
    on_spark(pair.ours, place)
    embedded(pair.ours)
    left = Path(place) / "killed-ids-1.parquet"
    left.write_bytes(b"")
    with pair.ours.transaction() as writing:
        writing.begin_run(place, "killed")
    Path(place).rename(tmp_path / "away")
    (tmp_path / "other").mkdir()
    pair.append(30, 40)
    on_spark(pair.ours, str(tmp_path / "other"))
    (tmp_path / "away").rename(place)
    pair.append(40)
    on_spark(pair.ours, str(tmp_path / "other"))
    assert not left.exists()
    embedded(pair.theirs)
    assert contents(pair.ours) == contents(pair.theirs)


def test_while_another_folds_a_run_stands_by(pair: Pair, place: str) -> None:
    """The turn to fold is one for all engines."""
    with pair.ours.turn_to_fold():
        report_ = in_turn(pair.ours, AFTER, False, lambda writing: fold_once(pair.ours, Here(), place, AFTER, writing))
    assert report_.stood_by


def test_a_survey_that_cannot_be_counted_harms_no_other(
    pair: Pair, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is counted, though one bucket alone fails; its ids stay what they were."""
    from changeling_spark import tasks

    pair.append(0, 30)
    on_spark(pair.ours, place)
    pair.append(30)
    with pair.ours.view() as view:
        files = {each.survey: each for each in view.id_files()}
    broken = next(iter(files))
    before = contents(pair.ours)
    uploads_of, calls = tasks.uploads_of, []

    def failing(survey_: object, lots: object) -> object:
        if survey_.id == broken and not calls:  # type: ignore[attr-defined]
            calls.append(1)
            raise ArithmeticError("a defect")
        return uploads_of(survey_, lots)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "uploads_of", failing)
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 400)
    report_ = in_turn(pair.ours, AFTER, False, lambda writing: fold_once(pair.ours, Here(), place, AFTER, writing))
    embedded(pair.theirs)
    assert report_.uncounted[broken] > 0
    after, theirs = contents(pair.ours), contents(pair.theirs)
    for table in ("tallies", "attendance"):
        of_broken = [row for row in after[table] if row[0] == broken]
        assert of_broken == [row for row in before[table] if row[0] == broken]
        assert [row for row in after[table] if row[0] != broken] == [row for row in theirs[table] if row[0] != broken]
    with pair.ours.view() as view:
        assert files[broken] in view.id_files()


def test_who_sends_one_id_over_and_over_fills_no_bucket(tmp_path: Path, place: str) -> None:
    """Of each batch of requests one closing with it goes on, and the rest is refused where it was opened."""
    asked = survey()
    store = Store.open(tmp_path / "server.db")
    log = Log.of(store, asked)
    at = asked.calendar.time(asked.calendar.periods)
    for _ in range(40):
        log.append_reports(at, [report(1, id_=bytes(16))])
    here = Here()
    in_turn(store, at, False, lambda writing: fold_once(store, here, place, at, writing))
    assert log.refused() == {"duplicate": 39}
    assert log.tallies()[0, 1][0] == 1
    assert sum(here.buckets) < 1000
    store.close()


def test_most_reports_on_one_node_spread_over_all_buckets(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 reports on one node, about 40 a bucket: none has above 80, by a chance below 10^-6."""
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 400)
    monkeypatch.setattr(running, "_LEAST_CLOSING_BYTES", 24)
    asked = survey()
    store = Store.open(tmp_path / "server.db")
    log = Log.of(store, asked)
    at = asked.calendar.time(asked.calendar.periods)
    log.append_reports(at, [report(1, number % 9) for number in range(1)])
    from ..aggregator.devices import envelope

    log.append(at, *(envelope(asked, log.key, [report(1, number % 9)]) for number in range(399)))
    here = Here()
    in_turn(store, at, False, lambda writing: fold_once(store, here, place, at, writing))
    assert log.tallies()[0, 1][0] == 400
    closings = [size // 45 for size in here.buckets]
    assert len(closings) >= 8
    assert max(closings) <= 2 * 400 / len(closings) + 20
    store.close()
