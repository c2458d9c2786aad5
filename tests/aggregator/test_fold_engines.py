"""The embedded fold against the contract of fold engines, here and in a process of its own; and `changeling fold`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.fold import FoldEngine, FoldProcess, FoldReport, SeenIds, check, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import FoldEngineContract, sql
from changeling_aggregator.testing.services import small_bucket
from changeling_commands import main as run
from changeling_protocol import Calendar, EarlyEnd, UnixSeconds

from ..contracts.stores import PLACES
from ..protocol.examples import AUTHORITY, survey
from .devices import Log, report
from .serving import eventually


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


START, END = 1_700_000_000, 1_700_000_480


@pytest.fixture
def log(store: Store) -> Log:
    return Log.of(store, survey(calendar=Calendar(START, 60, 8)))


def test_what_was_counted_before_a_survey_was_ended_early_is_no_difference(log: Log) -> None:
    """A closing of a fast clock, of the period after which nothing counts."""
    log.append_reports(START + 60, [report(1), report(2)])
    fold(log.store, START + 60.0)
    end = EarlyEnd(log.survey.id, 1)
    with log.store.transaction() as writing:
        writing.add_early_end(end, end.signed_by(AUTHORITY))
    assert check(log.store) == []


def test_the_command_folds_once_and_names_a_tally_that_the_log_does_not_give(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it did. `--check` names what is stored and what the log gives, and ends with 1; else with 0."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # of this process
    words = ["fold", "--store", str(tmp_path / "server.db")]
    log.append_reports(END, [report(1), report(2)])
    fold(log.store, END, closing=False)
    assert run([*words, "--check"]) == 0
    assert capsys.readouterr().out == "folding the kept log again comes to the same\n"
    sql(log.store, "UPDATE tallies SET reports = 7 WHERE track = 0 AND node = 2")
    (difference,) = check(log.store)
    assert difference.what == "track 0, node (1, 2]"
    assert difference.stored.startswith("7 reports")
    assert difference.again.startswith("1 reports")
    assert run([*words, "--check"]) == 1
    assert "track 0, node (1, 2]: 7 reports" in capsys.readouterr().out
    log.append_reports(END, [report(3), report(4, 200)])
    assert run(words) == 0
    assert capsys.readouterr().out == "1 envelopes, 1 reports; refused: 1 symbol-out-of-range\n"
    assert log.tallies()[0, 3][0] == 1


@pytest.mark.heavy
def test_the_command_follows_until_it_is_told_to_end(log: Log, tmp_path: Path) -> None:
    """What is appended counts within seconds."""
    words = ["-m", "changeling_commands", "fold", "--store", str(tmp_path / "server.db"), "--follow"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout
            assert following.stdout.readline().startswith("changeling folds")
            log.append_reports(END, [report(1)])
            assert eventually(lambda: log.tallies().get((0, 1), (0,))[0], 1)
        finally:
            following.terminate()
        assert following.wait(200) == 0
