"""A fold that is killed anywhere loses nothing and counts nothing twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from changeling_aggregator.store import Store
from changeling_protocol import Calendar

from ..protocol.examples import survey
from .devices import Log, report

START, END = 1_800_000_000, 1_800_000_480


@pytest.mark.heavy
def test_a_fold_killed_at_any_statement_counts_each_closing_once(store: Store, tmp_path: Path) -> None:
    """For every SQL statement of a fold of two batches and of the sealing after it: SIGKILL there, open again, fold.

    All agree with no kill. What each kill leaves is a whole number of batches; each part is seen interrupted.
    """
    log = Log.of(store, survey(calendar=Calendar(START, 60, 8)))
    same = bytes(16)
    log.append_reports(END, [report(1, 1)])
    log.append_reports(END, [report(1, 2, id_=same), report(2, 200)])
    log.append_reports(END, [report(1, 4, id_=same), report(8, 5)])
    store.close()

    killer = Path(__file__).with_name("fold_killer.py")
    arguments = [sys.executable, str(killer), str(tmp_path), str(END + 10_000), "2"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]

    final = outcomes[-1][1]
    assert final["refused"] == {"duplicate": 1, "symbol-out-of-range": 1}
    assert {node: reports for node, (reports, _) in final["tallies"].items()} == {"0/1": 2, "0/8": 1}
    assert final["attendance"] == {"0/1": [2, 2, 0], "0/2": [1, 1, 0], "0/8": [1, 1, 0]}
    assert final["runs"] == 0
    assert all(after_folding == final for _, after_folding in outcomes)
    after_kills = [after_kill["unfolded"] for after_kill, _ in outcomes]
    assert {left: after_kills.count(left) > 5 for left in after_kills} == {3: True, 1: True, 0: True}
    assert all(left["tallies"] == left["attendance"] == {} for left, _ in outcomes if left["unfolded"] == 3)
    assert {left["runs"] for left, _ in outcomes} == {0, 2, 3}
