"""Keys and tokens: `changeling authority`, `changeling keys` and `changeling token`.

Sealing keys are made on the server, signed where the authority is, and published. The authority's keys stay off the
server.
"""

import os
import time
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer
from changeling_protocol import LAST_INSTANT, ResultsKey, SealingKey, UnixSeconds, format_instant, key_id, parse_instant
from changeling_protocol.wire import KEYS
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.table import Table

from .access import (
    StoreKeyFile,
    TokenFile,
    answer_to_put,
    console,
    existing_store,
    read_private_key,
    read_public_key,
    read_signed_key,
    read_store_key,
    token_in,
    write_private_key,
    write_public_key,
)
from .store import STORE_HELP

authority = typer.Typer(help="Make the key pair that signs surveys and sealing keys.", no_args_is_help=True)


@authority.callback()
def authority_group() -> None:
    """Make the key pair that signs surveys and sealing keys."""


@authority.command("new")
def new_authority(
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


app = typer.Typer(
    help="Make, sign and publish the keys that uploads are sealed to, and results signed with.", no_args_is_help=True
)

Output = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]
ForResults = Annotated[bool, typer.Option("--results", help="A key that results are signed with, not a sealing key.")]
_Store = Annotated[str, typer.Option(help=f"The server's store; the server may be running. {STORE_HELP}")]
_IN_CLEAR = (
    "its private half lies in the store unencrypted: with --store-key-file it would not; a server with a store key "
    "encrypts it at its next start"
)
_IN_CLEAR_ON_POSTGRESQL = ", but PostgreSQL's log of changes (WAL) and copies made before keep it as it was"


@app.command()
def new(
    store: _Store,
    output: Output,
    store_key_file: StoreKeyFile = None,
    results: ForResults = False,
) -> None:
    """Make a sealing key in the server's store, and write the request that the authority signs.

    The private key never leaves the store; the request holds the public one. With --results it is the key that the
    server signs open results with: until it is certified, whoever verifies them takes the server's word for it.
    """
    from ..store import Store

    with closing(Store.open(store, read_store_key(store_key_file))) as opened, opened.transaction() as writing:
        public = writing.make_results_key() if results else writing.make_key()
        in_clear = key_id(public) in writing.keys_in_clear()
        last = max((each.expires for each in writing.sealing_keys() if each.expires and not each.destroyed), default=0)
    write_public_key(output, public)
    option = " --results" if results else ""
    follows = not results and last > time.time()
    when = f" --begins {_shown(last)}, as the last key expires then" if follows else ""
    typer.echo(f"wrote {output}; sign it with `changeling keys sign{option}`{when}, where the authority's key is")
    if in_clear:
        typer.echo(_IN_CLEAR + (_IN_CLEAR_ON_POSTGRESQL if "://" in store else ""))


@app.command("list")
def list_(
    store: _Store,
) -> None:
    """Show every sealing key in the server's store: where it is in its life, its dates, and the days that are left.

    A key is unsigned, then pending, active, expired, and destroyed one grace after that.
    """
    now = UnixSeconds(time.time())
    with closing(existing_store(store)) as opened, opened.view() as view:
        lives = view.sealing_keys()
    table = Table()
    for column in ("key", "state", "begins", "expires", "days left", "in the store"):
        table.add_column(column, justify="right" if column == "days left" else "left")
    for life in lives:
        dates = (
            ("", "", "")
            if life.begins is None or life.expires is None
            else (_shown(life.begins), _shown(life.expires), f"{max(0.0, (life.expires - now) // 86_400):.0f}")
        )
        kept = "" if life.destroyed else "in the clear" if life.in_clear else "encrypted"
        table.add_row(life.id.hex(), life.state(now).value, *dates, kept)
    console().print(table)


@app.command()
def reencrypt(
    store: Annotated[str, typer.Option(help=f"The server's store; no server may be running on it. {STORE_HELP}")],
    new_store_key_file: Annotated[Path, typer.Option(help="File with the new store key: 64 hexadecimal digits.")],
    store_key_file: StoreKeyFile = None,
) -> None:
    """Put the private sealing keys in the store under another store key. Start the server with the new one then."""
    new = read_store_key(new_store_key_file)
    with closing(existing_store(store, read_store_key(store_key_file), alone=True)) as opened:
        with opened.transaction() as writing:
            count = writing.encrypt_keys(new)
        opened.forget_overwritten(changed=True)
    typer.echo(f"{count} private keys are encrypted under the new store key")


@app.command()
def sign(
    request: Annotated[Path, typer.Argument(help="What `keys new` wrote.")],
    key: Annotated[Path, typer.Option(help="The authority's private key.")],
    expires: Annotated[str, typer.Option(help="Until when devices seal to it: ISO 8601, UTC by default.")],
    output: Output,
    begins: Annotated[
        str | None, typer.Option(help="From when on, best the moment in which the last one expires; else at once.")
    ] = None,
    results: ForResults = False,
) -> None:
    """Sign a key, with its dates. A sealing key's private half is destroyed one grace after it expires."""
    first = int(time.time() if begins is None else parse_instant(begins))
    kind: type[SealingKey | ResultsKey] = ResultsKey if results else SealingKey
    made = kind(read_public_key(request), first, int(parse_instant(expires)))
    output.write_bytes(made.signed_by(read_private_key(key)))
    typer.echo(
        f"wrote {output}: key {key_id(made.public).hex()}, good from {format_instant(made.begins)} "
        f"to {format_instant(made.expires)}"
    )


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A signed key.")],
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
) -> None:
    """Publish a signed key on the server that made it. A sealing key that is valid while another is, is refused."""
    answer = answer_to_put(server, KEYS, read_signed_key(file), token_in(token_file))
    typer.echo("the key is published" if answer.status_code == HTTPStatus.CREATED else "the key was published before")
    for begins, ends in answer.json()["without_key"]:
        typer.echo(f"from {begins} to {ends} no sealing key is valid, and no device can send anything")


def _shown(time: int) -> str:
    return format_instant(min(time, LAST_INSTANT))


tokens = typer.Typer(help="Make, list and revoke the tokens of a server.", no_args_is_help=True)


@tokens.command("new")
def add_token(
    store: _Store,
    name: Annotated[str, typer.Option(help="Whose it is; for uploads the app's, never a person's.")],
    scope: Annotated[list[str], typer.Option(help="survey:write, fold, read or upload; again for more.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for it, instead of the screen.")] = None,
) -> None:
    """Make a token, and print it: this is the only time. The store keeps its hash. A running server knows it soon.

    survey:write is for publishing surveys, their ends and sealing keys; fold for folding at once and for the clock;
    read for results that are not public, and for status; upload for apps, where the server asks for that.
    """
    from ..store import Store, TokenScope, new_token

    unknown = [each for each in scope if each not in TokenScope.__members__.values()]
    if unknown:
        raise ValueError(f"a scope is one of {', '.join(TokenScope)}, got {unknown[0]!r}")
    text = new_token()
    with closing(Store.open(store)) as opened, opened.transaction() as writing:
        writing.add_token(text, name, {TokenScope(each) for each in scope}, UnixSeconds(time.time()))
        if output is not None:
            with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text + "\n")
    typer.echo(text if output is None else f"wrote {output}")


@tokens.command("list")
def list_tokens(store: _Store) -> None:
    """Show every token: its id, name and scopes, and when it was made. The token itself is nowhere."""
    with closing(existing_store(store)) as opened, opened.view() as view:
        known = view.tokens().values()
    table = Table()
    for column in ("token", "name", "scopes", "made"):
        table.add_column(column)
    for token in known:
        table.add_row(token.id.hex(), token.name, ", ".join(sorted(token.scopes)), format_instant(token.created))
    console().print(table)


@tokens.command("revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(help="Its id, as `changeling token list` shows it.")], store: _Store
) -> None:
    """Take a token away. A running server knows it no more within seconds."""
    try:
        id_ = bytes.fromhex(token)
    except ValueError:
        raise ValueError(f"a token's id is 8 hexadecimal digits, got {token!r}") from None
    with closing(existing_store(store)) as opened, opened.transaction() as writing:
        revoked = writing.revoke_token(id_)
    typer.echo(f"token {revoked.id.hex()} of {revoked.name} is revoked")
