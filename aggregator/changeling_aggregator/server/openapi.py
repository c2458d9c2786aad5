"""The OpenAPI document of the server, made of its routes and of what their endpoints say of themselves."""

from collections.abc import Iterable, Iterator, Sequence
from inspect import isfunction
from typing import Any

from changeling_protocol import VERSION
from changeling_protocol.wire import ADVICE, HTTP_STATUS, JSON, PROBLEM, ErrorCode
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from .described import Described, described, description_of
from .schemas import ID, TEXT, Schema, record

DIALECT = "3.1.1"
ANY_REQUEST = (
    ErrorCode.MALFORMED,
    ErrorCode.TOO_MANY_REQUESTS,
    ErrorCode.HEAD_TOO_LARGE,
    ErrorCode.FAILED,
    ErrorCode.OVERLOADED,
)
"""Why any request may be turned down; malformed is what is no HTTP."""
ANY_BODY = (ErrorCode.TOO_LARGE, ErrorCode.TOO_SLOW)
NO_TOKEN = (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN)
_TOKEN, _PROBLEM = "token", "Problem"


@described(Described({200: {JSON: {"type": "object"}}}))
async def show_document(request: Request) -> Response:
    """GET this document."""
    return JSONResponse(document(request.app.routes))


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of these routes, as far as their endpoints are described."""
    paths: dict[str, dict[str, Any]] = {}
    for route, method, what in operations(routes):
        paths.setdefault(route.path, _path(route))[method.lower()] = _operation(route, what)
    return {
        "openapi": DIALECT,
        "info": {
            "title": "changeling",
            "version": str(VERSION),
            "description": "Randomized answers in, histograms over time out. Signed objects, uploads and keys are "
            "canonical MessagePack; every error is a problem document (RFC 9457).",
        },
        "paths": paths,
        "components": {
            "schemas": {_PROBLEM: _problem()},
            "responses": {str(status): _turned_down(status) for status in sorted({*HTTP_STATUS.values()})},
            "securitySchemes": {
                _TOKEN: {"type": "http", "scheme": "bearer", "description": "What `changeling token new` showed."}
            },
        },
    }


def operations(routes: Iterable[BaseRoute]) -> Iterator[tuple[Route, str, Described]]:
    """Each route and method whose endpoint is described. Of GET, HEAD is understood."""
    for route in routes:
        if isinstance(route, Route) and (what := description_of(route.endpoint)) is not None:
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield route, method, what


def codes_of(what: Described, route: Route) -> set[ErrorCode]:
    """All for which a request may be turned down there."""
    codes = {*ANY_REQUEST, *what.refuses}
    if what.scope is not None:
        codes |= {*NO_TOKEN}
    if what.takes:
        codes |= {*ANY_BODY}
    return codes | ({ErrorCode.NOT_FOUND} if route.param_convertors else set())


def _path(route: Route) -> dict[str, Any]:
    parameters = [{"name": name, "in": "path", "required": True, "schema": ID} for name in route.param_convertors]
    return {"parameters": parameters} if parameters else {}


def _operation(route: Route, what: Described) -> dict[str, Any]:
    endpoint = route.endpoint
    call = endpoint if isfunction(endpoint) else type(endpoint).__call__
    said = (call.__doc__ or "").split("\n\n")
    operation: dict[str, Any] = {
        "operationId": getattr(endpoint, "__name__", type(endpoint).__name__.lower()),
        "summary": " ".join(said[0].split()),
    }
    if said[1:]:
        operation["description"] = "\n\n".join(" ".join(each.split()) for each in said[1:])
    if what.query:
        operation["parameters"] = [
            {"name": name, "in": "query", "required": name in what.needed, "schema": schema}
            for name, schema in sorted(what.query.items())
        ]
    if what.takes:
        operation["requestBody"] = {"required": True, "content": _content(what.takes)}
    operation["responses"] = _responses(what, codes_of(what, route))
    if what.scope is not None:
        operation["security"] = [*([{}] if what.open_too else []), {_TOKEN: [what.scope.value]}]
    return operation


def _responses(what: Described, codes: set[ErrorCode]) -> dict[str, Any]:
    responses: dict[int, dict[str, Any]] = {
        HTTP_STATUS[code]: {"$ref": f"#/components/responses/{HTTP_STATUS[code]}"} for code in codes
    }
    for status, bodies in what.gives.items():
        told = {"description": _GIVEN[status], "content": _content(bodies)}
        if status in responses:
            told = {
                "description": f"{_GIVEN[status]} Or: {_turned_down(status)['description']}",
                "content": _content(bodies) | _turned_down(status)["content"],
            }
        responses[status] = told
    return {str(status): responses[status] for status in sorted(responses)}


def _turned_down(status: int) -> dict[str, Any]:
    """All errors of a status."""
    return {
        "description": " ".join(f"{code.value}: {ADVICE[code]}" for code in ErrorCode if HTTP_STATUS[code] == status),
        "content": {PROBLEM: {"schema": {"$ref": f"#/components/schemas/{_PROBLEM}"}}},
    }


_GIVEN = {200: "Done.", 201: "Published; it was not here before.", 304: "As the entity tag says.", 503: "It is not."}


def _content(bodies: Any) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type, schema in bodies.items()}


def _problem() -> Schema:
    codes = {"type": "string", "enum": [code.value for code in ErrorCode]}
    return record(type=TEXT, title=TEXT, status={"type": "integer"}, detail=TEXT, code=codes, advice=TEXT)
