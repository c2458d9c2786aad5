"""What an endpoint says of itself in the OpenAPI document. It stands beside the endpoint; its docstring is the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from changeling_protocol.wire import ErrorCode

from ..store.tokens import TokenScope
from .schemas import Schema

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
Bodies = Mapping[str, Schema]
"""By media type."""


@dataclass(frozen=True, slots=True)
class Described:
    """What an endpoint takes and gives.

    gives: the bodies of its answers, by status. takes: the body it asks for. query: its parameters, by name; those that
    are needed are named once more.
    refuses: why it turns requests down, besides for what may happen to any request, and for a missing token.
    scope: that of the token it asks for. open_too: it may be open without one.
    """

    gives: Mapping[int, Bodies]
    takes: Bodies = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)
    needed: Collection[str] = ()
    refuses: Sequence[ErrorCode] = ()
    scope: TokenScope | None = None
    open_too: bool = False


_of: dict[object, Described] = {}


def described(what: Described) -> Callable[[_Endpoint], _Endpoint]:
    """Says this of an endpoint: a function, or a class whose objects are endpoints."""

    def keep(endpoint: _Endpoint) -> _Endpoint:
        _of[endpoint] = what
        return endpoint

    return keep


def description_of(endpoint: Callable[..., Any]) -> Described | None:
    """What was said of an endpoint; None where nothing was."""
    kind: object = type(endpoint)
    return _of.get(endpoint) or _of.get(kind)
