"""`changeling authority`: the keys that sign surveys and sealing keys. Keep them off the server."""

from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .files import write_private_key, write_public_key

app = typer.Typer(help="Make the key pair that signs surveys and sealing keys.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Make the key pair that signs surveys and sealing keys."""


@app.command()
def new(
    directory: Annotated[Path, typer.Option("--output", "-o", help="Folder for the two files; made if missing.")],
) -> None:
    """Make an authority: authority.key (private, PEM) and authority.pub (public, hexadecimal).

    The private key signs; keep it on a machine of its own. Apps pin the public key, and servers are started with
    it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    write_private_key(directory / "authority.key", key)
    public = key.public_key().public_bytes_raw()
    write_public_key(directory / "authority.pub", public)
    typer.echo(f"private key: {directory / 'authority.key'}")
    typer.echo(f"public key:  {directory / 'authority.pub'}  {public.hex()}")
