"""A survey that an app takes part in, for apps that run an event loop: the calls of a `SurveyHandle`, with `await`."""

import asyncio
from collections.abc import Mapping

from changeling_protocol import Survey, SurveyId

from .handle import SurveyHandle
from .ledger import Ledger
from .recording import Recorded
from .surveys import Status


class AsyncSurveyHandle:
    """A survey that was asked for: records the answers of its entries. Comes from `AsyncClient.join`.

    Each call does what that of `SurveyHandle` does, in a thread. A call that is cancelled may still be done.
    id: the survey's, 16 bytes.
    """

    __slots__ = ("_handle", "id")

    def __init__(self, handle: SurveyHandle) -> None:
        self.id: SurveyId = handle.id
        self._handle = handle

    async def survey(self) -> Survey | None:
        """The survey, with its question, answers and calendar; None until it is known, and after it was left."""
        return await asyncio.to_thread(lambda: self._handle.survey)

    async def status(self) -> Status:
        """How the survey stands: ASKED until it is known, then JOINED, or REFUSED for a `reason`."""
        return await asyncio.to_thread(lambda: self._handle.status)

    async def reason(self) -> str:
        """Why the survey was refused, in words; empty if it was not."""
        return await asyncio.to_thread(lambda: self._handle.reason)

    async def record(self, answer: str, entry: int = 0) -> Recorded:
        """Records the entry's answer from now on; it is on disk when this returns."""
        return await asyncio.to_thread(self._handle.record, answer, entry)

    async def retract(self, entry: int = 0) -> Recorded:
        """Records that the entry has no answer from now on."""
        return await asyncio.to_thread(self._handle.retract, entry)

    async def answer(self, entry: int = 0) -> str | None:
        """The entry's answer as it was last recorded; None if there is none, or the survey has ended."""
        return await asyncio.to_thread(self._handle.answer, entry)

    async def stratum(self, told: Mapping[str, str], entry: int = 0) -> None:
        """Changes the entry's stratum; what it answers from now on is counted there."""
        await asyncio.to_thread(self._handle.stratum, told, entry)

    async def ledger(self, entry: int = 0) -> Ledger | None:
        """How far the entry has answered, and what it costs; None until the survey is known."""
        return await asyncio.to_thread(self._handle.ledger, entry)
