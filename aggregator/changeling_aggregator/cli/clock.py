"""`changeling clock`: an operator's word for what time it is."""

import json
import time
from typing import Annotated

import typer
from changeling_protocol.wire import CLOCK

from .remote import TokenFile, put, token_in

app = typer.Typer(help="Tell a server what time it is.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Tell a server what time it is."""


@app.command()
def confirm(
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
) -> None:
    """Let a server believe its clock again, after a jump or a long downtime, and seal what is due.

    It is told the time of the machine where this is typed, and refuses if its own clock shows another.
    """
    put(server, CLOCK, json.dumps({"time": time.time()}).encode(), token_in(token_file))
    typer.echo("the server believes its clock")
