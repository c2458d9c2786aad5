"""Runs on Spark, their tasks in this process: alike to the embedded fold, and whole or not at all."""

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from changeling_aggregator import Overtaken, SegmentLost, StoreError, Unwritable
from changeling_aggregator.fold import EngineOptions, FoldEngine, SeenIds, fold
from changeling_aggregator.segments import Folder, PlacedFile
from changeling_aggregator.store import LoggedRequest, Store, Transaction, Turn, back_up
from changeling_aggregator.testing import (
    AFTER,
    Append,
    FoldEngineContract,
    appender,
    counted_rows,
    fold_out_of_turn,
    reference_rows,
)
from changeling_protocol import UnixMilliseconds, encode
from changeling_spark import SparkTrouble, runs, session, tasks
from changeling_spark.session import spark_settings
from changeling_spark.tasks import Partitioner
from numpy.typing import NDArray

from tests.command_line import changeling as run

from ..aggregator.devices import END, Log, envelope, report
from ..protocol.examples import survey
from .here import Case, Here, OnSpark, contents, known_ids


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
        with closing(Store.open(tmp_path / "contract.db")) as store:
            yield store

    @pytest.fixture
    def engine(self, store: Store, tmp_path: Path) -> FoldEngine:
        return OnSpark(store, Folder(tmp_path / "shared", make=True).name)


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
    case.begin("killed")
    case.leave("killed-ids-1.parquet")
    old, case.place = case.place, Folder(tmp_path / "another", make=True)
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
    with closing(Store.open(tmp_path / "server.db")) as store:
        yield Log.of(store, survey())


@pytest.fixture
def on_spark(log: Log, tmp_path: Path) -> OnSpark:
    return OnSpark(log.store, Folder(tmp_path / "place", make=True).name)


def send(log: Log, ids: list[bytes], node: int = 8) -> None:
    """Uploads with these ids."""
    log.append(END, *(envelope(log.survey, log.key, [report(node, id_=id_)]) for id_ in ids))


def test_who_sends_one_id_over_and_over_fills_no_bucket(log: Log, on_spark: OnSpark) -> None:
    """Of each batch of requests one closing with it goes on, and the rest is refused where it was opened."""
    send(log, [bytes(16)] * 40, node=1)
    on_spark.fold(END)
    assert log.refused() == {"duplicate": 39}
    assert log.tallies()[0, 1][0] == 1
    assert sum(on_spark.executors.buckets) < 1000


@pytest.mark.parametrize(("bucket", "file"), [(100, 10**9), (10**9, 16 * 20), (10**9, 16 * 45)])
def test_a_closing_with_many_runs_is_known_to_spark_whole(
    log: Log, on_spark: OnSpark, monkeypatch: pytest.MonkeyPatch, bucket: int, file: int
) -> None:
    """Runs lie behind one another in the files that executors read, each sorted by itself: of all that is sent again
    nothing counts, on Spark or, after that, here; whether a file ends with a run, or between two."""
    monkeypatch.setattr(runs, "BUCKET_CLOSINGS", bucket)
    monkeypatch.setattr(tasks, "ID_FILE_BYTES", file)
    chance = random.Random(5)
    batches = [[chance.randbytes(16) for _ in range(20)] for _ in range(6)]
    for ids in batches:
        send(log, ids)
        fold(log.store, END, closing=False)
    with log.store.view() as view:
        assert len(view.runs([(log.survey.id, 8)])[log.survey.id, 8]) == 6
    for times, is_on_spark in enumerate([True, True, False], 1):
        send(log, [id_ for ids in batches for id_ in ids])
        on_spark.fold(END) if is_on_spark else fold(log.store, END, closing=False)
        assert log.tallies()[0, 8][0] == 120
        assert log.refused() == {"duplicate": 120 * times}


def test_who_folds_again_after_spark_knows_what_that_counted(log: Log, on_spark: OnSpark) -> None:
    """Though it remembers ids of before: runs that become one with what was counted meanwhile are others, also where
    they begin with the same id."""
    seen, (first, second, third) = SeenIds(), (bytes([number]) * 16 for number in (1, 2, 3))
    for ids, engine in (([first, third], None), ([first], None), ([second], on_spark), ([second], None)):
        send(log, ids)
        engine.fold(END) if engine else fold(log.store, END, closing=False, seen=seen)
    assert (log.tallies()[0, 8][0], log.refused()) == (3, {"duplicate": 2})


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


# Lives in which engines take turns and runs fail in all ways


def to_stream(store: Store, stream: int) -> Append:
    return lambda bodies, now: store.append({stream: bodies}, now)


class Life(Case):
    """Two stores with one log; in one of them it lies in segments in part, and engines take turns there."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.chance = random.Random(seed)
        segments = Folder(folder / "segments", make=True)
        in_files = [appender(self.store, segments.name) for _ in range(2)]
        in_rows = [appender(self.theirs) for _ in range(2)]
        both = [[to_stream(store, at) for at in self.streams] for store in (self.store, self.theirs)]
        self._appends = [*zip(*both, strict=True), *zip(in_files, in_rows, strict=True)]
        self._requests: list[LoggedRequest] = []

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

    def fail(self, patch: pytest.MonkeyPatch) -> None:
        """Run in a way that mostly comes to no end."""
        error = self.chance.choice([OSError("it is gone"), KeyboardInterrupt(), Unwritable("it is full"), None])
        last, puts, put, executors = self.chance.randrange(4), count(self.chance.randrange(12)), Folder.put, Here()

        def broken(bucket: int) -> None:
            if bucket >= last and error:
                raise error

        def full(folder: Folder, name: str, content: bytes) -> None:
            if next(puts) > 10 and error:
                raise error
            put(folder, name, content)

        if error is None:
            lost_at(patch, 3, OSError("the connection is lost"), kept=self.chance.random() < 0.5)
        elif isinstance(error, Unwritable):
            patch.setattr(Folder, "put", full)
        else:
            executors = Here(then=broken)
        self.on_spark(executors)


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(12, 20))])
def test_whatever_befalls_the_engines_each_closing_counts_once(tmp_path: Path, seed: int) -> None:
    """Byte by byte what the embedded fold comes to, and what the reference does; with the ids, each once."""
    life = Life(tmp_path, seed)
    with life.store.view() as view:
        keys, surveys = view.private_keys(), view.surveys()
    while life._at < len(life.log.requests):
        life.append(life.chance.choice([1, 5, 12]))
        for _ in range(life.chance.choice([0, 1, 3])):
            with suppress(OSError, Unwritable, KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
                life.fail(patch)
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


# What else is at a store whose ids lie in files, and the command's own words


def test_a_backup_asks_for_the_ids_first(case: Case, tmp_path: Path) -> None:
    """One without them would count again what devices send again."""
    case.append()
    case.run()
    with pytest.raises(StoreError, match="run `changeling fold` first"):
        back_up(case.store, tmp_path / "backup.db", 0)
    case.agree()
    fold(case.store, AFTER, closing=False)
    back_up(case.store, tmp_path / "backup.db", 0)
    case.agree()


def test_without_its_ids_nothing_is_folded(case: Case) -> None:
    """Whatever engine is to fold: the file is named, and the store as it was."""
    case.append()
    case.run()
    file = next(case.place.path.iterdir())
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(SegmentLost, match=file.name):
        fold(case.store, AFTER, closing=False)
    case.agree()
    file.write_bytes(content)
    fold(case.store, AFTER, closing=False)
    assert case.lying() == set()


def test_the_doctor_names_a_missing_java(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without being alarmed: a server needs none."""
    case.append()
    case.run()

    def found() -> str:
        run(["doctor", "--store", str(case.path)])
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "needs Java 17" in found()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "its library and Java are here" in found()


def test_a_session_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    options = EngineOptions("spark://127.0.0.1:1", "/nowhere")
    with pytest.raises(SparkTrouble, match="Java 17"), session.session(options):
        pass


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--engine", "spark"], "comes with --master and --shared"),
        (["--master", "spark://127.0.0.1:1"], "comes with --master and --shared"),
        (["--engine", "spark", "--master", "m", "--shared", "s", "--check"], "leave out --engine"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    case: Case, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence that says which."""
    assert run(["fold", "--store", str(case.path), *options]) != 0
    assert says in " ".join(capsys.readouterr().err.split())


def test_of_what_failed_in_a_task_the_reason_is_told() -> None:
    """Without the trace around it; of what is not ours the first line."""
    trace = (
        "Job aborted: lost task 0.3\n  Traceback:\n  changeling_aggregator.errors.SegmentLost: segment a is gone\nmore"
    )
    assert session.first_line(RuntimeError(trace)) == "SegmentLost: segment a is gone"
    assert session.first_line(RuntimeError("\n  Job aborted\n at x")) == "Job aborted"
    assert session.first_line(RuntimeError()) == "RuntimeError"


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
