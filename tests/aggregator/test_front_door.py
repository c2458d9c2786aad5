"""What every request passes first: limits on networks, a request id, headers on every answer."""

import gc
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import rates
from changeling_aggregator.server.limits import Rates, network_of

from .serving import ServerProcess


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        *((each, None) for each in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")),
        ("not an address", "not an address"),
    ],
)
def test_an_address_is_known_by_its_network(host: str, network: str | None) -> None:
    """24 bits of IPv4, 48 of IPv6; this machine has none."""
    assert network_of(host) == network


def test_a_network_is_limited_and_others_are_not() -> None:
    """After a burst it may go on at the rate; what is too early is not counted, and told how long to wait."""
    now = 0.0
    rates_ = Rates(2, lambda: now)
    assert [rates_.wait_of("a") for _ in range(40)] == [0.0] * 40
    assert rates_.wait_of("a") == pytest.approx(0.5)
    assert rates_.wait_of("b") == 0
    now = 1.0
    assert [rates_.wait_of("a") > 0 for _ in range(3)] == [False, False, True]


def test_nothing_of_an_address_is_kept_and_a_new_day_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds hashes under a key that changes daily, of so many networks at most."""
    monkeypatch.setattr(rates, "MOST_NETWORKS", 100)
    now = 0.0
    rates_ = Rates(1, lambda: now)
    for number in range(1000):
        rates_.wait_of(f"198.51.{number}.0/24")
    assert len(rates_._due) == 100
    known = set(rates_._due)
    gc.collect()
    assert not any(isinstance(each, str) and each.startswith("198.51.999") for each in rates_._due)
    now = rates.DAY_SECONDS
    rates_.wait_of("198.51.999.0/24")
    assert len(rates_._due) == 1
    assert not known & set(rates_._due)


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("proxied"), "--proxy", "127.0.0.1", "--rate", "1") as running:
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
    with ServerProcess(tmp_path, "--rate", "1") as server:
        assert _statuses(server, "192.0.2.1") == {200}


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


def test_a_server_speaks_tls_by_itself(tmp_path: Path) -> None:
    """With a certificate of its own; it prints https."""
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"),
        ],
        cwd=tmp_path,
        capture_output=True,
    )
    assert made.returncode == 0
    options = ("--certificate", str(tmp_path / "certificate.pem"), "--certificate-key", str(tmp_path / "key.pem"))
    with ServerProcess(tmp_path, *options) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
        answer = httpx.get(f"{server.url}/v1/surveys", verify=trusted, timeout=100)
        assert answer.status_code == 200
        assert "strict-transport-security" in answer.headers
