"""All envelopes of a fleet, made by as many processes as there are processors before the first one is sent.

They lie in files, one for each block of devices, and are read in the order of their moments: so whoever sends them has
nothing else to do, and memory holds a few figures of each.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from changeling_protocol import SealingKey, Survey
from changeling_protocol.wire import MOST_BODY_BYTES, encode_upload_request
from numpy.typing import NDArray

from .devices import BLOCK_DEVICES, Times, Wishes, make_block
from .truth import Truth

_FRAME_BYTES, _HEAD_BYTES = 32, 5
"""What a request adds to its envelopes, and to each of them, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Sealed envelopes, by when they are due.

    due: Unix seconds, rising. files: of blocks. block, begin, size: where each envelope is: the number of its file, and
    its bytes there.
    """

    due: Times
    files: list[Path]
    block: NDArray[np.int32]
    begin: NDArray[np.int64]
    size: NDArray[np.int64]
    truth: Truth

    def __len__(self) -> int:
        return len(self.due)

    def requests(self, envelopes: int = 1) -> Iterator[tuple[float, bytes]]:
        """Upload requests of so many envelopes each, by when the last of them is due, in Unix seconds.

        Raises ValueError where so many do not fit into a request.
        """
        most = _FRAME_BYTES + envelopes * (int(np.median(self.size)) + _HEAD_BYTES)
        if most > MOST_BODY_BYTES:
            raise ValueError(f"{envelopes} envelopes make a request of {most:,} bytes, of {MOST_BODY_BYTES:,} at most")
        with ExitStack() as stack:
            opened = [stack.enter_context(file.open("rb")) for file in self.files]
            maps = [stack.enter_context(mmap.mmap(each.fileno(), 0, access=mmap.ACCESS_READ)) for each in opened]
            places = zip(self.block.tolist(), self.begin.tolist(), self.size.tolist(), strict=True)
            waiting: list[bytes] = []
            room = MOST_BODY_BYTES - _FRAME_BYTES
            due = 0.0
            for moment, (block, begin, size) in zip(self.due.tolist(), places, strict=True):
                if waiting and (len(waiting) == envelopes or size + _HEAD_BYTES > room):
                    yield due, encode_upload_request(waiting)
                    waiting, room = [], MOST_BODY_BYTES - _FRAME_BYTES
                waiting.append(maps[block][begin : begin + size])
                room -= size + _HEAD_BYTES
                due = moment
            if waiting:
                yield due, encode_upload_request(waiting)


def sealed(
    survey: Survey,
    key: SealingKey,
    wishes: Wishes,
    folder: Path,
    done: Callable[[int], None] = lambda _: None,
    processes: int | None = None,
) -> Load:
    """Makes a fleet's envelopes.

    folder: an empty one, for the files. done: called with how many devices have answered, again and again.
    processes: by default as many as there are processors. Raises OSError.
    """
    count = ceil(wishes.devices / BLOCK_DEVICES)
    files = [folder / f"block-{number}" for number in range(count)]
    make = partial(_write_block, survey.payload, (key.public, key.begins, key.expires), wishes, folder)
    truth = Truth(survey.id.hex())
    due: list[Times] = []
    sizes: list[NDArray[np.int64]] = []
    with ProcessPoolExecutor(min(processes or os.cpu_count() or 1, count), get_context("spawn")) as pool:
        for number, (moments, lengths, expected) in enumerate(pool.map(make, range(count))):
            due.append(moments)
            sizes.append(lengths)
            truth += expected
            done(min((number + 1) * BLOCK_DEVICES, wishes.devices))
    begins = [np.cumsum(lengths) - lengths for lengths in sizes]
    blocks = [np.full(len(lengths), number, np.int32) for number, lengths in enumerate(sizes)]
    moments = np.concatenate(due)
    order = np.argsort(moments, kind="stable")
    return Load(
        moments[order],
        files,
        np.concatenate(blocks)[order],
        np.concatenate(begins)[order],
        np.concatenate(sizes)[order],
        truth,
    )


def _write_block(
    payload: bytes, key: tuple[bytes, int, int], wishes: Wishes, folder: Path, number: int
) -> tuple[Times, NDArray[np.int64], Truth]:
    block = make_block(Survey.from_payload(payload), SealingKey(*key), wishes, number)
    (folder / f"block-{number}").write_bytes(b"".join(block.envelopes))
    return block.due, np.array([len(each) for each in block.envelopes], np.int64), block.truth
