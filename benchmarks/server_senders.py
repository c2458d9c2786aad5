"""Devices that send each upload again until it is acknowledged; and what of theirs a store has counted in the end."""

import http.client
import os
import random
import time
from collections.abc import Sequence
from contextlib import closing as ending
from contextlib import suppress
from threading import Event, Thread

from changeling_aggregator.fold import check, fold
from changeling_aggregator.store import ID_BYTES
from changeling_protocol import (
    Closing,
    Node,
    NodeNumber,
    Report,
    Standing,
    StratumNumber,
    TrackNumber,
    UnixSeconds,
    encode_upload,
    seal,
)
from changeling_protocol.wire import UPLOADS, encode_upload_request

from tests.aggregator.devices import Log

SENDERS = 4


class Senders:
    """Send one upload after the other, each until it is acknowledged, to any of these ports.

    ports: of the servers that run, which the caller changes. everywhere: each upload goes to all of them at once, and
    is acknowledged when all have.
    """

    def __init__(self, log: Log, everywhere: bool = False) -> None:
        self._log, self._everywhere = log, everywhere
        self.ports: list[int] = []
        self.acknowledged: set[bytes] = set()
        self.acknowledging: set[int] = set()
        """The ports of servers that have acknowledged something."""
        self._stop = Event()
        self._threads = [Thread(target=self._run, daemon=True) for _ in range(SENDERS)]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Send no more than the uploads in hand, for which a server must run. Raises TimeoutError without one."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            if thread.is_alive():
                raise TimeoutError("an upload was not acknowledged within two minutes")

    def _run(self) -> None:
        while not self._stop.is_set():
            id_ = os.urandom(ID_BYTES)
            body = encode_upload_request([sealed(self._log, id_)])
            if self._everywhere:
                each = [Thread(target=self._send, args=([port], body)) for port in self.ports]
                for thread in each:
                    thread.start()
                for thread in each:
                    thread.join()
            else:
                self._send(self.ports, body)
            self.acknowledged.add(id_)

    def _send(self, ports: Sequence[int], body: bytes) -> None:
        while not ((there := [*ports]) and _sent(port := random.choice(there), body)):  # noqa: S311
            time.sleep(0.02)
        self.acknowledging.add(port)


def _sent(port: int, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with suppress(OSError, http.client.HTTPException), ending(connection):
        connection.request("POST", UPLOADS, body)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status == 200 and content.endswith(b"\x90")  # nobody refused
    return False


def sealed(log: Log, id_: bytes) -> bytes:
    """An envelope with one closing."""
    period = log.survey.calendar.periods
    closing = Closing(period, id_, Standing.KNOWN, StratumNumber(0))
    reports = [Report(TrackNumber(0), NodeNumber(period), id_[0] % 5)]
    return seal(encode_upload(log.survey.plan, 0, Node(period - 1, period), [closing], reports), log.survey.id, log.key)


def compared(log: Log, senders: Senders, already: int = 0) -> dict[str, float]:
    """What was acknowledged beside what is counted. already: how many ids the log had before."""
    while (done := fold(log.store, UnixSeconds(time.time()), closing=False)).stood_by or done.behind:
        time.sleep(0.1)
    sent = senders.acknowledged
    key = log.survey.id, log.survey.calendar.periods
    with log.store.view() as view:
        (tally,) = view.tallies(log.survey.id).values()
        runs = view.runs([key]).get(key, [])
        packed = b"".join(piece for run in runs for piece in view.read_run(key, run.number))
    ids = [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
    return {
        "acknowledged": len(sent),
        "lost": len(sent - {*ids}),
        "counted_twice": len(ids) - len({*ids}) + abs(tally.reports - len(ids)),
        "counted_besides": len({*ids} - sent) - already,
        "differences_folded_again": len(check(log.store)),
    }
