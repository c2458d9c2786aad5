"""What the driver offers to its query on Spark, batch by batch, on a socket that its owner alone can open.

Only what is offered now is ever read. A batch that Spark knows from a checkpoint, and did in another life, is no offer
any more, and is empty: what of it the store has not counted is in the next one.
"""

import json
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from .pieces import Piece

PATIENCE_SECONDS = 1.0
"""So long who asks for an offer waits for one."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch to be done.

    run: a name that no other offer has. until: the cursors after it, by stream. tasks: the pieces that each task reads.
    """

    run: str
    until: Mapping[int, int]
    tasks: Sequence[Sequence[Piece]]


class Offers:
    """At most one offer at a time, until this is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="changeling-")  # of mode 700
        self.path = str(Path(self._folder) / "offers")
        """Of the socket."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._changed = Condition()
        self._offer: Offer | None = None
        self._taken = self._closed = False
        self._thread = Thread(target=self._serve, name="offers", daemon=True)
        self._thread.start()

    def make(self, offer: Offer) -> None:
        """Offer this from now on."""
        with self._changed:
            self._offer, self._taken = offer, False
            self._changed.notify_all()

    def withdraw(self) -> None:
        """Offer nothing."""
        with self._changed:
            self._offer = None

    @property
    def taken(self) -> bool:
        """Whether the batch that is under way is of the present offer; else it is one of an earlier life."""
        with self._changed:
            return self._offer is not None and self._taken

    def close(self) -> None:
        """Offer nothing more, and let nobody wait."""
        with self._changed:
            self._offer, self._closed = None, True
            self._changed.notify_all()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def answer(self, question: Mapping[str, str]) -> Any:
        """To what `source.LogReader` asks: an offset, or None where there is none for a while; or the tasks' pieces."""
        with self._changed:
            if question["ask"] == "offset":
                self._changed.wait_for(lambda: self._offer is not None or self._closed, PATIENCE_SECONDS)
                if self._offer is None:
                    return None
                self._taken = True
                return {"run": self._offer.run, "until": {f"{stream}": at for stream, at in self._offer.until.items()}}
            if self._offer is None or self._offer.run != question["run"]:
                return []
            return [[astuple(piece) for piece in task] for task in self._offer.tasks]

    def _serve(self) -> None:
        while True:
            try:
                asked, _ = self._listening.accept()
            except OSError:
                return
            Thread(target=self._answer, args=(Connection(asked.detach()),), daemon=True).start()

    def _answer(self, asked: "Connection[bytes, bytes]") -> None:
        with asked, suppress(OSError, EOFError, ValueError, KeyError):
            asked.send_bytes(json.dumps(self.answer(json.loads(asked.recv_bytes()))).encode())
