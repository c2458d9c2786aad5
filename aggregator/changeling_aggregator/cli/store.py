"""`changeling store`: the schema version of a store, and moving it to another."""

from typing import Annotated

import typer

app = typer.Typer(help="Show and change the schema version of a store.", no_args_is_help=True)

STORE_HELP = "A file, or the URL of a PostgreSQL database, postgresql://USER@HOST/DATABASE, without its password."
Stopped = Annotated[str, typer.Option(help=f"{STORE_HELP} No server may be running on it.")]


@app.command()
def version(store: Annotated[str, typer.Option(help=STORE_HELP)]) -> None:
    """Print the schema version that the store has, and the one that this program needs."""
    from ..store.migrating import found_version
    from ..store.opened import connected
    from ..store.schema import VERSION

    with connected(store) as database:
        found = found_version(database)
    has = "no store yet" if found is None else f"schema version {found}"
    typer.echo(f"{database.name} has {has}; this program needs {VERSION}")


@app.command()
def upgrade(store: Stopped) -> None:
    """Bring a store that an earlier program wrote to the schema version that this one needs. Make a backup before."""
    from ..store.schema import VERSION

    _migrate(store, VERSION)


@app.command()
def downgrade(
    store: Stopped,
    to: Annotated[str, typer.Option(help="The schema version that the earlier program needs: its `store version`.")],
) -> None:
    """Bring a store back to the schema version of an earlier program. Make a backup before."""
    _migrate(store, to)


def _migrate(store: str, to: str) -> None:
    from ..store.migrating import migrate
    from ..store.opened import connected

    with connected(store, alone=True) as database:
        move = migrate(database, to)
    if move.before == move.after:
        typer.echo(f"{database.name} has schema version {move.after} already")
    else:
        typer.echo(f"{database.name} went from schema version {move.before or 'none'} to {move.after}")
