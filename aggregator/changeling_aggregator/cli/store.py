"""A store as operators handle it: its schema version, segments of its log, backups of it and putting them back."""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import UnixMilliseconds, UnixSeconds, format_instant

app = typer.Typer(help="Show and change the schema version of a store.", no_args_is_help=True)

STORE_HELP = "A file, or the URL of a PostgreSQL database, postgresql://USER@HOST/DATABASE, without its password."


@app.command()
def version(store: Annotated[str, typer.Option(help=STORE_HELP)]) -> None:
    """Print the schema version that the store has, and the one that this program needs."""
    from ..store import VERSION, version_at

    found = version_at(store)
    has = "no store yet" if found is None else f"schema version {found}"
    typer.echo(f"{store} has {has}; this program needs {VERSION}")


@app.command()
def upgrade(store: Annotated[str, typer.Option(help=f"{STORE_HELP} No server may be running on it.")]) -> None:
    """Bring a store that an earlier program wrote to the schema version that this one needs. Make a backup before."""
    from ..store import VERSION
    from ..store import upgrade as bring_up

    before = bring_up(store)
    if before is None:
        typer.echo(f"{store} has no store yet: start a server on it")
    elif before == VERSION:
        typer.echo(f"{store} has schema version {VERSION} already")
    else:
        typer.echo(f"{store} went from schema version {before} to {VERSION}")


SEGMENTS_HELP = "A folder, or an object store, s3://BUCKET/PREFIX, gs://… or az://…; without it, the store itself."

segments = typer.Typer(help="Look at segments of the log, and put them in order.", no_args_is_help=True)
Named = Annotated[str, typer.Option(help=f"Whose log; servers may be running on it. {STORE_HELP}")]


@segments.command("list")
def list_(store: Named) -> None:
    """Print a line for each segment: its place and name, its positions in its stream, its bytes, what is counted."""
    from ..store import Store

    with closing(Store.open(store)) as opened, opened.view() as view:
        counted = view.counted_positions()
        for each in view.segments():
            rest = each.last - max(counted[each.stream], each.first - 1)
            state = "counted" if rest <= 0 else f"{rest} to count"
            typer.echo(f"{each.place}/{each.name}  {each.first}-{each.last}  {each.size} bytes  {state}")


@segments.command()
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


_RESTORED = """\
{store} is what the store was at {taken}. It has not got
- what was acknowledged after that moment, and {unfolded} that were acknowledged and not counted by then. What devices
  still have of it they send again, and it counts;
- the private halves of sealing keys. Make the next one: `changeling keys new`, `keys sign`, `keys publish`. Until then
  devices send nothing, and what is sealed to the old ones is refused and sealed again;
- the log, so that the {open} closings that were open at that moment cannot be folded again, and
  `changeling fold --check` names them until they are sealed. Their ids are there: what was counted for them counts
  once, whoever sends it again.
- surveys and early ends that were published after that moment: publish them again; and tokens: revoke again what was
  revoked.
Results that were shown after that moment may be shown again from fewer reports. Never start the old store again beside
this one. A server that starts on it may doubt its clock: see the operator's guide."""


def backup(
    store: Annotated[str, typer.Option(help=f"What to copy; servers may be running on it. {STORE_HELP}")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; none is overwritten.")],
) -> None:
    """Write all that a store has counted and published into one file, as it is at one moment.

    Neither private sealing keys nor the log of envelopes are in it, so what is not counted yet is not.
    """
    from ..store import Store, back_up

    with closing(Store.open(store)) as opened:
        done = back_up(opened, output, UnixMilliseconds(int(time.time() * 1000)))
    typer.echo(
        f"wrote {output}, without {_requests(done.unfolded)} that are not counted yet, and with the ids of "
        f"{len(done.open)} open closings"
    )


def restore(
    file: Annotated[Path, typer.Argument(help="What `changeling backup` wrote.")],
    store: Annotated[str, typer.Option(help=f"A new store, made if missing. {STORE_HELP}")],
) -> None:
    """Put a backup into a new store, and say what is lost."""
    from ..store import Store, opened_backup
    from ..store import restore as put_back

    with opened_backup(file) as connection, closing(Store.open(store)) as opened:
        done = put_back(connection, opened)
    taken = format_instant(UnixSeconds(done.taken // 1000))
    typer.echo(
        _RESTORED.format(store=store, taken=taken, unfolded=_requests(done.unfolded), open=len(done.open)),
    )


def _requests(count: int) -> str:
    return f"{count} upload" + ("" if count == 1 else "s")
