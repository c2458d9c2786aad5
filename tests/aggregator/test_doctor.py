"""The doctor finds what is wrong with a store and around it, says what to do, and changes nothing."""

import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from changeling_aggregator.cli import store as operators
from changeling_aggregator.cli.store import BAD, DEGRADED, OK, examine
from changeling_aggregator.store import AtRest, KeptTime, Store
from changeling_aggregator.testing import sql
from changeling_commands import main as run
from changeling_protocol import Calendar

from ..protocol.examples import survey
from .devices import Log, report
from .serving import ServerHere

NOW, DAY = 1_800_000_000, 86_400
KEY = AtRest(bytes(32))


def findings(path, now=NOW + DAY, at_rest=KEY):
    return list(examine(str(path), at_rest, [], now))


def wrong(path, now=NOW + DAY, at_rest=KEY):
    """The worst of each name, of what is not well."""
    found = [each for each in findings(path, now, at_rest) if each.severity != OK]
    assert all(each.remedy for each in found)
    worst = [OK, DEGRADED, BAD]
    return {each.name: each.severity for each in sorted(found, key=lambda each: worst.index(each.severity))}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "server.db"


@pytest.fixture
def log(path):
    """A store on which nothing is wrong for two hundred days."""
    store = Store.open(path, KEY)
    log = Log.of(store, survey(calendar=Calendar(NOW, DAY, 301)), begins=NOW, expires=NOW + 200 * DAY)
    store.close()
    return log


def test_a_store_that_is_well_is_found_well_and_what_comes_soon_is_told(log, path):
    """All that it looks at has a line; days are told. Keys and surveys that end, then that no key is valid; and a log
    that nobody folds for a minute."""
    assert wrong(path) == {}
    told = {each.name: each.detail for each in findings(path)}
    assert told.keys() == {"program", "permissions", "disk", "ntp", "store", "keys", "survey", "clock", "fold"}
    assert told["keys"] == "199 days until the last one expires"
    assert told["survey"] == f"{log.survey.id.hex()} ends in 300 days"
    assert wrong(path, NOW + 190 * DAY) == {"keys": DEGRADED}
    assert wrong(path, NOW + 201 * DAY) == {"keys": BAD}
    assert wrong(path, NOW + 290 * DAY)["survey"] == DEGRADED
    log.append_reports(NOW + DAY, [report(1)])
    log.store.close()
    assert wrong(path, NOW + DAY + 30) == {}
    assert wrong(path, NOW + DAY + 90) == {"fold": BAD}


def test_clock_keys_and_surveys_of_a_store(log, path):
    """A clock behind the store's or in doubt; a key that nobody published; a survey that cannot be read."""
    with log.store.transaction() as writing:
        writing.keep_time(KeptTime(1000 * (NOW + 2 * DAY), False))
        writing.make_key()
        writing.add_survey(b"survey of 16 by.", b"not a survey")
    assert wrong(path) == {"clock": BAD, "keys": DEGRADED, "survey": DEGRADED}
    with log.store.transaction() as writing:
        writing.keep_time(KeptTime(1000 * NOW, True))
    assert wrong(path)["clock"] == BAD
    assert wrong(path, at_rest=AtRest(bytes([1] * 32)))["store-key"] == BAD
    log.store.close()


@pytest.mark.usefixtures("log")
def test_files_and_disk(path, monkeypatch):
    """Who else may read the store or a secret; a disk that fills."""
    path.chmod(0o640)
    assert wrong(path) == {"permissions": BAD}
    path.chmod(0o600)
    monkeypatch.setattr(operators, "ENOUGH_FREE_BYTES", 2**60)
    assert wrong(path) == {"disk": DEGRADED}
    monkeypatch.setattr(operators.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert wrong(path) == {"disk": BAD}


def test_what_is_no_store_is_named_and_none_is_made(tmp_path):
    """Nothing there, a text, another version, a database that cannot be reached."""
    assert wrong(tmp_path / "server.db") == {"store": BAD}
    assert not (tmp_path / "server.db").exists()
    (tmp_path / "text").write_text("no store" * 1000)
    assert wrong(tmp_path / "text")["store"] == BAD
    with closing(Store.open(tmp_path / "other.db")) as store:
        sql(store, "UPDATE store SET version = 9999")
    assert wrong(tmp_path / "other.db") == {"store": BAD}
    assert list(examine("postgresql://nobody@127.0.0.1:1/none", KEY, [], NOW))[-1].severity == BAD


def test_the_command_looks_at_a_running_server_and_its_settings(tmp_path, capsys):
    """With the server's own file; the exit code is 1 while something is wrong, as with a clock of another time."""
    key, settings = tmp_path / "key", tmp_path / "server.toml"
    key.write_text("00" * 32)
    settings.write_text(f'store = "{tmp_path}/server.db"\nport = 8080\nstore-key-file = "{key}"\n')
    with ServerHere(tmp_path) as server:
        server.move_clock(int(time.time()))
        words = ["doctor", "--settings", str(settings), "--server", server.url]
        assert run(words) == 1
        assert f"others may read or write {key} -> chmod 600 {key}" in capsys.readouterr().out
        key.chmod(0o600)
        assert run(words) == 0
        told = capsys.readouterr().out
        assert "ok       server: it says that it is ok" in told
        server.move_clock(int(time.time()) + 3600)
        assert run(words) == 1
        assert "clock: the server's is +3" in capsys.readouterr().out
    assert run(words) == 1
    assert "does not answer" in capsys.readouterr().out
