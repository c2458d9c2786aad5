"""`changeling segments`: what of the log lies in segments, and putting them in order."""

import time
from contextlib import closing
from typing import Annotated

import typer
from changeling_protocol import UnixSeconds

from .store import STORE_HELP

SEGMENTS_HELP = "A folder, or an object store, s3://BUCKET/PREFIX, gs://… or az://…; without it, the store itself."

app = typer.Typer(help="Look at segments of the log, and put them in order.", no_args_is_help=True)
Named = Annotated[str, typer.Option(help=f"Whose log; servers may be running on it. {STORE_HELP}")]


@app.command("list")
def list_(store: Named) -> None:
    """Print a line for each segment: its place and name, its positions in its stream, its bytes, what is counted."""
    from ..store import Store

    with closing(Store.open(store)) as opened, opened.view() as view:
        counted = view.counted_positions()
        for each in view.segments():
            rest = each.last - max(counted[each.stream], each.first - 1)
            state = "counted" if rest <= 0 else f"{rest} to count"
            typer.echo(f"{each.place}/{each.name}  {each.first}-{each.last}  {each.size} bytes  {state}")


@app.command()
def compact(store: Named) -> None:
    """Write small segments anew as larger ones, and delete files of no use: what a killed server wrote and never named.

    A server does the first by itself, a little at a time. While another process folds nothing is done, and it ends
    with 1.
    """
    from ..store import Store

    with closing(Store.open(store)) as opened, opened.turn_to_fold() as turn:
        if turn is None:
            typer.echo("another process is folding: try again")
            raise typer.Exit(1)
        replaced = 0
        while some := turn.compact():
            replaced += some
        swept = turn.sweep(UnixSeconds(time.time()))
    typer.echo(f"{replaced} segments were written anew, {swept} files of no use deleted")
