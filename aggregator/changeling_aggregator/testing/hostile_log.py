"""A log with all in it that a fold may meet, made from a seed: of honest clients, and of some that send anything."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import msgpack
from changeling_protocol import (
    CLOSING_BYTES,
    AtMost,
    Calendar,
    Closing,
    Group,
    KaryResponse,
    MutationSpace,
    Node,
    Odds,
    ReleasePlan,
    Report,
    SealingKey,
    SignedSubset,
    Standing,
    StateSpace,
    StratumNumber,
    Survey,
    SurveyId,
    Track,
    UnixMilliseconds,
    UnixSeconds,
    closings,
    column_bytes,
    encode,
    encode_upload,
    seal,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..store import KeptTime, Store
from .stores import open_stream_at

Append: TypeAlias = Callable[[Sequence[bytes], UnixMilliseconds], None]
"""Puts requests at the end of a stream, at a time in Unix milliseconds."""
AUTHORITY = Ed25519PrivateKey.from_private_bytes(b"authority of the tests, 32 bytes")
START, PERIOD, PERIODS, GRACE = 1_700_000_000, 60, 8, 200
ENDS = START + PERIOD * PERIODS
AFTER = UnixSeconds(ENDS + 3 * GRACE)
"""When nothing of the log is to come any more, in Unix seconds."""

_CHANGES, _STATES = KaryResponse(MutationSpace(3), Odds(9, 2)), KaryResponse(StateSpace(3), Odds(4, 1))
_SUBSETS = SignedSubset(MutationSpace(3), Odds(9, 2), spoken=Fraction(1, 2))
PLANS = {
    "a panel of random nodes, changes, and both": ReleasePlan(
        (
            Group((Track(1, _STATES, 0, 8, reported=2),), share=3),
            Group((Track(2, _CHANGES, 0, 8),), share=2),
            Group((Track(1, _STATES, 0, 1), Track(1, _CHANGES, 1, 8))),
        )
    ),
    "three widths": ReleasePlan((Group(tuple(Track(width, _SUBSETS, 0, 8) for width in (1, 2, 4))),)),
    "periods without a closing": ReleasePlan(
        (Group((Track(3, _CHANGES, 1, 8),)), Group((Track(2, _STATES, 5, 8), Track(4, _SUBSETS, 0, 8))))
    ),
}


def survey_of(plan: ReleasePlan, question: str) -> Survey:
    """A survey of eight minutes with this plan."""
    return Survey.at_cost(
        question=question,
        answers=("tea", "coffee", "neither"),
        calendar=Calendar(START, PERIOD, PERIODS),
        constraint=AtMost(3),
        plan=plan,
        closed=False,
        skew=5,
        spread=10,
        grace=GRACE,
        minimum=1,
    )


SURVEYS: Sequence[Survey] = [survey_of(plan, f"{name}?") for name, plan in PLANS.items()]


def honest(plan: ReleasePlan, chance: random.Random) -> tuple[bytes, list[bytes]]:
    """An upload over some periods of eight, and the ids in it."""
    group, start = chance.randrange(len(plan.groups)), chance.randrange(8)
    span = Node(start, chance.randrange(start + 1, 9))
    answered = [
        Closing(period, chance.randbytes(16), Standing(chance.randrange(3)), StratumNumber(0))
        for period in closings(plan, span.start, span.end)
    ]
    reports = [
        Report(number, at, chance.randrange(track.randomizer.symbols))
        for number, track in plan.numbered(group)
        for at in track.node_numbers()
        if span.start < track.node(at).end <= span.end
    ]
    return encode_upload(plan, group, span, answered, reports), [closing.id for closing in answered]


def hostile(plan: ReleasePlan, seen: Sequence[bytes], chance: random.Random) -> bytes:
    """Columns of the right lengths with anything in them, ids that others have used before too; some of it cut off."""
    group, start = chance.randrange(len(plan.groups)), chance.choice([0, 0, 1, 7, 8, 100, 2**16])
    span = Node(start, start + chance.choice([1, 2, 8, 63, 64]))
    rows, *columns = column_bytes(plan, group, span)
    ids = [chance.choice([bytes(16), b"\xff" * 16, chance.randbytes(16), *seen]) for _ in range(rows // CLOSING_BYTES)]
    standings = bytes(chance.choice([0, 1, 2, 3, 4, 255]) for _ in ids)
    strata = b"".join(chance.choice([0, 0, 1, 65535]).to_bytes(2) for _ in ids)
    symbols = [chance.choice([bytes(n), b"\xff" * n, chance.randbytes(n)]) for n in columns]
    claimed = group if chance.random() < 0.8 else chance.choice([-1, len(plan.groups), 2**63, 2**64 - 1])
    raw: bytes = msgpack.packb([claimed, span.start, span.end, b"".join([*ids, standings, strata]), *symbols])
    return raw[: chance.randrange(len(raw))] if chance.random() < 0.1 else raw + bytes(chance.randrange(3))


@dataclass(frozen=True)
class HostileLog:
    """Requests by turns, each with its arrival in Unix seconds and one of three streams: the same for all stores."""

    requests: Sequence[tuple[float, int, bytes]]

    @classmethod
    def made(cls, key: SealingKey, seed: int = 3, requests: int = 60) -> "HostileLog":
        """Early, late and repeated uploads, of three surveys and of one that nobody knows, to known and unknown keys;
        and rubbish. Each request is of one survey, as the log holds them.
        """
        chance = random.Random(seed)
        stranger = survey_of(PLANS["three widths"], "unknown?")
        public = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
        lost = SealingKey(public, 0, 2**40)
        seen: dict[SurveyId, list[bytes]] = {each.id: [] for each in SURVEYS}
        made: list[tuple[float, int, bytes]] = []
        at = START - 100.0
        for number in range(requests):
            at += chance.random() * 2 * (ENDS + GRACE - START) / requests
            asked = chance.choice(SURVEYS)
            plaintexts = []
            for _ in range(chance.choice([1, 1, 3])):
                plaintext, ids = honest(asked.plan, chance)
                if chance.random() < 0.4:
                    plaintext = hostile(asked.plan, seen[asked.id], chance) or b"?"
                else:
                    seen[asked.id] += ids
                plaintexts.append(plaintext)
            of, to = (stranger if number % 7 == 3 else asked), (lost if number % 9 == 4 else key)
            envelopes = [seal(each, of.id, to) for each in plaintexts]
            if number % 11 == 5:
                envelopes = [chance.randbytes(200)]
            again = bool(made) and chance.random() < 0.2
            request = chance.choice(made)[2] if again else encode({"envelopes": envelopes})
            made.append((at, chance.randrange(3), request))
        return cls(made)

    def append_to(self, streams: Sequence[Append], first: int = 0, last: int | None = None) -> None:
        """Append some of it. streams: what appends to each of three."""
        for at, stream, request in self.requests[first:last]:
            streams[stream]([request], UnixMilliseconds(int(at * 1000)))


def prepared(store: Store, seed: int = 3, place: str | None = None) -> tuple[HostileLog, list[Append]]:
    """Publish surveys and a key in a store; a log for it, and what appends to three streams.

    place: where their requests lie in files; None for the database.
    """
    with store.transaction() as writing:
        for each in SURVEYS:
            writing.add_survey(each.id, each.signed_by(AUTHORITY), public=True)
        key = SealingKey(writing.make_key(), 0, 2**40)
        writing.publish_key(key, key.signed_by(AUTHORITY))
        writing.keep_time(KeptTime(UnixMilliseconds(int(AFTER * 1000)), False))  # so that no arrival is doubted
    return HostileLog.made(key, seed), [appender(store, place) for _ in range(3)]


def appender(store: Store, place: str | None = None) -> Append:
    """A new stream; gives what appends to it. place: where its requests lie in files; None for the database."""
    return partial(store.append, store.open_stream()) if place is None else open_stream_at(store, place)
