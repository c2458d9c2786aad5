"""What every request passes first: trusted proxies, TLS, a request id, headers on every answer."""

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import Front, real_time
from changeling_protocol.wire import ALIVE

from .hostile import connected
from .serving import ServerHere, ServerProcess, certified


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("proxied")
    with ServerHere(folder, front=Front(["127.0.0.1"]), requests_a_second=1, clock=real_time) as running:
        yield running


def _statuses(server: ServerProcess, forwarded: str, times: int = 30) -> set[int]:
    return {server.http.get("/v1/surveys", headers={"x-forwarded-for": forwarded}).status_code for _ in range(times)}


def test_a_proxy_is_believed_whom_it_speaks_for(behind_proxy: ServerProcess) -> None:
    """The last address that is no proxy of ours: what stands before it anybody may have written."""
    assert _statuses(behind_proxy, "192.0.2.1") == {200, 429}
    assert _statuses(behind_proxy, "198.51.100.1, 192.0.2.200, 127.0.0.1", 1) == {429}
    assert _statuses(behind_proxy, "192.0.2.1, 198.51.100.1", 1) == {200}
    refused = behind_proxy.http.get("/v1/surveys", headers={"x-forwarded-for": "192.0.2.1"})
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("too_many_requests", "1")


def test_others_are_not_believed(tmp_path: Path) -> None:
    """Without --proxy a header is no address, and this machine is not limited."""
    with ServerHere(tmp_path, requests_a_second=1) as server:
        assert _statuses(server, "192.0.2.1") == {200}


def test_a_proxy_that_nobody_named_is_told_of(tmp_path: Path) -> None:
    """In the log once an hour, and among the troubles; not where the proxy is named, or nobody speaks for others."""
    for name, proxies, told in (("named", ["127.0.0.1"], set()), ("not", [], {"proxy"})):
        (tmp_path / name).mkdir()
        with ServerHere(tmp_path / name, front=Front(proxies), clock=real_time) as server:
            assert server.http.get("/readyz").json()["status"] == "ok"
            for _ in range(3):
                server.http.get("/v1/surveys", headers={"x-forwarded-for": "192.0.2.1"})
            troubles = server.http.get("/readyz").json()["troubles"]
            assert {each["name"] for each in troubles} & {"proxy"} == told


def test_a_request_names_its_host_once(behind_proxy: ServerProcess) -> None:
    """Else a cache, a proxy and a server might each take another."""
    for hosts, status in ((), b"400"), (("one", "two"), b"400"), (("one", "one"), b"400"), (("one",), b"200"):
        head = "".join(f"Host: {host}\r\n" for host in hosts)
        with connected(behind_proxy) as connection:
            connection.sendall(f"GET /v1/surveys HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert connection.recv(1000).split()[1] == status


def test_nobody_is_sent_on_to_the_host_that_a_request_names(behind_proxy: ServerProcess) -> None:
    """A path with a slash too many is not there: an address made of the request may be another's, or without TLS."""
    for path in ("/v1/surveys/", "/v1/keys/", "/v1/uploads/", "/page/session/"):
        answer = behind_proxy.http.get(path, headers={"host": "elsewhere.example"})
        assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_every_answer_has_an_id_a_date_and_security_headers(behind_proxy: ServerProcess) -> None:
    """Errors too; no two have one id. Transport security is for what came over TLS."""
    answers = [behind_proxy.http.get(path) for path in ("/v1/surveys", "/nothing", "/v1/uploads", "/v1/keys")]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "date" in answer.headers
        assert "server" not in answer.headers
        assert "strict-transport-security" not in answer.headers
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    secure = behind_proxy.http.get("/v1/surveys", headers={"x-forwarded-proto": "https"})
    assert "max-age" in secure.headers["strict-transport-security"]


def test_a_server_closes_no_handler_of_its_process(tmp_path: Path) -> None:
    """Such as one of absl, which closes its stream, the process's own standard error, where it is closed."""
    closed: list[logging.Handler] = []

    class Host(logging.Handler):
        def close(self) -> None:
            closed.append(self)

    handler = Host()
    with ServerHere(tmp_path) as server:
        assert server.http.get(ALIVE).status_code == 200
    assert handler not in closed


def test_a_server_speaks_tls_by_itself(tmp_path: Path) -> None:
    """With a certificate of its own; it prints https."""
    certificate, key = certified(tmp_path)
    with ServerProcess(tmp_path, "--certificate", str(certificate), "--certificate-key", str(key)) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"{server.url}/v1/surveys", verify=trusted, timeout=100)
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
