"""What operators' commands have in common: files of keys and tokens, settings, asking a server; `changeling clock`.

An authority's private key is PEM (PKCS #8), readable by its owner alone; its public key is 64 hexadecimal digits, as
apps pin it, and so is a store key. A signed sealing key is the very bytes that the server publishes.

The options of some commands may also stand in a TOML file and in the environment, and every mistake in them is named at
once. What is on the command line counts before the environment, and that before the file. A setting has the name of its
option: `--store-key-file`, `store-key-file = "…"`, $CHANGELING_STORE_KEY_FILE.
"""

import json
import os
import sys
import time
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from changeling_protocol import ChangelingError, MalformedBytes, unverified_key
from changeling_protocol.wire import CLOCK
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from rich.console import Console
from typer.core import TyperCommand, TyperOption

from ..errors import AggregatorError, StoreError

if TYPE_CHECKING:
    import httpx
    from changeling_reader import ServerClient

    from ..store import AtRest, Store

KEY_BYTES = 32
STORE_KEY_VARIABLE = "CHANGELING_STORE_KEY"


def console() -> Console:
    """Standard output, at its full width where it is no terminal.

    Nothing in brackets or between colons is markup: texts of surveys, and names, are shown as they are. A style is an
    argument of `print`, or of a `Text`.
    """
    return Console(width=None if sys.stdout.isatty() else 110, markup=False, emoji=False)


def shown_error(error: float | None, digits: int = 1) -> str:
    """A standard error; a question mark where its variance came out below zero."""
    return "?" if error is None else f"{error:,.{digits}f}"


def interrupt(_: int, __: FrameType | None) -> None:
    """Let a signal end this process as Ctrl-C does."""
    raise KeyboardInterrupt


def existing_store(place: str, at_rest: "AtRest | None" = None, *, alone: bool = False) -> "Store":
    """The store at a place, opened as `Store.open` does. Raises StoreError where there is none, and makes none."""
    from ..store import AtRest, Store, version_at

    if version_at(place) is None:
        raise StoreError(f"there is no store at {place}: is the name right? A server makes one, and so does a restore")
    return Store.open(place, at_rest or AtRest(), alone=alone)


def write_private_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a private key as PEM, readable by its owner alone. Raises FileExistsError rather than overwrite one."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The authority's private key in a PEM file. Raises ValueError, which names the file, or OSError."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path} holds no Ed25519 private key: make one with `changeling authority new`")
    return key


def read_store_key(path: Path | None) -> "AtRest":
    """The store key in a file, else in the environment, as 64 hexadecimal digits; keys lie in the clear without one.

    Raises ValueError, which says where no store key is, or OSError.
    """
    from ..store import IN_CLEAR, STORE_KEY_BYTES, AtRest

    where = f"${STORE_KEY_VARIABLE}" if path is None else str(path)
    digits = (os.environ.get(STORE_KEY_VARIABLE, "") if path is None else path.read_text()).strip()
    if path is None and not digits:
        return IN_CLEAR
    try:
        return AtRest(bytes.fromhex(digits))
    except ValueError:
        digits_needed = f"that is one line of {2 * STORE_KEY_BYTES} hexadecimal digits"
        raise ValueError(f"{where} holds no store key: {digits_needed}") from None


def forget_store_key() -> None:
    """Take the store key out of the environment, which every process that is started from here would be given."""
    os.environ.pop(STORE_KEY_VARIABLE, None)


def write_public_key(path: Path, public: bytes) -> None:
    """Write a public key as one line of hexadecimal digits."""
    path.write_text(public.hex() + "\n")


def read_public_key(path: Path) -> bytes:
    """32 bytes: an authority's public key, or the sealing key of a request."""
    try:
        public = bytes.fromhex(path.read_text().strip())
    except ValueError:
        public = b""
    if len(public) != KEY_BYTES:
        raise ValueError(f"{path} holds no public key: that is one line of {2 * KEY_BYTES} hexadecimal digits")
    return public


def read_signed_key(path: Path) -> bytes:
    """The bytes of a signed sealing or results key, whoever signed it. Raises MalformedBytes, which names the file."""
    signed = path.read_bytes()
    try:
        unverified_key(signed)
    except MalformedBytes as error:
        raise MalformedBytes(f"{path} holds no signed key: {error}; make one with `changeling keys sign`") from error
    return signed


TOKEN_VARIABLE = "CHANGELING_TOKEN"  # noqa: S105

TokenFile = Annotated[Path | None, typer.Option(help="File with a token of the server's; else $CHANGELING_TOKEN.")]
"""The option of every command that may need a token."""
StoreKeyFile = Annotated[
    Path | None, typer.Option(help="File with the key that encrypts sealing keys; else $CHANGELING_STORE_KEY.")
]
"""The option of every command that opens private keys."""

clock = typer.Typer(help="Tell a server what time it is.", no_args_is_help=True)


def token_in(file: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    token = file.read_text().strip() if file else os.environ.get(TOKEN_VARIABLE, "").strip()
    return token or None


def asking(server: str, token: str | None = None) -> "ServerClient":
    """A client of a server; use as a context. server: its base URL. token: None for what is open to all."""
    from changeling_reader import ServerClient

    return ServerClient(server, token=token)


def put(server: str, path: str, body: bytes, token: str | None, **query: str) -> bool:
    """Publish signed bytes; False where the same bytes were published already. As `answer_to_put`."""
    return answer_to_put(server, path, body, token, **query).status_code == HTTPStatus.CREATED


def answer_to_put(server: str, path: str, body: bytes, token: str | None, **query: str) -> "httpx.Response":
    """The server's answer to what is published.

    server: its base URL. path: one of the protocol's. token: one for this; without one nothing is sent.
    """
    if token is None:
        raise AggregatorError(f"this needs a token of the server's, in ${TOKEN_VARIABLE} or a file")
    with asking(server, token) as client:
        return client.request("PUT", path, [*query.items()], body)


@clock.callback()
def clock_group() -> None:
    """Tell a server what time it is."""


@clock.command()
def confirm(
    server: Annotated[str, typer.Option(help="The server's URL.")],
    token_file: TokenFile = None,
) -> None:
    """Let a server believe its clock again, after it was set or after a long pause, and seal what is due.

    It is told the time of the machine where this is typed, and refuses if its own clock shows another.
    """
    put(server, CLOCK, json.dumps({"time": time.time()}).encode(), token_in(token_file))
    typer.echo("the server believes its clock")


if TYPE_CHECKING:
    from typer._click.core import Context

FILE = "settings"
"""The option that names the file."""
PREFIX = "CHANGELING"
"""The prefix of variables of the environment."""


class SettingsCommand(TyperCommand):
    """A Typer command with an option `--settings`; what is wrong raises the one mistake, or one that names all.

    takes_others: whether the file may hold what this command has no option for.
    """

    takes_others = False

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Read the settings from wherever they stand, and check each."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.auto_envvar_prefix = PREFIX
        given, rest, _ = self.make_parser(ctx).parse_args(args=[*args])
        options = {_name(each): each for each in self.params if isinstance(each, TyperOption)}
        mistakes: list[Exception] = []
        try:
            file = options[FILE].consume_value(ctx, given)[0]
            ctx.default_map = {} if file is None else _read(Path(file), options, mistakes, self.takes_others)
        except (OSError, ValueError) as error:
            mistakes.append(error)
        for parameter in sorted(self.get_params(ctx), key=lambda each: not each.is_eager):
            try:
                _, rest = parameter.handle_parse_result(ctx, given, rest)
            except (ChangelingError, ValueError, OSError, typer.BadParameter) as error:
                mistakes.append(error)
        if len(mistakes) == 1:
            raise mistakes[0]
        if mistakes:
            lines = [f"{len(mistakes)} settings are wrong", *map(_shown, mistakes)]
            raise ValueError("\n- ".join(lines))
        ctx.args = rest
        if rest:
            raise typer.BadParameter(f"there is no {rest[0]!r} among the words it takes", ctx=ctx)
        return rest


def _read(
    path: Path, options: Mapping[str, TyperOption], mistakes: list[Exception], takes_others: bool
) -> dict[str, Any]:
    """The settings in a file, by the names of parameters; adds to the mistakes.

    Raises OSError, or ValueError where it is no TOML.
    """
    try:
        content = tomllib.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    settings = {}
    for name, value in content.items():
        option = options.get(name)
        if option is None and takes_others:
            continue
        if option is None or name == FILE:
            near = get_close_matches(name, options, 1)
            meant = f": {near[0]}?" if near else f"; there are {', '.join(each for each in options if each != FILE)}"
            mistakes.append(ValueError(f"{path}: there is no setting {name!r}{meant}"))
        elif not _fits(option, value):
            mistakes.append(ValueError(f"{path}: {name} = {value!r} is not of the kind that --{name} takes"))
        else:
            settings[option.name] = [value] if option.multiple and not isinstance(value, list) else value
    return settings


def _fits(option: TyperOption, value: object) -> bool:
    values = value if option.multiple and isinstance(value, list) else [value]
    kind = (bool,) if option.is_bool_flag else (str, int, float)
    return all(isinstance(each, kind) and isinstance(each, bool) == option.is_bool_flag for each in values)


def _name(option: TyperOption) -> str:
    return max(option.opts, key=len).removeprefix("--")


def _shown(mistake: Exception) -> str:
    if isinstance(mistake, typer.BadParameter):
        return mistake.format_message()
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return f"{mistake.filename}: {mistake.strerror}"
    return str(mistake)
