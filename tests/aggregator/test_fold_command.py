"""`changeling fold`: once, following, and folding again to compare."""

import subprocess
import sys
from pathlib import Path

import pytest
from changeling_aggregator.fold import check, fold
from changeling_aggregator.store import Store
from changeling_aggregator.testing import sql
from changeling_commands.__main__ import main as run
from changeling_protocol import Calendar, EarlyEnd, Standing

from ..protocol.examples import AUTHORITY, survey
from .devices import Log, report
from .serving import eventually

START, END = 1_700_000_000, 1_700_000_480


@pytest.fixture
def log(store: Store) -> Log:
    return Log.of(store, survey(calendar=Calendar(START, 60, 8)))


def test_folding_again_comes_to_the_same(log: Log) -> None:
    """With duplicates, refusals, several streams' worth of batches, and what is not folded yet."""
    same = bytes(16)
    for number in range(30):
        id_ = same if number % 3 else None
        log.append_reports(END, [report(number % 8 + 1, number % 9, id_=id_, standing=Standing.KNOWN)])
        if number % 7 == 0:
            fold(log.store, END, closing=False)
    assert check(log.store) == []
    log.append_reports(END, [report(1)])
    assert check(log.store) == []
    fold(log.store, END + 10_000)
    assert check(log.store) == []


def test_what_is_left_of_a_pruned_log_is_folded_again(store: Store) -> None:
    """Whatever its streams have lost, at their beginning or in between."""
    log = Log.of(store, survey(calendar=Calendar(START, 60, 8), grace=100))
    for period in (1, 1, 3, 5):
        log.append_reports(START + 60 * period, [report(period)])
    fold(store, START + 302.0)
    assert check(store) == []


def test_what_was_counted_before_a_survey_was_ended_early_is_no_difference(log: Log) -> None:
    """A closing of a fast clock, of the period after which nothing counts."""
    log.append_reports(START + 60, [report(1), report(2)])
    fold(log.store, START + 60.0)
    end = EarlyEnd(log.survey.id, 1)
    with log.store.transaction() as writing:
        writing.add_early_end(end, end.signed_by(AUTHORITY))
    assert check(log.store) == []


def test_a_tally_that_the_log_does_not_give_is_found(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named with what is stored and what the log gives; the command ends with 1, and with 0 when all is well."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # of this process
    words = ["fold", "--store", str(tmp_path / "server.db"), "--check"]
    log.append_reports(END, [report(1), report(2)])
    fold(log.store, END, closing=False)
    assert run(words) == 0
    assert capsys.readouterr().out == "folding the kept log again comes to the same\n"
    sql(log.store, "UPDATE tallies SET reports = 7 WHERE node = 2")
    (difference,) = check(log.store)
    assert difference.what == "track 0, node (1, 2]"
    assert difference.stored.startswith("7 reports")
    assert difference.again.startswith("1 reports")
    assert run(words) == 1
    assert "track 0, node (1, 2]: 7 reports" in capsys.readouterr().out


def test_the_command_folds_once(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says what it did."""
    monkeypatch.setattr("signal.signal", lambda *_: None)  # of this process
    log.append_reports(END, [report(1), report(2, 200)])
    assert run(["fold", "--store", str(tmp_path / "server.db")]) == 0
    assert capsys.readouterr().out == "1 envelopes, 1 reports; refused: 1 symbol-out-of-range\n"
    assert log.tallies()[0, 1][0] == 1


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
