"""Asking a server: the operator's token, publishing, and `changeling clock`."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from changeling_protocol.wire import CLOCK

from ..errors import AggregatorError

if TYPE_CHECKING:
    from changeling_reader import ServerClient

TOKEN_VARIABLE = "CHANGELING_TOKEN"  # noqa: S105

TokenFile = Annotated[Path | None, typer.Option(help="File with a token of the server's; else $CHANGELING_TOKEN.")]
"""The option of every command that may need a token."""

app = typer.Typer(help="Tell a server what time it is.", no_args_is_help=True)


def token_in(file: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    token = file.read_text().strip() if file else os.environ.get(TOKEN_VARIABLE, "").strip()
    return token or None


def asking(server: str, token: str | None = None) -> "ServerClient":
    """A client of a server; use as a context. server: its base URL. token: None for what is open to all."""
    from changeling_reader import ServerClient

    return ServerClient(server, token=token)


def put(server: str, path: str, body: bytes, token: str | None, **query: str) -> bool:
    """Publish signed bytes; False where the same bytes were published already.

    server: its base URL. path: one of the protocol's. token: one for this; without one nothing is sent.
    """
    if token is None:
        raise AggregatorError(f"this needs a token of the server's, in ${TOKEN_VARIABLE} or a file")
    with asking(server, token) as client:
        return client.put(path, body, query)


@app.callback()
def clock_group() -> None:
    """Tell a server what time it is."""


@app.command()
def confirm(
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
) -> None:
    """Let a server believe its clock again, after it was set or after a long pause, and seal what is due.

    It is told the time of the machine where this is typed, and refuses if its own clock shows another.
    """
    put(server, CLOCK, json.dumps({"time": time.time()}).encode(), token_in(token_file))
    typer.echo("the server believes its clock")
