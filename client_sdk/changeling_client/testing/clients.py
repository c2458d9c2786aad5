"""A client for tests, and what it is made of: a clock that stands still, coins from a seed, and a survey."""

import os
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from changeling_protocol import (
    AtMost,
    Calendar,
    Coins,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    Randomizer,
    ReleasePlan,
    SignedSubset,
    Survey,
    SurveyId,
    Track,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from .. import entries
from ..client import Client
from ..entries import Drawn, Entry
from ..store import Store
from ..witness import Callbacks

if TYPE_CHECKING:
    from .server import FakeServer

STORE_NAME, WITNESS_NAME = "changeling.db", "witness"
FIRST_DAY = 1_798_761_600
"""The first midnight of 2027, in Unix seconds: when surveys of `make_survey` begin."""
_NOON = 43_200
AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"changeling: authority of tests, ")
"""Signs the surveys and keys of tests."""
TRUTHFUL = Odds(2**63, 1)
"""The odds of the truth where a test wants to see it: one report in 10^17 is another."""
SKEW, SPREAD, GRACE = 60, 3600, 7 * 86_400


class ManualClock:
    """Unix time in seconds, as a client takes it.

    now: what it shows first: noon of the first day, so that after a day the period before is over and answered.
    """

    def __init__(self, now: float = FIRST_DAY + _NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        """What it shows."""
        return self.now

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Moves it on; backwards if that is negative, as clocks of devices sometimes do."""
        self.now += ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class ForeseeableCoins:
    """Uniform integers from a seed, for tests only. No argument of a client takes them."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)  # noqa: S311

    def below(self, n: int) -> int:
        """An integer in [0, n). Raises ValueError for n < 1."""
        return self._generator.randrange(n)


def make_survey(
    *,
    question: str = "What do you drink?",
    answers: Sequence[str] = ("tea", "coffee", "neither"),
    periods: int = 365,
    period: int = 86_400,
    start: int = FIRST_DAY,
    at_most: int = 3,
    epsilon: Decimal | float | None = None,
    **others: Any,
) -> Survey:
    """A survey in which an entry reports at every period's close how its answer changed.

    periods: how many. period: how long each is, in seconds. start: when the first begins, in Unix seconds.
    at_most: how often an entry's answer may change; the first answer is a change as well.
    epsilon: what the survey costs an entry, about. None: its reports tell the truth, so that a test can see it.
    others: further fields of a survey, such as closed=True, grace=86_400 in seconds, breakdowns or relay.
    Reports are due up to SKEW + SPREAD seconds after a period's close, or half a period where that is shorter.
    Raises ValueError for what cannot be.
    """
    if isinstance(answers, str):
        raise ValueError(f"the answers are a list of texts, got the one text {answers!r}")
    space = MutationSpace(len(answers))
    randomizer: Randomizer = KaryResponse(space, TRUTHFUL)
    if epsilon is not None:
        randomizer = SignedSubset(space, Odds.within(Decimal(str(epsilon)) / at_most))
    usual = {"skew": min(SKEW, period // 8), "spread": max(min(SPREAD, period // 4), 1), "grace": GRACE, "minimum": 1}
    return Survey.at_cost(
        question=question,
        answers=answers,
        calendar=Calendar(start, period, periods),
        constraint=AtMost(at_most),
        plan=ReleasePlan((Group((Track(1, randomizer, 0, periods),)),)),
        **{**usual, **others},
    )


def make_client(
    folder: str | os.PathLike[str],
    server: "FakeServer",
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


def stored(client: Client, survey: SurveyId) -> list[tuple[Entry, Drawn]]:
    """What the store keeps of a survey's entries, in order, so that a test sees what is forgotten.

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


def _hurry(store: Store) -> None:
    with store._lock:
        store._connected().execute("PRAGMA synchronous = OFF")
    erase_all = store.erase_past

    def erase_past(changed: bool | None = None) -> bool:
        return erase_all() if changed is None else True

    store.erase_past = erase_past  # type: ignore[method-assign]
