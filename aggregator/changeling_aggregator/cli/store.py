"""`changeling store`: the schema version of a store, and bringing it to this program's."""

from typing import Annotated

import typer

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
