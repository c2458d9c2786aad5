"""What every request passes first: trusted proxies, TLS, a request id, headers on every answer."""

import logging
import ssl

import httpx
import pytest
from changeling_aggregator.server import Front, real_time

from .hostile import connected
from .serving import ServerHere, ServerProcess, certified


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxied")
    with ServerHere(folder, front=Front(["127.0.0.1"]), requests_a_second=1, clock=real_time) as running:
        yield running


def statuses(server, forwarded, times=30):
    return {server.http.get("/v1/surveys", headers={"x-forwarded-for": forwarded}).status_code for _ in range(times)}


def troubles(server):
    return {each["name"] for each in server.http.get("/readyz").json()["troubles"]}


def test_a_proxy_is_believed_whom_it_speaks_for(behind_proxy):
    """The last address that is no proxy of ours: what stands before it anybody may have written."""
    assert statuses(behind_proxy, "192.0.2.1") == {200, 429}
    assert statuses(behind_proxy, "198.51.100.1, 192.0.2.200, 127.0.0.1", 1) == {429}
    assert statuses(behind_proxy, "192.0.2.1, 198.51.100.1", 1) == {200}
    refused = behind_proxy.http.get("/v1/surveys", headers={"x-forwarded-for": "192.0.2.1"})
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("too_many_requests", "1")
    assert "proxy" not in troubles(behind_proxy)


def test_a_proxy_that_nobody_named_is_not_believed_and_told_of(tmp_path):
    """Without --proxy a header is no address, and this machine is not limited; it stands among the troubles. Nor does a
    server close handlers of its process, such as one of absl, which then closes the process's own standard error."""
    closed = []

    class Host(logging.Handler):
        def close(self):
            closed.append(self)

    handler = Host()
    with ServerHere(tmp_path, requests_a_second=1, clock=real_time) as server:
        assert "proxy" not in troubles(server)
        assert statuses(server, "192.0.2.1") == {200}
        assert "proxy" in troubles(server)
    assert handler not in closed


def test_a_request_names_its_host_once(behind_proxy):
    """Else a cache, a proxy and a server might each take another."""
    for hosts, status in ((), b"400"), (("one", "two"), b"400"), (("one", "one"), b"400"), (("one",), b"200"):
        head = "".join(f"Host: {host}\r\n" for host in hosts)
        with connected(behind_proxy) as connection:
            connection.sendall(f"GET /v1/surveys HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert connection.recv(1000).split()[1] == status


def test_nobody_is_sent_on_to_the_host_that_a_request_names(behind_proxy):
    """A path with a slash too many is not there: an address made of the request may be another's, or without TLS."""
    for path in ("/v1/surveys/", "/v1/keys/", "/v1/uploads/", "/page/session/"):
        answer = behind_proxy.http.get(path, headers={"host": "elsewhere.example"})
        assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_every_answer_has_an_id_a_date_and_security_headers(behind_proxy):
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


@pytest.mark.heavy
def test_a_server_speaks_tls_by_itself(tmp_path):
    """With a certificate of its own; it prints https."""
    certificate, key = certified(tmp_path)
    with ServerProcess(tmp_path, "--certificate", str(certificate), "--certificate-key", str(key)) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"{server.url}/v1/surveys", verify=trusted, timeout=100)
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
