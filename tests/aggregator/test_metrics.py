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
from prometheus_client.parser import text_string_to_metric_families

from ..protocol.examples import PINNED
from .devices import body, envelope, report
from .serving import TOKEN, ServerProcess, survey_path

NOW = 1_800_000_000
Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def families(address):
    return list(
        text_string_to_metric_families(httpx.get(f"http://{address}/metrics", timeout=100).raise_for_status().text)
    )


class Watched(ServerProcess):
    """A server that Prometheus may ask, and whose log is kept."""

    def __init__(self, folder):
        self.address, self.log = f"127.0.0.1:{free_port()}", folder / "log"
        super().__init__(folder, "--movable-clock", "--metrics-address", self.address, log=self.log)

    def figures(self):
        """Every sample, by its name and labels."""
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families(self.address)
            for sample in family.samples
        }


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Of which the first test knows all that has come to it, and the last takes the store away."""
    with Watched(tmp_path_factory.mktemp("watched")) as server:
        server.move_clock(NOW)
        yield server


@pytest.mark.heavy
def test_figures_and_log_tell_what_happened_and_nothing_of_anybody(watched):
    """Uploads, bytes, refusals by reason, commits and latencies, as sent. The log is JSON line by line and tells each
    publishing, denial and fold; no address, id of a closing, envelope or token is in log or figures.
    """
    server = watched
    key, survey = server.key, server.new_survey()
    server.move_clock(survey.calendar.time(1) + 1)
    ids = [os.urandom(16) for _ in range(2)]
    sent = [body(envelope(survey, key, [report(1, id_=id_)]), b"rubbish") for id_ in [*ids, ids[0]]]
    for upload in sent:
        server.http.post("/v1/uploads", content=upload).raise_for_status()
    server.fold()
    for _ in range(30):
        denied = server.http.put(survey_path(survey), content=b"", headers={"authorization": "Bearer wrong secret"})
        assert denied.status_code == 401
    server.http.get("/v1/surveys/nothing/there")
    figures = server.figures()
    shown = httpx.get(f"http://{server.address}/metrics", timeout=100).text

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
    assert labelled("changeling_survey_end_seconds", survey=survey.id.hex()) == survey.calendar.time(8)
    assert labelled("changeling_keys_end_seconds") > NOW

    text = server.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    told = [line["event"] for line in lines]
    routes = [line["route"] for line in lines if line["event"] == "published"]
    assert routes == ["/v1/clock", "/v1/keys", "/v1/surveys/{survey}", "/v1/clock"]
    assert survey.id.hex() in [line.get("survey") for line in lines]
    assert sum(line["reports"] for line in lines if line["event"] == "folded") == 2
    assert sum(line["refused"].get("duplicate", 0) for line in lines if line["event"] == "folded") == 1
    assert told.count("denied") == 1, "and not thirty: strangers fill no log"
    for secret in ("127.0.0.1", "wrong secret", TOKEN, *(id_.hex() for id_ in ids), key.id.hex()):
        assert secret not in text, secret
    for secret in ("wrong secret", TOKEN, *(id_.hex() for id_ in ids)):
        assert secret not in shown, secret


def test_no_figure_of_a_survey_moves_with_uploads(watched):
    """Whoever sees the figures, too, does not see which survey an upload was for: what is labelled with a survey is the
    same before and after, and nothing of it is on the public address.
    """
    server = watched
    key, survey = server.key, server.new_survey()
    server.move_clock(survey.calendar.time(1) + 1)

    def of_surveys():
        return {key: value for key, value in server.figures().items() if survey.id.hex() in dict(key[1]).values()}

    before = of_surveys()
    server.upload(envelope(survey, key, [report(1)]))
    server.fold()
    assert of_surveys() == before
    assert before
    assert server.http.get("/metrics").status_code == 404


def test_figures_are_told_while_the_store_is_not_there(store):
    """Without those of the store."""
    service = Service(store, ServerSettings(PINNED, MovableClock(NOW)))
    with telling(registry_of(service), "127.0.0.1", 0) as port:
        store._database.engine.dispose()
        store.view = lambda: (_ for _ in ()).throw(OSError("gone"))
        names = {family.name for family in families(f"127.0.0.1:{port}")}
        [readable] = [each for each in families(f"127.0.0.1:{port}") if each.name == "changeling_store_readable"]
    assert readable.samples[0].value == 0
    assert "changeling_trouble" in names
    assert "changeling_unfolded" not in names


def test_figures_are_told_under_the_machines_own_names_alone(store):
    """So that no page in an operator's browser, whose name leads here, reads them."""
    service = Service(store, ServerSettings(PINNED, MovableClock(NOW)))
    with telling(registry_of(service), "127.0.0.1", 0) as port:
        for host in ("127.0.0.1", f"localhost:{port}", "[::1]:1", socket.gethostname()):
            assert httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"host": host}).status_code == 200
        for host in ("attacker.example", f"attacker.example:{port}", "", "[", "127.0.0.1.attacker.example"):
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics", headers={"host": host})
            assert (answer.status_code, b"changeling" in answer.content) == (421, False)


def test_an_address_that_is_taken_is_named(store):
    """Which, and for what."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = Service(store, ServerSettings(PINNED, MovableClock(NOW)))
        with (
            pytest.raises(OSError, match=re.escape(f"127.0.0.1, port {port}, for metrics")),
            telling(registry_of(service), "127.0.0.1", port),
        ):
            pass


def test_a_server_that_cannot_work_is_alive(watched):
    """`/healthz` is 200 where `/readyz` is 503: to start it again would not help."""
    assert watched.http.get("/readyz").status_code == 200
    Path(watched.store_path).rename(watched.log.with_name("elsewhere"))
    assert watched.http.get("/healthz").json() == {"alive": True}
    assert watched.http.get("/readyz").status_code == 503
    assert watched.figures()["changeling_trouble", frozenset({("name", "store")})] == 2
