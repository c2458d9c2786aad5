"""What operators are told: health, which is 503 where uploads are turned away, lost or not counted; what the
doctor finds; figures for Prometheus; a log in JSON."""

import json
import os
import re
import resource
import socket
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import httpx
import pytest
from changeling_aggregator import FoldDied, StoreError, logs
from changeling_aggregator.cli import store as operators
from changeling_aggregator.cli.serve import tell_of_strangers
from changeling_aggregator.cli.store import BAD, DEGRADED, OK, examine
from changeling_aggregator.fold import FoldProcess
from changeling_aggregator.ingest import writer_for
from changeling_aggregator.server import MovableClock, ServerSettings, Service, registry_of, telling, troubles_of
from changeling_aggregator.server import service as service_room
from changeling_aggregator.store import AtRest, KeptTime, Store, TokenScope, database
from changeling_aggregator.testing import sql
from changeling_aggregator.testing.serving import free_port
from changeling_commands import main as run
from changeling_protocol import Calendar, EarlyEnd, UnixSeconds
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from prometheus_client.parser import text_string_to_metric_families

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import Log, body, envelope, publish_new_key, report
from .serving import TOKEN, ServerHere, ServerProcess, eventually, in_process, survey_path

NOW, DAY = 1_800_000_000, 86_400
AT_REST = AtRest(bytes(32))


def service_at(store, now=NOW):
    """A server on a store, whose clock stands."""
    return Service(store, ServerSettings(PINNED, MovableClock(float(now))))


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

    The log has a line when it begins, of a defect with its traceback, and one when it is over.
    """
    monkeypatch.setattr("changeling_aggregator.server.service.EVERY_SECONDS", 0.05)
    monkeypatch.setattr(logs, "OUTAGE_SECONDS", 0.5)
    folding = service_room.fold

    def broken(*_, **__):
        raise error

    with in_process(service_at(store)) as get:
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
        # Other servers in this process have folded by the same function: each of them has said so once, too.
        assert eventually(lambda: caplog.messages.count("the fold works again"), caplog.messages.count(logged[1]))


def test_a_fold_that_dies_as_it_was_asked_for_is_an_answer_and_a_line(store, caplog):
    """503, to come again, and no traceback: its process is started again by itself."""
    process = Mock(spec=FoldProcess)
    process.fold.side_effect = FoldDied("the process that folds has died, and is started again")
    with store.transaction() as writing:
        writing.add_token("token", "me", [TokenScope.FOLD], UnixSeconds(0.0))
    with in_process(Service(store, ServerSettings(PINNED, MovableClock(NOW)), process)) as ask:
        answer = ask("/v1/fold", {"authorization": "Bearer token"}, "POST")
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert "is started again" in answer.json()["detail"]
    assert "retry-after" in answer.headers
    told = [
        each for each in caplog.messages if each.startswith("a fold that was asked for failed: the process that folds")
    ]
    assert len(told) == 1
    assert "Traceback" not in caplog.text


def told(store, now):
    """The troubles of a server on this store, at a time: their severity by name."""
    service = service_at(store, now)
    service.committer.start()
    service.folding.start()
    troubles = {trouble.name: trouble.severity.value for trouble in troubles_of(service)}
    service.committer.close()
    service.folding.close()
    return troubles


def test_health_names_every_trouble_and_its_status_is_the_worst(store):
    """What is only to be known leaves it ok. A survey that is not run is told."""
    Log.of(store, survey(calendar=Calendar(NOW, 60, 8)))
    with in_process(service_at(store)) as get:
        told_first = get("/readyz")
        assert (told_first.status_code, told_first.json()["status"]) == (200, "ok")
        assert [(each["name"], each["severity"]) for each in told_first.json()["troubles"]] == [("keys-in-clear", "ok")]
        assert told_first.json()["troubles"][0]["detail"]
    with store.transaction() as writing:
        writing.add_survey(b"survey of 16 by.", b"not a survey")
    assert told(store, NOW)["survey"] == "degraded"


WELL = None
LIVES_OF_KEYS = {
    "14 days before the last ends, while a survey takes answers, its grace included": (
        (301, (0, 200)),
        {"degraded": (-1, 186.1, 199.9), "bad": (200.1, 307.9), WELL: (0, 185.9, 308.1)},
    ),
    "none is needed beyond the last survey": ((8, (0, 15)), {WELL: (0, 14.9, 15.1, 400)}),
    "one of a month by itself": ((1000, (0, 30)), {"degraded": (28,)}),
    "one that follows is as good as a longer one, and a gap is none": (
        (1000, (0, 30), (30, 60), (61, 90)),
        {"degraded": (58, 60, 89), "bad": (60.5, 91), WELL: (28, 30, 61)},
    ),
}
"""How many days a survey has, when its sealing keys begin and end, and how bad their state is on which days."""


@pytest.mark.parametrize(("life", "days"), LIVES_OF_KEYS.values(), ids=LIVES_OF_KEYS)
def test_health_degrades_before_the_last_key_expires_and_is_bad_without_one(store, life, days):
    """Before a survey begins there is time: a warning. None is needed by a server without a survey."""
    assert "keys" not in told(store, NOW)
    periods, first, *more = life
    asked = survey(calendar=Calendar(NOW, DAY, periods), grace=7 * DAY)
    Log.of(store, asked, begins=NOW + first[0] * DAY, expires=NOW + first[1] * DAY)
    with store.transaction() as writing:
        for begins, expires in more:
            publish_new_key(writing, NOW + begins * DAY, NOW + expires * DAY)
    found = {day: told(store, NOW + day * DAY).get("keys") for each in days.values() for day in each}
    assert found == {day: severity for severity, each in days.items() for day in each}


def test_a_server_says_how_many_surveys_no_given_authority_signed(store, caplog):
    """A line at the start, and none where one of those given signed each."""
    Log.of(store, survey(calendar=Calendar(NOW, 60, 8)))
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    tell_of_strangers(service_at(store), [other, *PINNED])
    assert caplog.messages == []
    tell_of_strangers(service_at(store), [other])
    [said] = caplog.messages
    assert "signed 1 of the store's 1 surveys" in said


def test_a_store_without_its_file_is_bad(tmp_path, monkeypatch):
    """Gone, replaced, not writable, or on a full disk: what SQLite goes on writing to would be lost or is refused."""
    path = tmp_path / "server.db"
    store = Store.open(path, AT_REST)
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


def findings(path, now=NOW + DAY, at_rest=AT_REST):
    return list(examine(str(path), at_rest, [], now))


def wrong(path, now=NOW + DAY, at_rest=AT_REST):
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
    store = Store.open(path, AT_REST)
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


def test_a_segment_that_is_lost_or_damaged_is_named_before_it_is_counted(log, path, tmp_path):
    """By its name and size alone."""
    place = tmp_path / "segments"
    upload = body(envelope(log.survey, log.key, [report(1)]))
    writer = writer_for(log.store, str(place))
    for _ in range(2):
        writer.write([(log.survey.id, upload)], Counter(), 1000 * NOW)
    with log.store.view() as view:
        first, second = (place / each.name for each in view.segments())
    assert wrong(path, NOW + 30) == {}
    first.rename(tmp_path / "kept")
    second.write_bytes(b"short")
    assert wrong(path, NOW + 30) == {"segments": BAD}
    told = [each for each in findings(path, NOW + 30) if each.severity == BAD]
    assert {(each.detail.split(",")[0], each.detail.split()[-3]) for each in told} == {
        (first.name, "gone"),
        (second.name, "damaged"),
    }
    assert all("A segment's file is lost" in each.remedy for each in told)
    log.store.close()


def test_a_survey_that_was_ended_or_has_a_successor_may_end(log, path):
    """Nobody has to publish anything then."""
    near = survey(calendar=Calendar(NOW, DAY, 10))
    with log.store.transaction() as writing:
        writing.add_survey(near.id, near.signed_by(AUTHORITY))
    assert wrong(path) == {"survey": DEGRADED}
    after = survey(calendar=Calendar(NOW + 10 * DAY, DAY, 300), follows=near.id)
    with log.store.transaction() as writing:
        writing.add_survey(after.id, after.signed_by(AUTHORITY))
    assert wrong(path) == {}
    with log.store.transaction() as writing:
        end = EarlyEnd(log.survey.id, 10)
        writing.add_early_end(end, end.signed_by(AUTHORITY))
    assert wrong(path) == {}
    assert f"{log.survey.id.hex()} is ended early, in 9.0 days" in {each.detail for each in findings(path)}
    log.store.close()


def test_a_key_in_the_clear_is_degraded_where_there_is_a_store_key(log, path):
    """Of both kinds of keys; without a store key it is only to be known."""
    log.store.close()
    with closing(Store.open(path)) as store, store.transaction() as writing:
        writing.make_results_key()
    assert wrong(path) == {"keys": DEGRADED}
    assert {each.remedy for each in findings(path) if "unencrypted" in each.detail} == {
        "restart the servers with the store key, or run `changeling keys reencrypt`"
    }
    assert "keys" not in wrong(path, at_rest=AtRest())


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
    assert list(examine("postgresql://nobody@127.0.0.1:1/none", AT_REST, [], NOW))[-1].severity == BAD


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


def figures_of(families):
    """Every sample, by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.heavy
def test_figures_and_log_tell_what_happened_and_nothing_of_anybody(tmp_path):
    """Uploads, bytes, refusals by reason, commits and latencies, as sent. The log is JSON line by line and tells each
    publishing, denial and fold; no address, id of a closing, envelope or token is in log or figures.
    """
    address, log = f"127.0.0.1:{free_port()}", tmp_path / "log"
    with ServerProcess(tmp_path, "--movable-clock", "--metrics-address", address, log=log) as server:
        server.move_clock(NOW)
        key, asked = server.key, server.new_survey()
        server.move_clock(asked.calendar.time(1) + 1)
        ids = [os.urandom(16) for _ in range(2)]
        sent = [body(envelope(asked, key, [report(1, id_=id_)]), b"rubbish") for id_ in [*ids, ids[0]]]
        for upload in sent:
            server.http.post("/v1/uploads", content=upload).raise_for_status()
        server.fold()
        for _ in range(30):
            denied = server.http.put(survey_path(asked), content=b"", headers={"authorization": "Bearer wrong secret"})
            assert denied.status_code == 401
        server.http.get("/v1/surveys/nothing/there")
        shown = httpx.get(f"http://{address}/metrics", timeout=100).text
        text = log.read_text()
    figures = figures_of(text_string_to_metric_families(shown))

    def labelled(name, /, **labels):
        return figures[name, frozenset(labels.items())]

    assert labelled("changeling_requests_total", route="/v1/uploads", method="POST", status="200") == 3
    assert labelled("changeling_requests_total", route="/v1/surveys/{survey}", method="PUT", status="401") == 30
    assert labelled("changeling_requests_total", route="other", method="GET", status="404") == 1
    assert labelled("changeling_request_seconds_count", route="/v1/uploads") == 3
    assert labelled("changeling_upload_bytes_total") == sum(map(len, sent))
    assert labelled("changeling_refused_total", reason="duplicate") == 1
    assert labelled("changeling_appended_total") >= 3
    assert labelled("changeling_commit_seconds_count") >= 1
    assert labelled("changeling_unfolded") == labelled("changeling_fold_lag_seconds") == 0
    assert labelled("changeling_fold_failures") == 0
    assert labelled("changeling_store_readable") == 1
    assert labelled("changeling_trouble", name="keys-in-clear") == 0
    assert 0 < labelled("changeling_store_bytes") < labelled("changeling_store_most_bytes")
    assert labelled("changeling_unfolded_most") == labelled("changeling_store_most_bytes") // 1024
    assert labelled("changeling_disk_free_bytes") > 0
    assert labelled("changeling_survey_end_seconds", survey=asked.id.hex()) == asked.calendar.time(8)
    assert labelled("changeling_keys_end_seconds") > NOW

    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    told = [line["event"] for line in lines]
    routes = [line["route"] for line in lines if line["event"] == "published"]
    assert routes == ["/v1/clock", "/v1/keys", "/v1/surveys/{survey}", "/v1/clock"]
    assert asked.id.hex() in [line.get("survey") for line in lines]
    assert sum(line["reports"] for line in lines if line["event"] == "folded") == 2
    assert sum(line["refused"].get("duplicate", 0) for line in lines if line["event"] == "folded") == 1
    assert told.count("denied") == 1, "and not thirty: strangers fill no log"
    for secret in ("127.0.0.1", "wrong secret", TOKEN, *(id_.hex() for id_ in ids), key.id.hex()):
        assert secret not in text, secret
    for secret in ("wrong secret", TOKEN, *(id_.hex() for id_ in ids)):
        assert secret not in shown, secret


@pytest.mark.heavy
def test_every_line_of_the_log_is_json_from_the_first_to_the_last(tmp_path):
    """Of a server that doubts its clock at the start, and whose processes that open uploads have started and ended."""
    now, said = time.time(), tmp_path / "log"
    with ServerProcess(tmp_path, log=said) as server:
        pass
    with closing(Store.open(server.store_path)) as store:
        log = Log.of(store, survey())
        with store.transaction() as writing:
            writing.keep_time(KeptTime(int(1000 * (now - 3 * 3600)), False))
        log.append(now, *[bytes(300)] * 3000)
        with ServerProcess(tmp_path, log=said):
            assert eventually(log.unfolded, 0)
    told = [json.loads(line)["event"] for line in said.read_text().splitlines()]
    assert any(each.startswith("nothing is sealed or destroyed") for each in told)
    assert "folded" in told


def test_no_figure_of_a_survey_moves_with_uploads(store):
    """Whoever sees the figures, too, does not see which survey an upload was for: what is labelled with a survey is the
    same before and after, and nothing of it is on the public address.
    """
    log = Log.of(store, survey(calendar=Calendar(NOW, 60, 8)))
    service = service_at(store, NOW + 61)

    def of_surveys():
        figures, id_ = figures_of(registry_of(service).collect()), log.survey.id.hex()
        return {key: value for key, value in figures.items() if id_ in dict(key[1]).values()}

    with in_process(service) as ask:
        before = of_surveys()
        ask("/v1/uploads", method="POST", content=body(envelope(log.survey, log.key, [report(1)])))
        assert service.folding.fold_now().reports == 1
        assert of_surveys() == before
        assert before
        assert ask("/metrics").status_code == 404


def test_figures_are_told_while_the_store_is_not_there(store):
    """Without those of the store. `/healthz` is 200 where `/readyz` is 503: to start it again would not help."""
    service = service_at(store)
    with in_process(service) as ask:
        assert ask("/readyz").status_code == 200
        path = Path(store._database.engine.url.database)
        path.rename(path.with_name("elsewhere"))
        assert (ask("/healthz").json(), ask("/readyz").status_code) == ({"alive": True}, 503)
        assert figures_of(registry_of(service).collect())["changeling_trouble", frozenset({("name", "store")})] == 2
        store._database.engine.dispose()
        store.view = lambda: (_ for _ in ()).throw(OSError("gone"))
        names = {name: value for (name, _), value in figures_of(registry_of(service).collect()).items()}
        assert names["changeling_store_readable"] == 0
        assert "changeling_trouble" in names
        assert "changeling_unfolded" not in names


def test_figures_are_told_at_an_address_of_their_own_under_the_machines_own_names_alone(store):
    """So that no page in an operator's browser, whose name leads here, reads them. One that is taken is named."""
    service = service_at(store)
    with telling(registry_of(service), "127.0.0.1", 0) as port:
        for host in ("127.0.0.1", f"localhost:{port}", "[::1]:1", socket.gethostname()):
            assert httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"host": host}).status_code == 200
        for host in ("attacker.example", f"attacker.example:{port}", "", "[", "127.0.0.1.attacker.example"):
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"host": host})
            assert (answer.status_code, b"changeling" in answer.content) == (421, False)
        with (
            pytest.raises(OSError, match=re.escape(f"127.0.0.1, port {port}, for metrics")),
            telling(registry_of(service), "127.0.0.1", port),
        ):
            pass
