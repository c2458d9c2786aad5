"""An audit of an app by what it sends: lives of its own code, which differ in what is answered, and in nothing else.

Each life has a store, a server and a clock of its own, and the same chances for everything but symbols: so whatever
differs between two lives, in number, time, address, headers or size of their requests, somebody who watches would see
of the answers. It finds what an app gives away by when it joins, flushes or leaves. That symbols keep to their epsilon
is the SDK's own promise, and no part of it.
"""

from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ..client import Client
from .clients import ForeseeableCoins, make_client
from .server import FakeServer, Request

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
