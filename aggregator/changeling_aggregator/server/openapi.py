"""The OpenAPI document: made of the routes, and of what stands beside each endpoint.

An endpoint is described by the types of its bodies, which are msgspec structs or what msgspec knows; it encodes its
answers with them, so that the document cannot say anything else than the server does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import isfunction
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from changeling_protocol import VERSION
from changeling_protocol.wire import JSON, PROBLEM, ErrorCode
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..store import TokenScope
from .http import json

DIALECT = "3.1.1"
ANY_REQUEST = (
    ErrorCode.MALFORMED,
    ErrorCode.TOO_MANY_REQUESTS,
    ErrorCode.FAILED,
    ErrorCode.OVERLOADED,
)
"""Why any request may be turned down."""
ANY_BODY = (ErrorCode.TOO_LARGE, ErrorCode.TOO_SLOW)
NO_TOKEN = (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN)
_SURVEY_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "16 bytes in hexadecimal digits."}
_PATH_SCHEMAS = {
    "edition": {"type": "string", "pattern": "^(latest|[0-9a-f]{32})$", "description": "An edition's name."},
    "file": {"type": "string", "pattern": "^[a-z]+(-[0-9]+)?[.](json|csv|signed)$"},
}
_REFERENCE = "#/components/schemas/{name}"
_GIVEN = {200: "Done.", 201: "Published; it was not here before.", 304: "As the entity tag says.", 503: "It is not."}

HexId: TypeAlias = Annotated[str, Meta(extra_json_schema=_SURVEY_ID)]
Instant: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Binary: TypeAlias = Annotated[bytes, Meta(extra_json_schema={"format": "binary", "description": "MessagePack's bin."})]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Period: TypeAlias = Annotated[int, Meta(ge=0, description="A period's number; the first is 1.")]
Truth: TypeAlias = Literal["true", "false"]
Bodies: TypeAlias = Mapping[str, Any]
"""The type of a body, by its media type."""
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of what is sent and answered: an object with the members that are named, and no others."""


Bounds: TypeAlias = Annotated[list[float | None], Meta(min_length=2, max_length=2)]
"""A lower and an upper one; null where it cannot be told."""


class MissingNode(Body):
    """A node without which a period has no estimate."""

    track: Count
    start: Period
    end: Period


class Signed(Body):
    """An object that the authority signed: the payload is canonical MessagePack itself."""

    payload: Binary
    signature: Binary


class ProblemDocument(Body):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: ErrorCode
    advice: str


@dataclass(frozen=True, slots=True)
class Described:
    """The requests that an endpoint takes, and the answers that it gives. It decorates a function, or a class whose
    objects are endpoints; its docstring is the rest.

    gives: the bodies of its answers, by status. takes: the body it asks for. query: a struct with its parameters.
    refuses: why it turns requests down, besides for what may happen to any request, and for a missing token.
    scope: that of the token it asks for. open_too: it may be open without one.
    """

    gives: Mapping[int, Bodies]
    takes: Bodies = field(default_factory=dict)
    query: type[Struct] | None = None
    refuses: Sequence[ErrorCode] = ()
    scope: TokenScope | None = None
    open_too: bool = False

    def __call__(self, endpoint: _Endpoint) -> _Endpoint:
        """Describe an endpoint."""
        endpoint.described = self  # type: ignore[attr-defined]
        return endpoint


@Described({200: {JSON: dict[str, Any]}})
async def show_document(request: Request) -> Response:
    """GET this document."""
    return json(document(request.app.routes))


def operations(routes: Iterable[BaseRoute]) -> Iterator[tuple[Route, str, Described]]:
    """Each route and method whose endpoint is described. GET stands for HEAD, too."""
    for route in routes:
        described = getattr(route.endpoint, "described", None) if isinstance(route, Route) else None
        if isinstance(route, Route) and isinstance(described, Described):
            for method in sorted((route.methods or set()) - {"HEAD"}):
                yield route, method, described


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of these routes, as far as their endpoints are described."""
    named = [*operations(routes)]
    types = [ProblemDocument, *(each for *_, description in named for each in _types_of(description))]
    paths: dict[str, dict[str, Any]] = {}
    for route, method, description in named:
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS.get(name, _SURVEY_ID)}
            for name in route.param_convertors
        ]
        path = paths.setdefault(route.path, {"parameters": parameters} if parameters else {})
        path[method.lower()] = _operation(route, description)
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
            "schemas": msgspec.json.schema_components(types, ref_template=_REFERENCE)[1],
            "responses": {str(status): _problem(status) for status in sorted({code.status for code in ErrorCode})},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "What `changeling token new` showed."}
            },
        },
    }


def _types_of(description: Described) -> Iterator[Any]:
    for bodies in (description.takes, *description.gives.values()):
        yield from bodies.values()
    if description.query is not None:
        yield description.query


def _operation(route: Route, description: Described) -> dict[str, Any]:
    endpoint = route.endpoint
    call = endpoint if isfunction(endpoint) else type(endpoint).__call__
    summary, *more = (" ".join(each.split()) for each in (call.__doc__ or "").split("\n\n"))
    operation: dict[str, Any] = {
        "operationId": getattr(endpoint, "__name__", type(endpoint).__name__.lower()),
        "summary": summary,
    }
    if more:
        operation["description"] = "\n\n".join(more)
    if description.query is not None:
        operation["parameters"] = [
            {"name": each.name, "in": "query", "required": each.required, "schema": _schema(each.type)}
            for each in sorted(msgspec.structs.fields(description.query), key=lambda each: each.name)
        ]
    if description.takes:
        operation["requestBody"] = {"required": True, "content": _content(description.takes)}
    operation["responses"] = _responses(description, route)
    if description.scope is not None:
        operation["security"] = [*([{}] if description.open_too else []), {"token": [description.scope.value]}]
    return operation


def _responses(description: Described, route: Route) -> dict[str, Any]:
    codes = {*ANY_REQUEST, *description.refuses}
    codes |= {*NO_TOKEN} if description.scope is not None else set()
    codes |= {*ANY_BODY} if description.takes else set()
    codes |= {ErrorCode.NOT_FOUND} if route.param_convertors else set()
    responses: dict[int, dict[str, Any]] = {
        code.status: {"$ref": f"#/components/responses/{code.status}"} for code in codes
    }
    for status, bodies in description.gives.items():
        given = {"description": _GIVEN[status], "content": _content(bodies)}
        if status in responses:
            error = _problem(status)
            given = {
                "description": f"{_GIVEN[status]} Or: {error['description']}",
                "content": _content(bodies) | error["content"],
            }
        responses[status] = given
    return {str(status): responses[status] for status in sorted(responses)}


def _problem(status: int) -> dict[str, Any]:
    """All errors of a status."""
    return {
        "description": " ".join(f"{code.value}: {code.advice}" for code in ErrorCode if code.status == status),
        "content": {PROBLEM: {"schema": _schema(ProblemDocument)}},
    }


def _content(bodies: Bodies) -> dict[str, Any]:
    return {media_type: {"schema": _schema(body)} for media_type, body in bodies.items()}


@cache
def _schema(body: Any) -> dict[str, Any]:
    ((schema,), _) = msgspec.json.schema_components([body], ref_template=_REFERENCE)
    return schema
