"""The OpenAPI document says what the server does, no more and no less: held to a real server, request by request."""

import re
import time
from collections import defaultdict
from dataclasses import replace

import jsonschema_rs
import msgpack
import pytest
from changeling_aggregator.server import ROUTES, page
from changeling_aggregator.server.openapi import DIALECT, operations
from changeling_aggregator.store import Store, TokenScope
from changeling_protocol import Calendar, EarlyEnd, SealingKey
from changeling_protocol.wire import MOST_BODY_BYTES
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, survey
from .devices import FOREVER, body, envelope, report
from .serving import ADMIN, ServerHere, eventually, survey_path
from .test_reader import MINUTES
from .test_reader import published as published_numbers

STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))
TOO_FAR = b'{"time": 1' + b"0" * 400 + b"}"
ANYWHERE = {408, 429, 431, 500, 503}
"""What is answered before an operation is looked at, or where the server is in trouble."""
ESTIMATES = {"/histogram": {}, "/series": {}, "/windows": {"width": 1}, "/change": {"after": 0}}


class Asking:
    """Asks a server, holds each answer to the document, and notes which statuses each operation gave."""

    def __init__(self, server):
        self.server = server
        self.document = server.http.get("/openapi.json").json()
        self.seen: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def __call__(self, method, path, **how):
        """With the operator's token, unless headers are given."""
        for _ in range(10):
            answer = self.server.http.request(method, path, **{"headers": ADMIN, **how})
            if answer.status_code != 503:  # come again, it says, where this machine has much else to do
                break
            time.sleep(1)
        assert answer.status_code < 500
        route = next(each for each in self.document["paths"] if re.fullmatch(re.sub("{.*?}", "[^/]+", each), path))
        self.seen[route, method.lower()].add(answer.status_code)
        told = self.document["paths"][route][method.lower()]["responses"][str(answer.status_code)]
        if "$ref" in told:
            told = self.document["components"]["responses"][told["$ref"].rpartition("/")[2]]
        if answer.status_code == 304:
            return answer
        media_type = answer.headers["content-type"].partition(";")[0]
        schema = {**told["content"][media_type]["schema"], "components": self.document["components"]}
        jsonschema_rs.validate(schema, _content(answer, media_type), validate_formats=True)
        return answer


def _content(answer, media_type):
    if media_type == "application/msgpack":
        return _texts(msgpack.unpackb(answer.content))
    return answer.text if media_type == "text/csv" else answer.json()


def _texts(value):
    """What JSON Schema takes for a bin is a text."""
    if isinstance(value, dict):
        return {name: _texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_texts(each) for each in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    folder = tmp_path_factory.mktemp("described")
    with ServerHere(folder, uploads_need_token=True) as server:
        server.http.timeout = 100  # the fold gives way to all that this machine does besides
        for scope in TokenScope:
            server.add_token(scope.value, scope)
        server.move_clock(1_800_000_000)
        yield Asking(server)


@pytest.fixture(scope="module")
def published(asking):
    """Not open to all; two periods have closed, and are shown."""
    server = asking.server
    asked = survey(calendar=Calendar(server.now, 60, 8), grace=120)
    content = asked.signed_by(AUTHORITY)
    assert asking("PUT", survey_path(asked), content=content).status_code == 409  # there is no key
    key = server.key
    asking("PUT", survey_path(asked), content=content).raise_for_status()
    server.move_clock(asked.calendar.time(2) + 1)
    sent = body(*[envelope(asked, key, [report(1), report(2)]) for _ in range(40)])
    server.http.post("/v1/uploads", content=sent, headers=ADMIN).raise_for_status()
    server.move_clock(asked.calendar.time(4) + 1)
    server.fold()
    return asked


def test_every_route_is_described_and_nothing_else(asking):
    """Also uploads, whose endpoint is made with its service; each operation has a sentence, and a name of its own."""
    document = asking.document
    assert document["openapi"] == DIALECT
    routed = {(route.path, method.lower()) for route in ROUTES for method in route.methods or () if method != "HEAD"}
    told = {(path, method) for path, each in document["paths"].items() for method in each if method != "parameters"}
    assert told == routed | {("/v1/uploads", "post")}
    each = [document["paths"][path][method] for path, method in told]
    assert all(operation["summary"] for operation in each)
    assert len({operation["operationId"] for operation in each}) == len(each)


def test_the_page_alone_is_left_out(asking):
    """Of all that a server answers: each path that is left out is one of these, and is answered."""
    left_out = {(route.path, method) for route in page.ROUTES for method in (route.methods or set()) - {"HEAD"}}
    assert left_out == {
        ("/", "GET"),
        ("/page/session", "GET"),
        ("/page/session", "POST"),
        ("/page/session", "DELETE"),
        ("/page/surveys/{survey}", "GET"),
        ("/page/{file}", "GET"),
    }
    assert not {path for path, _ in left_out} & asking.document["paths"].keys()
    assert [*operations(page.ROUTES)] == []
    for path in ("/", "/page/session", "/page/main.js"):
        assert asking.server.http.get(path).status_code in (200, 401)


@pytest.mark.parametrize("what", ESTIMATES)
def test_the_parameters_are_those_that_are_taken(asking, published, what):
    """Any that the document does not name is refused by name; any that it needs is missed."""
    path = survey_path(published) + what
    parameters = asking.document["paths"][f"/v1/surveys/{{survey}}{what}"]["get"]["parameters"]
    everywhere = {
        each["name"]
        for one in ESTIMATES
        for each in asking.document["paths"][f"/v1/surveys/{{survey}}{one}"]["get"]["parameters"]
    }
    taken = {
        name
        for name in {*everywhere, "covariances", "public", "strata"}
        if "there is no parameter" not in asking("GET", path, params={**ESTIMATES[what], name: "x"}).json()["detail"]
    }
    assert {each["name"] for each in parameters} == taken
    needed = {each["name"] for each in parameters if each["required"]}
    assert needed == set(ESTIMATES[what])
    assert asking("GET", path).status_code == (422 if needed else 200)


def test_the_scopes_are_those_that_are_asked_for(asking, published):
    """Without a token 401, and with one for anything else 403, wherever a scope stands; nowhere else."""
    for route, method, what in operations(ROUTES):
        path = route.path.replace("{survey}", published.id.hex())
        allowed = {
            scope
            for scope in TokenScope
            if asking(method, path, headers=_shown(scope), params=_needed(path)).status_code != 403
        }
        without = asking(method, path, headers={}, params=_needed(path)).status_code
        assert without == 401 if what.scope else without != 401
        assert allowed == ({what.scope} if what.scope else {*TokenScope}), path


def _shown(scope):
    return {"authorization": f"Bearer {scope.value}"}


def _needed(path):
    return ESTIMATES.get(f"/{path.rpartition('/')[2]}", {})


def test_every_status_that_is_told_is_given_and_no_other(asking, published):
    """With every body as its schema says, in all forms; but for what may happen to any request."""
    path, nowhere = survey_path(published), "/v1/surveys/" + "0" * 32
    for each in ("/v1/surveys", "/v1/keys", "/healthz", "/readyz", "/openapi.json", path, nowhere):
        asking("GET", each)
    asking("GET", "/v1/keys", headers={"if-none-match": "*"})
    _try_puts(asking)
    for what, needed in ESTIMATES.items():
        for form in ("json", "msgpack", "csv"):
            everything = {"format": form, "confidence": 0.9, "covariance": "true", "method": "retrospective"}
            answer = asking("GET", path + what, params={**needed, **everything})
            assert answer.status_code == 200
        tag = {**ADMIN, "if-none-match": answer.headers["etag"]}
        asking("GET", path + what, params={**needed, **everything}, headers=tag)
        asking("GET", path + what, params={**needed, "method": "best"})
        asking("GET", path + what, params={**needed, "period" if what == "/histogram" else "until": 8})
        asking("GET", nowhere + what, params=needed)
        for headers in ({}, _shown(TokenScope.UPLOAD)):
            asking("GET", path + what, headers=headers, params=needed)
    for more in ({"until": 3}, {"until": 3, "format": "csv"}, {"until": 3, "format": "msgpack"}, {"until": 8}, {}):
        answer = asking("GET", path + "/comparison", params={"after": 1, **more})
        asking("GET", path + "/comparison", params=more)
    asking("GET", nowhere + "/comparison", params={"after": 1})
    tag = {**ADMIN, "if-none-match": "*"}
    asking("GET", path + "/comparison", params={"after": 1, "until": 3}, headers=tag)
    asking("GET", path + "/series", params={"method": "smoothed"})
    asking("GET", path, headers={"if-none-match": "*"})
    _try_editions(asking, published)
    asking("GET", nowhere + "/status")
    for headers in ({}, ADMIN, _shown(TokenScope.READ), _shown(TokenScope.UPLOAD)):
        asking("GET", path + "/status", headers=headers)
        asking("POST", "/v1/fold", headers=headers)
        asking("POST", "/v1/uploads", headers=headers, content=body(b"no envelope"))
    for content in (b"\xc1", bytes(MOST_BODY_BYTES + 1)):
        asking("POST", "/v1/uploads", content=content)
    for content in (
        b'{"time": 1900000000}',
        b'{"time": 1}',
        b"[",
        b'{"time": "now"}',
        bytes(2000),
        b"[" * 1000,
        TOO_FAR,
    ):
        asking("PUT", "/v1/clock", content=content)
    for headers in ({}, _shown(TokenScope.UPLOAD)):
        asking("PUT", "/v1/clock", headers=headers, json={"time": 1})
    numbers = survey_path(published_numbers(asking.server, (MINUTES,), asking.server.now - 100)) + "/numbers"
    for form in ("json", "msgpack", "csv"):
        asking("GET", numbers, params={"until": 1, "format": form, "above": 30})
    asking("GET", numbers, params={"until": 1}, headers={**ADMIN, "if-none-match": "*"})
    asking("GET", numbers, params={"until": 8})
    asking("GET", nowhere + "/numbers")
    told = {
        (route, method): {int(status) for status in operation["responses"]} - ANYWHERE - _of_no_body(operation)
        for route, each in asking.document["paths"].items()
        for method, operation in each.items()
        if method != "parameters"
    }
    assert {operation: statuses - ANYWHERE for operation, statuses in asking.seen.items()} == told


def _of_no_body(operation):
    """Where there is no body, malformed is what is no HTTP at all."""
    return set() if "requestBody" in operation else {400}


def test_a_path_names_all_its_methods(asking, published):
    """To whoever uses another: 405, with `Allow`, also where each method is a route of its own."""
    for route, each in asking.document["paths"].items():
        path = route.replace("{survey}", published.id.hex())
        answer = asking.server.http.delete(path)
        assert answer.status_code == 405
        told = {method.upper() for method in each if method != "parameters"}
        assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == told


def _try_editions(asking, published):
    """Of a survey that is opened to all for as long."""
    path, put = survey_path(published), asking.server.http.put
    for headers in ({}, ADMIN, _shown(TokenScope.UPLOAD)):
        asking("GET", path + "/editions/latest/series.json", headers=headers)
    put(path, content=published.signed_by(AUTHORITY), headers=ADMIN, params={"public": "true"}).raise_for_status()
    files = [f"{path}/editions/latest/{name}" for name in ("series.json", "retrospective.csv", "edition.signed")]
    assert eventually(lambda: asking.server.http.get(files[0]).status_code, 200)
    for file in files:
        asking("GET", file)
    asking("GET", file, headers={"if-none-match": "*"})
    put(path, content=published.signed_by(AUTHORITY), headers=ADMIN, params={"public": "false"}).raise_for_status()


def _try_puts(asking):
    store = Store.open(asking.server.store_path)
    with store.transaction() as writing:
        key = SealingKey(writing.make_key(), 0, FOREVER)
    store.close()
    asking.server.move_clock(asking.server.now + 1)
    new = survey(calendar=Calendar(asking.server.now, 60, 8)).asking(question="A new one?")
    path, nowhere = survey_path(new), "/v1/surveys/" + "0" * 32
    too_long = bytes(MOST_BODY_BYTES + 1)
    later = replace(key, begins=FOREVER, expires=FOREVER + 1)
    for to, contents in {
        path: [*[new.signed_by(AUTHORITY)] * 2, new.signed_by(STRANGER), b"no survey", too_long],
        nowhere: [new.signed_by(AUTHORITY)],
        "/v1/surveys/none": [new.signed_by(AUTHORITY)],
        "/v1/keys": [
            *[each.signed_by(AUTHORITY) for each in (key, later, later)],
            *[later.signed_by(STRANGER), b"no key", too_long],
        ],
        path + "/end": [
            *[EarlyEnd(new.id, last).signed_by(AUTHORITY) for last in (5, 5, 6, 8)],
            *[EarlyEnd(new.id, 5).signed_by(STRANGER), b"no end", too_long],
        ],
        nowhere + "/end": [EarlyEnd(new.id, 5).signed_by(AUTHORITY)],
    }.items():
        for content in contents:
            asking("PUT", to, content=content)
        for headers in ({}, _shown(TokenScope.READ)):
            asking("PUT", to, content=contents[0], headers=headers)
    asking("GET", path + "/end")
    asking("PUT", path, content=new.signed_by(AUTHORITY), params={"public": "perhaps"})
