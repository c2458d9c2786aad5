"""A client for tests: it raises what is wrong, reports when it is told to, and its coins fall the same in every run."""

import os
from pathlib import Path
from typing import Any

from ..client import Client
from ..store import Store
from ..witness import Callbacks
from .coins import ForeseeableCoins
from .server import FakeServer

STORE_NAME, WITNESS_NAME = "changeling.db", "witness"


def make_client(folder: str | os.PathLike[str], server: FakeServer, *, seed: int = 0, **options: Any) -> Client:
    """A client of a fake server.

    folder: where its store is, with its witness beside it; a second client of the same folder goes on with both.
    server: whose clock is the client's, unless `clock` is among the options.
    seed: what its coins follow from.
    options: of `Client`, in the place of those here: strict, no background, and no bound on epsilon worth the name.

    It is quicker than an app's: its store would not outlive a loss of power, and a flush rewrites no old pages.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    usual: dict[str, Any] = {
        "path": place / STORE_NAME,
        "server": server.url,
        "authority": server.authority,
        "max_epsilon": 1_000_000,
        "witness": _beside(place / WITNESS_NAME),
        "strict": True,
        "background": False,
        "transport": server.transport,
        "clock": server.clock,
    }
    client = Client(**{**usual, **options})
    client._device.coins = ForeseeableCoins(seed)
    if client.consent:
        _hurry(client._device.store)
    return client


def _beside(file: Path) -> Callbacks:
    """A witness like the usual one, but for the waiting until the disk has it."""
    return Callbacks(lambda: file.read_bytes() if file.exists() else None, lambda seen: _write(file, seen))


def _write(file: Path, seen: bytes) -> None:
    file.write_bytes(seen)


def _hurry(store: Store) -> None:
    with store._lock:
        store._connected().execute("PRAGMA synchronous = OFF")
    erase_all = store.erase_past

    def erase_past(changed: bool | None = None) -> bool:
        return erase_all() if changed is None else True

    store.erase_past = erase_past  # type: ignore[method-assign]
