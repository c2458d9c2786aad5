"""A client for tests, whose coins come from a seed, what its store keeps, and an audit of an app by what it sends.

The audit plays lives of the app's own code, which differ in what is answered, and in nothing else. Each has a store, a
server and a clock of its own, and the same chances for everything but symbols: so whatever differs between two lives,
in number, time, address, headers or size of their requests, somebody who watches would see of the answers. It finds
what an app gives away by when it joins, flushes or leaves. That symbols keep to their epsilon is the SDK's own promise,
and no part of it.
"""

import os
import random
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from changeling_protocol import Coins, SurveyId

from .. import entries
from ..client import Client
from ..device import Reporter
from ..entries import Drawn, Entry
from ..store import ClientStore
from ..witness import Callbacks
from .server import FakeServer, ManualClock, Request

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


Life = TypeVar("Life")


class Household:
    """The surroundings of one life: what an app under audit makes its clients with, and moves its time by."""

    def __init__(self, folder: Path) -> None:
        self.server = FakeServer()
        self.clock = self.server.clock
        self._folder, self._coins = folder, ApartCoins()

    def client(self, **options: Any) -> Client:
        """A client of this life's store, server and clock; a second one goes on with the first one's store.

        options: of `Client`, in place of those that `make_client` has.
        """
        return make_client(self._folder, self.server, coins=self._coins, **options)


class ApartCoins:
    """Coins of which those below one number never hang on those below another, such as delays on symbols."""

    def __init__(self) -> None:
        self._coins: dict[int, ForeseeableCoins] = {}

    def below(self, n: int) -> int:
        """An integer in [0, n). Raises ValueError for n < 1."""
        return self._coins.setdefault(n, ForeseeableCoins(n)).below(n)


def audit(app: Callable[[Household, Life], object], lives: Iterable[Life]) -> list[str]:
    """Plays lives of an app, and says of each after the first where its traffic begins to differ.

    app: plays one life: publishes the survey, makes a client, and does what the app does as time goes on.
    lives: what is answered in each; anything that the app understands.
    Returns an empty list where nobody who watches could tell the lives apart.
    """
    reference, *others = [_played(app, life) for life in lives]
    found = []
    for number, seen in enumerate(others, 2):
        for at, (before, now) in enumerate(zip_longest(reference, seen), 1):
            if before != now:
                found.append(f"life {number} differs in request {at}: {_words(now)}, in life 1 {_words(before)}")
                break
    return found


def _played(app: Callable[[Household, Life], object], life: Life) -> list[Request]:
    with TemporaryDirectory() as folder:
        household = Household(Path(folder))
        app(household, life)
        return household.server.requests


def _words(request: Request | None) -> str:
    if request is None:
        return "none"
    return f"{request.method} {request.path} of {request.body_bytes} bytes at {request.at:.3f}"
