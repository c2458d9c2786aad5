"""Runs on Spark, their tasks in this process: alike to the embedded fold, and whole or not at all."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from changeling_aggregator import Overtaken, SegmentLost
from changeling_aggregator.fold import EngineOptions, FoldEngine, fold
from changeling_aggregator.segments import Folder, PlacedFile
from changeling_aggregator.segments.parquet import encoded
from changeling_aggregator.store import LoggedRequest, LogRange, Segment, Store, Transaction, Turn
from changeling_aggregator.testing import AFTER, FoldEngineContract, fold_out_of_turn
from changeling_spark import runs, tasks
from changeling_spark.session import spark_settings
from changeling_spark.tasks import Partitioner
from numpy.typing import NDArray

from ..aggregator.devices import Log, envelope, report
from ..protocol.examples import survey
from .here import Case, Here, OnSpark, begin, contents


class TestSparkFold(FoldEngineContract):
    """The contract of every engine, with a log in rows that is counted in one bucket, and one in a folder in many."""

    @pytest.fixture(params=["rows, one bucket", "segments, many buckets"])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
        in_segments = request.param.startswith("segments")
        monkeypatch.setattr(runs, "BUCKET_CLOSINGS", 400 if in_segments else 10**9)
        monkeypatch.setattr(tasks, "SEGMENT_REQUESTS", 7)
        (tmp_path / "segments").mkdir()
        return str(tmp_path / "segments") if in_segments else None

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = Store.open(tmp_path / "contract.db")
        yield store
        store.close()

    @pytest.fixture
    def engine(self, store: Store, tmp_path: Path) -> FoldEngine:
        (tmp_path / "shared").mkdir()
        return OnSpark(store, str(tmp_path / "shared"))


def lost_at(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception, *, kept: bool = False) -> None:
    """Have the transaction of a turn that is begun as such and such end with this error, whether it is kept or not."""
    begin, times = Turn.transaction, [0]

    @contextmanager
    def transaction(turn: Turn) -> Iterator[Transaction]:
        times[0] += 1
        lost = times[0] == number
        with begin(turn) as writing:
            yield writing
            if lost and not kept:
                raise error
        if lost:
            raise error

    monkeypatch.setattr(Turn, "transaction", transaction)


def test_a_run_that_is_overtaken_keeps_nothing(case: Case) -> None:
    """Another engine has counted the same requests meanwhile; what it wrote goes with the next run."""
    case.append(40)
    with pytest.raises(Overtaken):
        case.run(Here(then=lambda _: fold_out_of_turn(case.store)))
    fold(case.store, AFTER, closing=False)
    case.agree()
    case.append()
    case.run()
    case.agree()
    assert case.lying() == case.named()


def test_what_killed_runs_left_goes_before_the_next_needs_the_room(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, with one listing before the run and one after, as an object store is paid for each; nothing else."""
    left = {f"killed{number}-{kind}" for number in range(5) for kind in ("ids-67.parquet", "log-1-1.parquet.part")}
    for number in range(5):
        case.begin(f"killed{number}")
    case.leave(*left, "theirs.parquet")
    case.append(25)
    listed, kept, seen = [0], Folder.list, [set[str]()]

    def counted(folder: Folder, *prefixes: str) -> Iterator[PlacedFile]:
        listed[0] += 1
        return kept(folder, *prefixes)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "list", counted)
        case.run(Here(then=lambda _: seen.append({path.name for path in case.place.path.iterdir()})))
    assert listed == [2]
    assert not set[str]().union(*seen) & left
    assert case.lying() == case.named() | {"theirs.parquet"}


def test_who_has_lost_its_turn_deletes_nothing_of_who_has_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction says whether it still has it, once what is to go was listed: until then nothing goes."""
    case.append(25)
    case.begin("theirs")
    case.leave("theirs-ids-67.parquet")
    lost_at(monkeypatch, 1, Overtaken("the connection that held the turn to fold was lost"))
    with pytest.raises(Overtaken):
        case.run()
    assert case.lying() == {"theirs-ids-67.parquet"}


def test_stores_that_share_a_place_leave_each_others_files_alone(case: Case, tmp_path: Path) -> None:
    """Those with ids that count, and what a run that was killed has left, which goes with its own store's next run."""
    other = Case(tmp_path / "other", seed=4)
    other.place = case.place
    for _ in range(2):
        for each in (case, other):
            each.append(20)
            each.run()
    assert case.lying() == case.named() | other.named()
    assert not case.named() & other.named()
    case.begin("killed")
    case.leave("killed-ids-1.parquet")
    other.append()
    other.run()
    assert "killed-ids-1.parquet" in case.lying()
    case.append()
    case.run()
    assert case.lying() == case.named() | other.named()
    for each in (case, other):
        each.agree()
    other.close()


def test_ids_follow_to_another_place_though_the_first_is_gone(case: Case, tmp_path: Path) -> None:
    """A place that cannot be reached keeps no run from being counted; what it has is deleted once it is there again."""
    case.append(30)
    case.run()
    fold(case.store, AFTER, closing=False)
    old, case.place = case.place, Folder(tmp_path / "another", make=True)
    begin(case.store, old.name, "killed")
    (old.path / "killed-ids-1.parquet").write_bytes(b"")
    old.path.rename(tmp_path / "away")
    case.append(10)
    case.run()
    (tmp_path / "away").rename(old.path)
    case.append()
    case.run()
    assert case.lying() == case.named() != set()
    assert [*old.list("")] == []
    case.agree()


def test_a_survey_that_cannot_be_counted_harms_no_other(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is counted, though one bucket alone fails; its ids stay what they were."""
    case.append(30)
    case.run()
    case.append()
    with case.store.view() as view:
        files = {each.survey: each for each in view.id_files()}
    broken = next(iter(files))
    before = contents(case.store)
    uploads_of, calls = tasks.uploads_of, []

    def failing(survey_: object, blocks: object) -> object:
        if survey_.id == broken and not calls:  # type: ignore[attr-defined]
            calls.append(1)
            raise ArithmeticError("a defect")
        return uploads_of(survey_, blocks)  # type: ignore[arg-type]

    monkeypatch.setattr(tasks, "uploads_of", failing)
    monkeypatch.setattr(runs, "BUCKET_CLOSINGS", 400)
    assert OnSpark(case.store, case.place.name).fold().uncounted[broken] > 0
    fold(case.theirs, AFTER, closing=False)
    after, theirs = contents(case.store), contents(case.theirs)
    of_broken, others = ([row for row in after["tallies"] if (row[0] == broken) == its] for its in (True, False))
    assert of_broken == [row for row in before["tallies"] if row[0] == broken]
    assert others == [row for row in theirs["tallies"] if row[0] != broken]
    with case.store.view() as view:
        assert files[broken] in view.id_files()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    store = Store.open(tmp_path / "server.db")
    yield Log.of(store, survey())
    store.close()


def closing(log: Log) -> float:
    return float(log.survey.calendar.time(log.survey.calendar.periods))


def on_spark(log: Log, place: Path, executors: Here | None = None) -> None:
    place.mkdir(exist_ok=True)
    OnSpark(log.store, str(place), executors).fold(closing(log))


def send(log: Log, ids: list[bytes], node: int = 8) -> None:
    """Uploads with these ids."""
    log.append(closing(log), *(envelope(log.survey, log.key, [report(node, id_=id_)]) for id_ in ids))


def test_who_sends_one_id_over_and_over_fills_no_bucket(log: Log, tmp_path: Path) -> None:
    """Of each batch of requests one closing with it goes on, and the rest is refused where it was opened."""
    send(log, [bytes(16)] * 40, node=1)
    here = Here()
    on_spark(log, tmp_path / "place", here)
    assert log.refused() == {"duplicate": 39}
    assert log.tallies()[0, 1][0] == 1
    assert sum(here.buckets) < 1000


@pytest.mark.parametrize(("bucket", "file"), [(100, 10**9), (10**9, 16 * 20), (10**9, 16 * 45)])
def test_a_closing_with_many_runs_is_known_to_spark_whole(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, file: int
) -> None:
    """Runs lie behind one another in the files that executors read, each sorted by itself: of all that is sent again
    nothing counts, on Spark or, after that, here; whether a file ends with a run, or between two."""
    monkeypatch.setattr(runs, "BUCKET_CLOSINGS", bucket)
    monkeypatch.setattr(tasks, "ID_FILE_BYTES", file)
    chance = random.Random(5)
    batches = [[chance.randbytes(16) for _ in range(20)] for _ in range(6)]
    for ids in batches:
        send(log, ids)
        fold(log.store, closing(log), closing=False)
    with log.store.view() as view:
        assert len(view.runs([(log.survey.id, 8)])[log.survey.id, 8]) == 6
    engines: list[Callable[[], object]] = [lambda: on_spark(log, tmp_path / "place")] * 2
    for times, fold_with in enumerate([*engines, lambda: fold(log.store, closing(log), closing=False)], 1):
        send(log, [id_ for ids in batches for id_ in ids])
        fold_with()
        assert log.tallies()[0, 8][0] == 120
        assert log.refused() == {"duplicate": 120 * times}


HALVES = [each.to_bytes(8) for each in (0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)]


def test_ids_that_are_alike_in_their_halves_count_once_each(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen among 36 of six high and six low halves, again and again, whoever folds which part."""
    monkeypatch.setattr(runs, "BUCKET_CLOSINGS", 20)
    monkeypatch.setattr(tasks, "ID_FILE_BYTES", 16 * 5)
    chance, sent = random.Random(0), list[bytes]()
    for _ in range(8):
        ids = [chance.choice(HALVES) + chance.choice(HALVES) for _ in range(chance.choice([1, 4, 9]))]
        sent += ids
        send(log, ids[: len(ids) // 2])
        send(log, ids[len(ids) // 2 :])
        if chance.random() < 0.5:
            on_spark(log, tmp_path / "place")
        else:
            fold(log.store, closing(log), batch=2, closing=False)
        assert log.tallies()[0, 8][0] == len(set(sent))
        assert log.refused().get("duplicate", 0) == len(sent) - len(set(sent))


def shapes(count: int) -> dict[str, tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """High and low halves of ids as somebody may choose them who does not know what a run draws."""
    rising, none = np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)
    return {
        "low halves that rise": (none, rising),
        "high halves that rise": (rising, none),
        "halves that are alike": (rising, rising),
        "halves that add up to nothing": (rising, none - rising),
        "few bits, at the top": (none, rising << np.uint64(49)),
        "squares": (rising * rising, rising),
        "a grid": (rising // np.uint64(141), rising % np.uint64(141)),
        "by the golden ratio": (none, rising * np.uint64(11400714819323198485)),
    }


@pytest.mark.parametrize("shape", shapes(1))
def test_no_shape_of_ids_fills_a_bucket(shape: str) -> None:
    """20 000 ids over 40 buckets, 30 times, with fixed seeds: no bucket has twice its share."""
    chance = random.Random(9)
    high, low = shapes(20_000)[shape]
    for _ in range(30):
        partitioner = Partitioner(40, *(chance.getrandbits(64) | 1 for _ in range(3)))
        bucket = partitioner.bucket(high, low, np.full(len(high), 3, np.int64))
        assert np.bincount(bucket, minlength=40).max() < 2 * len(high) / 40


@pytest.mark.parametrize(
    ("rows", "stream", "says"),
    [
        (range(1, 5), 1, "position"),
        (range(5, 9), 1, "position"),
        (range(1, 10), 2, r"others than positions .* of stream 1"),
        (None, 1, "1-3.parquet"),
    ],
    ids=["ends early", "begins late", "another stream's", "gone"],
)
def test_a_segment_that_is_not_what_the_store_says_is_no_fold(
    tmp_path: Path, rows: range | None, stream: int, says: str
) -> None:
    """Nothing is skipped in silence, nor counted twice; of a sound one a piece has just its positions."""
    folder = Folder(tmp_path / "segments", make=True)
    for name, of, positions in (("1-3.parquet", stream, rows), ("sound.parquet", 1, range(1, 10))):
        content = encoded([LoggedRequest(1000 + at, of, at, b"?") for at in positions or (1,)])
        if positions is not None:
            folder.put(name, content)
    told, sound = (Segment(1, 1, 9, 1005, 1005, folder.name, f"{name}.parquet", 1) for name in ("1-3", "sound"))
    with pytest.raises(SegmentLost, match=says):
        list(LogRange(1, 3, 6, told).read())
    assert [(each.position, each.arrival) for each in LogRange(1, 3, 6, sound).read()] == [
        (4, 1005),
        (5, 1005),
        (6, 1005),
    ]


def test_other_settings_reach_spark_and_the_fixed_ones_stand() -> None:
    """A setting of the operator's goes before ours; of several for one name the last counts. What keeps secrets is
    nobody's to change, and nothing is taken that is no setting of Spark's."""
    for setting in ("spark.io.encryption.enabled=false", "spark.redaction.regex=x", "spark.ui.port", "a=b"):
        with pytest.raises(ValueError, match=r"Spark|fixed"):
            spark_settings(EngineOptions("local[1]", "/nowhere", conf=("spark.ui.enabled=true", setting)))
    conf = ("spark.eventLog.enabled=true", "spark.executor.memory=2g", "spark.executor.memory=3g", "spark.x=a=b")
    settings = spark_settings(EngineOptions("local[1]", "/nowhere", conf=(*conf, "spark.log.level=INFO")))
    names = ("eventLog.enabled", "log.level", "executor.memory", "x", "io.encryption.enabled")
    assert [settings[f"spark.{name}"] for name in names] == ["true", "INFO", "3g", "a=b", "true"]
