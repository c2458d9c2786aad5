"""The settings that an app makes its client with: the arguments of `Client` and `AsyncClient`, and their checks."""

import os
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Required, TypedDict

from changeling_protocol import KEY_BYTES, authority_key

from .errors import ClientError
from .sqlite import StoreFile
from .store import StorePlace
from .transport import Endpoint, is_loopback
from .witness import SharedCallbacks, Sidecar, Witness, default_folder, known_home

if TYPE_CHECKING:
    import ssl

    import httpx

STORE_NAME = "changeling.db"


class ClientOptions(TypedDict, total=False):
    """The arguments that `Client` and `AsyncClient` are made with, each by its name; `Client` says what they mean."""

    server: Required[str]
    authority: Required[Sequence[bytes]]
    max_epsilon: Required[Decimal | float]
    app: str | None
    path: str | os.PathLike[str] | None
    database: str | None
    key: bytes | None
    witness: Witness | str | os.PathLike[str] | None
    consent: bool
    strict: bool
    silent: bool
    background: bool
    development: bool
    upload_token: str | None
    on_error: Callable[[ClientError], None] | None
    proxy: str | None
    verify: "ssl.SSLContext | bool"
    transport: "httpx.BaseTransport | None"
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client, checked; `Client` says what each of them means.

    place: where the store is. endpoint: the way to the app's server. authority: one or more Ed25519 public keys of 32
    bytes. max_epsilon: above 0. witness: None if nothing sees how far the store is.
    """

    place: StorePlace
    key: bytes | None
    endpoint: Endpoint
    authority: tuple[bytes, ...]
    max_epsilon: Decimal
    witness: Witness | None
    strict: bool
    silent: bool
    development: bool
    on_error: Callable[[ClientError], None] | None
    clock: Callable[[], float]

    @classmethod
    def of(cls, options: ClientOptions) -> "ClientSettings":
        """Checks a client's arguments, and fills in the defaults.

        Raises ValueError for a bad one, TypeError for one that is missing or that there is not.
        """
        check_names(options)
        server, app = options["server"], options.get("app")
        endpoint = Endpoint(
            server.rstrip("/"),
            options.get("transport"),
            options.get("proxy"),
            options.get("verify", True),
            options.get("upload_token"),
        )
        development = options.get("development", False)
        if development and not is_loopback(server):
            raise ValueError(f"development is for servers on loopback, got {server!r}")
        place: StorePlace
        try:
            place, beside = _place(app, options.get("path"), options.get("database"))
        except ClientError as error:
            if not options.get("silent"):
                raise
            place, beside = _Nowhere(error), None
        return cls(
            place=place,
            key=options.get("key"),
            endpoint=endpoint,
            authority=_checked_authority(options["authority"]),
            max_epsilon=_checked_epsilon(options["max_epsilon"]),
            witness=_checked_witness(options.get("witness", beside), options.get("database") is not None),
            strict=options.get("strict", False),
            silent=options.get("silent", False),
            development=development,
            on_error=options.get("on_error"),
            clock=options.get("clock", time.time),
        )


@dataclass(frozen=True, slots=True)
class _Nowhere:
    """The place of a store where none is known. error: says why."""

    error: ClientError

    def exists(self) -> bool:
        return False

    def open(self, _key: bytes | None) -> NoReturn:
        raise self.error

    def is_ours(self) -> bool:
        return False

    def destroy(self) -> None:
        return


def check_names(options: ClientOptions) -> None:
    """Raises TypeError unless these are arguments of a client, and all that it needs are among them."""
    unknown = options.keys() - ClientOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a client takes no argument {', '.join(sorted(unknown))}")
    missing = ClientOptions.__required_keys__ - options.keys()
    if missing:
        raise TypeError(f"a client needs the argument {', '.join(sorted(missing))}")


def _checked_authority(authority: Sequence[bytes]) -> tuple[bytes, ...]:
    """The pinned keys. Raises ValueError unless they are one or more public keys under which not just anybody signs."""
    if isinstance(authority, bytes | str):
        raise ValueError("the authority is a list of public keys: pass [key], also if there is only one")
    keys = tuple(authority)
    if not keys or not all(isinstance(key, bytes) for key in keys):
        raise ValueError(f"the authority is a list of one or more public keys of {KEY_BYTES} bytes: use bytes.fromhex")
    for key in keys:
        authority_key(key)
    return keys


def _checked_epsilon(max_epsilon: Decimal | float) -> Decimal:
    """The number as it is written: 0.3 is three tenths, not the nearest float. Raises ValueError unless above 0."""
    try:
        epsilon = Decimal(str(max_epsilon))
    except InvalidOperation:
        epsilon = Decimal("nan")
    if not epsilon.is_finite() or epsilon <= 0:
        raise ValueError(f"max_epsilon must be a number above 0, got {max_epsilon!r}")
    return epsilon


def _checked_witness(witness: Witness | str | os.PathLike[str] | None, shared: bool) -> Witness | None:
    """The witness, a sidecar if a folder is named. shared: whether pods share the store, and so have to share it too.

    Raises ValueError for a witness of a shared store that a pod which was cut off could set back.
    """
    if isinstance(witness, SharedCallbacks):
        return copy(witness)  # as it knows what this client has read
    if shared and witness is not None:
        raise ValueError(
            "the witness of a store in a database is `SharedCallbacks`, or None: any other can be set back"
        )
    return Sidecar(witness) if isinstance(witness, str | os.PathLike) else witness


def _place(
    app: str | None, path: str | os.PathLike[str] | None, database: str | None
) -> tuple[StorePlace, Witness | None]:
    """Where the store is, and what sees to it if the app says nothing: at the path, or in the app's data folder, with a
    sidecar where devices keep what backups leave out or, of a path, beside it; or in a database, which pods share.

    Nothing on one of these pods could see what the others do, so there an app names the witness, or has none.
    Raises ValueError unless exactly one place is told, or for the path of a folder.
    """
    if [app, path, database].count(None) != 2:
        raise ValueError("a client is told one of these: its app's name, the path of its store, its database")
    if database is not None:
        from .postgresql import StoreDatabase

        return StoreDatabase(database), None
    if path is not None:
        with known_home():
            file = Path(path).expanduser().absolute()
        if not os.fspath(path) or file.is_dir():
            raise ValueError(f"the store is a file, such as {STORE_NAME} in a folder, got the path {os.fspath(path)!r}")
        return StoreFile(file), Sidecar(file.with_name(f"{file.name}.witness"))
    if not app or app in (".", "..") or any(sign in app for sign in ("/", "\\", "\0")):
        raise ValueError(f"an app's name is the name of a folder, such as org.example.tea, got {app!r}")
    import platformdirs

    with known_home():
        folder = platformdirs.user_data_path(app, appauthor=False)
    return StoreFile(folder / STORE_NAME), Sidecar(default_folder(app))
