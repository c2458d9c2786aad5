"""What operators type does on PostgreSQL what it does on a file, from keys to a backup that goes back."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from changeling_aggregator.store import Store
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_commands.__main__ import main as run
from changeling_protocol import Calendar

from ..protocol.examples import survey
from .devices import Log, report
from .serving import Cli


def test_every_command_for_a_store_works_on_postgresql(
    postgresql: PostgreSQL, tmp_path: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    """keys, fold, fold --check, doctor, backup and restore, token and store, one after the other."""
    url, other = postgresql.new(), postgresql.new()
    at = ("--store", url)
    (tmp_path / "store.key").write_text("ab" * 32)
    now = int(time.time())
    log = Log.of(Store.open(url), survey(calendar=Calendar(now - 90, 60, 8)))
    for _ in range(2):
        log.append_reports(now, [report(1, 2)])
    log.store.close()
    cli("keys", "new", *at, "-o", "key.request")
    assert cli("keys", "list", *at).count("in the clear") == 2
    assert "2 private keys" in cli("keys", "reencrypt", *at, "--new-store-key-file", "store.key")
    assert cli("keys", "list", *at).count("encrypted") == 2
    assert run(["fold", *at]) == 1
    assert "encrypted" in capsys.readouterr().err
    keyed = (*at, "--store-key-file", "store.key")
    assert cli("fold", *keyed).startswith("2 envelopes, 2 reports; refused: none")
    assert "comes to the same" in cli("fold", *keyed, "--check")
    cli("token", "new", *at, "--name", "me", "--scope", "read")
    assert " me " in cli("token", "list", *at)
    run(["doctor", *keyed])
    found = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok") and "store: schema version" in line for line in found)
    assert not [line for line in found if "store-key" in line]
    assert "0 uploads" in cli("backup", *at, "-o", "kept.backup")
    assert "is what the store was at" in cli("restore", "kept.backup", "--store", other)
    assert "schema version" in cli("store", "version", "--store", other)
    restored = replace(log, store=Store.open(other))
    assert restored.tallies()[0, 1][0] == 2
    restored.store.close()
