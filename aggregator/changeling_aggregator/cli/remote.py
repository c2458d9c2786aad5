"""Requests to a server: the operator's token, and the server's errors as one sentence."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from changeling_protocol import MalformedBytes
from changeling_protocol.wire import ErrorAnswer, is_loopback

from ..errors import AggregatorError, ServerAnswered

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "CHANGELING_TOKEN"  # noqa: S105
TIMEOUT_SECONDS = 30
Query: TypeAlias = Mapping[str, str | list[str]]


TokenFile = Annotated[Path | None, typer.Option(help="File with a token of the server's; else $CHANGELING_TOKEN.")]
"""The option of every command that may need a token."""


def token_in(file: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    token = file.read_text().strip() if file else os.environ.get(TOKEN_VARIABLE, "").strip()
    return token or None


def put(server: str, path: str, body: bytes, token: str | None, **query: str) -> bool:
    """Publish signed bytes.

    server: its base URL. path: one of the protocol's. token: one for this; without one nothing is sent.
    Returns False where the same bytes were published already. Raises AggregatorError, ValueError or httpx.HTTPError.
    """
    if token is None:
        raise AggregatorError(f"this needs a token of the server's, in ${TOKEN_VARIABLE} or a file")
    return _answer("PUT", server, path, token, query, body).status_code == 201


def get_json(server: str, path: str, query: Query | None = None, token: str | None = None) -> dict[str, Any]:
    """What a server answers in JSON. token: None where nothing but what is open to all is asked for.

    Raises ServerAnswered, ValueError or httpx.HTTPError.
    """
    content: dict[str, Any] = _answer("GET", server, path, token, query or {}).json()
    return content


def get_csv(server: str, path: str, query: Query, token: str | None = None) -> str:
    """What a server answers in CSV. Raises ServerAnswered, ValueError or httpx.HTTPError."""
    return _answer("GET", server, path, token, {**query, "format": "csv"}).text


def _answer(
    method: str, server: str, path: str, token: str | None, query: Query, body: bytes | None = None
) -> "httpx.Response":
    import httpx

    url = httpx.URL(server.rstrip("/") + path)
    if token is not None and url.scheme != "https" and not is_loopback(url.host):
        raise ValueError(f"{server} would be sent a token that anybody on the way can read: use https")
    response = httpx.request(
        method,
        url,
        params=dict(query),
        content=body,
        headers={} if token is None else {"authorization": f"Bearer {token}"},
        timeout=TIMEOUT_SECONDS,
        trust_env=url.scheme == "https",  # a proxy for http would read the token
    )
    _check(response)
    return response


def _check(response: "httpx.Response") -> None:
    if response.is_success:
        return
    try:
        answer = ErrorAnswer.decode(response.content)
    except MalformedBytes:
        raise ServerAnswered(response.status_code, None, "no reason given") from None
    raise ServerAnswered(response.status_code, answer.code, answer.detail)
