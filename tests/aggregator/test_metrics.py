"""What operators are told of a running server: figures for Prometheus, a log in JSON, two paths for probes."""

import json
import os
import re
import socket
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import MovableClock, ServerSettings, Service, registry_of, telling
from changeling_aggregator.testing.serving import free_port
from changeling_protocol import Calendar
from prometheus_client.parser import text_string_to_metric_families

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report
from .serving import TOKEN, ServerProcess, in_process, survey_path

NOW = 1_800_000_000


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


def test_no_figure_of_a_survey_moves_with_uploads(store):
    """Whoever sees the figures, too, does not see which survey an upload was for: what is labelled with a survey is the
    same before and after, and nothing of it is on the public address.
    """
    log = Log.of(store, survey(calendar=Calendar(NOW, 60, 8)))
    service = Service(store, ServerSettings(PINNED, MovableClock(NOW + 61.0)))

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
    service = Service(store, ServerSettings(PINNED, MovableClock(NOW)))
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
    service = Service(store, ServerSettings(PINNED, MovableClock(NOW)))
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
