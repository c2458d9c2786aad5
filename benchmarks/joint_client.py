"""Measure 8 of joint responses: what an answered node costs a device, and what it keeps of an entry.

Beside it, what both were when a device derived its coins from a secret: the derivation is made again here and runs in
the place of fresh coins, so that all the rest of answering is the same code.
"""

import hmac
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from time import process_time

from changeling_client import entries, outbox
from changeling_client.answering import answer_due
from changeling_client.server import close_ms
from changeling_client.store import ClientStore
from changeling_client.testing import FakeServer, ManualClock, make_client
from changeling_protocol import (
    AtMost,
    Calendar,
    Coins,
    Group,
    Joint,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Survey,
    SystemCoins,
    Track,
    UnixMilliseconds,
    joint,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

BYTES_BEFORE = 101.376
"""Of an entry with one answer, by `bytes_of_an_entry` over the plain plan of changes, with the last store that had a
key for each entry: version 1, whose row of an entry held 32 bytes of key in the place of delay, slots and score."""
ODDS, PERIODS, TIMES = Odds(7, 1), 64, 5
SPREAD = 600
"""In seconds; no integer is drawn below 1000 times as much for anything but a delay."""


def measure() -> dict[str, float]:
    """Microseconds of processor time for a node, the least of several runs; bytes for an entry; and the ratios."""
    figures: dict[str, float] = {}
    for name, plain, jointly in (("changes", changes(False), changes(True)), ("states", states(False), states(True))):
        runs = [
            (seconds(plain, DerivedCoins()), seconds(plain, SystemCoins()), seconds(jointly, SystemCoins()))
            for _ in range(TIMES)
        ]
        before, alone, together = (1e6 * min(times) for times in zip(*runs, strict=True))
        figures |= {
            f"8_{name}_us_before": before,
            f"8_{name}_us_plain": alone,
            f"8_{name}_us_joint": together,
            f"8_{name}_us_plain_over_before": alone / before,
            f"8_{name}_us_joint_over_before": together / before,
        }
    kept = bytes_of_an_entry(changes(False)), bytes_of_an_entry(changes(True))
    return figures | {
        "8_bytes_before": BYTES_BEFORE,
        "8_bytes_plain": kept[0],
        "8_bytes_joint": kept[1],
        "8_bytes_joint_over_before": kept[1] / BYTES_BEFORE,
    }


def changes(jointly: bool) -> Survey:
    """Changes among four answers, at most three of them."""
    track = Track(1, SignedSubset(MutationSpace(4), ODDS, spoken=Fraction(1)), 0, PERIODS)
    return _survey(track, Joint(Odds(2981, 1), 2, (1,), (3,)) if jointly else None)


def states(jointly: bool) -> Survey:
    """States of four answers at every period: each report tells, so each moves the slots."""
    track = Track(1, SubsetSelection(StateSpace(4), ODDS, 2), 0, PERIODS)
    return _survey(track, Joint(Odds(2981, 1), 40, (1,), (PERIODS,)) if jointly else None)


def seconds(survey: Survey, coins: Coins, count: int = 20) -> float:
    """The processor time of one answered node; entries answer every closing as it is due, one after another.

    Nothing of a kernel is remembered from one node to the next, as if each had a process of its own.
    """
    with _enrolled(survey, count) as store:
        taken = 0.0
        for period in range(1, PERIODS + 1):
            now_ms = UnixMilliseconds(close_ms(survey.calendar, period) + 1000 * (survey.skew + SPREAD))
            with store.transaction() as db:
                for entry in entries.load_all(db, store.wrapping, survey.id):
                    joint._patterns.cache_clear()
                    began = process_time()
                    answered = answer_due(survey, entry, (), now_ms, False, coins)
                    entries.update(db, store.wrapping, answered.entry)
                    outbox.put(db, store.wrapping, survey, [(answered.entry, answered.answers)])
                    taken += process_time() - began
    return taken / (count * PERIODS)


def bytes_of_an_entry(survey: Survey, fewer: int = 1000, more: int = 9000) -> float:
    """By how much a store with more entries is larger, each with one answer. Stores are rewritten before."""
    sizes = []
    for count in (fewer, more):
        with _enrolled(survey, count) as store:
            store.erase_past()
            with store.transaction() as db:
                sizes.append(
                    db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
                )
    return float((sizes[1] - sizes[0]) / (more - fewer))


class DerivedCoins:
    """Integers as they were derived: a key of the period, a subkey of it for each purpose, a stream of HMAC-SHA256.

    A report's symbol and its delay each took a stream of a subkey, its id 16 bytes of HMAC, and a step of the ratchet
    gave the next period's key.
    """

    def __init__(self) -> None:
        self._key = bytes(range(32))

    def below(self, n: int) -> int:
        if n == 1 << 128:
            return int.from_bytes(hmac.digest(self._subkey(b"id"), bytes(10), "sha256")[:16])
        delay = n == 1000 * SPREAD
        drawn = self._stream(self._subkey(b"delay" if delay else b"coins"), bytes(14), n)
        if delay:
            self._key = hmac.digest(self._key, b"next", "sha256")
        return drawn

    def _subkey(self, label: bytes) -> bytes:
        return HKDF(SHA256(), length=32, salt=None, info=label + bytes(18)).derive(self._key)

    @staticmethod
    def _stream(key: bytes, context: bytes, n: int) -> int:
        blank, block, unused = hmac.new(key, context, "sha256"), 0, b""
        bits = (n - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            while len(unused) < size:
                each = blank.copy()
                each.update(block.to_bytes(4))
                unused += each.digest()
                block += 1
            drawn, unused = int.from_bytes(unused[:size]) >> (8 * size - bits), unused[size:]
            if drawn < n:
                return drawn


@contextmanager
def _enrolled(survey: Survey, count: int) -> Iterator[ClientStore]:
    """A store whose entries joined the survey as it began, each with an answer."""
    with tempfile.TemporaryDirectory() as folder:
        server = FakeServer(ManualClock(survey.calendar.start))
        client = make_client(folder, server, coins=SystemCoins())
        with client:
            answers = [survey.answers[0]] * count
            client.join(survey.id, entries=count, answers=answers, signed=server.signed(survey))
            yield client._device.store


def _survey(track: Track, together: Joint | None) -> Survey:
    group = Group((track,)) if together is None else Group.jointly([track], together)
    return Survey.at_cost(
        question="What do you drink?",
        answers=("tea", "coffee", "water", "neither"),
        calendar=Calendar(1_800_000_000, 3600, PERIODS),
        constraint=AtMost(3),
        plan=ReleasePlan((group,)),
        skew=60,
        spread=SPREAD,
        grace=86_400 * 30,
        minimum=1,
    )
