"""Health tells what is wrong: 503 where uploads are turned away, lost or not counted."""

import os
import resource

import pytest
from changeling_aggregator import StoreError
from changeling_aggregator.server import MovableClock, ServerSettings, Service, troubles_of
from changeling_aggregator.server import service as service_room
from changeling_aggregator.store import AtRest, Store, database
from changeling_protocol import Calendar, SealingKey

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import Log, body, envelope, report
from .serving import ServerProcess, eventually, in_process

NOW, DAY = 1_800_000_000, 86_400


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (StoreError("no space left"), ("WARNING", "the fold failed and will be tried again: no space left", False)),
        (KeyError("a defect"), ("ERROR", "the fold failed and will be tried again", True)),
    ],
    ids=["store", "defect"],
)
def test_a_fold_that_fails_again_and_again_is_told(store, monkeypatch, caplog, error, logged):
    """503 after the third failure in a row; ok again with the first that succeeds. Its age is that of the last.

    The log has a line of each, and of a defect its traceback.
    """
    monkeypatch.setattr("changeling_aggregator.server.service.EVERY_SECONDS", 0.05)
    folding = service_room.fold

    def broken(*_, **__):
        raise error

    service = Service(store, ServerSettings(PINNED, lambda: 1_800_000_000.0))
    with in_process(service) as get:
        assert get("/readyz").json()["status"] == "ok"
        monkeypatch.setattr("changeling_aggregator.server.service.fold", broken)
        assert eventually(lambda: get("/readyz").status_code, 503)
        told = get("/readyz").json()
        assert told["status"] == "bad"
        assert told["troubles"][0] == {"name": "fold", "severity": "bad", "detail": "the fold fails: the log says why"}
        assert told["fold_failures"] >= 3
        assert told["fold_age"] > 0
        failed = caplog.records[0]
        assert (failed.levelname, failed.getMessage(), failed.exc_info is not None) == logged
        monkeypatch.setattr("changeling_aggregator.server.service.fold", folding)
        assert eventually(lambda: get("/readyz").json()["status"], "ok")


def told(store, now):
    """The troubles of a server on this store, at a time: their severity by name."""
    service = Service(store, ServerSettings(PINNED, MovableClock(now)))
    service.committer.start()
    service.folding.start()
    troubles = {trouble.name: trouble.severity.value for trouble in troubles_of(service)}
    service.committer.close()
    service.folding.close()
    return troubles


def test_health_names_every_trouble_and_its_status_is_the_worst(store):
    """What is only to be known leaves it ok. A survey that is not run is told."""
    Log.of(store, survey(calendar=Calendar(NOW, 60, 8)))
    with in_process(Service(store, ServerSettings(PINNED, MovableClock(NOW)))) as get:
        told_first = get("/readyz")
        assert (told_first.status_code, told_first.json()["status"]) == (200, "ok")
        assert [(each["name"], each["severity"]) for each in told_first.json()["troubles"]] == [("keys-in-clear", "ok")]
        assert told_first.json()["troubles"][0]["detail"]
    with store.transaction() as writing:
        writing.add_survey(b"survey of 16 by.", b"not a survey")
    assert told(store, NOW)["survey"] == "degraded"


def test_health_degrades_before_the_last_key_expires_and_is_bad_without_one(store):
    """14 days before, while a survey takes answers, its grace included. Before it begins there is time: a warning. None
    is needed by a server without a survey."""
    assert "keys" not in told(store, NOW)
    Log.of(store, survey(calendar=Calendar(NOW, DAY, 301), grace=7 * DAY), begins=NOW, expires=NOW + 200 * DAY)
    days = {-1: "degraded", 0: None, 185.9: None, 186.1: "degraded", 199.9: "degraded", 200.1: "bad", 307.9: "bad"}
    for day, severity in {**days, 308.1: None}.items():
        assert told(store, NOW + day * DAY).get("keys") == severity, day


def test_no_key_is_needed_beyond_the_last_survey(store):
    """By one that is as long as the survey."""
    Log.of(store, survey(calendar=Calendar(NOW, DAY, 8), grace=7 * DAY), begins=NOW, expires=NOW + 15 * DAY)
    for day in (0, 14.9, 15.1, 400):
        assert "keys" not in told(store, NOW + day * DAY), day


def test_a_key_that_follows_is_as_good_as_a_longer_one(store):
    """A warning is of the last of those that follow, through shared seconds, without a gap; a gap is none of them."""
    Log.of(store, survey(calendar=Calendar(NOW, DAY, 1000)), begins=NOW, expires=NOW + 30 * DAY)
    assert told(store, NOW + 28 * DAY)["keys"] == "degraded"
    with store.transaction() as writing:
        for begins, expires in ((30, 60), (61, 90)):
            key = SealingKey(writing.make_key(), NOW + begins * DAY, NOW + expires * DAY)
            writing.publish_key(key, key.signed_by(AUTHORITY))
    days = {28: None, 30: None, 58: "degraded", 60: "degraded", 60.5: "bad", 61: None, 89: "degraded", 91: "bad"}
    for day, severity in days.items():
        assert told(store, NOW + day * DAY).get("keys") == severity, day


def test_a_store_without_its_file_is_bad(tmp_path, monkeypatch):
    """Gone, replaced, not writable, or on a full disk: what SQLite goes on writing to would be lost or is refused."""
    path = tmp_path / "server.db"
    store = Store.open(path, AtRest(bytes(32)))
    assert told(store, NOW) == {}
    path.rename(tmp_path / "moved.db")
    assert told(store, NOW) == {"store": "bad"}
    path.write_bytes((tmp_path / "moved.db").read_bytes())
    assert told(store, NOW) == {"store": "bad"}
    (tmp_path / "moved.db").rename(path)
    assert told(store, NOW) == {}
    with monkeypatch.context() as patched:
        patched.setattr(database, "LEAST_FREE_BYTES", 2**60)
        assert told(store, NOW) == {"store": "bad"}
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert told(store, NOW) == {"store": "bad"}
    store.close()


@pytest.mark.heavy
def test_health_is_bad_while_uploads_are_turned_away(tmp_path):
    """While no file can grow nothing is acknowledged: 503, as health is, and to come again. Then the same counts."""
    with ServerProcess(tmp_path, "--movable-clock") as server:
        server.move_clock(NOW)
        key, asked = server.new_key(), server.new_survey()
        server.move_clock(asked.calendar.time(1) + 1)
        upload = envelope(asked, key, [report(1)])
        limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, limit[1]))
        response = server.http.post("/v1/uploads", content=body(upload))
        assert (response.status_code, response.json()["code"]) == (503, "overloaded")
        assert int(response.headers["retry-after"]) > 0
        told = server.http.get("/readyz")
        assert (told.status_code, told.json()["troubles"][0]["name"]) == (503, "uploads")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
        assert eventually(lambda: server.http.get("/readyz").json()["status"], "ok"), "though nobody sent anything"
        assert server.upload(upload) == []
        server.move_clock(asked.calendar.time(1) + 16)
        assert server.reports(asked) == {(0, 1): 1}
