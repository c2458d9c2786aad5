"""The client for apps that run an event loop: the calls of `Client`, with `await`, on the same store."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .async_handle import AsyncSurveyHandle
from .client import BESIDE, Beside, Client
from .errors import ClientClosed, ClientError
from .flushing import Flushed
from .ledger import Account
from .loops import LoopReporter, in_daemon
from .witness import Witness

if TYPE_CHECKING:
    import ssl

    import httpx

    from .explain import Explanation
    from .reports import SurveyReports

T = TypeVar("T")


class AsyncClient:
    """Joins surveys, records answers through the handles it gives, and reports while the event loop runs.

    The arguments are those of `Client`, and so are its errors; the store is opened, and they are raised, by the first
    call or by `async with`. The loop never waits for a disk or a network: calls run in threads. One that is cancelled
    may still be done, and loses nothing. A client may be used by one event loop after another, not by two at a time.
    background: whether it reports by itself while a loop runs; else the app awaits `flush` whenever it runs.
    """

    def __init__(
        self,
        *,
        server: str,
        authority: Sequence[bytes],
        max_epsilon: Decimal | float,
        app: str | None = None,
        path: str | os.PathLike[str] | None = None,
        key: bytes | None = None,
        witness: Witness | str | os.PathLike[str] | Beside | None = BESIDE,
        consent: bool = True,
        strict: bool = False,
        background: bool = True,
        development: bool = False,
        upload_token: str | None = None,
        on_error: Callable[[ClientError], None] | None = None,
        proxy: str | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._make = partial(
            Client,
            server=server,
            authority=authority,
            max_epsilon=max_epsilon,
            app=app,
            path=path,
            key=key,
            witness=witness,
            consent=consent,
            strict=strict,
            background=False,
            development=development,
            upload_token=upload_token,
            on_error=on_error,
            proxy=proxy,
            verify=verify,
            transport=transport,
            clock=clock,
        )
        self._background = background
        self._making = threading.Lock()
        self._client: Client | None = None
        self._reporter: LoopReporter | None = None
        self._closed = False

    async def join(
        self,
        survey_id: bytes | str,
        *,
        entries: int = 1,
        one_person: bool = False,
        signed: bytes | None = None,
        answers: Sequence[str] | None = None,
        stratum: Mapping[str, str] | None = None,
    ) -> AsyncSurveyHandle:
        """Takes part in the survey with this id from now on, as `Client.join` does; it touches no network.

        Returns the handle through which answers are recorded.
        """
        handle = await self._call(
            lambda client: client.join(
                survey_id, entries=entries, one_person=one_person, signed=signed, answers=answers, stratum=stratum
            )
        )
        self._wake()
        return AsyncSurveyHandle(handle)

    async def flush(self, timeout: float = 30.0) -> Flushed:
        """Joins what was asked for, answers every node that is due, then sends all reports that wait.

        timeout: how long the network may take in all, in seconds.
        Returns what became of the reports. Cancelled, it loses none of them: what is under way goes on by itself.
        """
        client = await self._call(lambda client: client)
        return await in_daemon(lambda: client.flush(timeout))

    async def leave(self, survey_id: bytes | str) -> None:
        """Leaves a survey: all it knew is wiped at once, nothing more is sent, and it is never joined again."""
        await self._call(lambda client: client.leave(survey_id))

    async def set_consent(self, given: bool) -> None:
        """Takes part from now on; or leaves all surveys, and wipes all that was kept before this returns."""
        await self._call(lambda client: client.set_consent(given))
        self._wake()

    async def consent(self) -> bool:
        """Whether the person takes part."""
        return await self._call(lambda client: client.consent)

    async def ledger(self) -> Account:
        """What all surveys of this store have cost, and may cost at most; `str` of it is in plain words."""
        return await self._call(lambda client: client.ledger())

    async def reports(self) -> tuple[SurveyReports, ...]:
        """What was sent for each survey, what waits, and what could be sent next; `str` of each is in plain words."""
        return await self._call(lambda client: client.reports())

    async def explain(self, survey_id: bytes | str) -> Explanation:
        """What somebody who sees everything that is ever sent for a survey could at most conclude; `str` is in words.

        Raises ValueError for a survey that is not known yet, or that the store does not take part in; a store's errors.
        """
        return await self._call(lambda client: client.explain(survey_id))

    async def aclose(self) -> None:
        """Closes the store and ends what is being sent, within a second; what waits is sent after the next start."""
        self._closed = True
        if self._reporter is not None:
            self._reporter.stop()
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> AsyncClient:
        await self._call(lambda client: client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _call(self, act: Callable[[Client], T]) -> T:
        """Does something with the client in a thread, and reports by the running loop from then on."""
        result = await asyncio.to_thread(lambda: act(self._opened()))
        if self._background and not self._closed and self._client is not None:
            if self._reporter is None:
                self._reporter = LoopReporter(self._client._device)
            self._reporter.ensure()
        return result

    def _opened(self) -> Client:
        with self._making:
            if self._client is None:
                if self._closed:
                    raise ClientClosed("the client was closed")
                self._client = self._make()
            return self._client

    def _close(self) -> None:
        with self._making:
            if self._client is not None:
                self._client.close()

    def _wake(self) -> None:
        if self._reporter is not None:
            self._reporter.wake()
