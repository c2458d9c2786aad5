"""Who may do what on a server, and what is kept of those who ask."""

import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import ServerSettings, Service, app
from changeling_aggregator.store import Store, TokenScope, new_token
from changeling_commands.__main__ import main as run
from changeling_protocol import UnixSeconds
from changeling_protocol.wire import ErrorAnswer, ErrorCode
from changeling_reader import Reader, ServerClient

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import Log
from .serving import ADMIN, Cli, ServerHere, eventually, in_process, survey_path

SIGNED = survey().signed_by(AUTHORITY)
PATH = survey_path(survey())
ASKS = {
    ("PUT", PATH): TokenScope.SURVEY_WRITE,
    ("PUT", PATH + "/end"): TokenScope.SURVEY_WRITE,
    ("PUT", "/v1/keys"): TokenScope.SURVEY_WRITE,
    ("POST", "/v1/fold"): TokenScope.FOLD,
    ("PUT", "/v1/clock"): TokenScope.FOLD,
    ("GET", PATH + "/status"): TokenScope.READ,
    ("GET", PATH + "/histogram"): TokenScope.READ,
    ("GET", PATH + "/series"): TokenScope.READ,
    ("GET", PATH + "/change"): TokenScope.READ,
}


def shown(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory):
    """A server with a token for each scope, named as it, and a survey whose results are not public."""

    async def admit(headers: Mapping[str, str], content: bytes) -> str | None:
        return None if headers.get("x-attested") == str(len(content)) else "this app is not attested"

    server = ServerHere(tmp_path_factory.mktemp("guarded"), uploads_need_token=True, admission=admit)
    for scope in TokenScope:
        server.add_token(scope.value, scope)
    with server:
        server.new_key()
        server.http.put(PATH, content=SIGNED, headers=ADMIN).raise_for_status()
        yield server


def test_a_token_is_good_for_its_scopes_alone(guarded: ServerHere) -> None:
    """401 without one or with none that the server knows, 403 with one for something else, before any body is read.
    What devices need asks for nothing."""
    for (method, path), scope in ASKS.items():
        statuses = {
            each: guarded.http.request(method, path, headers=shown(each.value)).status_code for each in TokenScope
        }
        assert {each for each, status in statuses.items() if status != 403} == {scope}
        assert statuses[scope] != 401
        for header in (None, "Bearer", "Bearer wrong", "Basic read", "Bearer é"):
            response = guarded.http.request(method, path, headers=header and {"authorization": header.encode()})
            assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"
    for path in ("/readyz", "/v1/surveys", "/v1/keys", PATH):
        assert guarded.http.get(path).status_code in (200, 503)


def test_results_are_closed_until_the_operator_opens_them(guarded: ServerHere) -> None:
    """And again after, with status. Publishing the survey again changes neither it nor that."""

    def asked() -> tuple[int, int]:
        results, status = (guarded.http.get(PATH + which).status_code for which in ("/series", "/status"))
        return results, status

    assert asked() == (401, 401)
    for public, results in (("true", (409, 200)), (None, (409, 200)), ("false", (401, 401)), (None, (401, 401))):
        query = {} if public is None else {"public": public}
        assert guarded.http.put(PATH, params=query, content=SIGNED, headers=ADMIN).status_code == 200
        assert asked() == results
    assert guarded.http.put(PATH, params={"public": "yes"}, content=SIGNED, headers=ADMIN).status_code == 422


def test_uploads_ask_for_an_apps_token_and_the_operators_rule(guarded: ServerHere) -> None:
    """In this order, where the server was started so; what is admitted is looked at as ever."""

    def sent(headers: Mapping[str, str]) -> tuple[int, str]:
        response = guarded.http.post("/v1/uploads", content=b"no upload", headers=headers)
        return response.status_code, response.json()["detail"]

    assert sent({})[0] == 401
    assert sent(shown("read"))[0] == 403
    assert sent(shown("upload")) == (403, "this app is not attested")
    assert sent({**shown("upload"), "x-attested": "9"})[0] == 400


def test_the_operators_rule_is_given_no_address(store: Store) -> None:
    """Neither of the connection, nor in a header in which a proxy tells whom it speaks for."""
    given: dict[str, str] = {}

    async def rule(headers: Mapping[str, str], _: bytes) -> None:
        given.update(headers)

    told = ("X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP")
    headers = {"x-attested": "yes", **dict.fromkeys(told, "for=192.0.2.7")}
    with in_process(Service(store, ServerSettings(PINNED, lambda: 1_800_000_000.0, admission=rule))) as ask:
        ask("/v1/uploads", headers, "POST")
    assert given["x-attested"] == "yes"
    assert "192.0.2.7" not in str(given)


def test_tokens_are_made_listed_and_revoked(cli: Cli, tmp_path: Path) -> None:
    """A running server knows a new one, and soon knows a revoked one no more. The store holds no token."""
    with ServerHere(tmp_path) as server:
        text = cli("token", "new", "--store", "server.db", "--name", "me", "--scope", "fold").strip()
        cli("token", "new", "--store", "server.db", "--name", "tea app", "--scope", "upload", "-o", "app.token")
        assert (tmp_path / "app.token").stat().st_mode & 0o777 == 0o600
        assert text != (tmp_path / "app.token").read_text().strip()

        def status() -> int:
            return server.http.post("/v1/fold", headers=shown(text)).status_code

        assert eventually(status, 200)
        listed = cli("token", "list", "--store", "server.db")
        assert "tea app" in listed
        (id_,) = (line.split()[1] for line in listed.splitlines() if " me " in line)
        assert "of me is revoked" in cli("token", "revoke", id_, "--store", "server.db")
        assert eventually(status, 401)
        assert run(["token", "revoke", id_, "--store", "server.db"]) == 1
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("server.db*"))
        assert text.encode() not in kept
        assert b"tea app" in kept


@pytest.mark.usefixtures("cli")
def test_a_token_or_a_server_for_the_wrong_ones_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token has a name and known scopes; beyond loopback a server wants TLS or a proxy; each mistake is one line."""
    (tmp_path / "pinned.pub").write_text(PINNED[0].hex())
    new = ("token", "new", "--store", "server.db")
    serve = ("serve", "--store", "s.db", "--authority", "pinned.pub", "--port", "0")
    for words, sentence in (
        ((*new, "--name", "me", "--scope", "all"), "a scope is one of survey:write, fold, read, upload, got 'all'"),
        ((*new, "--name", " ", "--scope", "read"), "a token has a name"),
        ((*serve, "--host", "0.0.0.0"), "give a --certificate, or name the --proxy"),
        ((*serve, "--certificate", "c"), "give both --certificate and --certificate-key"),
        ((*serve, "--proxy", "somewhere"), "does not appear to be an IPv4 or IPv6 network"),
        ((*serve, "--admission", "nowhere:rule"), "nowhere"),
    ):
        assert run(words) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert sentence in said


def test_a_token_is_never_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the reader nor by a command; over plain HTTP only to this machine."""
    monkeypatch.setenv("CHANGELING_TOKEN", "token")
    for server in ("http://surveys.example.org", "http://192.0.2.1:8080", "http://127.0.0.1.example"):
        for kind in (ServerClient, Reader):
            with pytest.raises(ValueError, match="use https"):
                kind(server, token="token")
        assert run(["clock", "confirm", "--server", server]) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_token_for_this_machine_goes_past_every_proxy(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxies the environment names: a command, the reader, a fleet; nobody connects to the proxy."""
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as nobody:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        url = f"{scheme}://localhost:{nobody.getsockname()[1]}"
        nobody.close()
        with ServerClient(url, token="token") as client, pytest.raises(httpx.ConnectError):
            client.fold()
        with Reader(url, token="token") as reader, pytest.raises(httpx.ConnectError):
            reader.series("00" * 16)
        monkeypatch.setenv("CHANGELING_TOKEN", "token")
        assert run(["clock", "confirm", "--server", url]) == 1
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_no_log_holds_a_secret_or_a_report(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where the server fails, which the answer tells without its trace: it has the log's id of the request."""
    token = new_token()
    with store.transaction() as writing:
        writing.add_token(token, "me", {TokenScope.READ}, UnixSeconds(0.0))
    log = Log.of(store, survey())

    def broken(_: object) -> str:
        raise KeyError("defect")

    monkeypatch.setattr(app, "service_of", broken)
    with (
        in_process(Service(store, ServerSettings(PINNED, lambda: 1_800_000_000.0)), raises=False) as get,
        caplog.at_level(0),
    ):
        response = get(survey_path(log.survey) + "/status", shown(token))
    assert response.status_code == 500
    assert ErrorAnswer.decode(response.content) == ErrorAnswer(ErrorCode.FAILED, "the server failed; its log says why")
    assert f"request {response.headers['x-request-id']} failed" in caplog.messages
    assert token not in caplog.text
    handlers = logging.getLogger("uvicorn.access").handlers  # those of pytest itself among them
    assert not [each for each in handlers if type(each).__module__.partition(".")[0] != "_pytest"]
