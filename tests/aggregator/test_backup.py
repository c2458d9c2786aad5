"""A backup holds what was counted at one moment, and a store restored from it counts nothing twice."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from changeling_aggregator import StoreError
from changeling_aggregator.fold import fold
from changeling_aggregator.store import ID_BYTES, SnapshotProgress, Store, back_up, opened_backup, restore
from changeling_aggregator.testing import sql, tallies_in
from changeling_commands import main as run
from changeling_protocol import Refusal, Survey
from sqlalchemy import text

from ..contracts.stores import PLACES, Place
from ..protocol.examples import survey as example
from .devices import START, SURVEYS, Log, envelope, report
from .serving import Cli, ServerHere

NewPlace = Callable[[], Place]


@pytest.fixture(params=PLACES)
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> NewPlace:
    """Gives places for stores on one kind of database."""
    files = (Place(str(tmp_path / f"{number}.db")) for number in count())
    return lambda: next(files) if request.param == "sqlite" else PLACES[request.param](request)


def test_a_restored_store_counts_on_and_nothing_twice(new_place: NewPlace, tmp_path: Path, cli: Cli) -> None:
    """A server before and one after. What was counted before the backup is a duplicate when it is sent again, although
    it is sealed to another key; what was counted after the backup counts again, once; what was sealed stays so.
    """
    old, new = new_place().name, new_place().name
    with ServerHere(tmp_path, store=old) as server:
        server.move_clock(START)
        key, survey = server.key, server.new_survey(grace=60)
        sealed, before, after = os.urandom(16), os.urandom(16), os.urandom(16)
        server.move_clock(survey.calendar.time(1) + 1)
        server.upload(envelope(survey, key, [report(1, id_=sealed)]))
        server.move_clock(survey.calendar.time(3) + 1)
        first = envelope(survey, key, [report(3, id_=before)])
        server.upload(first)
        server.fold()
        assert "without 0 uploads" in cli("backup", "--store", old, "-o", "store.backup")
        server.upload(envelope(survey, key, [report(3, id_=after)]))
        server.fold()
        assert reports(old, survey) == {(0, 1): 1, (0, 3): 2}
        time = server.now

    told = cli("restore", "store.backup", "--store", new)
    assert "1 closings that were open" in told
    assert "private halves" in told
    (tmp_path / "restored").mkdir()
    with ServerHere(tmp_path / "restored", store=new) as server:
        server.move_clock(time)
        assert reports(new, survey) == {(0, 1): 1, (0, 3): 1}
        assert server.upload(first) == [[0, Refusal.UNKNOWN_KEY]]
        fresh = server.new_key()
        for id_, node in ((sealed, 1), (before, 3), (after, 3), (after, 3)):
            assert server.upload(envelope(survey, fresh, [report(node, id_=id_)])) == []
        assert server.status(survey)["refused"] == {"duplicate": 2, "late": 1, "unknown-key": 1}
        assert reports(new, survey) == {(0, 1): 1, (0, 3): 2}


def reports(place: str, survey: Survey) -> dict[tuple[int, int], int]:
    """How many reports the tallies have, by track and node: more than readers are shown."""
    with closing(Store.open(place)) as store, store.view() as view:
        return {key: tally.reports for key, tally in tallies_in(view, survey).items()}


@pytest.mark.heavy
def test_a_backup_under_load_is_one_moment(new_place: NewPlace, tmp_path: Path) -> None:
    """As many reports in the tallies as there are ids, each time, while others append and fold."""
    place, seen = new_place(), set()

    def append_and_fold() -> None:
        with closing(place.open()) as opened:
            log = Log.of(opened, example())
            for _ in range(40):
                log.append(START + 60, *(envelope(log.survey, log.key, [report(1)]) for _ in range(4)))
                fold(opened, START + 60.0, closing=False)

    with ThreadPoolExecutor(1) as pool, closing(place.open()) as store:
        working = pool.submit(append_and_fold)
        while not working.done():
            path = tmp_path / "one.backup"
            back_up(store, path, START)
            with opened_backup(path) as backup:
                ids = sum(len(row.ids) // ID_BYTES for row in backup.execute(text("SELECT ids FROM runs")))
                tallies = backup.execute(text("SELECT reports FROM tallies WHERE track >= 0"))
                reports = sum(row.reports for row in tallies)
            assert ids == reports
            seen.add(ids)
            path.unlink()
        working.result()
    assert len(seen) > 1, "somebody was folding meanwhile"


def test_neither_private_keys_nor_envelopes_are_in_a_backup(log: Log, tmp_path: Path) -> None:
    """None of them anywhere in the file, which its owner alone can read."""
    path, sent = tmp_path / "store.backup", envelope(log.survey, log.key, [report(1)])
    log.append(START + 60, sent)
    ((private,),) = sql(log.store, "SELECT private FROM keys")
    back_up(log.store, path, START)
    content = path.read_bytes()
    assert [part in content for part in (private, sent[32:64], log.key.id)] == [False, False, True]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_backup_goes_into_a_new_store_alone(new_place: NewPlace, tmp_path: Path) -> None:
    """A store that anybody has begun to use is refused. A stream after a restore has a new number."""
    path = tmp_path / "store.backup"
    with closing(new_place().open()) as store, closing(new_place().open()) as target:
        streams = [store.open_stream() for _ in range(3)]
        back_up(store, path, START)
        with opened_backup(path) as backup:
            restore(backup, target)
        assert target.open_stream() not in streams
        with opened_backup(path) as backup, pytest.raises(StoreError, match="new store"):
            restore(backup, target)


def test_what_a_restored_store_shows_has_revisions_that_nobody_has_seen(new_place: NewPlace, tmp_path: Path) -> None:
    """Beyond all that the store may have made after the backup, and another for each that is restored from it."""
    path, survey = tmp_path / "store.backup", SURVEYS[0]
    with closing(new_place().open()) as store:
        with store.transaction() as writing:
            writing.add_survey(survey, b"signed")
            writing.put_snapshots(survey, SnapshotProgress(revision=7), {})
        back_up(store, path, START)
    seen = set()
    for _ in range(2):
        with closing(new_place().open()) as target, opened_backup(path) as backup:
            restore(backup, target)
            with target.view() as view:
                seen.add(view.surveys()[survey].looked.revision)
    assert len(seen) == 2
    assert min(seen) > 10**6


def test_what_is_no_backup_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store, a text, a file that broke off, one of another version; and no server starts on a backup."""
    store, path = tmp_path / "server.db", tmp_path / "store.backup"
    with closing(Store.open(store)) as opened:
        back_up(opened, path, START)
        with pytest.raises(FileExistsError):
            back_up(opened, path, START)
    (tmp_path / "text").write_text("no backup" * 1000)
    (tmp_path / "short").write_bytes(path.read_bytes()[:-5000])
    other = shutil.copy(path, tmp_path / "other")
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE backup SET version = 9999")
    for name, said in (("server.db", "no backup"), ("text", "no backup"), ("short", "damaged"), ("other", "9999")):
        assert run(["restore", str(tmp_path / name), "--store", str(tmp_path / "new.db")]) == 1
        assert said in capsys.readouterr().err, name
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(StoreError, match="is a backup"):
        Store.open(path)


def test_a_backup_that_fails_leaves_no_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is half written goes, so that nobody takes it for a backup."""
    monkeypatch.setattr("changeling_aggregator.store.backups._read", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        back_up(store, tmp_path / "store.backup", START)
    assert not list(tmp_path.glob("store.backup*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_makes_is_the_folders_owners(tmp_path: Path) -> None:
    """A store, its locks, a backup and what is restored of it: a server that is not root goes on with them."""
    os.chown(tmp_path, 12345, 54321)
    with closing(Store.open(str(tmp_path / "server.db"))) as store:
        back_up(store, tmp_path / "one.backup", 1_000)
    assert run(["restore", str(tmp_path / "one.backup"), "--store", str(tmp_path / "new.db")]) == 0
    owners = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in tmp_path.iterdir()}
    assert {"server.db", "one.backup", "new.db"} <= owners.keys()
    assert set(owners.values()) == {(12345, 54321)}
