"""The client for apps that run an event loop: the calls of `Client`, with `await`, on the same store.

The loop never waits for a disk or a network: calls run in a few threads of our own, so that nothing that the app has
its loop's executor do, such as looking up a name, waits for them. A flush may take long, so it runs in a daemon thread
of its own: those of an executor are joined at exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from .client import Client, SurveyHandle
from .errors import ClientClosed, ClientError
from .settings import check_names
from .store import survive

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from changeling_protocol import Survey, SurveyId

    from .entries import Answer, Status
    from .explanation import Explanation
    from .flushing import Flushed
    from .ledger import Account, Ledger
    from .recording import FirstAnswers, Recorded
    from .reports import SurveyReports
    from .settings import ClientOptions

T = TypeVar("T")
_MOST_THREADS = 4
"""Calls wait for one disk, so more threads would not be faster."""


class _Threads:
    """Threads for short calls, whatever loop awaits them; a forked child begins with none of the parent's."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        survive(self)

    async def run(self, act: Callable[[], T]) -> T:
        """Does something in one of them. Raises what it raises, or ClientError where no thread can be started."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="changeling")
        try:
            future = self._executor.submit(act)
        except RuntimeError as error:
            raise _no_thread() from error
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """Lets the threads end when they are through with what they do."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    def before_fork(self) -> None:
        """Does nothing: what is under way goes on in the parent."""

    def after_fork(self, in_child: bool) -> None:
        """Forgets the threads in a child, where they are not."""
        if in_child:
            self._executor = None


class AsyncClient:
    """Joins surveys, records answers through the handles it gives, and reports in the background.

    The arguments are those of `Client`, and so are its errors; the store is opened, and they are raised, by the first
    call or by `async with`. A call that is cancelled may still be done, and loses nothing. A client may be used by one
    event loop after another.
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        check_names(options)
        self._options = options
        self._making = threading.Lock()
        self._client: Client | None = None
        self._closed = False
        self._threads = _Threads()

    async def join(
        self,
        survey_id: bytes | str,
        *,
        entries: int = 1,
        one_person: bool = False,
        signed: bytes | None = None,
        answers: Sequence[FirstAnswers] | None = None,
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
        return AsyncSurveyHandle(handle, self._threads)

    async def flush(self, timeout: float = 30.0) -> Flushed:
        """Joins what was asked for, answers every node that is due, then sends all reports that wait.

        timeout: how long the network may take in all, in seconds.
        Returns what became of the reports. Cancelled, it loses none of them: what is under way goes on by itself.
        """
        client = await self._call(lambda client: client)
        return await _in_daemon(lambda: client.flush(timeout))

    async def leave(self, survey_id: bytes | str) -> None:
        """Leaves a survey: all it knew is wiped at once, nothing more is sent, and it is never joined again."""
        await self._call(lambda client: client.leave(survey_id))

    async def hand_over_key(self) -> bytes:
        """The public key of this store, 32 bytes, to be carried to the device that shall take over."""
        return await self._call(lambda client: client.hand_over_key())

    async def invite(self, key: bytes | None) -> bytes:
        """Invites the store with this key to hand over to this one, as `Client.invite` does."""
        return await self._call(lambda client: client.invite(key))

    async def hand_over(self, invitation: bytes) -> bytes:
        """Moves all surveys of this store to the one that invites it, as `Client.hand_over` does."""
        return await self._call(lambda client: client.hand_over(invitation))

    async def take_over(self, parcel: bytes) -> tuple[SurveyId, ...]:
        """Goes on with the surveys that another store has handed over to this one, as `Client.take_over` does."""
        return await self._call(lambda client: client.take_over(parcel))

    async def set_consent(self, given: bool) -> None:
        """Takes part from now on; or leaves all surveys, and wipes all that was kept before this returns."""
        await self._call(lambda client: client.set_consent(given))

    async def consent(self) -> bool:
        """True if the person takes part."""
        return await self._call(lambda client: client.consent)

    async def ledger(self) -> Account:
        """The cost of all surveys of this store so far, and at most; `str` of it is in plain words."""
        return await self._call(lambda client: client.ledger())

    async def reports(self) -> tuple[SurveyReports, ...]:
        """Each survey's reports: those sent, those that wait, and a preview of the next; `str` of each is in words."""
        return await self._call(lambda client: client.reports())

    async def explain(self, survey_id: bytes | str) -> Explanation:
        """The most that somebody who sees everything ever sent for a survey could conclude; `str` is in words.

        Raises ValueError for a survey that is not known yet, or that the store does not take part in; a store's errors.
        """
        return await self._call(lambda client: client.explain(survey_id))

    async def aclose(self) -> None:
        """Closes the store and ends what is being sent, within a second; what waits is sent after the next start."""
        self._closed = True
        await self._threads.run(self._close)
        self._threads.end()

    async def __aenter__(self) -> AsyncClient:
        await self._call(lambda client: client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _call(self, act: Callable[[Client], T]) -> T:
        """Does something with the client in a thread."""
        return await self._threads.run(lambda: act(self._opened()))

    def _opened(self) -> Client:
        with self._making:
            if self._client is None:
                if self._closed:
                    raise ClientClosed("the client was closed")
                self._client = Client(**self._options)
            return self._client

    def _close(self) -> None:
        with self._making:
            if self._client is not None:
                self._client.close()


class AsyncSurveyHandle:
    """A survey that was asked for: records the answers of its entries. Comes from `AsyncClient.join`.

    Each call does what that of `SurveyHandle` does, in a thread. A call that is cancelled may still be done.
    id: the survey's, 16 bytes.
    """

    __slots__ = ("_handle", "_threads", "id")

    def __init__(self, handle: SurveyHandle, threads: _Threads) -> None:
        self.id: SurveyId = handle.id
        self._handle, self._threads = handle, threads

    async def survey(self) -> Survey | None:
        """The survey, with its question, answers and calendar; None until it is known, and after it was left."""
        return await self._threads.run(lambda: self._handle.survey)

    async def status(self) -> Status:
        """The survey's standing: ASKED until it is known, then JOINED, or REFUSED for a `reason`."""
        return await self._threads.run(lambda: self._handle.status)

    async def reason(self) -> str:
        """The reason why the survey was refused, in words; empty if it was not."""
        return await self._threads.run(lambda: self._handle.reason)

    def question(self, name: str) -> AsyncSurveyHandle:
        """The same handle for one of several questions, by its name."""
        return AsyncSurveyHandle(self._handle.question(name), self._threads)

    async def record(self, answer: Answer, entry: int = 0) -> Recorded:
        """Records the entry's answer from now on; it is on disk when this returns."""
        return await self._threads.run(lambda: self._handle.record(answer, entry))

    async def retract(self, entry: int = 0) -> Recorded:
        """Records that the entry has no answer from now on."""
        return await self._threads.run(lambda: self._handle.retract(entry))

    async def add_entries(
        self, count: int = 1, *, answers: Sequence[FirstAnswers] | None = None, stratum: Mapping[str, str] | None = None
    ) -> range:
        """Adds entries, which take part from now on. Returns their numbers, which no other process is given."""
        return await self._threads.run(lambda: self._handle.add_entries(count, answers=answers, stratum=stratum))

    async def leave(self, entry: int) -> None:
        """Withdraws one entry: what it knew is wiped at once, what waits of it as well, and it never comes back."""
        await self._threads.run(lambda: self._handle.leave(entry))

    async def answer(self, entry: int = 0) -> Answer | None:
        """The entry's answer as it was last recorded; None if there is none, or the survey has ended."""
        return await self._threads.run(lambda: self._handle.answer(entry))

    async def stratum(self, told: Mapping[str, str], entry: int = 0) -> None:
        """Changes the entry's stratum; what it answers from now on is counted there."""
        await self._threads.run(lambda: self._handle.stratum(told, entry))

    async def ledger(self, entry: int = 0) -> Ledger | None:
        """The entry's progress and its cost; None until the survey is known."""
        return await self._threads.run(lambda: self._handle.ledger(entry))


def _in_daemon(act: Callable[[], T]) -> asyncio.Future[T]:
    """Begins something in a daemon thread. Returns a future of the running loop for its outcome.

    It goes on if whoever waited is cancelled, or the loop ends; then nobody hears of its outcome.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, raised = None, None
        try:
            result = act()
        except BaseException as error:
            raised = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, result, raised)

    try:
        threading.Thread(target=run, name="changeling", daemon=True).start()
    except RuntimeError as error:
        raise _no_thread() from error
    return future


def _no_thread() -> ClientError:
    return ClientError("no thread can be started for this call: the interpreter ends, or there are threads enough")
