"""Mutated bodies through all that reads what strangers send, guided by coverage; what is counted is counted again.

A process of its own: python -m tests.aggregator.parsing RUNS SEED. A body is the number of a reader and what it reads:
an upload request, the plaintext of an upload, a signed survey, key, early end, or a list that the server sends. Nothing
but the errors that are declared may come of it; and the uploads, folded in the end, must come to what
`changeling_aggregator.testing.Reference` finds row by row. Prints a JSON object; an end by a defect is code 77.
"""

import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["changeling_protocol", "changeling_aggregator"]):
    from changeling_aggregator.fold import fold
    from changeling_aggregator.store import KeptTime, Store
    from changeling_protocol import EarlyEnd, ProtocolError, SealingKey, Survey, decode_upload, head_of, seal
    from changeling_protocol.wire import (
        decode_acknowledgement,
        decode_key_list,
        decode_upload_request,
        encode_acknowledgement,
        encode_key_list,
        encode_upload_request,
    )

import msgpack
from changeling_aggregator.testing import AFTER, SURVEYS, appender, counted_rows, honest, hostile, reference_rows
from changeling_aggregator.testing.serving import AUTHORITY, FOREVER, publish_new_key

KEY = SealingKey(bytes(31) + b"\7", 0, FOREVER)
NUMBERS = [0, 1, -1, 63, 64, 65, 2**16, 2**31, 2**63 - 1, 2**64 - 1, -(2**63)]
INTERESTING: list[Any] = [*NUMBERS, True, None, "", "x", b"", b"\0" * 19, [], {}, [[]], 1.5]


def _signed(payload: bytes) -> bytes:
    """As an authority would sign it, with another signature."""
    packed: bytes = msgpack.packb({"payload": payload, "signature": bytes(64)})
    return packed


READERS: list[tuple[str, Callable[[bytes], object]]] = [
    ("request", lambda body: [head_of(each) for each in decode_upload_request(body)]),
    ("survey", lambda payload: Survey.unverified(_signed(payload))),
    ("signed survey", Survey.unverified),
    ("key", lambda payload: SealingKey.unverified(_signed(payload))),
    ("end", lambda payload: EarlyEnd.unverified(_signed(payload))),
    ("key list", decode_key_list),
    ("acknowledgement", lambda body: decode_acknowledgement(body, 3)),
]
UPLOAD = len(READERS)
"""The number of a reader from which on a body is the plaintext of an upload: one for each survey."""


class Fuzzing:
    """Reads bodies, and counts what was read. runs: so many; then all uploads are folded, and the process ends."""

    def __init__(self, runs: int) -> None:
        self._left, self._read = runs, Counter[str]()
        self._uploads: list[list[bytes]] = [[] for _ in SURVEYS]

    def __call__(self, body: bytes) -> None:
        if len(body) > 1:  # nothing at all is no envelope, and refused when it comes
            number = body[0] % (UPLOAD + len(SURVEYS))
            name, read = READERS[number] if number < UPLOAD else ("upload", decode_upload)
            with suppress(ProtocolError):
                read(body[1:])
                self._read[name] += 1
            if number >= UPLOAD:
                self._uploads[number - UPLOAD].append(body[1:])
        self._left -= 1
        if not self._left:
            print(json.dumps({"read": self._read, "reports": self._folded()}), flush=True)
            os._exit(0)

    def _folded(self) -> int:
        """How many reports the uploads come to. Raises AssertionError where the reference finds others."""
        store = Store.open(Path(tempfile.mkdtemp()) / "server.db")
        with store.transaction() as writing:
            for each in SURVEYS:
                writing.add_survey(each.id, each.signed_by(AUTHORITY), public=True)
            key = publish_new_key(writing, 0, FOREVER)
            writing.keep_time(KeptTime(int(1000 * AFTER), False))  # so that no arrival is doubted
        append, arrival = appender(store), SURVEYS[0].calendar.time(4) + SURVEYS[0].grace // 2
        for asked, uploads in zip(SURVEYS, self._uploads, strict=True):
            append([encode_upload_request([seal(each, asked.id, key)]) for each in uploads], 1000 * arrival)
        with store.view() as view:
            expected = reference_rows(view.kept_requests(), view.surveys(), view.private_keys())
        reports = fold(store, AFTER, closing=False).reports
        if counted_rows(store) != expected:
            raise AssertionError("the fold and the reference differ: the same runs and seed tell by which uploads")
        return reports


def seeds() -> Iterator[bytes]:
    """A body for each reader, and honest and hostile uploads."""
    chance = random.Random(7)
    end = EarlyEnd(SURVEYS[0].id, 3)
    sealed = [seal(honest(each.plan, chance)[0], each.id, KEY) for each in SURVEYS]
    payload = msgpack.unpackb
    bodies = [
        [encode_upload_request(sealed[:count]) for count in range(3)],
        [each.payload for each in SURVEYS],
        [each.signed_by(AUTHORITY) for each in SURVEYS],
        [payload(KEY.signed_by(AUTHORITY))["payload"]],
        [payload(end.signed_by(AUTHORITY))["payload"]],
        [encode_key_list([KEY.signed_by(AUTHORITY)] * count) for count in range(3)],
        [encode_acknowledgement({})],
    ]
    for asked in SURVEYS:
        told = [honest(asked.plan, chance) for _ in range(20)]
        seen = [id_ for _, ids in told for id_ in ids]
        bodies.append([plaintext for plaintext, _ in told] + [hostile(asked.plan, seen, chance) for _ in range(20)])
    return (bytes([number]) + each for number, of_reader in enumerate(bodies) for each in of_reader)


WHOLE = [body for body in seeds() if body[0] >= UPLOAD and len(body) > 20]
"""Uploads to begin with anew, as few survive several changes of one another."""


def mutated(body: bytes, most: int, seed: int) -> bytes:
    """Another body: half of the time by bytes, else one of its values is another, and all of it packed again."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        return _told_otherwise(chance.choice(WHOLE), chance)
    if len(body) < 2 or chance.random() < 0.5:
        changed: bytes = atheris.Mutate(body, min(most, len(body) + 64))
        return changed
    try:
        unpacker = msgpack.Unpacker(strict_map_key=False)
        unpacker.feed(body[1:])
        packed: bytes = msgpack.packb(_changed(unpacker.unpack(), chance))  # without the zeros behind it
    except Exception:
        packed = chance.randbytes(8)
    return (body[:1] + packed)[:most]


def _told_otherwise(body: bytes, chance: random.Random) -> bytes:
    """The same with some bytes changed where they stand, so that the columns of an upload keep their lengths."""
    told = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        told[chance.randrange(6, len(told))] = chance.choice([0, 1, 2, 3, 4, 5, 13, 255])
    return bytes(told)


def _changed(value: Any, chance: random.Random) -> Any:
    """The same but for one value somewhere in it."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice([*value])
        if chance.random() < 0.1:
            return {other: each for other, each in value.items() if other != name}
        return {**value, name: _changed(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        if chance.random() < 0.1:
            return value[:at] + value[at:] * 2
        return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    if isinstance(value, bytes) and value and chance.random() < 0.7:
        at = chance.randrange(len(value))
        return value[:at] + chance.choice([bytes([chance.randrange(256)]), b"\0", b""]) + value[at + 1 :]
    if isinstance(value, int) and chance.random() < 0.7:
        return int(value) + chance.choice([-1, 1, chance.randrange(-100, 100)])
    return chance.choice(INTERESTING)


def main(runs: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, body in enumerate(seeds()):
            (Path(folder) / f"{number}").write_bytes(body)
        options = [f"-seed={seed}", f"-artifact_prefix={folder}-", "-max_len=4096", "-print_final_stats=0"]
        atheris.Setup([sys.argv[0], *options, folder], Fuzzing(runs), custom_mutator=mutated)
        atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
