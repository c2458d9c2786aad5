"""What one relay process is made of: its copies, its intake, and who forwards. Knows no HTTP of devices."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from changeling_protocol import Coins, SurveyId, SystemCoins, UnixSeconds
from starlette.concurrency import run_in_threadpool

from ..errors import UpstreamTrouble
from ..server import Bodies, Clock, real_time
from .batching import Batching
from .copies import Copies
from .forwarding import Forwarding
from .intake import Intake
from .upstream import Upstream

REFRESH_SECONDS = 60.0
"""How often the server is asked for surveys and keys."""
MOST_AGE_SECONDS = 86_400
"""The copies of keys are served so long after the server last told them."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a relay is run.

    authority: public keys; what is served is signed by one of them. batching: when it forwards.
    surveys: the ids that are relayed; None for all that declare `url`, this relay's base URL.
    room: bytes on disk for each survey's envelopes. requests_a_second: the most from one network, on average; 0 for any
    number. clock: Unix seconds. coins: for slots and orders.
    """

    authority: Sequence[bytes]
    batching: Batching
    surveys: frozenset[SurveyId] | None
    url: str
    room: int
    requests_a_second: int = 0
    clock: Clock = real_time
    coins: Coins = field(default_factory=SystemCoins)


class Relay:
    """A relay on a folder, before a server. Raises what `Copies` raises."""

    def __init__(self, folder: Path, upstream: Upstream, settings: Settings) -> None:
        self.settings, self.clock = settings, settings.clock
        batching = settings.batching
        self.copies = Copies(
            folder,
            settings.authority,
            settings.surveys,
            settings.url,
            settings.room,
            batching.most_wait,
            settings.coins,
        )
        self.intake = Intake(self.copies, batching, self.clock)
        self.bodies = Bodies()
        self._upstream = upstream
        self._forwarding: dict[SurveyId, tuple[Forwarding, asyncio.Task[None]]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._surveys_asked = bool(self.copies.surveys)

    @property
    def is_ready(self) -> bool:
        """Whether there are copies to serve, from now or from before a restart."""
        return self._surveys_asked and self.keys_are_fresh

    @property
    def keys_are_fresh(self) -> bool:
        """Whether the server told its keys not too long ago."""
        asked = self.copies.asked
        return asked is not None and self.clock() - asked <= MOST_AGE_SECONDS

    @property
    def trouble(self) -> str | None:
        """Why this relay cannot do its work; None where it can."""
        tasks = [task for _, task in self._forwarding.values()]
        if any(task.done() for task in [*tasks, *([self._refreshing] if self._refreshing else [])]):
            return "a task has died: the log says why"
        if not self.is_ready:
            return "the server could not be asked for surveys and keys"
        if self.copies.key_at(self.clock()) is None:
            return "the server offers no sealing key that can be served"
        return None

    @property
    def notice(self) -> str:
        """How it stands with a relay that is in no trouble."""
        failing = any(forwarding.failures for forwarding, _ in self._forwarding.values())
        return "forwarding fails at present: what comes is kept" if failing else "ok"

    def start(self) -> None:
        """Begin to forward what waits, and to ask the server."""
        self._forward_all()
        self._refreshing = asyncio.create_task(self._refresh_for_ever())
        self._refreshing.add_done_callback(_tell)

    async def close(self) -> None:
        """Finish what is being written, stop forwarding; what waits stays on disk. Stopping forwards nothing early."""
        tasks = [task for _, task in self._forwarding.values()]
        for task in (*tasks, *([self._refreshing] if self._refreshing else ())):
            task.cancel()
        await asyncio.gather(*tasks, *([self._refreshing] if self._refreshing else []), return_exceptions=True)
        await self.intake.close()
        await self._upstream.close()
        self.copies.close()

    async def refresh(self) -> None:
        """Ask the server for surveys and keys, and go by what it says; or by what it said before, if it is away."""
        now, keys = self.clock(), None
        try:
            await self._fetch_surveys(now)
            keys = await self._upstream.keys()
        except UpstreamTrouble as trouble:
            _log.warning("surveys and keys are the last that were good: %s", trouble)
        try:
            await run_in_threadpool(self.copies.take_keys, keys, now)
            self._end_over()
        except OSError as error:
            _log.warning("what the server tells cannot be kept: %s", error)
        self._forward_all()

    async def _fetch_surveys(self, now: UnixSeconds) -> None:
        named = self.settings.surveys
        for id_ in await self._upstream.surveys() if named is None else sorted(named):
            if self.copies.wants(id_):
                try:
                    signed = await self._upstream.survey(id_)
                    await run_in_threadpool(self.copies.take_survey, id_, signed, now)
                except (UpstreamTrouble, OSError) as error:  # the others, and the keys, are none the worse for it
                    _log.warning("survey %s is not relayed yet: %s", id_.hex(), error)
        self._surveys_asked = True

    async def _refresh_for_ever(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    def _forward_all(self) -> None:
        for id_, copy in self.copies.surveys.items():
            if id_ not in self._forwarding:
                forwarding = Forwarding(copy, self._upstream, self.settings.batching, self.settings.coins, self.clock)
                task = asyncio.create_task(forwarding.run())
                task.add_done_callback(_tell)
                self._forwarding[id_] = forwarding, task

    def _end_over(self) -> None:
        self.copies.drop_ended(self.clock())
        for id_ in self._forwarding.keys() - self.copies.surveys.keys():
            self._forwarding.pop(id_)[1].cancel()


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task of the relay has died", exc_info=error)
