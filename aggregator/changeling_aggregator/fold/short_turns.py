"""Short turns of the interpreter for its threads, for as long as any of this process's threads folds.

With Python's own 5 ms, who counts would wait as long after every array for the threads that read and write.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

TURN_SECONDS = 0.0002
"""So long a thread keeps the interpreter from others."""


class ShortTurns:
    """Counts who wants them: the first has turns made short, and the last has them made what they were before."""

    def __init__(self) -> None:
        self._lock, self._wanting, self._before = Lock(), 0, 0.0

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Have turns short until this ends."""
        with self._lock:
            if not self._wanting:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(TURN_SECONDS)
            self._wanting += 1
        try:
            yield
        finally:
            with self._lock:
                self._wanting -= 1
                if not self._wanting:
                    sys.setswitchinterval(self._before)


short_turns = ShortTurns()
"""Of this process."""
