"""The page's routes: what is served, under which headers, and who is signed in. A browser tries the page itself."""

import gc
import gzip
import re
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import page
from changeling_aggregator.server import service as sessions
from changeling_aggregator.server.service import LIFE_SECONDS, Sessions
from changeling_aggregator.store import TokenScope

from ..protocol.examples import AUTHORITY
from .serving import ADMIN, ServerHere, survey_path

STATIC = Path(page.__file__).parent / "static"
FILES = sorted(path.name for path in STATIC.iterdir())
NAME = "changeling"
SECURE_NAME = "__Host-changeling"
READER = "a token for reading"
OPERATOR = "a token for reading and folding"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with ServerHere(tmp_path_factory.mktemp("page")) as running:
        running.add_token(READER, TokenScope.READ)
        running.add_token(OPERATOR, TokenScope.READ, TokenScope.FOLD)
        running.add_token("a token for uploads", TokenScope.UPLOAD)
        running.move_clock(1_800_000_000)
        yield running


@pytest.fixture(scope="module")
def closed(served):
    """A survey whose results ask for a token."""
    survey = served.new_survey()
    signed = survey.signed_by(AUTHORITY)
    served.http.put(survey_path(survey), params={"public": "false"}, content=signed, headers=ADMIN).raise_for_status()
    return survey


def visitor(server, **headers):
    """Somebody with a browser, and cookies of their own."""
    return httpx.Client(base_url=server.url, headers=headers, timeout=100)


def sign_in(browser, token, headers=None):
    return browser.post("/page/session", data={"token": token}, headers=headers)


def test_the_files_of_the_page_allow_nothing_but_this_server(served):
    """By their content security policy; each has a tag, by which it is not sent twice; nothing else is there. A file is
    compressed for whoever takes it, and comes as it is to others."""
    for path in ["/", *(f"/page/{name}" for name in [*FILES, "plotly.js"])]:
        response = served.http.get(path).raise_for_status()
        policy = dict(each.strip().split(" ", 1) for each in response.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        for kind in ("script-src", "style-src", "connect-src", "form-action"):
            assert policy[kind] == "'self'"
        assert response.headers["x-content-type-options"] == "nosniff"
        again = served.http.get(path, headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("nothing.js", "..%2ffiles.py", "%2e%2e/files.py", "files.py", "static", "%00"):
        assert served.http.get(f"/page/{name}").status_code == 404
    with served.http.stream("GET", "/", headers={"accept-encoding": "gzip"}) as response:
        packed = b"".join(response.iter_raw())
    plain = served.http.get("/", headers={"accept-encoding": "identity"}).content
    assert gzip.decompress(packed) == plain == (STATIC / "index.html").read_bytes()


def test_no_file_names_an_address_outside_and_no_script_stands_in_the_page(served):
    """Charts are drawn by the installed plotly; what stood in the page the policy would keep from having an effect."""
    assert served.http.get("/page/plotly.js").text.startswith("/**\n* plotly.js")
    for name in FILES:
        text = (STATIC / name).read_text()
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text.replace("http://www.w3.org/2000/svg", "")), name
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert all("src=" in script for script in re.findall(r"<script[^>]*>", text))


def test_whoever_signs_in_sees_what_the_token_may_read(served, closed):
    """The same as by the token itself; refusals by reason only with one that may fold. It changes nothing, whatever its
    token may: so a page that makes a browser send something gains nothing. Signing out ends it."""
    paths = [survey_path(closed) + what for what in ("/status", "/series")]
    with visitor(served) as browser:
        assert [browser.get(path).status_code for path in paths] == [401, 401]
        for token, folds in ((READER, False), (OPERATOR, True)):
            assert sign_in(browser, token).status_code == 204
            assert [browser.get(path).status_code for path in paths] == [200, 409]
            assert ("refused" in browser.get(paths[0]).json()) is folds
            assert browser.get("/page/session").json()["signed_in"]["name"] == "tests"
        assert sign_in(browser, "the operator's token, for everything").status_code == 204
        asked = [("PUT", survey_path(closed)), ("POST", "/v1/fold"), ("PUT", "/v1/clock"), ("PUT", "/v1/keys")]
        assert {browser.request(*each).status_code for each in asked} == {401}
        kept = browser.cookies[NAME]
        assert browser.delete("/page/session").status_code == 204
        assert NAME not in browser.cookies
        for headers in ({}, {"cookie": f"{NAME}={kept}"}):
            assert [browser.get(path, headers=headers).status_code for path in paths] == [401, 401]
            assert browser.get("/page/session", headers=headers).json() == {"signed_in": None}


def test_the_cookie_is_no_token_and_no_script_can_read_it(served, closed):
    """Each is another. It ends by itself, and goes to no other site's requests. Beyond this machine, as the Host says
    under which the server is reached, it is for TLS alone, and a cookie of the other name is none there."""
    outside, path = {"host": "surveys.example.org"}, survey_path(closed) + "/status"
    with visitor(served) as browser:
        cookies = [sign_in(browser, READER).headers["set-cookie"] for _ in range(2)]
        values, attributes = zip(*(each.split("; ", 1) for each in cookies), strict=True)
        assert len(set(values)) == 2
        assert not any("token" in value or READER in value for value in values)
        wanted = {"httponly", f"max-age={LIFE_SECONDS}", "path=/", "samesite=strict"}
        assert {each.lower() for each in attributes[0].split("; ")} == wanted
        cookie, *attributes = sign_in(browser, READER, outside).headers["set-cookie"].split("; ")
        assert {each.lower() for each in attributes} == {*wanted, "secure"}
        name, _, session = cookie.partition("=")
        assert name == SECURE_NAME
        for name, status in ((SECURE_NAME, 200), (NAME, 401)):
            assert browser.get(path, headers={**outside, "cookie": f"{name}={session}"}).status_code == status


def test_who_signs_in_from_where_and_with_what(served):
    """A strange host is no failure. Who shows no token for reading gets no cookie, and no other site signs anybody in
    or out, not even to a session of its own choice: browsers say where a request comes from."""
    for host in ("[::1]:80", "localhost", "[", "", "127.0.0.1:1:1", "é"):
        with visitor(served) as browser:
            response = sign_in(browser, READER, {"host": host.encode()})
            assert response.status_code in (204, 400)
    for token, status in (("wrong", 401), ("", 401), ("é\0", 401), ("a token for uploads", 403), ("x" * 2000, 413)):
        with visitor(served) as browser:
            response = sign_in(browser, token)
        assert (response.status_code, response.headers.get("set-cookie")) == (status, None)
        assert not token or token not in response.text
    for status, senders in {
        204: [{"sec-fetch-site": "same-origin", "origin": "null"}, {"sec-fetch-site": "none"}],
        403: [
            *({"sec-fetch-site": f"{which}-site"} for which in ("cross", "same")),
            *({"origin": each} for each in ("https://evil.example", "null")),
        ],
    }.items():
        for headers in senders:
            with visitor(served) as browser:
                assert sign_in(browser, READER, headers).status_code == status
                assert sign_in(browser, READER, {"origin": served.url}).status_code == 204
                assert browser.delete("/page/session", headers=headers).status_code == status
                assert (NAME in browser.cookies) is (status == 403)


def test_a_session_ends_by_itself_and_the_oldest_make_room(monkeypatch):
    """Memory holds hashes of so many at most, and never what browsers show."""
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 3)
    now = 0.0
    kept = Sessions(lambda: now)
    shown = [kept.begin(bytes([number])) for number in range(4)]
    assert [kept.token_of(each) for each in shown] == [None, b"\1", b"\2", b"\3"]
    gc.collect()
    held = gc.get_referents(kept._sessions)
    assert not any(isinstance(each, str) for each in held)
    kept.end(shown[1])
    now = LIFE_SECONDS - 1.0
    assert [kept.token_of(each) for each in shown] == [None, None, b"\2", b"\3"]
    now = LIFE_SECONDS
    assert [kept.token_of(each) for each in shown] == [None] * 4


def test_a_survey_is_described_to_everybody(served, closed):
    """From its signed bytes, which everybody may fetch: nothing in it hangs on a report."""
    told = served.http.get(f"/page/surveys/{closed.id.hex()}").json()
    asked = {"name": closed.only.name, "question": closed.question, "answers": list(closed.answers), "is_number": False}
    assert (told["questions"], told["public"]) == ([asked], False)
    assert [each["width"] for each in told["tracks"]] == [track.width for track in closed.plan.tracks]
    words = " ".join(told["ledger"])
    assert f"ε = {closed.epsilon.normalize():f}," in words
    factor = int(re.findall(r"at most ([\d,]+) times likelier", words)[0].replace(",", ""))
    assert Decimal(factor - 1) <= closed.epsilon.exp() <= Decimal(factor)
    assert "3 times in all" in words
    assert served.http.get(f"/page/surveys/{'0' * 32}").status_code == 404
