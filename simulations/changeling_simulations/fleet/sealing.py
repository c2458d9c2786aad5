"""All envelopes of a fleet, made by as many processes as there are processors before the first one is sent.

So whoever sends them has nothing else to do. They are held in memory, about 300 bytes each.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from multiprocessing import get_context

import numpy as np
from changeling_protocol import SealingKey, Survey
from changeling_protocol.wire import MOST_BODY_BYTES, encode_upload_request

from .devices import BLOCK_DEVICES, EnvelopeBlock, Times, Wishes, make_block
from .truth import Truth

_FRAME_BYTES, _HEAD_BYTES = 32, 5
"""What a request adds to its envelopes, and to each of them, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Sealed envelopes in the order in which they are due, in rising Unix seconds, and what they must come to."""

    due: Times
    envelopes: list[bytes]
    truth: Truth

    def __len__(self) -> int:
        return len(self.due)

    def requests(self, envelopes: int = 1) -> Iterator[tuple[float, bytes]]:
        """Upload requests of so many envelopes each, by when the last of them is due, in Unix seconds.

        Raises ValueError where so many do not fit into a request.
        """
        most = _FRAME_BYTES + envelopes * (int(np.median([*map(len, self.envelopes)])) + _HEAD_BYTES)
        if most > MOST_BODY_BYTES:
            raise ValueError(f"{envelopes} envelopes make a request of {most:,} bytes, of {MOST_BODY_BYTES:,} at most")
        waiting: list[bytes] = []
        size, due = _FRAME_BYTES, 0.0
        for moment, envelope in zip(self.due.tolist(), self.envelopes, strict=True):
            added = len(envelope) + _HEAD_BYTES
            if waiting and (len(waiting) == envelopes or size + added > MOST_BODY_BYTES):
                yield due, encode_upload_request(waiting)
                waiting, size = [], _FRAME_BYTES
            waiting.append(envelope)
            size += added
            due = moment
        if waiting:
            yield due, encode_upload_request(waiting)


def sealed(
    survey: Survey,
    key: SealingKey,
    wishes: Wishes,
    done: Callable[[int], None] = lambda _: None,
    processes: int | None = None,
) -> Load:
    """Makes a fleet's envelopes.

    done: called with how many devices have answered, again and again.
    processes: by default as many as there are processors.
    """
    count = ceil(wishes.devices / BLOCK_DEVICES)
    make = partial(_made, survey.payload, (key.public, key.begins, key.expires), wishes)
    truth, due, envelopes = Truth(survey.id.hex()), list[Times](), list[bytes]()
    with ProcessPoolExecutor(min(processes or os.cpu_count() or 1, count), get_context("spawn")) as pool:
        for number, block in enumerate(pool.map(make, range(count))):
            due.append(block.due)
            envelopes += block.envelopes
            truth += block.truth
            done(min((number + 1) * BLOCK_DEVICES, wishes.devices))
    moments = np.concatenate(due)
    order = np.argsort(moments, kind="stable")
    return Load(moments[order], [envelopes[place] for place in order.tolist()], truth)


def _made(payload: bytes, key: tuple[bytes, int, int], wishes: Wishes, number: int) -> EnvelopeBlock:
    return make_block(Survey.from_payload(payload), SealingKey(*key), wishes, number)
