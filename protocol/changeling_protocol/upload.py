"""An upload: what one entry answered at the closings of some periods, sealed to the server's key; and refusals.

The plaintext is a MessagePack array [group, start, end, closings, symbols, symbols, …], then zeros. It spans the
periods (start, end]. `closings` is one `bin`, with a row for each of the span's closings, rising: n ids (16 bytes
each), n standings (1) and n strata (2). After it comes one `bin` for each track of the group: a symbol (fixed width)
for each of the track's nodes that ends in the span. All integers are big-endian. Standings and symbols are raised by
one: a zero says that the closing was not answered, or the node not reported.

All that an entry answers at one closing is counted by the closing's id. The length of a plaintext depends on the plan
and on the periods it spans, and on nothing else: what was not answered has its row all the same, and a group with
little to report is padded to the length of the group with most.

It is sealed once, with HPKE (RFC 9180): X25519, HKDF-SHA256, AES-128-GCM. An envelope is version ‖ survey id ‖ key id ‖
sealed bytes; the three head fields are bound to the seal as HPKE's info, so a seal moved under another head does not
open. Base mode: it says nothing of the sender. `cryptography` brings HPKE ready made in its newest versions only, and
an app that embeds the SDK pins its own. So the key schedule stands here; exchange, hash and cipher are the library's.
Names follow the RFC. Tests hold it to the RFC's vectors and to the library's own HPKE.
"""

import hmac
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import ClassVar, NamedTuple, TypeAlias

import msgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .calendar import MOST_PERIODS, Node
from .errors import CannotOpen, MalformedBytes
from .plan import NodeNumber, ReleasePlan, Track, TrackNumber
from .randomizers.interface import Coins, symbol_bytes
from .signing import ID_BYTES, KEY_BYTES, VERSION, DatedKey, SurveyId, check_order
from .survey import StratumNumber

CLOSING_ID_BYTES = 16
STANDING_BYTES = 1
STRATUM_BYTES = 2
CLOSING_BYTES = CLOSING_ID_BYTES + STANDING_BYTES + STRATUM_BYTES
MOST_SPANNED_PERIODS = 64
"""The most periods one upload spans; a longer offline spell sends several."""


class Standing(IntEnum):
    """An entry's word at a closing about those before it, so that those who come are told from those who return.

    It depends on when the entry enrolled and on what it sent, never on an answer.
    """

    KNOWN = 0
    """It answered an earlier closing, which reached the server or still may."""
    NEW = 1
    """It is the first closing since the entry enrolled."""
    MISSED = 2
    """The entry enrolled earlier, but answered no closing since, or those that said so were dropped unsent."""


class Closing(NamedTuple):
    """An entry's answer to the close of a period, whether or not it had a node to report there.

    period: one at which a node of any track of the plan ends. id: 16 random bytes. standing: what it says of earlier
    closings. stratum: the entry's, which is public.
    """

    period: int
    id: bytes
    standing: Standing
    stratum: StratumNumber


class Report(NamedTuple):
    """One report on one node, part of the answer to the closing of the node's last period.

    track: the track's number in the plan. node: the node's number in its track, from 1 on. symbol: what the track's
    randomizer gave.
    """

    track: TrackNumber
    node: NodeNumber
    symbol: int


class UploadColumns(NamedTuple):
    """An upload as it is read: columns that nobody has looked into.

    group: a number that may be none of the plan's. span: the periods (start, end]. closings: the closings' column.
    symbols: a column for each of the group's tracks.
    """

    group: int
    span: Node
    closings: bytes
    symbols: tuple[bytes, ...]


def draw_closing_id(coins: Coins) -> bytes:
    """The id of an answered closing: 16 uniform bytes, which tell nothing of the entry, and which no other has."""
    return coins.below(1 << 8 * CLOSING_ID_BYTES).to_bytes(CLOSING_ID_BYTES)


def closings(plan: ReleasePlan, after: int, until: int) -> list[int]:
    """The periods in (after, until] at which a node of any track ends, rising."""
    return list(_closings(plan.cadences, after, until))


@lru_cache(maxsize=1024)
def _closings(cadences: frozenset[tuple[int, int, int]], after: int, until: int) -> tuple[int, ...]:
    """The same of tracks with these cadences: entries by the thousand answer the same periods."""
    if until <= after:
        return ()
    ends: set[int] = set()
    for first, width, count in cadences:
        number, last = max((after - first) // width + 1, 1), min((until - first) // width, count)
        ends.update(range(first + number * width, first + last * width + 1, width))
    return tuple(sorted(ends))


def encode_upload(
    plan: ReleasePlan, group: int, span: Node, answered: Iterable[Closing], reports: Iterable[Report]
) -> bytes:
    """The plaintext for an entry of this group.

    span: the periods whose closings it answers, (start, end].
    answered: each one of the plan's closings in the span.
    reports: each on a node of one of the group's tracks that ends with a period that is answered.
    Raises ValueError for anything else.
    """
    listed, waiting = list(answered), list(reports)
    by_period = {closing.period: closing for closing in listed}
    by_node = {(report.track, report.node): report for report in waiting}
    if len(by_period) < len(listed) or len(by_node) < len(waiting):
        raise ValueError("an upload answers a closing once, with one report a node")
    periods, columns, length = _layout(plan, group, span)
    if strange := by_period.keys() - periods:
        raise ValueError(f"no closings of the plan in ({span.start}, {span.end}]: {sorted(strange)}")
    rows = _closing_column([by_period.get(period) for period in periods])
    symbols = [
        symbol_column([by_node.pop(node, None) if end in by_period else None for node, end in nodes], width)
        for nodes, width in columns
    ]
    if by_node:
        raise ValueError(f"not on nodes of group {group} that end with an answered closing: {sorted(by_node)}")
    return _packed(group, span, rows, symbols).ljust(length, b"\0")


_Column: TypeAlias = tuple[list[tuple[tuple[TrackNumber, NodeNumber], int]], int]
"""The nodes of a track, each with the period at which it ends, and the width of a symbol."""


@lru_cache(maxsize=64)
def _layout(plan: ReleasePlan, group: int, span: Node) -> tuple[list[int], list[_Column], int]:
    """The closings in a span, the columns of a group's tracks, and the length: the same for many entries."""
    columns = []
    for number, track in plan.numbered(group):
        first, last = _numbers(track, span)
        nodes = [((number, NodeNumber(at)), track.first + at * track.width) for at in range(first, last + 1)]
        columns.append((nodes, symbol_bytes(track.randomizer)))
    return closings(plan, span.start, span.end), columns, upload_bytes(plan, span)


@lru_cache(maxsize=4096)
def upload_bytes(plan: ReleasePlan, span: Node) -> int:
    """The length of a plaintext over these periods: the longest of any group's."""
    blank = (map(bytes, column_bytes(plan, group, span)) for group in range(len(plan.groups)))
    return max(len(_packed(group, span, next(columns), columns)) for group, columns in enumerate(blank))


def column_bytes(plan: ReleasePlan, group: int, span: Node) -> tuple[int, ...]:
    """How long the columns of this group's uploads over these periods are: the closings', then that of each track."""
    tracks = plan.groups[group].tracks
    return (
        len(closings(plan, span.start, span.end)) * CLOSING_BYTES,
        *(_count(track, span) * symbol_bytes(track.randomizer) for track in tracks),
    )


def symbol_column(rows: Iterable[Report | None], width: int) -> bytes:
    """The symbols of some nodes, each `width` bytes wide; of a node that is not reported, zeros."""
    return b"".join((row.symbol + 1 if row else 0).to_bytes(width) for row in rows)


def decode_upload(plaintext: bytes) -> UploadColumns:
    """The columns in a plaintext, which are not looked into; their lengths are not checked. Raises MalformedBytes."""
    padding = b""
    try:
        items = msgpack.unpackb(plaintext, raw=False)
    except msgpack.ExtraData as more:
        items, padding = more.unpacked, more.extra
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise MalformedBytes("an upload is a MessagePack array") from error
    if padding.strip(b"\0"):
        raise MalformedBytes("an upload is padded with zeros")
    if not (isinstance(items, list) and _are_columns(items)):
        raise MalformedBytes("an upload is a group, a span of periods, and columns")
    group, start, end, closings_column, *symbols = items
    return UploadColumns(group, _span(start, end), closings_column, tuple(symbols))


def _are_columns(items: list[object]) -> bool:
    """True if the types are those of an upload: three integers, then bytes, and nothing else."""
    return (
        len(items) > 3
        and type(items[0]) is type(items[1]) is type(items[2]) is int
        and {*map(type, items[3:])} == {bytes}
    )


@lru_cache(maxsize=1024)
def _span(start: int, end: int) -> Node:
    """The periods (start, end], of which most uploads at a time have the same. Raises MalformedBytes for too many."""
    if not 0 <= start < end <= min(start + MOST_SPANNED_PERIODS, MOST_PERIODS):
        raise MalformedBytes(f"an upload spans at most {MOST_SPANNED_PERIODS} periods")
    return Node(start, end)


def _closing_column(rows: list[Closing | None]) -> bytes:
    ids = b"".join(row.id if row else bytes(CLOSING_ID_BYTES) for row in rows)
    standings = bytes(row.standing + 1 if row else 0 for row in rows)
    return ids + standings + b"".join((row.stratum if row else 0).to_bytes(STRATUM_BYTES) for row in rows)


def _numbers(track: Track, span: Node) -> tuple[int, int]:
    """The first and last number of the track's nodes that end in the span; last < first if there are none."""
    last = min((span.end - track.first) // track.width, track.count)
    return max((span.start - track.first) // track.width + 1, 1), last


def _count(track: Track, span: Node) -> int:
    first, last = _numbers(track, span)
    return max(last - first + 1, 0)


def _packed(group: int, span: Node, closings_column: bytes, symbols: Iterable[bytes]) -> bytes:
    packed: bytes = msgpack.packb([group, span.start, span.end, closings_column, *symbols], use_bin_type=True)
    return packed


class Refusal(StrEnum):
    """Why an envelope, a closing or a report was not counted: a closed set, each reason with a counter per survey.

    The first six are seen from outside the envelope and told to the sender; the others are seen only once it is open,
    long after the sender was answered. A bad report never fails its neighbours.
    """

    MALFORMED = "malformed"
    """Not an envelope of this protocol version; or, once open, not an upload of the survey's plan, a closing of no
    known standing, or a report at a closing that is not answered."""
    UNKNOWN_SURVEY = "unknown-survey"
    """This server does not run the survey. Told, but counted nowhere: there is no survey to count it for."""
    UNKNOWN_KEY = "unknown-key"
    """Sealed to a key that this server did not make or has not published."""
    EXPIRED_KEY = "expired-key"
    """Sealed to a key past its date."""
    CLOSED = "closed"
    """The survey has not begun, or its last grace is over; or, once open, it was ended before that node's end."""
    TOO_LARGE = "too-large"
    """Longer than any upload of this survey can be."""
    UNOPENABLE = "unopenable"
    """Altered on its way, sealed for something else, or its private key is destroyed."""
    UNKNOWN_STRATUM = "unknown-stratum"
    """A closing of a stratum that the survey does not declare."""
    SYMBOL_OUT_OF_RANGE = "symbol-out-of-range"
    """A symbol that the track's randomizer cannot give."""
    LATE = "late"
    """A closing that arrived after its grace."""
    FUTURE = "future"
    """A closing of a period that has not even begun, allowing for the skew of clocks."""
    DUPLICATE = "duplicate"
    """A second closing with one period and id."""


RefusalCounts: TypeAlias = Counter[tuple[SurveyId, Refusal]]
"""How many envelopes, closings and reports were refused, by survey id and reason."""


ENC_BYTES = 32
"""The encapsulated key, which stands before the ciphertext."""
TAG_BYTES = 16
"""The cipher's tag, which it adds to the plaintext."""
HEAD_BYTES = 1 + 2 * ID_BYTES
SEAL_BYTES = ENC_BYTES + TAG_BYTES
"""How much longer HPKE makes the plaintext."""
_KEM = b"KEM\x00\x20"
"""DHKEM(X25519, HKDF-SHA256)."""
_HPKE = b"HPKE\x00\x20\x00\x01\x00\x01"
"""HPKE's suite: that KEM with HKDF-SHA256 and AES-128-GCM."""
_BASE_MODE = b"\0"
_KEY_BYTES, _NONCE_BYTES, _SECRET_BYTES = 16, 12, 32


@dataclass(frozen=True)
class SealingKey(DatedKey):
    """A server's public X25519 key, 32 bytes, good for sealing from `begins` until `expires`, in Unix seconds."""

    kind: ClassVar[str] = "sealing-key"

    def check_key(self) -> None:
        """Refuses one that nothing can be sealed to."""
        if len(self.public) != KEY_BYTES:
            raise ValueError(f"an X25519 public key has {KEY_BYTES} bytes, got {len(self.public)}")
        check_order(self.public)

    @cached_property
    def id(self) -> bytes:
        """`key_id` of the public key: 16 bytes."""
        return key_id(self.public)


@dataclass(frozen=True, slots=True)
class EnvelopeHead:
    """The part of an envelope that is read without opening it: protocol version, survey id and key id."""

    version: int
    survey: SurveyId
    key: bytes


def key_id(public: bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of a public sealing key."""
    return sha256(public).digest()[:ID_BYTES]


def seal(plaintext: bytes, survey: SurveyId, key: SealingKey) -> bytes:
    """The envelope of an upload's plaintext: HEAD_BYTES + SEAL_BYTES longer, and different each time.

    survey: the survey's 16-byte id.
    """
    head = VERSION.to_bytes(1) + survey + key.id
    return head + hpke_seal(plaintext, _recipient(key.public), head, X25519PrivateKey.generate())


_recipient = lru_cache(maxsize=64)(X25519PublicKey.from_public_bytes)


def head_of(envelope: bytes) -> EnvelopeHead:
    """The head of an envelope, which is not opened. Raises MalformedBytes for one too short to hold an upload."""
    if len(envelope) <= HEAD_BYTES + SEAL_BYTES:
        raise MalformedBytes(f"an envelope is longer than {HEAD_BYTES + SEAL_BYTES} bytes")
    return _head(envelope[:HEAD_BYTES])


@lru_cache(maxsize=1024)
def _head(head: bytes) -> EnvelopeHead:
    """Reads a head. Cached, as most envelopes at a time have the same few heads."""
    return EnvelopeHead(head[0], SurveyId(head[1 : 1 + ID_BYTES]), head[1 + ID_BYTES :])


def open_envelope(envelope: bytes, private: X25519PrivateKey) -> bytes:
    """The upload's plaintext. Raises CannotOpen."""
    try:
        return hpke_unseal(envelope[HEAD_BYTES:], private, envelope[:HEAD_BYTES])
    except (InvalidTag, ValueError) as error:
        raise CannotOpen("the envelope does not open with this key") from error


def hpke_seal(plaintext: bytes, recipient: X25519PublicKey, info: bytes, ephemeral: X25519PrivateKey) -> bytes:
    """The encapsulated key and the ciphertext.

    info: the bytes that the seal is bound to; it opens under the same alone.
    ephemeral: a new private key, for this seal and no other.
    Raises ValueError for a recipient of low order, with which no secret can be shared.
    """
    enc = ephemeral.public_key().public_bytes_raw()
    key, nonce = key_schedule(ephemeral.exchange(recipient), enc, recipient.public_bytes_raw(), info)
    return enc + AESGCM(key).encrypt(nonce, plaintext, b"")


def hpke_unseal(sealed: bytes, recipient: X25519PrivateKey, info: bytes) -> bytes:
    """The plaintext. Raises ValueError for bytes that are no seal, InvalidTag for one that does not open."""
    if len(sealed) < ENC_BYTES + TAG_BYTES:
        raise ValueError(f"a seal has at least {ENC_BYTES + TAG_BYTES} bytes, got {len(sealed)}")
    enc = sealed[:ENC_BYTES]
    shared = recipient.exchange(X25519PublicKey.from_public_bytes(enc))
    key, nonce = key_schedule(shared, enc, recipient.public_key().public_bytes_raw(), info)
    return AESGCM(key).decrypt(nonce, sealed[ENC_BYTES:], b"")


def key_schedule(exchanged: bytes, enc: bytes, recipient: bytes, info: bytes) -> tuple[bytes, bytes]:
    """The cipher's key and nonce.

    exchanged: the secret that X25519 gave. enc, recipient: the two public keys, 32 bytes each.
    info: the bytes that the seal is bound to.
    """
    eae_prk = _labeled_extract(_KEM, b"", b"eae_prk", exchanged)
    shared_secret = _labeled_expand(_KEM, eae_prk, b"shared_secret", enc + recipient, _SECRET_BYTES)
    context = _context(info)
    secret = _labeled_extract(_HPKE, shared_secret, b"secret", b"")
    key = _labeled_expand(_HPKE, secret, b"key", context, _KEY_BYTES)
    return key, _labeled_expand(_HPKE, secret, b"base_nonce", context, _NONCE_BYTES)


@lru_cache(maxsize=64)
def _context(info: bytes) -> bytes:
    """The context that the key schedule is bound to; whoever opens many seals meets few of them."""
    return _BASE_MODE + _PSK_ID_HASH + _labeled_extract(_HPKE, b"", b"info_hash", info)


def _labeled_extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + ikm, "sha256")


def _labeled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """At most 32 bytes: the first block of HKDF-Expand."""
    labeled_info = length.to_bytes(2) + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labeled_info + b"\x01", "sha256")[:length]


_PSK_ID_HASH = _labeled_extract(_HPKE, b"", b"psk_id_hash", b"")
"""Base mode has no pre-shared key, and so an empty id of one."""
