"""`changeling token`: who may do what on a server."""

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import UnixSeconds
from changeling_statistics import format_instant
from rich.table import Table

from .store import STORE_HELP
from .tables import console

app = typer.Typer(help="Make, list and revoke the tokens of a server.", no_args_is_help=True)

Store = Annotated[str, typer.Option(help=f"The server's store; the server may be running. {STORE_HELP}")]


@app.command()
def new(
    store: Store,
    name: Annotated[str, typer.Option(help="Whose it is; for uploads the app's, never a person's.")],
    scope: Annotated[list[str], typer.Option(help="survey:write, fold, read or upload; again for more.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for it, instead of the screen.")] = None,
) -> None:
    """Make a token, and print it: this is the only time. The store keeps its hash. A running server knows it soon.

    survey:write is for publishing surveys, their ends and sealing keys; fold for folding at once and for the clock;
    read for results that are not public, and for status; upload for apps, where the server asks for that.
    """
    from .. import store as stores
    from ..store import TokenScope, new_token

    unknown = [each for each in scope if each not in TokenScope.__members__.values()]
    if unknown:
        raise ValueError(f"a scope is one of {', '.join(TokenScope)}, got {unknown[0]!r}")
    text = new_token()
    with closing(stores.Store.open(store)) as opened, opened.transaction() as writing:
        writing.add_token(text, name, {TokenScope(each) for each in scope}, UnixSeconds(time.time()))
        if output is not None:
            with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text + "\n")
    typer.echo(text if output is None else f"wrote {output}")


@app.command("list")
def list_(store: Store) -> None:
    """Show every token: its id, name and scopes, and when it was made. The token itself is nowhere."""
    from .. import store as stores

    with closing(stores.Store.open(store)) as opened, opened.view() as view:
        tokens = view.tokens().values()
    table = Table()
    for column in ("token", "name", "scopes", "made"):
        table.add_column(column)
    for token in tokens:
        table.add_row(token.id.hex(), token.name, ", ".join(sorted(token.scopes)), format_instant(token.created))
    console().print(table)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(help="Its id, as `changeling token list` shows it.")], store: Store
) -> None:
    """Take a token away. A running server knows it no more within seconds."""
    from .. import store as stores

    try:
        id_ = bytes.fromhex(token)
    except ValueError:
        raise ValueError(f"a token's id is 8 hexadecimal digits, got {token!r}") from None
    with closing(stores.Store.open(store)) as opened, opened.transaction() as writing:
        revoked = writing.revoke_token(id_)
    typer.echo(f"token {revoked.id.hex()} of {revoked.name} is revoked")
