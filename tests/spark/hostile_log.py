"""A log with all in it that a fold may meet, made from a seed: the same in every store but for seals and keys."""

import random
from dataclasses import dataclass, replace
from typing import Any

from changeling_aggregator.segments import place_at
from changeling_aggregator.segments.parquet import read_ids
from changeling_aggregator.store import Store
from changeling_aggregator.testing import counted_rows, sql
from changeling_protocol import Calendar, SealingKey, Survey, UnixMilliseconds, seal
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..aggregator.devices import Log, body
from ..aggregator.test_hostile_clients import PLANS, honest, hostile
from ..protocol.examples import AUTHORITY, survey

START = 1_700_000_000
PERIOD, PERIODS, GRACE = 60, 8, 200
SURVEYS: list[Survey] = [
    replace(survey(plan, calendar=Calendar(START, PERIOD, PERIODS), grace=GRACE), question=f"{name}?")
    for name, plan in PLANS.items()
]
ENDS = START + PERIOD * PERIODS
AFTER = ENDS + 3 * GRACE


@dataclass(frozen=True)
class HostileLog:
    """Requests by turns, each with its arrival in Unix seconds and its stream's place: the same for all stores."""

    requests: list[tuple[float, int, bytes]]

    @classmethod
    def made(cls, key: SealingKey, seed: int = 3, requests: int = 60) -> "HostileLog":
        """Early, late and repeated uploads, of three surveys and of one that nobody knows, to known and unknown keys;
        rubbish; requests with envelopes of several surveys."""
        chance = random.Random(seed)
        stranger = survey(calendar=Calendar(START, PERIOD, PERIODS), minimum=7)
        public = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
        lost = SealingKey(public, 0, 2**40)
        seen: dict[bytes, list[bytes]] = {each.id: [] for each in SURVEYS}
        sent: list[bytes] = []
        made: list[tuple[float, int, bytes]] = []
        at = START - 100.0
        for number in range(requests):
            at += chance.random() * 2 * (ENDS + GRACE - START) / requests
            envelopes: list[object] = []
            for _ in range(chance.choice([1, 1, 3])):
                asked = chance.choice(SURVEYS)
                plaintext, ids = honest(asked.plan, chance)
                if chance.random() < 0.4:
                    plaintext = hostile(asked.plan, seen[asked.id], chance) or b"?"
                else:
                    seen[asked.id] += ids
                envelopes.append(seal(plaintext, asked.id, key))
            if number % 7 == 3:
                envelopes.append(seal(plaintext, stranger.id, key))
            if number % 9 == 4:
                envelopes.append(seal(plaintext, asked.id, lost))
            if number % 11 == 5:
                envelopes = [chance.randbytes(200)]
            request = chance.choice(sent) if sent and chance.random() < 0.2 else body(*envelopes)
            sent.append(request)
            made.append((at, chance.randrange(3), request))
        return cls(made)

    def append_to(self, store: Store, streams: list[int], first: int = 0, last: int | None = None) -> None:
        """Append some of it."""
        for at, place, request in self.requests[first:last]:
            store.append(streams[place], [request], UnixMilliseconds(int(at * 1000)))


def prepared(store: Store, seed: int = 3) -> tuple[HostileLog, list[int]]:
    """Publish surveys and a key in a store; a log for it, and three streams."""
    key = Log.of(store, SURVEYS[0]).key
    with store.transaction() as writing:
        for each in SURVEYS[1:]:
            writing.add_survey(each.id, each.signed_by(AUTHORITY))
        streams = [writing.open_stream(None) for _ in range(3)]
    return HostileLog.made(key, seed), streams


def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """What was counted, row by row and byte by byte: tallies, attendance, refusals, cursors, what came early."""
    early = sql(store, "SELECT stream, position, needed_until FROM log WHERE needed_until IS NOT NULL")
    cursors = sql(store, "SELECT stream, position FROM cursors")
    return {**counted_rows(store), "cursors": sorted(cursors), "early": sorted(early)}


def counted_ids(store: Store) -> list[bytes]:
    """Every id in the registered files."""
    with store.view() as view:
        files = view.id_files()
    packed = [ids for file in files for _, ids in read_ids(place_at(file.place), file.name, 0)]
    return [ids[at : at + 16] for ids in packed for at in range(0, len(ids), 16) if len(set(ids[at : at + 16])) > 4]
