"""Flushes in the background: when something is due, and again after trouble, until it is stopped.

When it flushes depends on the calendar, on chance and on how the server does, never on what is recorded.
"""

import logging
import threading

from . import forks
from .device import Device
from .errors import ClientClosed, ClientError
from .flushing import Flushed

LONGEST_WAIT_SECONDS = 900.0
"""A device looks at its clock again after so long: it may have slept, or been set."""
SOONEST_SECONDS = 1.0
RETRY_SECONDS = 5.0
"""Trouble that no server is to blame for, such as another process that reports, is over after so long, perhaps."""
FLUSH_SECONDS = 60.0
STOP_SECONDS = 0.5
"""How long to wait for a flush that was told to end."""
_log = logging.getLogger("changeling")


class Reporter:
    """A daemon thread that flushes a device. It raises nothing into the app: errors go to the device's `on_error`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wanted = False
        self._thread: threading.Thread | None = None
        self._wake, self._stopped = threading.Event(), threading.Event()
        forks.survive(self)

    def start(self) -> None:
        """Starts reporting; does nothing if it is started, or was stopped."""
        self._wanted = True
        self.ensure()

    def ensure(self) -> None:
        """Starts the thread again in a child that was forked: threads do not live on there."""
        if self._wanted and self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="changeling", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Flushes soon: a survey was asked for, or consent was given."""
        self.ensure()
        self._wake.set()

    def stop(self) -> None:
        """Stops for good; waits for a flush to end, but not for a network."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def before_fork(self) -> None:
        """Nothing: the thread goes on in the parent."""

    def after_fork(self, in_child: bool) -> None:
        """In a child, forgets the parent's thread; `ensure` starts another when the app next calls."""
        if in_child:
            stopped = self._stopped.is_set()
            self._thread = None
            self._wake, self._stopped = threading.Event(), threading.Event()
            if stopped:
                self._stopped.set()

    def _run(self) -> None:
        wake, stopped = self._wake, self._stopped
        while not stopped.is_set():
            wake.clear()
            wake.wait(report(self._device))


def report(device: Device) -> float:
    """Flushes once. What goes wrong is told to the app, and never raised.

    Returns how long to wait, in seconds: until something is due or, after trouble, the server may be asked again.
    """
    try:
        return _until_next(device, device.flush(FLUSH_SECONDS))
    except ClientClosed:  # or without consent, until it is given again
        pass
    except ClientError as error:
        device.tell(error)
    except Exception:
        _log.exception("reporting has failed")
    return LONGEST_WAIT_SECONDS


def _until_next(device: Device, flushed: Flushed) -> float:
    due_ms, now_ms = device.next_due_ms(), device.now_ms()
    wait = LONGEST_WAIT_SECONDS
    if flushed.trouble is not None:
        wait = min(wait, max(device.pause_ms() / 1000, RETRY_SECONDS))
        if due_ms is not None and due_ms < now_ms:  # it waits for the server or the witness, so let them be
            return wait
    if due_ms is not None:
        wait = min(wait, max((due_ms - now_ms) / 1000 + 0.001, SOONEST_SECONDS))
    return wait
