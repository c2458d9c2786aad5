"""Envelopes on disk that wait to be forwarded, in a file that does not tell in which order they came, or who together.

A spool is one file of equal slots, its room taken from the disk when it is made. An envelope goes into a slot that is
drawn from all that are free, and zeros go over it when it leaves. So whatever came when, the places of what waits are
uniform, and nothing else is in the file. An envelope is kept once `flush` returns; what a crash tore in two does not
have the digest that stands before it, and was never acknowledged.

No network can shut the others out: it may take a share of the room. It is known, in memory alone, by a keyed hash of
its address's prefix, under a key of each round that goes with the round; only how many of a round it sent is kept.
"""

import os
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from threading import Lock

from changeling_protocol import Coins, head_of

from ..errors import Overloaded

SHARE = 8
"""One network has at most this part of the room."""
MOST_NETWORKS = 100_000
"""The most networks that are remembered of a round, those that sent last."""


@dataclass(slots=True)
class _Round:
    key: bytes = field(default_factory=lambda: os.urandom(32))
    taken: Counter[bytes] = field(default_factory=Counter)

    def name(self, network: str) -> bytes:
        return blake2b(network.encode(), key=self.key, digest_size=16).digest()


class NetworkShares:
    """The shares of all networks in one spool. Threads may share it.

    slots: how many envelopes the spool holds. nameless: how many were there at the start, of networks that nobody knows
    any more: shares are of the rest, so that no network fills the room over many starts.
    """

    def __init__(self, slots: int, nameless: int = 0) -> None:
        self._slots, self._nameless = slots, nameless
        self._lock = Lock()
        self._rounds: dict[int, _Round] = {}

    def take(self, network: str, count: int, round_: int) -> bool:
        """Take a share of so many for a network, which counts until the round has gone; False where it has no more."""
        with self._lock:
            taken = sum(each.taken[each.name(network)] for each in self._rounds.values())
            if taken + count > max(1, (self._slots - self._nameless) // SHARE):
                return False
            now = self._rounds.setdefault(round_, _Round())
            name = now.name(network)
            now.taken[name] = now.taken.pop(name, 0) + count
            if len(now.taken) > MOST_NETWORKS:
                del now.taken[next(iter(now.taken))]
            return True

    def give_back(self, network: str, count: int, round_: int) -> None:
        """Return what was taken and not put in."""
        with self._lock:
            if (there := self._rounds.get(round_)) is not None:
                there.taken[there.name(network)] -= count

    def nameless_gone(self, count: int) -> None:
        """Give the room of so many that were there at the start, and have left, to all networks."""
        with self._lock:
            self._nameless -= count

    def forget_gone(self, waiting: Iterable[int], now: int) -> None:
        """Forget the rounds of which nothing is left. waiting: those of which something waits. now: the present one.

        The round before the first of these is kept, as what took a share in it may have been written in the next.
        """
        with self._lock:
            first = min([*waiting, now])
            for gone in [each for each in self._rounds if each < first - 1]:
                del self._rounds[gone]


_HEAD = struct.Struct(">16sQI")
"""Before an envelope: the digest of all that follows, the round it came in, its length."""
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class WaitingEnvelope:
    """An envelope that waits. slot: its place. round: the one it came in. key: the id of the key it is sealed to."""

    slot: int
    round: int
    key: bytes


class Spool:
    """The envelopes of one survey. Threads may share it; processes may not.

    path: the file, made if there is none, readable by its owner alone.
    most_bytes: the length that no envelope exceeds; a file belongs to one such length.
    room: how many bytes the file has at least. coins: what slots are drawn with.
    shares: of networks in it, for who takes envelopes from them.
    Raises OSError, also where the disk has no such room.
    """

    def __init__(self, path: Path, most_bytes: int, room: int, coins: Coins) -> None:
        self._slot_bytes, self._coins = _HEAD.size + most_bytes, coins
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(self._file, 0, max(1, room // self._slot_bytes) * self._slot_bytes)
            os.fsync(self._file)
        except OSError as error:
            os.close(self._file)
            raise OSError(error.errno, f"no room of {room} bytes: {error.strerror}", str(path)) from error
        self._lock = Lock()
        self._free: list[int] = []
        self._waiting: dict[int, WaitingEnvelope] = {}
        slots = os.fstat(self._file).st_size // self._slot_bytes
        for slot in range(slots):
            self._find(slot)
        self._nameless = set(self._waiting)
        self.shares = NetworkShares(slots, len(self._nameless))
        self.flush()

    def close(self) -> None:
        """Close the file; what waits stays in it."""
        os.close(self._file)

    def reserve(self, count: int) -> list[int]:
        """Draw so many free slots. Raises Overloaded where there are fewer."""
        with self._lock:
            if count > len(self._free):
                raise Overloaded("more envelopes wait here than this relay keeps: come again later")
            return [self._drawn() for _ in range(count)]

    def release(self, slots: Iterable[int]) -> None:
        """Give back slots that were reserved and not written."""
        with self._lock:
            self._free += slots

    def write(self, slots: Sequence[int], envelopes: Sequence[bytes], round_: int) -> None:
        """Put envelopes into slots that were reserved for them; `flush` keeps them. round_: the present one."""
        for slot, envelope in zip(slots, envelopes, strict=True):
            os.pwrite(self._file, _record(envelope, round_), slot * self._slot_bytes)

    def flush(self) -> None:
        """Returns when all that was written or erased is on disk."""
        os.fdatasync(self._file)

    def admit(self, slots: Sequence[int], envelopes: Sequence[bytes], round_: int) -> None:
        """Count what was written and flushed among what waits."""
        with self._lock:
            for slot, envelope in zip(slots, envelopes, strict=True):
                self._waiting[slot] = WaitingEnvelope(slot, round_, head_of(envelope).key)

    def waiting(self) -> list[WaitingEnvelope]:
        """All that waits, in the order of slots."""
        with self._lock:
            return [self._waiting[slot] for slot in sorted(self._waiting)]

    def read(self, slots: Sequence[int]) -> list[bytes]:
        """The envelopes in these slots."""
        envelopes = []
        for slot in slots:
            _, _, length = _HEAD.unpack(os.pread(self._file, _HEAD.size, slot * self._slot_bytes))
            envelopes.append(os.pread(self._file, length, slot * self._slot_bytes + _HEAD.size))
        return envelopes

    def erase(self, slots: Iterable[int]) -> None:
        """Overwrite what was in these slots, on disk when this returns; they are free.

        They are free as well where the disk fails, with OSError. What it still holds then waits again after a restart.
        """
        slots = list(slots)
        try:
            for slot in slots:
                os.pwrite(self._file, bytes(self._slot_bytes), slot * self._slot_bytes)
            self.flush()
        finally:
            with self._lock:
                for slot in slots:
                    del self._waiting[slot]
                self._free += slots
                gone = self._nameless.intersection(slots)
                self._nameless -= gone
            self.shares.nameless_gone(len(gone))

    def _drawn(self) -> int:
        place = self._coins.below(len(self._free))
        self._free[place], self._free[-1] = self._free[-1], self._free[place]
        return self._free.pop()

    def _find(self, slot: int) -> None:
        """Learn at the start what stands in a slot; what is torn goes."""
        begin = slot * self._slot_bytes
        head = os.pread(self._file, _HEAD.size, begin)
        _, round_, length = _HEAD.unpack(head)
        if 0 < length <= self._slot_bytes - _HEAD.size:
            envelope = os.pread(self._file, length, begin + _HEAD.size)
            if _record(envelope, round_)[: _HEAD.size] == head:
                self._waiting[slot] = WaitingEnvelope(slot, round_, head_of(envelope).key)
                return
        if any(record := os.pread(self._file, self._slot_bytes, begin)):
            os.pwrite(self._file, bytes(len(record)), begin)
        self._free.append(slot)


def _record(envelope: bytes, round_: int) -> bytes:
    rest = _HEAD.pack(b"", round_, len(envelope))[_DIGEST_BYTES:] + envelope
    return sha256(rest).digest()[:_DIGEST_BYTES] + rest
