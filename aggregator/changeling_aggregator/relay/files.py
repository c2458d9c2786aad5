"""What a relay keeps: its settings, the envelopes that wait on its disk, and the copies that it serves.

A spool is one file of equal slots, its room taken from the disk when it is made. An envelope goes into a slot that is
drawn from all that are free, and zeros go over it when it leaves. So whatever came when, the places of what waits are
uniform, and nothing in the file tells in which order envelopes came, or which of them together. An envelope is kept
once `flush` returns; what a crash tore in two does not have the digest that stands before it, and was never
acknowledged. No network can shut the others out: it may take a share of the room. It is known, in memory alone, by a
keyed hash of its address's prefix, under a key of each round that goes with the round; only how many of a round it sent
is kept.

Copies are surveys and one key, checked, the same bytes to every device. They are fetched by the relay's own clock,
never because a device asks, and kept in its folder: while the server is away, and after a restart, the last that were
good are served. Surveys never change. A key's id stands in the open on every envelope, so who holds which key must not
tell devices apart. The relay serves one key and takes envelopes that are sealed to it alone, so a key's id tells
nothing but the time. It stays with its key as long as it may. When it needs another it takes the one that expires
first: keys that the server adds later do not change the choice, and private halves are destroyed as early as can be.
However the server's offers change, a relay changes its key at most once in a given time, so that batches, which are of
one key each, have time to fill.
"""

import logging
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from threading import Lock

from changeling_protocol import (
    Coins,
    MalformedBytes,
    ProtocolError,
    SealingKey,
    Survey,
    SurveyId,
    SystemCoins,
    UnixSeconds,
    decode,
    encode,
    head_of,
)
from changeling_protocol.wire import MOST_BODY_BYTES, MOST_ENVELOPES, encode_key_list

from ..durable_files import take_lock, write_durably
from ..errors import Overloaded, SpoolError
from ..ingest import most_envelope_bytes
from ..server import Clock, real_time

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
    """The shares of all networks in one spool, which guards it from threads."""

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}

    def take(self, network: str, count: int, round_: int, room: int) -> bool:
        """Take so many of this room for a network, which count until the round has gone; False beyond its share."""
        taken = sum(each.taken[each.name(network)] for each in self._rounds.values())
        if taken + count > max(1, room // SHARE):
            return False
        now = self._rounds.setdefault(round_, _Round())
        name = now.name(network)
        now.taken[name] = now.taken.pop(name, 0) + count
        if len(now.taken) > MOST_NETWORKS:
            del now.taken[next(iter(now.taken))]
        return True

    def give_back(self, network: str, count: int, round_: int) -> None:
        """Return what was taken and not put in."""
        if (there := self._rounds.get(round_)) is not None:
            there.taken[there.name(network)] -= count

    def forget_gone(self, first: int) -> None:
        """Forget the rounds of which nothing is left. first: the first of which something waits, or the present one.

        The round before it is kept, as what took a share in it may have been written in the next.
        """
        self._rounds = {round_: each for round_, each in self._rounds.items() if round_ >= first - 1}


_HEAD = struct.Struct(">16sQI")
"""Before an envelope: the digest of all that follows, the round it came in, its length."""
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class WaitingEnvelope:
    """An envelope that waits. slot: its place. round: the one it came in. key: the id of the key it is sealed to."""

    slot: int
    round: int
    key: bytes


@dataclass(frozen=True, slots=True)
class PlacedEnvelopes:
    """Envelopes of one survey with the slots that are reserved for them. network, round: whose share they are of."""

    spool: "Spool"
    slots: Sequence[int]
    envelopes: Sequence[bytes]
    network: str | None
    round: int


class Spool:
    """The envelopes of one survey. Threads may share it; processes may not.

    path: the file, made if there is none, readable by its owner alone.
    most_bytes: the length that no envelope exceeds; a file belongs to one such length.
    room: how many bytes the file has at least. coins: what slots are drawn with.
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
        self._slots = os.fstat(self._file).st_size // self._slot_bytes
        for slot in range(self._slots):
            self._find(slot)
        self._nameless = set(self._waiting)
        """What was there at the start, of networks that nobody knows any more. Shares are of the rest, so that no
        network fills the room over many starts."""
        self._shares = NetworkShares()
        self.flush()

    def close(self) -> None:
        """Close the file; what waits stays in it."""
        os.close(self._file)

    def place(self, envelopes: Sequence[bytes], network: str | None, round_: int) -> PlacedEnvelopes:
        """Draw free slots for envelopes, which `write`, `flush` and `admit` keep, or `give_back` frees.

        network: whose share they are of, None for one that may have all the room. round_: the present one.
        Raises Overloaded where there are fewer slots, or the network has no such share left.
        """
        count = len(envelopes)
        with self._lock:
            room = self._slots - len(self._nameless)
            if network is not None and not self._shares.take(network, count, round_, room):
                whose = "of your network wait here than this relay keeps of one"
                raise Overloaded(f"more envelopes {whose}: come again later")
            if count > len(self._free):
                if network is not None:
                    self._shares.give_back(network, count, round_)
                raise Overloaded("more envelopes wait here than this relay keeps: come again later")
            return PlacedEnvelopes(self, [self._drawn() for _ in range(count)], envelopes, network, round_)

    def give_back(self, placed: PlacedEnvelopes) -> None:
        """Free slots that were not written."""
        with self._lock:
            self._free += placed.slots
            if placed.network is not None:
                self._shares.give_back(placed.network, len(placed.slots), placed.round)

    def write(self, placed: PlacedEnvelopes, round_: int) -> None:
        """Put envelopes into their slots; `flush` keeps them. round_: the present one."""
        for slot, envelope in zip(placed.slots, placed.envelopes, strict=True):
            os.pwrite(self._file, _record(envelope, round_), slot * self._slot_bytes)

    def flush(self) -> None:
        """Returns when all that was written or erased is on disk."""
        os.fdatasync(self._file)

    def admit(self, placed: PlacedEnvelopes, round_: int) -> None:
        """Count what was written and flushed among what waits."""
        with self._lock:
            for slot, envelope in zip(placed.slots, placed.envelopes, strict=True):
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
                self._nameless.difference_update(slots)

    def forget_shares(self, now: int) -> None:
        """Give networks the room back of rounds of which nothing is left. now: the present one."""
        with self._lock:
            self._shares.forget_gone(min([*(each.round for each in self._waiting.values()), now]))

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


_FRAME_BYTES = 32
"""More than MessagePack needs around the envelopes of a body."""
_PACKING_BYTES = 5
"""More than it needs before each of them."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The rules by which a relay batches envelopes.

    batch: envelopes go once so many of one survey and one sealing key wait.
    wait: the length of a round, in seconds.
    most_wait: fewer than a batch go when the first of them would wait for longer than this, in seconds.
    Raises ValueError for numbers below 1, or a wait longer than most_wait.
    """

    batch: int
    wait: int
    most_wait: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"a batch has at least 1 envelope, got {self.batch}")
        if not 1 <= self.wait <= self.most_wait:
            raise ValueError(f"the wait is at least 1 s and at most the longest, got {self.wait} s, {self.most_wait} s")

    def round_at(self, time: UnixSeconds) -> int:
        """The round that a Unix time is in, in seconds."""
        return int(time // self.wait)

    def longest(self, survey: Survey) -> int:
        """For how many seconds an envelope of this survey may wait: half of what grace leaves to those who are late."""
        return min(self.most_wait, (survey.grace - survey.skew - survey.spread) // 2)

    def at_once(self, most_bytes: int) -> int:
        """The number of envelopes, of at most so many bytes each, that one body carries."""
        fitting = (MOST_BODY_BYTES - _FRAME_BYTES) // (most_bytes + _PACKING_BYTES)
        return max(1, min(MOST_ENVELOPES, self.batch, fitting))

    def due(self, rounds: Collection[int], now: int, longest: int, at_once: int) -> int:
        """The number of these envelopes to forward, drawn from all of them.

        rounds: in which each of them came; none in the present one. now: the present one. longest: as `longest` says.
        at_once: how many a body carries. Bodies are full; only where one envelope cannot wait do all go. One that came
        longer than that in the future cannot wait either: the clock, or the length of rounds, was another.
        """
        if rounds and max(now + 1 - min(rounds), max(rounds) - now) * self.wait > longest:
            return len(rounds)
        return len(rounds) // at_once * at_once if len(rounds) >= self.batch else 0


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Options of a relay.

    authority: public keys; what is served is signed by one of them. batching: when it forwards.
    surveys: the ids that are relayed; None for all that declare `url`, this relay's base URL.
    room: bytes on disk for each survey's envelopes. requests_a_second: the most from one network, on average; 0 for any
    number. clock: Unix seconds. coins: for slots and orders.
    """

    authority: Sequence[bytes]
    batching: Batching
    surveys: frozenset[SurveyId] | None
    url: str
    room: int
    requests_a_second: int = 0
    clock: Clock = real_time
    coins: Coins = field(default_factory=SystemCoins)


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """A key that was chosen.

    signed: as the authority signed it. key: what that says. chosen: when, in Unix seconds.
    """

    signed: bytes
    key: SealingKey
    chosen: int


def choose(
    before: KeyChoice | None, offered: Mapping[bytes, SealingKey], now: UnixSeconds, rest: int
) -> KeyChoice | None:
    """Choose the key that is served from now on, as long as the server offers it and it is valid.

    before: the choice so far. offered: the server's keys, by their signed bytes. now: Unix seconds.
    rest: for so many seconds after a choice there is no other; and a key is given up so long before it expires, if
    there is another, as envelopes that are sealed to it may wait so long.
    """
    valid = {signed: key for signed, key in offered.items() if key.valid_at(now)}
    lasting = {signed: key for signed, key in valid.items() if now + rest <= key.expires}
    usable = lasting or valid
    if not usable or (before is not None and (before.signed in usable or 0 <= now - before.chosen < rest)):
        return before
    signed, key = min(usable.items(), key=lambda item: (item[1].expires, item[1].id))
    return KeyChoice(signed, key, int(now))


MOST_SURVEYS = 64
"""The most surveys of one relay, as each takes room on its disk."""
LINGER_SECONDS = 3600
"""A survey that is over is let go of so long after, when nothing of it can be on its way to the disk any more."""
_KEYS = "sealing-keys"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """A survey that is relayed. signed: its bytes, as devices get them. spool: its envelopes that wait."""

    survey: Survey
    signed: bytes = field(repr=False)
    most_bytes: int
    spool: Spool

    def is_open(self, now: UnixSeconds) -> bool:
        """True if a server may take its envelopes at this Unix time, in seconds."""
        calendar = self.survey.calendar
        return calendar.start <= now <= calendar.time(calendar.periods) + self.survey.grace


class Copies:
    """Surveys and keys of a relay's server, in a folder of the relay's own.

    folder: made if there is none, readable by its owner alone. Raises SpoolError where another relay runs on it, or a
    survey in it is another authority's; or OSError.
    """

    def __init__(self, folder: Path, settings: RelaySettings) -> None:
        self._folder, self._settings = folder, settings
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = take_lock(folder / "lock")
        if lock is None:
            raise SpoolError(f"another relay runs on {folder}: name a folder of its own for this one")
        self._lock = lock
        self.surveys: dict[SurveyId, Copy] = {}
        self._passed_over: set[SurveyId] = set()
        self.asked: int | None = None
        """When the server last told its keys, in Unix seconds; None if it never did."""
        self._keys: tuple[Mapping[bytes, SealingKey], KeyChoice | None] = {}, None
        """What the server offers, and the choice among it: replaced together, as requests look meanwhile."""
        try:
            self._load_surveys()
            self._load_keys()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files; what waits stays."""
        for copy in self.surveys.values():
            copy.spool.close()
        self._lock.release()

    def wants(self, survey: SurveyId) -> bool:
        """True if the survey with this id is to be fetched."""
        named = self._settings.surveys
        wanted = named is None or survey in named
        room = len(self.surveys) < MOST_SURVEYS
        return wanted and room and survey not in self.surveys and survey not in self._passed_over

    def take_survey(self, id_: SurveyId, signed: bytes, now: UnixSeconds) -> None:
        """Keep and relay a survey that the server has under this id, if it is one to be relayed."""
        try:
            survey = Survey.from_signed(signed, self._settings.authority)
        except ProtocolError as error:
            survey = None
            _log.warning("survey %s is passed over: %s", id_.hex(), error)
        if survey is None or survey.id != id_ or not self._is_ours(survey) or _is_over(survey, now):
            self._passed_over.add(id_)
            return
        copy = self._copy(survey, signed)
        try:
            _keep(self._folder / f"{id_.hex()}.survey", signed)
        except OSError:
            copy.spool.close()
            raise
        self.surveys[id_] = copy

    def take_keys(self, signed: Sequence[bytes] | None, now: UnixSeconds) -> None:
        """Choose among these signed keys that the server offers; None where it could not be asked."""
        offered, choice = self._keys
        if signed is not None:
            offered, self.asked = self._checked(signed), int(now)
        self._keys = offered, choose(choice, offered, now, self._settings.batching.most_wait)
        self._keep_keys()

    def drop_ended(self, now: UnixSeconds) -> None:
        """Let go of the surveys that are over, once nothing of them waits."""
        for id_, copy in list(self.surveys.items()):
            if _is_over(copy.survey, UnixSeconds(now - LINGER_SECONDS)) and not copy.spool.waiting():
                del self.surveys[id_]
                self._passed_over.add(id_)
                copy.spool.close()
                (self._folder / f"{id_.hex()}.spool").unlink()  # first, as nobody would look for it without the survey
                (self._folder / f"{id_.hex()}.survey").unlink()

    def key_at(self, now: UnixSeconds) -> bytes | None:
        """The id of the one key that is served and taken at this Unix time, in seconds; None if there is none."""
        served = self._served(now)
        return None if served is None else served.key.id

    def key_list_at(self, now: UnixSeconds) -> bytes:
        """The body of the list of sealing keys, with one key or none."""
        served = self._served(now)
        return encode_key_list([] if served is None else [served.signed])

    def _served(self, now: UnixSeconds) -> KeyChoice | None:
        offered, choice = self._keys
        serves = choice is not None and choice.signed in offered and choice.key.valid_at(now)
        return choice if serves else None

    def _is_ours(self, survey: Survey) -> bool:
        settings = self._settings
        return settings.surveys is not None or survey.relay.rstrip("/") == settings.url.rstrip("/")

    def _checked(self, signed: Iterable[bytes]) -> dict[bytes, SealingKey]:
        keys = {}
        for each in signed:
            try:
                keys[each] = SealingKey.from_signed(each, self._settings.authority)
            except ProtocolError as error:
                _log.warning("a sealing key is passed over: %s", error)
        return keys

    def _copy(self, survey: Survey, signed: bytes) -> Copy:
        most_bytes = most_envelope_bytes(survey.plan)
        spool = Spool(self._folder / f"{survey.id.hex()}.spool", most_bytes, self._settings.room, self._settings.coins)
        return Copy(survey, signed, most_bytes, spool)

    def _load_surveys(self) -> None:
        for file in sorted(self._folder.glob("*.survey")):
            try:
                survey = Survey.from_signed(signed := file.read_bytes(), self._settings.authority)
            except ProtocolError as error:
                sentence = f"{file} is no survey of the authority, {error}: name the key that signed it as well"
                raise SpoolError(sentence) from error
            self.surveys[survey.id] = self._copy(survey, signed)

    def _keep_keys(self) -> None:
        offered, chosen = self._keys
        kept = {
            "offered": list(offered),
            "asked": self.asked or 0,
            "signed": b"" if chosen is None else chosen.signed,
            "chosen": 0 if chosen is None else chosen.chosen,
        }
        _keep(self._folder / _KEYS, encode(kept))

    def _load_keys(self) -> None:
        try:
            kept = decode((self._folder / _KEYS).read_bytes(), most_items=2**16)
        except FileNotFoundError:
            return
        match kept:
            case {"offered": [*offered], "asked": int(asked), "signed": bytes(signed), "chosen": int(chosen)}:
                key, self.asked = self._checked([signed]).get(signed) if signed else None, asked or None
                self._keys = self._checked(offered), None if key is None else KeyChoice(signed, key, chosen)
                return
        raise MalformedBytes(f"{self._folder / _KEYS} was not written by a relay")


def _is_over(survey: Survey, now: UnixSeconds) -> bool:
    return now > survey.calendar.time(survey.calendar.periods) + survey.grace


def _keep(file: Path, content: bytes) -> None:
    """Put a file in place of the old one, whole, and on disk when this returns."""
    if file.exists() and file.read_bytes() == content:
        return
    write_durably(file, content)
