"""The proxy of the operator's guide before a real server: the very lines that stand there, in Debian's nginx."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import BURST_SECONDS
from changeling_aggregator.testing.serving import free_port
from changeling_protocol.wire import MOST_BODY_BYTES

from .devices import body, envelope, report
from .serving import ServerProcess, certified

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(NGINX is None, reason="there is no nginx: `make test-heavy` brings it where it can"),
]
GUIDE = Path(__file__).parents[2] / "docs/operator.md"
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 256; }}
http {{
{kept}
access_log {folder}/access.log;
{server}
}}
"""
KEPT = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
RATE = 2


def from_the_guide(**here):
    """The block that stands there, but for addresses, files and how long a head may take, each of which is in it."""
    [block] = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    there = {
        "server 127.0.0.1:8080;": f"server {here['server'].removeprefix('http://')};",
        "listen 443 ssl;": f"listen 127.0.0.1:{here['port']} ssl;",
        "client_header_timeout 10s;": "client_header_timeout 2s;",
        "/etc/changeling/tls.pem": here["certificate"],
        "/etc/changeling/tls.key": here["key"],
        "/var/log/nginx/error.log": here["log"],
    }
    for words, mine in there.items():
        assert words in block
        block = block.replace(words, mine)
    return block


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One that believes a proxy on this machine, and takes two requests a second of a network."""
    options = ("--movable-clock", "--proxy", "127.0.0.1", "--rate", str(RATE))
    with ServerProcess(tmp_path_factory.mktemp("server"), *options) as running:
        running.move_clock(1_800_000_000)
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where nginx writes."""
    return tmp_path_factory.mktemp("nginx")


@pytest.fixture(scope="module")
def proxy(server, folder):
    """Its URL."""
    port, log = free_port(), folder / "server-error.log"
    certificate, key = map(str, certified(folder))
    block = from_the_guide(server=server.url, port=str(port), certificate=certificate, key=key, log=str(log))
    kept = "\n".join(f"{name}_temp_path {folder}/{name};" for name in KEPT)
    configuration = folder / "nginx.conf"
    configuration.write_text(AROUND.format(folder=folder, kept=kept, server=block))
    process = subprocess.Popen([str(NGINX), "-c", str(configuration), "-p", str(folder)])
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            time.sleep(0.05)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_uploads_come_through_whole_up_to_the_longest(server, proxy):
    """Up to a mebibyte; of what is longer the server never hears: the proxy says 413 before it sends anything on."""
    asked = server.new_survey()
    server.move_clock(asked.calendar.time(1))
    one = envelope(asked, server.key, [report(1)])
    with httpx.Client(base_url=proxy, timeout=60, verify=False) as http:
        assert "strict-transport-security" in http.get("/healthz").headers
        assert http.post("/v1/uploads", content=body(one)).status_code == 200
        many = body(*[one] * ((MOST_BODY_BYTES - 1000) // (len(one) + 5)))
        assert MOST_BODY_BYTES * 0.9 < len(many) <= MOST_BODY_BYTES
        assert http.post("/v1/uploads", content=many).status_code == 200
        assert http.post("/v1/uploads", content=bytes(MOST_BODY_BYTES + 1)).status_code == 413
        assert http.post("/v1/uploads", content=bytes(3 * 2**20)).status_code == 413


def test_who_asks_is_told_by_the_proxy_and_not_by_who_asks(server, proxy):
    """What a client says of itself is overwritten: whatever it claims, it is this machine, which has no limit.

    The same claim is believed, and limited, where it comes from the proxy's address and nobody has overwritten it.
    """
    claims = {"x-forwarded-for": "203.0.113.9"}
    asked = int(RATE * BURST_SECONDS) + 20
    with httpx.Client(base_url=proxy, timeout=60, verify=False) as http:
        assert {http.get("/v1/surveys", headers=claims).status_code for _ in range(asked)} == {200}
    with httpx.Client(base_url=server.url, timeout=30) as http:
        assert 429 in (http.get("/v1/surveys", headers=claims).status_code for _ in range(10 * asked))


def test_a_slow_client_waits_at_the_proxy_and_no_address_is_kept(proxy, folder):
    """A head that never ends is closed; others are answered meanwhile; no file names a client."""
    host, _, port = proxy.removeprefix("https://").partition(":")
    began = time.monotonic()
    unchecked = ssl._create_unverified_context()
    with (
        unchecked.wrap_socket(socket.create_connection((host, int(port)))) as slow,
        httpx.Client(base_url=proxy, timeout=60, verify=False) as http,
    ):
        slow.sendall(b"POST /v1/uploads HTTP/1.1\r\nhost: here\r\n")
        assert http.get("/healthz").status_code == 200
        slow.settimeout(60)
        with suppress(OSError):
            assert slow.recv(1000) == b""
    assert 1 < time.monotonic() - began < 60
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "nginx.conf")
    assert b"127.0.0.1" not in written
