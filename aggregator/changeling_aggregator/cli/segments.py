"""`changeling segments`: what of the log lies in segments, putting it in order, and recovering what a server left."""

import time
from contextlib import closing
from typing import Annotated

import typer
from changeling_protocol import UnixMilliseconds, UnixSeconds

from .store import STORE_HELP

SEGMENTS_HELP = "A folder, or an object store, s3://BUCKET/PREFIX, gs://… or az://…; without it, the store itself."

app = typer.Typer(help="Look at segments of the log, and put them in order.", no_args_is_help=True)
Named = Annotated[str, typer.Option(help=f"Whose log; servers may be running on it. {STORE_HELP}")]


@app.command("list")
def list_(store: Named) -> None:
    """Print a line for each segment: its place and name, its positions in its stream, its bytes, what is counted."""
    from ..store import Store
    from ..store.catalogue import segments_of
    from ..store.log import counted_positions

    with closing(Store.open(store)) as opened, opened.reading() as connection:
        counted = counted_positions(connection)
        for each in segments_of(connection):
            rest = each.last - max(counted[each.stream], each.first - 1)
            state = "counted" if rest <= 0 else f"{rest} to count"
            typer.echo(f"{each.place}/{each.name}  {each.first}-{each.last}  {each.size} bytes  {state}")


@app.command()
def compact(store: Named) -> None:
    """Write small segments anew as larger ones, drop what counts as deleted, and delete files of no use.

    Of no use are what a killed server wrote and never named, and journals of streams that were given up. A server does
    all but that by itself, a little at a time. While another process folds nothing is done, and it ends with 1.
    """
    from ..store import Store
    from ..store.compaction import sweep, tidy
    from ..store.recovery import clear_given_up

    with closing(Store.open(store)) as opened, opened.turn_to_fold() as writing:
        if writing is None:
            typer.echo("another process is folding: try again")
            raise typer.Exit(1)
        replaced = 0
        while some := tidy(opened, writing):
            replaced += some
        swept = sweep(opened, UnixSeconds(time.time())) + clear_given_up(opened)
    typer.echo(f"{replaced} segments were written anew, {swept} files of no use deleted")


@app.command()
def recover(
    store: Named,
    give_up: Annotated[
        int | None, typer.Option(help="A stream whose folder is lost, with what its server had acknowledged last.")
    ] = None,
) -> None:
    """Make segments of what servers that were killed had acknowledged. A server does it by itself.

    It is for a folder that no other server has. With --give-up what the store knows of a stream is all that counts, and
    closings are sealed again: what its journals held is lost.
    """
    from ..store import Store
    from ..store.recovery import give_up as give_up_stream
    from ..store.recovery import recover as recover_journals
    from ..store.recovery import silent_streams

    with closing(Store.open(store)) as opened:
        if give_up is not None:
            if not give_up_stream(opened, give_up):
                raise ValueError(f"nothing waits for a journal of stream {give_up}")
            typer.echo(f"stream {give_up} ends with what the store knows of it")
            return
        done = recover_journals(opened, UnixMilliseconds(int(time.time() * 1000)))
        with opened.reading() as connection:
            left = silent_streams(connection)
        typer.echo(f"{len(done)} streams recovered")
        for each in left:
            typer.echo(f"stream {each.stream} at {each.place} belongs to a server that runs, or its folder is not here")
