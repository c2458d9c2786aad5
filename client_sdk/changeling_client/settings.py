"""What an app decides once, as it makes its client; checked here."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

from changeling_protocol import KEY_BYTES, authority_key

from .errors import ClientError
from .witness import Sidecar, Witness, default_folder

STORE_NAME = "changeling.db"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client goes by.

    authority: the survey authority's pinned Ed25519 public keys, 32 bytes each.
    max_epsilon: the most that the epsilons of all surveys may add up to.
    witness: sees how far the store is; None if nothing does.
    strict: whether a wrong answer raises ValueError, or is dropped and counted.
    development: whether surveys count nothing, as nobody's answers are in them.
    on_error: told what cannot be raised into the app.
    clock: gives the time in Unix seconds.
    """

    authority: tuple[bytes, ...]
    max_epsilon: Decimal
    witness: Witness | None = None
    strict: bool = False
    development: bool = False
    on_error: Callable[[ClientError], None] | None = None
    clock: Callable[[], float] = field(default=time.time)


def checked_authority(authority: Sequence[bytes]) -> tuple[bytes, ...]:
    """The pinned keys. Raises ValueError unless they are one or more public keys under which not just anybody signs."""
    if isinstance(authority, bytes | str):
        raise ValueError("the authority is a list of public keys: pass [key], also if there is only one")
    keys = tuple(authority)
    if not keys or not all(isinstance(key, bytes) for key in keys):
        raise ValueError(f"the authority is a list of one or more public keys of {KEY_BYTES} bytes")
    for key in keys:
        authority_key(key)
    return keys


def checked_epsilon(max_epsilon: Decimal | float) -> Decimal:
    """The number as it is written: 0.3 is three tenths, not the nearest float. Raises ValueError unless above 0."""
    try:
        epsilon = Decimal(str(max_epsilon))
    except InvalidOperation:
        epsilon = Decimal("nan")
    if not epsilon.is_finite() or epsilon <= 0:
        raise ValueError(f"max_epsilon must be a number above 0, got {max_epsilon!r}")
    return epsilon


def store_path(app: str | None, path: str | os.PathLike[str] | None) -> Path:
    """Where the store is: at the path, or in the app's data folder.

    Raises ValueError unless exactly one is told, or for the path of a folder.
    """
    if (app is None) == (path is None):
        raise ValueError("a client is told either its app's name or the path of its store")
    if path is not None:
        file = Path(path).expanduser().absolute()
        if not os.fspath(path) or file.is_dir():
            raise ValueError(f"the store is a file, such as {STORE_NAME} in a folder, got the path {os.fspath(path)!r}")
        return file
    if not app or app in (".", "..") or any(sign in app for sign in ("/", "\\", "\0")):
        raise ValueError(f"an app's name is the name of a folder, such as org.example.tea, got {app!r}")
    import platformdirs

    return platformdirs.user_data_path(app, appauthor=False) / STORE_NAME


def default_witness(app: str | None, store: Path) -> Sidecar:
    """The sidecar of a store: where devices keep what backups leave out or, of a store with a path, beside it."""
    return Sidecar(store.with_name(f"{store.name}.witness") if app is None else default_folder(app))
