"""The OpenAPI document says what the server does, no more and no less: held to a real server, request by request."""

import re
import time
from collections import defaultdict
from dataclasses import replace

import jsonschema_rs
import msgpack
import pytest
from changeling_aggregator.server import ROUTES, page
from changeling_aggregator.store import Store, TokenScope
from changeling_protocol import Calendar, EarlyEnd, SealingKey
from changeling_protocol.wire import MOST_BODY_BYTES
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..protocol.examples import AUTHORITY, survey
from .devices import FOREVER, body, envelope, report
from .serving import ADMIN, ServerHere, eventually, survey_path, texts
from .test_reader import MINUTES
from .test_reader import published as published_numbers

STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(32))
ANYWHERE = {408, 429, 431, 500, 503}
"""What is answered before an operation is looked at, or where the server is in trouble."""
ESTIMATES = {"/histogram": {}, "/series": {}, "/windows": {"width": 1}, "/change": {"after": 0}}
NOWHERE = "/v1/surveys/" + "0" * 32
TOO_LONG = bytes(MOST_BODY_BYTES + 1)


def shown(scope):
    return {"authorization": f"Bearer {scope.value}"}


BY_ALL = ({}, shown(TokenScope.READ), shown(TokenScope.UPLOAD), ADMIN)


class Asking:
    """Asks a server, holds each answer to the document, and notes which statuses each operation gave."""

    def __init__(self, server):
        self.server = server
        self.document = server.http.get("/openapi.json").json()
        self.seen = defaultdict(set)

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
        kinds = {"application/msgpack": lambda: texts(msgpack.unpackb(answer.content)), "text/csv": lambda: answer.text}
        jsonschema_rs.validate(schema, kinds.get(media_type, answer.json)(), validate_formats=True)
        return answer


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    with ServerHere(tmp_path_factory.mktemp("described"), uploads_need_token=True) as server:
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


def test_every_route_is_described_and_nothing_else_but_the_page_left_out(asking):
    """Also uploads, whose endpoint is made with its service; each operation has a sentence, and a name of its own."""
    document = asking.document
    assert document["openapi"].startswith("3.1")
    routed = {(route.path, method.lower()) for route in ROUTES for method in route.methods or () if method != "HEAD"}
    told = {(path, method) for path, each in document["paths"].items() for method in each if method != "parameters"}
    assert told == routed | {("/v1/uploads", "post")}
    each = [document["paths"][path][method] for path, method in told]
    assert all(operation["summary"] for operation in each)
    assert len({operation["operationId"] for operation in each}) == len(each)
    of_page = {route.path for route in page.ROUTES}
    assert of_page == {"/", "/page/session", "/page/surveys/{survey}", "/page/{file}"}
    assert not of_page & document["paths"].keys()


def test_the_methods_of_a_path_are_those_that_it_names(asking, published):
    """To whoever uses another: 405, with `Allow`, also where each method is a route of its own."""
    for route, each in asking.document["paths"].items():
        answer = asking.server.http.delete(route.replace("{survey}", published.id.hex()))
        assert answer.status_code == 405
        told = {method.upper() for method in each if method != "parameters"}
        assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == told


@pytest.mark.parametrize("what", ESTIMATES)
def test_the_parameters_are_those_that_are_taken(asking, published, what):
    """Any that the document does not name is refused by name; any that it needs is missed."""
    path = survey_path(published) + what

    def parameters(of):
        return asking.document["paths"][f"/v1/surveys/{{survey}}{of}"]["get"]["parameters"]

    everywhere = {each["name"] for one in ESTIMATES for each in parameters(one)}
    taken = {
        name
        for name in {*everywhere, "covariances", "public", "strata"}
        if "there is no parameter" not in asking("GET", path, params={**ESTIMATES[what], name: "x"}).json()["detail"]
    }
    assert {each["name"] for each in parameters(what)} == taken
    needed = {each["name"] for each in parameters(what) if each["required"]}
    assert needed == set(ESTIMATES[what])
    assert asking("GET", path).status_code == (422 if needed else 200)


def test_every_status_that_is_told_is_given_and_no_other(asking, published):
    """With every body as its schema says, in all forms; but for what may happen to any request."""
    path, tagged = survey_path(published), {**ADMIN, "if-none-match": "*"}
    for each in ("/v1/surveys", "/v1/keys", "/healthz", "/readyz", "/openapi.json", path, NOWHERE):
        asking("GET", each)
    for each in ("/v1/keys", path):
        asking("GET", each, headers=tagged)
    try_estimates(asking, path, tagged)
    try_puts(asking)
    try_editions(asking, published, tagged)
    asking("GET", NOWHERE + "/status")
    for headers in BY_ALL:
        asking("GET", path + "/status", headers=headers)
        asking("POST", "/v1/fold", headers=headers)
        asking("POST", "/v1/uploads", headers=headers, content=body(b"no envelope"))
        asking("PUT", "/v1/clock", headers=headers, json={"time": 1})
    for content in (b"\xc1", TOO_LONG):
        asking("POST", "/v1/uploads", content=content)
    too_far = b'{"time": 1' + b"0" * 400 + b"}"
    for content in (b'{"time": 1900000000}', b"[", b'{"time": "now"}', bytes(2000), b"[" * 1000, too_far):
        asking("PUT", "/v1/clock", content=content)
    told = {
        (route, method): {int(status) for status in operation["responses"]} - ANYWHERE - of_no_body(operation)
        for route, each in asking.document["paths"].items()
        for method, operation in each.items()
        if method != "parameters"
    }
    assert {operation: statuses - ANYWHERE for operation, statuses in asking.seen.items()} == told


def of_no_body(operation):
    """Where there is no body, malformed is what is no HTTP at all."""
    return set() if "requestBody" in operation else {400}


def try_estimates(asking, path, tagged):
    """In each form; beyond what is shown; with a tag, without a token, and of no survey."""
    numbers = survey_path(published_numbers(asking.server, (MINUTES,), asking.server.now - 100)) + "/numbers"
    everything = {"confidence": 0.9, "covariance": "true", "method": "retrospective"}
    for asked, needed, more in (
        *((path + what, needed, everything) for what, needed in ESTIMATES.items()),
        (path + "/comparison", {"after": 1, "until": 3}, {}),
        (numbers, {"until": 1}, {"above": 30}),
    ):
        for form in ("json", "msgpack", "csv"):
            assert asking("GET", asked, params={**needed, **more, "format": form}).status_code == 200
        asking("GET", asked, params={**needed, "period" if asked.endswith("/histogram") else "until": 8})
        asking("GET", asked, params={**needed, "method": "best"})
        asking("GET", asked, params=needed, headers=tagged)
        asking("GET", NOWHERE + "/" + asked.rpartition("/")[2], params=needed)
        for headers in BY_ALL[::2]:
            asking("GET", f"{path}/{asked.rpartition('/')[2]}", params=needed, headers=headers)
    asking("GET", path + "/series", params={"method": "smoothed"})


def try_editions(asking, published, tagged):
    """Of a survey that is opened to all for as long."""
    path, content = survey_path(published), published.signed_by(AUTHORITY)
    for headers in BY_ALL:
        asking("GET", path + "/editions/latest/series.json", headers=headers)
    asking("PUT", path, content=content, params={"public": "true"}).raise_for_status()
    files = [f"{path}/editions/latest/{name}" for name in ("series.json", "retrospective.csv", "edition.signed")]
    assert eventually(lambda: asking.server.http.get(files[0]).status_code, 200)
    for file in files:
        asking("GET", file)
    asking("GET", file, headers=tagged)
    asking("PUT", path, content=content, params={"public": "false"}).raise_for_status()


def try_puts(asking):
    store = Store.open(asking.server.store_path)
    with store.transaction() as writing:
        key = SealingKey(writing.make_key(), 0, FOREVER)
    store.close()
    asking.server.move_clock(asking.server.now + 1)
    new = survey(calendar=Calendar(asking.server.now, 60, 8)).asking(question="A new one?")
    later, path = replace(key, begins=FOREVER, expires=FOREVER + 1), survey_path(new)
    for to, signed, other, of_stranger in (
        (path, [new, new], b"no survey", new),
        (NOWHERE, [new], b"no survey", new),
        ("/v1/surveys/none", [new], b"no survey", new),
        ("/v1/keys", [key, later, later], b"no key", later),
        (path + "/end", [EarlyEnd(new.id, last) for last in (5, 5, 6, 8)], b"no end", EarlyEnd(new.id, 5)),
        (NOWHERE + "/end", [EarlyEnd(new.id, 5)], b"no end", EarlyEnd(new.id, 5)),
    ):
        contents = [*(each.signed_by(AUTHORITY) for each in signed), of_stranger.signed_by(STRANGER), other, TOO_LONG]
        for content in contents:
            asking("PUT", to, content=content)
        for headers in BY_ALL[:2]:
            asking("PUT", to, content=contents[0], headers=headers)
    for each in (path, NOWHERE):
        asking("GET", each + "/end")
    asking("PUT", path, content=new.signed_by(AUTHORITY), params={"public": "perhaps"})
