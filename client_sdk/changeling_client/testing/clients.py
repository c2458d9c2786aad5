"""A client for tests, whose coins come from a seed, and what its store keeps."""

import os
import random
from pathlib import Path
from typing import Any

from changeling_protocol import Coins, SurveyId

from .. import entries
from ..client import Client
from ..device import Reporter
from ..entries import Drawn, Entry
from ..store import ClientStore
from ..witness import Callbacks
from .server import FakeServer
from .surveys import ManualClock

STORE_NAME, WITNESS_NAME = "changeling.db", "witness"


class ForeseeableCoins:
    """Uniform integers from a seed, for tests only. No argument of a client takes them."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)

    def below(self, n: int) -> int:
        """An integer in [0, n). Raises ValueError for n < 1."""
        return self._generator.randrange(n)


def make_client(
    folder: str | os.PathLike[str],
    server: FakeServer,
    *,
    seed: int = 0,
    coins: Coins | None = None,
    **options: Any,
) -> Client:
    """A client of a fake server.

    folder: where its store is, with its witness beside it; a second client of the same folder goes on with both.
    server: whose clock is the client's, unless `clock` is among the options.
    seed: what its coins follow from. coins: a test's own, in their place.
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
    client._device.coins = coins or ForeseeableCoins(seed)
    if client.consent:
        _hurry(client._device.store)
    return client


def let_report(client: Client, clock: ManualClock, *, days: float = 1) -> None:
    """Does what a client's background thread does in so many days, at once.

    clock: the client's own, which is moved on from one time to the next at which the thread would act.
    """
    reporter, end = Reporter(client._device), clock.now + 86_400 * days
    while (then := clock.now + reporter.step()) < end:
        clock.now = then
    clock.now = end


def stored(client: Client, survey: SurveyId) -> list[tuple[Entry, Drawn]]:
    """The entries of a survey as the store keeps them, in order, so that a test sees what is forgotten.

    With each entry, the nodes that it has still to report of tracks of which it reports only some.
    """
    store = client._device.store
    with store.transaction() as db:
        kept = entries.load_all(db, store.wrapping, survey)
        return [(entry, entries.drawn_nodes(db, store.wrapping, entry)) for entry in kept]


def _beside(file: Path) -> Callbacks:
    """A witness like the usual one, but for the waiting until the disk has it."""
    return Callbacks(lambda: file.read_bytes() if file.exists() else None, lambda seen: _write(file, seen))


def _write(file: Path, seen: bytes) -> None:
    file.write_bytes(seen)


def _hurry(store: ClientStore) -> None:
    with store._lock:
        store._connected().execute("PRAGMA synchronous = OFF")
    erase_all = store.erase_past

    def erase_past(changed: bool | None = None) -> bool:
        return erase_all() if changed is None else True

    store.erase_past = erase_past  # type: ignore[method-assign]
