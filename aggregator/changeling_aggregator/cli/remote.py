"""Requests to a server: the operator's token, and the server's errors as one sentence."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from changeling_protocol import MalformedBytes
from changeling_protocol.wire import ErrorAnswer

from ..errors import AggregatorError, ServerAnswered

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "CHANGELING_ADMIN_TOKEN"  # noqa: S105
TIMEOUT_SECONDS = 30
Query: TypeAlias = Mapping[str, str | list[str]]


def admin_token(file: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    token = file.read_text().strip() if file else os.environ.get(TOKEN_VARIABLE, "").strip()
    return token or None


def put(server: str, path: str, body: bytes, token: str | None) -> bool:
    """Publish signed bytes.

    server: its base URL. path: one of the protocol's. token: the operator's; without one nothing is sent.
    Returns False where the same bytes were published already. Raises AggregatorError or httpx.HTTPError.
    """
    import httpx

    if token is None:
        raise AggregatorError(f"this needs the server's admin token, in ${TOKEN_VARIABLE} or a file")
    response = httpx.put(
        server.rstrip("/") + path,
        content=body,
        headers={"authorization": f"Bearer {token}"},
        timeout=TIMEOUT_SECONDS,
    )
    _check(response)
    return response.status_code == 201


def get_json(server: str, path: str, query: Query | None = None, token: str | None = None) -> dict[str, Any]:
    """What a server answers in JSON. token: the operator's, if any. Raises ServerAnswered or httpx.HTTPError."""
    content: dict[str, Any] = _get(server, path, token, query or {}).json()
    return content


def get_csv(server: str, path: str, query: Query) -> str:
    """What a server answers in CSV. Raises ServerAnswered or httpx.HTTPError."""
    return _get(server, path, None, {**query, "format": "csv"}).text


def _get(server: str, path: str, token: str | None, query: Query) -> "httpx.Response":
    import httpx

    headers = {"authorization": f"Bearer {token}"} if token else {}
    response = httpx.get(server.rstrip("/") + path, params=dict(query), headers=headers, timeout=TIMEOUT_SECONDS)
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
