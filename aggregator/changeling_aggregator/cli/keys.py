"""`changeling keys`: sealing keys, made on the server, signed where the authority is, published."""

import time
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import SealingKey
from changeling_protocol.wire.paths import KEYS
from changeling_statistics.instants import format_instant, parse_instant

from .files import read_private_key, read_public_key, read_signed_key, write_public_key
from .remote import admin_token, put

app = typer.Typer(help="Make, sign and publish the keys that uploads are sealed to.", no_args_is_help=True)

Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]


@app.command()
def new(
    store: Annotated[Path, typer.Option(help="The server's store, on the server itself; it may be running.")],
    output: Output,
) -> None:
    """Make a sealing key in the server's store, and write the request that the authority signs.

    The private key never leaves the store; the request holds the public one.
    """
    from ..store import Store
    from ..store.sealing_keys import make_key

    opened = Store.open(store)
    with opened.writing() as connection:
        public = make_key(connection)
    opened.close()
    write_public_key(output, public)
    typer.echo(f"wrote {output}; sign it with `changeling keys sign` where the authority's key is")


@app.command()
def sign(
    request: Annotated[Path, typer.Argument(help="What `keys new` wrote.")],
    key: Annotated[Path, typer.Option(help="The authority's private key.")],
    expires: Annotated[str, typer.Option(help="Until when devices seal to it: ISO 8601, UTC by default.")],
    output: Output,
    begins: Annotated[str | None, typer.Option(help="From when on; by default at once.")] = None,
) -> None:
    """Sign a sealing key, with its dates. Its private half is destroyed one grace after it expires."""
    first = int(time.time() if begins is None else parse_instant(begins))
    sealing_key = SealingKey(read_public_key(request), first, int(parse_instant(expires)))
    output.write_bytes(sealing_key.signed_by(read_private_key(key)))
    typer.echo(
        f"wrote {output}: key {sealing_key.id.hex()}, good from {format_instant(sealing_key.begins)} "
        f"to {format_instant(sealing_key.expires)}"
    )


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A signed sealing key.")],
    server: Annotated[str, typer.Option(help="The server's URL.")],
    admin_token_file: Annotated[
        Path | None, typer.Option(help="File with the server's admin token; else $CHANGELING_ADMIN_TOKEN.")
    ] = None,
) -> None:
    """Publish a signed sealing key on the server that made it."""
    added = put(server, KEYS, read_signed_key(file), admin_token(admin_token_file))
    typer.echo("the key is published" if added else "the key was published before")
