"""Who may do what on a server, by tokens and by an operator's own rule; and what is kept of those who ask."""

import asyncio
import hashlib
import hmac
import logging
import os
import socket

import httpx
import pytest
from changeling_aggregator.server import ServerSettings, Service, app, requests
from changeling_aggregator.store import TokenScope, new_token
from changeling_commands import main as run
from changeling_protocol import UnixSeconds
from changeling_protocol.wire import CLOCK, FOLD, UPLOADS, ErrorAnswer, ErrorCode
from changeling_reader import Reader, ServerClient

from ..protocol.examples import AUTHORITY, PINNED, survey
from .devices import Log, body, envelope, report
from .serving import ADMIN, ServerHere, eventually, in_process, survey_path

SIGNED = survey().signed_by(AUTHORITY)
PATH = survey_path(survey())
WITHOUT = [{}, *({"authorization": each.encode()} for each in ("Bearer", "Bearer wrong", "Basic read", "Bearer é"))]
SECRET = b"what the rule and whoever gives out attestations have in common"


def shown(token):
    return {"authorization": f"Bearer {token}"}


def attestation(content, nonce=None):
    """What the service gives out for a body, by HMAC."""
    nonce = os.urandom(8).hex() if nonce is None else nonce
    told = hmac.new(SECRET, nonce.encode() + hashlib.sha256(content).digest(), "sha256")
    return f"{nonce}.{told.hexdigest()}"


def rule():
    """An operator's rule as it may be in earnest: takes each attestation once, and fails in three ways."""
    seen = set()

    async def admit(headers, content):
        assert "192.0.2.7" not in str(headers), "no address"
        nonce, _, told = headers.get("x-attestation", "").partition(".")
        if nonce == "hang":
            await asyncio.sleep(3600)
        if nonce == "raise":
            raise ValueError(f"what is {told}?")
        if nonce == "odd":
            return {"token": told}
        if not hmac.compare_digest(attestation(content, nonce), f"{nonce}.{told}"):
            return "this upload is not attested"
        if nonce in seen:
            return "this attestation was used before"
        seen.add(nonce)
        return None

    return admit


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with that rule, a token for each scope, named as it, and a survey whose results are not public."""
    server = ServerHere(tmp_path_factory.mktemp("guarded"), uploads_need_token=True, admission=rule())
    for scope in TokenScope:
        server.add_token(scope.value, scope)
    with pytest.MonkeyPatch.context() as patch, server:
        patch.setattr(requests, "ADMISSION_SECONDS", 0.5)
        server.move_clock(1_800_000_000)
        server.key  # noqa: B018
        server.http.put(PATH, content=SIGNED, headers=ADMIN).raise_for_status()
        yield server


def test_a_token_is_good_for_its_scopes_alone(guarded):
    """401 without one or with none that the server knows, 403 with one for something else, before any body is read: on
    each route of which the OpenAPI document says so. What devices need asks for nothing; uploads have a rule besides.
    """
    paths = guarded.http.get("/openapi.json").json()["paths"]
    del paths[UPLOADS]
    open_to_all = set()
    for route, method in ((route, method) for route, each in paths.items() for method in each.keys() - {"parameters"}):
        path, asked = route.replace("{survey}", survey().id.hex()), paths[route][method].get("security")
        tokens = {each: guarded.http.request(method, path, headers=shown(each)).status_code for each in TokenScope}
        without = [guarded.http.request(method, path, headers=each) for each in WITHOUT]
        if asked is None:
            open_to_all.add((method, route))
            assert not {401, 403} & {*tokens.values(), without[0].status_code}, path
            continue
        changing = TokenScope.FOLD if route in (FOLD, CLOCK) else TokenScope.SURVEY_WRITE
        wanted = TokenScope.READ if method == "get" else changing
        assert asked[-1] == {"token": [wanted]}
        assert {each for each, status in tokens.items() if status != 403} == {wanted}, path
        assert tokens[wanted] != 401
        for each in without:
            assert (each.status_code, each.json()["code"]) == (401, "unauthorized"), path
            assert each.headers["www-authenticate"] == "Bearer"
    of_devices = ("", "/{survey}", "/{survey}/end")
    served = (*(f"/v1/surveys{each}" for each in of_devices), "/v1/keys", "/healthz", "/readyz", "/openapi.json")
    assert open_to_all == {("get", each) for each in served}


def test_results_are_closed_until_the_operator_opens_them(guarded):
    """And again after, with status. Publishing the survey again changes neither it nor that."""
    for public, statuses in (("true", [409, 200]), (None, [409, 200]), ("false", [401, 401]), (None, [401, 401])):
        query = {} if public is None else {"public": public}
        assert guarded.http.put(PATH, params=query, content=SIGNED, headers=ADMIN).status_code == 200
        assert [guarded.http.get(PATH + which).status_code for which in ("/series", "/status")] == statuses
    assert guarded.http.put(PATH, params={"public": "yes"}, content=SIGNED, headers=ADMIN).status_code == 422


@pytest.fixture
def sent(guarded):
    """Uploads a body with an app's token, from behind proxies that tell an address; the answer."""
    told = ("X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP")

    def upload(content, attested=None, token="upload"):
        headers = {**dict.fromkeys(told, "for=192.0.2.7"), **shown(token)}
        headers |= {} if attested is None else {"x-attestation": attested}
        return guarded.http.post("/v1/uploads", content=content, headers=headers)

    return upload


@pytest.fixture
def bodies(guarded):
    """A survey in its first period, and two uploads of it."""
    asked = guarded.new_survey()
    guarded.move_clock(asked.calendar.time(1))
    return asked, *(body(envelope(asked, guarded.key, [report(1)])) for _ in range(2))


def test_uploads_ask_for_an_apps_token_and_the_operators_rule(guarded, sent, bodies):
    """In this order; the rule is told no address. What is attested counts once: without, of another body, or used: 403
    with the rule's own sentence, and nothing is appended."""
    asked, first, second = bodies
    good = attestation(first)
    assert [sent(first, good, token).status_code for token in ("none", "read")] == [401, 403]
    for content, attested in ((first, None), (first, "x.y"), (second, good), (first, attestation(second))):
        refused = sent(content, attested)
        assert (refused.status_code, refused.json()["detail"]) == (403, "this upload is not attested")
    assert sent(first, good).status_code == 200
    assert sent(first, good).json()["detail"] == "this attestation was used before"
    assert sent(second, attestation(second)).status_code == 200
    assert sent(b"no upload", attestation(b"no upload")).status_code == 400
    guarded.move_clock(guarded.now + 16)
    assert guarded.reports(asked) == {(0, 1): 2}


@pytest.mark.parametrize(
    ("how", "kind"), [("hang", "raised TimeoutError"), ("raise", "raised ValueError"), ("odd", "returned dict")]
)
def test_a_rule_that_fails_admits_nothing_and_tells_no_token(guarded, sent, bodies, how, kind, caplog):
    """503 with Retry-After, so that devices keep what they have; the log names the kind of error, and no word of it."""
    asked, content, _ = bodies
    secret = os.urandom(16).hex()
    answer = sent(content, f"{how}.{secret}")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    assert secret not in answer.text
    assert sent(content, attestation(content)).status_code == 200
    guarded.move_clock(guarded.now + 16)
    assert guarded.reports(asked) == {(0, 1): 1}
    assert secret not in caplog.text
    assert f"the rule for admission {kind}" in caplog.text
    assert "Traceback" not in caplog.text


def test_tokens_are_made_listed_and_revoked(cli, tmp_path):
    """A running server knows a new one, and soon knows a revoked one no more, which ends its sessions. The store holds
    no token."""
    with ServerHere(tmp_path) as server, httpx.Client(base_url=server.url, timeout=100) as browser:
        scopes = ("--scope", "fold", "--scope", "read")
        text = cli("token", "new", "--store", "server.db", "--name", "me", *scopes).strip()
        cli("token", "new", "--store", "server.db", "--name", "tea app", "--scope", "upload", "-o", "app.token")
        assert (tmp_path / "app.token").stat().st_mode & 0o777 == 0o600
        assert text != (tmp_path / "app.token").read_text().strip()

        def status():
            return server.http.post("/v1/fold", headers=shown(text)).status_code

        assert eventually(status, 200)
        browser.post("/page/session", data={"token": text}).raise_for_status()
        listed = cli("token", "list", "--store", "server.db")
        assert "tea app" in listed
        (id_,) = (line.split()[1] for line in listed.splitlines() if " me " in line)
        assert "of me is revoked" in cli("token", "revoke", id_, "--store", "server.db")
        assert eventually(status, 401)
        assert browser.get("/page/session").json() == {"signed_in": None}
        assert run(["token", "revoke", id_, "--store", "server.db"]) == 1
        kept = b"".join(path.read_bytes() for path in tmp_path.glob("server.db*"))
        assert text.encode() not in kept
        assert b"tea app" in kept


def test_a_token_is_never_sent_in_the_clear(monkeypatch):
    """Neither by the reader nor by a command; over plain HTTP only to this machine."""
    monkeypatch.setenv("CHANGELING_TOKEN", "token")
    for server in ("http://surveys.example.org", "http://192.0.2.1:8080", "http://127.0.0.1.example"):
        for kind in (ServerClient, Reader):
            with pytest.raises(ValueError, match="use https"):
                kind(server, token="token")
        assert run(["clock", "confirm", "--server", server]) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_token_for_this_machine_goes_past_every_proxy(scheme, monkeypatch):
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


def test_no_log_holds_a_secret_or_a_report(store, monkeypatch, caplog):
    """Not even where the server fails, which the answer tells without its trace: it has the log's id of the request."""
    token = new_token()
    with store.transaction() as writing:
        writing.add_token(token, "me", {TokenScope.READ}, UnixSeconds(0.0))
    log = Log.of(store, survey())

    def broken(_):
        raise KeyError("defect")

    monkeypatch.setattr(app, "service_of", broken)
    service = Service(store, ServerSettings(PINNED, lambda: 1_800_000_000.0))
    with in_process(service, raises=False) as get, caplog.at_level(0):
        response = get(survey_path(log.survey) + "/status", shown(token))
    assert response.status_code == 500
    assert ErrorAnswer.decode(response.content) == ErrorAnswer(ErrorCode.FAILED, "the server failed; its log says why")
    assert f"request {response.headers['x-request-id']} failed" in caplog.messages
    assert token not in caplog.text
    handlers = logging.getLogger("uvicorn.access").handlers  # those of pytest itself among them
    assert not [each for each in handlers if type(each).__module__.partition(".")[0] != "_pytest"]
