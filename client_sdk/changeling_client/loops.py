"""Work beside an event loop, which never waits for a disk or a network.

A flush may take long, so it runs in a daemon thread of its own: those of the loop's executor are joined at exit. What
runs so goes on if whoever waited is cancelled, or the loop ends; then nobody hears of its outcome.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from .device import Device
from .reporter import report

T = TypeVar("T")


def in_daemon(act: Callable[[], T]) -> "asyncio.Future[T]":
    """Begins something in a daemon thread. Returns a future of the running loop for its outcome."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(set_outcome: Callable[[], None]) -> None:
        if not future.done():
            set_outcome()

    def run() -> None:
        try:
            result = act()
        except BaseException as error:
            raised = error
            outcome: Callable[[], None] = lambda: future.set_exception(raised)  # noqa: E731
        else:
            outcome = lambda: future.set_result(result)  # noqa: E731
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, outcome)

    threading.Thread(target=run, name="changeling", daemon=True).start()
    return future


class LoopReporter:
    """Reports as the thread of a `Client` does, but by a timer of the event loop; ends with it, or when it is stopped.

    There is no task that waits, so a loop may end at any time and leaves nothing pending.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reporting = self._again = self._stopped = False

    def ensure(self) -> None:
        """Reports by the running loop from now on, if it does not do so yet."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._timer, self._reporting = loop, None, False
            self.wake()

    def wake(self) -> None:
        """Reports soon: a survey was asked for, or consent was given."""
        self._again = True
        if not self._reporting and not self._stopped:
            self._begin()

    def stop(self) -> None:
        """Begins nothing more."""
        self._stopped = True
        self._forget_timer()

    def _begin(self) -> None:
        self._forget_timer()
        self._reporting, self._again = True, False
        in_daemon(lambda: report(self._device)).add_done_callback(self._reported)

    def _reported(self, future: "asyncio.Future[float]") -> None:
        if future.get_loop() is not self._loop:  # another loop runs by now
            return
        self._reporting = False
        if self._stopped or future.cancelled():
            return
        if self._again:
            self._begin()
        else:
            self._timer = self._loop.call_later(future.result(), self._begin)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
