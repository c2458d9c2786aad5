"""Requests to a server: the operator's token, and its errors as one sentence."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AggregatorError

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "CHANGELING_ADMIN_TOKEN"  # noqa: S105
TIMEOUT_SECONDS = 30


def admin_token(file: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    token = file.read_text().strip() if file else os.environ.get(TOKEN_VARIABLE, "").strip()
    return token or None


def put(server: str, path: str, body: bytes, token: str | None) -> bool:
    """Publish signed bytes; False where they were there already. Raises AggregatorError or httpx.HTTPError."""
    import httpx

    if token is None:
        raise AggregatorError(f"publishing needs the server's admin token, in ${TOKEN_VARIABLE} or a file")
    response = httpx.put(
        server.rstrip("/") + path,
        content=body,
        headers={"authorization": f"Bearer {token}"},
        timeout=TIMEOUT_SECONDS,
    )
    _check(response)
    return response.status_code == 201


def get_json(server: str, path: str, **query: str) -> dict[str, Any]:
    """Raises AggregatorError or httpx.HTTPError."""
    import httpx

    response = httpx.get(server.rstrip("/") + path, params=query, timeout=TIMEOUT_SECONDS)
    _check(response)
    content: dict[str, Any] = response.json()
    return content


def _check(response: "httpx.Response") -> None:
    if response.is_success:
        return
    try:
        content = response.json()
        sentence = content.get("detail") or content["error"]
    except (ValueError, KeyError, AttributeError):
        sentence = "no reason given"
    raise AggregatorError(f"the server answered {response.status_code}: {sentence}")
