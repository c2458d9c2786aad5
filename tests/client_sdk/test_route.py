"""What really goes out, and which way: nothing of the app, nothing that tells devices apart, no proxy for loopback."""

import os
import socket
import ssl
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from changeling_client import ServerTrouble
from changeling_client.exchange import Deadline, Exchanges
from changeling_client.obstacles import Obstacle
from changeling_client.route import Route
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .loopback import answering, serving

NAME = "statistics.example"


def ask(route: Route, times: int = 1, body: bytes | None = None):
    exchanges = Exchanges(route)
    try:
        for _ in range(times):
            answer = exchanges.ask("GET" if body is None else "POST", "/v1/keys", body, Deadline.after(5))
    finally:
        exchanges.close()
    return answer


@pytest.fixture
def environment(monkeypatch):
    """An environment without proxies and certificates, in which the test may name some."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)
    return monkeypatch.setenv


def test_a_request_is_these_bytes_and_no_others(environment, tmp_path):
    """Each time the same, in the same order: no cookie of the answer before, no credentials that a .netrc holds for
    this host, no version of anything."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login alice password hunter2\n")
    environment("NETRC", str(tmp_path / "netrc"))
    with serving(answering(b"", b"set-cookie: tracker=1\r\n")) as server:
        ask(Route(server.url), times=3)
        ask(Route(server.url), body=b"body")
    head = (
        b"Host: 127.0.0.1:%d\r\nuser-agent: changeling\r\naccept-encoding: identity\r\n"
        b"cache-control: no-cache, no-store\r\nconnection: close\r\n"
    )
    asked = b"GET /v1/keys HTTP/1.1\r\n" + head % server.port + b"\r\n"
    sent = b"POST /v1/keys HTTP/1.1\r\n" + head % server.port
    sent += b"content-type: application/msgpack\r\nContent-Length: 4\r\n\r\nbody"
    assert server.heard == [asked] * 3 + [sent]
    assert server.connections == 4, "every exchange has a connection of its own"


def test_an_upload_token_is_shown_with_uploads_and_stays_out_of_words():
    """A request without a body has none of it; neither a route's words nor an error's hold it."""
    with serving(answering(b"")) as server:
        route = Route(server.url, upload_token="of-the-app")
        ask(route)
        ask(route, body=b"body")
    asked, sent = server.heard
    assert b"of-the-app" not in asked
    assert b"content-type: application/msgpack\r\nauthorization: Bearer of-the-app\r\n" in sent
    assert "of-the-app" not in repr(route)
    for bad in ("", "of the app", "secret\r\nx: y", "geheimnisträger"):
        with pytest.raises(ValueError, match="the upload token must be") as raised:
            Route("https://s.example", upload_token=bad)
        assert not bad or bad not in str(raised.value)


def test_no_cookie_is_even_kept():
    """The jar of our client stays empty."""
    http = Route("https://s.example", transport=httpx.MockTransport(lambda _: httpx.Response(200))).open()
    http.cookies.extract_cookies(
        httpx.Response(200, headers={"set-cookie": "a=1"}, request=httpx.Request("GET", "https://s.example"))
    )
    assert list(http.cookies.jar) == []


def test_a_redirect_is_not_followed():
    """It is the answer, with its status and without a body."""

    def behave(connection, _stop):
        connection.request()
        connection.send(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 4\r\n\r\nbody")

    with serving(behave) as server:
        answer = ask(Route(server.url))
    assert (answer.status, answer.body, len(server.heard)) == (302, b"", 1)


def refusing(connection, _stop):
    connection.request()
    connection.send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize("how", ["environment", "argument"])
def test_a_real_host_is_asked_through_the_proxy(environment, how):
    """Of the environment, or the one that is passed; all that it sees is the host's name."""
    with serving(refusing) as proxy:
        if how == "environment":
            environment("HTTPS_PROXY", proxy.url)
        with pytest.raises(ServerTrouble, match="ProxyError"):
            ask(Route(f"https://{NAME}", proxy=None if how == "environment" else proxy.url))
    assert proxy.heard == [
        b"CONNECT statistics.example:443 HTTP/1.1\r\nHost: statistics.example:443\r\nAccept: */*\r\n\r\n"
    ]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_asked_directly_whatever_the_environment_says(environment, name, host):
    """A proxy elsewhere cannot reach it, and has nothing to hear of it."""
    with serving(refusing) as proxy, serving(answering(b"body")) as server:
        environment(name, proxy.url)
        assert ask(Route(f"http://{host}:{server.port}")).body == b"body"
    assert proxy.connections == 0


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """The files of a certificate for NAME and for loopback that signs itself, and of its key."""
    folder, key, now = tmp_path_factory.mktemp("tls"), ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME), x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture
def secured(certified):
    """A server on loopback that speaks TLS, whatever name it was asked by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certified)

    def behave(connection, _stop):
        with context.wrap_socket(connection.plain, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody")

    with serving(behave) as server:
        yield server


def test_the_apps_context_decides_which_certificates_are_good(certified, secured):
    """Without it nobody vouches for this server, and nothing is sent."""
    url = f"https://localhost:{secured.port}"
    with pytest.raises(ServerTrouble) as raised:
        ask(Route(url))
    assert raised.value.obstacle is Obstacle.UNREACHABLE
    assert ask(Route(url, verify=ssl.create_default_context(cafile=certified[0]))).body == b"body"


def test_certificates_of_the_environment_serve_for_real_hosts_only(environment, monkeypatch, certified, secured):
    """Whoever may set the environment for a company's proxy does not vouch for a server on this machine."""
    environment("SSL_CERT_FILE", str(certified[0]))
    find = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest, **options: find("127.0.0.1", *rest, **options))
    assert ask(Route(f"https://{NAME}:{secured.port}")).body == b"body"
    with pytest.raises(ServerTrouble):
        ask(Route(f"https://localhost:{secured.port}"))


@pytest.mark.parametrize("proxy", ["proxy.example", "ftp://alice:hunter2@proxy.example", "http://"])
def test_a_proxy_that_is_none_is_refused_and_not_repeated(proxy):
    """Its URL may hold a password."""
    with pytest.raises(ValueError, match="proxy's URL must be like") as raised:
        Route("https://s.example", proxy=proxy)
    assert "hunter2" not in str(raised.value)


def test_a_proxy_beside_a_transport_is_refused():
    """One of the two would be passed over."""
    with pytest.raises(ValueError, match="one of the two"):
        Route("https://s.example", transport=httpx.MockTransport(lambda _: None), proxy="http://proxy.example")
