"""The client for apps that run an event loop: the calls of `Client`, with `await`, on the same store.

The loop never waits for a disk or a network: calls run in a few threads of our own, so that nothing that the app has
its loop's executor do, such as looking up a name, waits for them. A flush may take long, so it runs in a daemon thread
of its own: those of an executor are joined at exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from .client import Client, SurveyHandle
from .errors import ClientClosed, ClientError
from .settings import check_names
from .store import Forks, survive

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from changeling_protocol import Survey, SurveyId

    from .entries import Status
    from .flushing import Flushed
    from .recording import FirstAnswers
    from .settings import ClientOptions

P = ParamSpec("P")
T = TypeVar("T")
Plain = TypeVar("Plain")
_MOST_THREADS = 4
"""Calls wait for one disk, so more threads would not be faster."""


class _Threads(Forks):
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

    def after_fork(self, in_child: bool) -> None:
        """Forgets the threads in a child, where they are not."""
        if in_child:
            self._executor = None


def _awaited(call: Callable[Concatenate[Plain, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same call of the asynchronous counterpart, done in a thread."""

    @wraps(call)
    async def awaited(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        done: T = await self._call(lambda plain: call(plain, *args, **options))
        return done

    return awaited


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

    leave = _awaited(Client.leave)
    hand_over_key = _awaited(Client.hand_over_key)
    invite = _awaited(Client.invite)
    hand_over = _awaited(Client.hand_over)
    take_over = _awaited(Client.take_over)
    set_consent = _awaited(Client.set_consent)
    ledger = _awaited(Client.ledger)
    reports = _awaited(Client.reports)
    explain = _awaited(Client.explain)

    async def consent(self) -> bool:
        """True if the person takes part."""
        return await self._call(lambda client: client.consent)

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

    async def _call(self, act: Callable[[SurveyHandle], T]) -> T:
        return await self._threads.run(lambda: act(self._handle))

    async def survey(self) -> Survey | None:
        """The survey, with its question, answers and calendar; None until it is known, and after it was left."""
        return await self._call(lambda handle: handle.survey)

    async def status(self) -> Status:
        """The survey's standing: ASKED until it is known, then JOINED, or REFUSED for a `reason`."""
        return await self._call(lambda handle: handle.status)

    async def reason(self) -> str:
        """The reason why the survey was refused, in words; empty if it was not."""
        return await self._call(lambda handle: handle.reason)

    def question(self, name: str) -> AsyncSurveyHandle:
        """The same handle for one of several questions, by its name."""
        return AsyncSurveyHandle(self._handle.question(name), self._threads)

    record = _awaited(SurveyHandle.record)
    retract = _awaited(SurveyHandle.retract)
    add_entries = _awaited(SurveyHandle.add_entries)
    leave = _awaited(SurveyHandle.leave)
    answer = _awaited(SurveyHandle.answer)
    stratum = _awaited(SurveyHandle.stratum)
    ledger = _awaited(SurveyHandle.ledger)


def _in_daemon(act: Callable[[], T]) -> asyncio.Future[T]:
    """Begins something in a daemon thread. Returns a future of the running loop for its outcome.

    It goes on if whoever waited is cancelled, or the loop ends; then nobody hears of its outcome.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(act())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=run, name="changeling", daemon=True).start()
    except RuntimeError as error:
        raise _no_thread() from error
    return asyncio.wrap_future(future)


def _no_thread() -> ClientError:
    return ClientError("no thread can be started for this call: the interpreter ends, or there are threads enough")
