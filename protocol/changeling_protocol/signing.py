"""Canonical bytes, and objects that the survey authority signs with Ed25519.

A value has one canonical form in MessagePack: sorted keys, shortest forms, no floats. The kind of an object and the
protocol version stand inside the signed bytes, so a signature over one kind never passes for another. Apps pin the
authority's current and next key.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import Any, ClassVar, NewType, Self, TypeAlias, get_args, get_origin, get_type_hints

import msgpack
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from .calendar import UnixSeconds
from .errors import BadSignature, MalformedBytes, UnderstatedEpsilon

VERSION = 3
"""The version of the protocol: part of every signed object and every seal."""

ID_BYTES = 16
SurveyId = NewType("SurveyId", bytes)
"""The first 16 bytes of the SHA-256 of a survey's signed bytes."""

Fields: TypeAlias = dict[str, Any]
"""A canonical map: names, and under each None, a boolean, an integer, a string, bytes, a list or another map."""

MOST_ITEMS = 2**15
"""The most values in a signed object, lists and maps included: what reads one makes no more objects than that."""
KEY_BYTES = 32
_PRIME = 2**255 - 19


def is_signed_by(encoded: bytes, authority: Iterable[bytes]) -> bool:
    """Tell whether one of these public keys, 32 bytes each, signed these bytes. Raises MalformedBytes."""
    payload, signature = _parts(encoded)
    for key in authority:
        with suppress(InvalidSignature, ValueError):
            authority_key(key).verify(signature, payload)
            return True
    return False


class SignedObject:
    """An object that the survey authority signs: its fields, and what reads and checks them."""

    __slots__ = ()
    kind: ClassVar[str]
    """The name of this kind of object, inside the signed bytes."""

    def as_fields(self) -> Fields:
        """The signed fields, but for the kind and the protocol version."""
        return as_terms(self)

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        """The object that `as_fields` wrote; whatever error other fields lead to is told as MalformedBytes."""
        if (told := from_terms(cls, fields)) is None:
            raise ValueError("a part of it is missing, is of another type, or has company")
        return cls(**told)

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        """The object that `as_fields` wrote. Raises MalformedBytes, and where it is a survey UnderstatedEpsilon."""
        try:
            return cls._read(fields)
        except UnderstatedEpsilon:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedBytes(f"not a {cls.kind}: {error}") from error

    def signed_by(self, authority: Ed25519PrivateKey) -> bytes:
        """The object with the authority's signature, as a server publishes it."""
        return signed(self.kind, self.as_fields(), authority)

    @classmethod
    def from_signed(cls, encoded: bytes, authority: Iterable[bytes]) -> Self:
        """The object in signed bytes.

        authority: the pinned Ed25519 public keys, 32 bytes each; one of them must have signed, which none of low order
        can. Raises BadSignature, or what `from_fields` raises.
        """
        if not is_signed_by(encoded, authority):
            raise BadSignature(f"none of the pinned authority keys signed this {cls.kind}")
        return cls.unverified(encoded)

    @classmethod
    def unverified(cls, encoded: bytes) -> Self:
        """The object in signed bytes, whoever signed them. Raises what `from_fields` raises.

        For bytes whose signature was checked before they were kept, and for showing what is about to be checked.
        """
        payload, _ = _parts(encoded)
        return cls.from_payload(payload)

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """The object in the bytes that are signed. Raises what `from_fields` raises."""
        return cls.from_fields(payload_fields(cls.kind, payload))


@dataclass(frozen=True)
class DatedKey(SignedObject):
    """A public key of a server, good from `begins` until `expires`, in Unix seconds. Raises ValueError for no key."""

    public: bytes
    begins: int
    expires: int

    def __post_init__(self) -> None:
        self.check_key()
        if not 0 <= self.begins < self.expires < 2**63:  # stores keep both in 64 bits
            raise ValueError(f"a key must begin before it expires, below 2^63, got {self.begins} and {self.expires}")

    def check_key(self) -> None:
        """Raises ValueError for bytes that are no such key."""
        raise NotImplementedError

    def valid_at(self, time: UnixSeconds) -> bool:
        """True if it may be used at this Unix time, in seconds."""
        return self.begins <= time <= self.expires


def signed(kind: str, fields: Fields, authority: Ed25519PrivateKey) -> bytes:
    """The canonical bytes of an object of this kind with these fields, signed by the authority's private key."""
    payload = payload_bytes(kind, fields)
    return encode({"payload": payload, "signature": authority.sign(payload)})


def _parts(encoded: bytes) -> tuple[bytes, bytes]:
    match decode(encoded, MOST_ITEMS):
        case {"payload": bytes(payload), "signature": bytes(signature), **rest} if not rest:
            return payload, signature
    raise MalformedBytes("a signed object is a payload and its signature")


def payload_bytes(kind: str, fields: Fields) -> bytes:
    """The bytes that are signed: the fields with their kind and the protocol version, canonical."""
    return encode({**fields, "kind": kind, "version": VERSION})


def payload_fields(kind: str, payload: bytes) -> Fields:
    """The fields of a payload of this kind and of our version. Raises MalformedBytes for any other."""
    fields = decode(payload, MOST_ITEMS)
    if not isinstance(fields, dict) or fields.pop("kind", None) != kind:
        raise MalformedBytes(f"the bytes are not a {kind}")
    version = fields.pop("version", None)
    if version != VERSION or isinstance(version, bool):
        raise MalformedBytes(f"this {kind} has protocol version {version!r}; this is version {VERSION}")
    return fields


@lru_cache(maxsize=16)
def authority_key(public: bytes) -> Ed25519PublicKey:
    """The public key of a survey authority, 32 bytes.

    Raises ValueError for one of low order: under such a key, all zeros among them, anybody can sign.
    """
    if len(public) != KEY_BYTES:
        raise ValueError(
            f"an authority's public key has {KEY_BYTES} bytes, got {len(public)}: use bytes.fromhex of text"
        )
    y = (int.from_bytes(public, "little") & (2**255 - 1)) % _PRIME
    same_on_x25519 = (1 + y) * pow(1 - y, _PRIME - 2, _PRIME) % _PRIME  # RFC 7748, 4.1; 0 in place of infinity
    check_order(same_on_x25519.to_bytes(KEY_BYTES, "little"))
    return Ed25519PublicKey.from_public_bytes(public)


def check_order(public: bytes) -> None:
    """Raises ValueError for an X25519 key of low order, with which no secret can be shared."""
    try:
        _ANYONE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ValueError("this public key is of low order: it protects nothing") from None


_ANYONE = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))
"""Some private key: an exchange with it fails for a public key of low order."""


def encode(value: Any) -> bytes:
    """The canonical bytes of maps with string keys, lists, strings, bytes, integers, booleans and None.

    Raises ValueError for anything else, floats and integers of more than 64 bits included.
    """
    try:
        packed: bytes = msgpack.packb(_ordered(value), use_bin_type=True)
    except OverflowError as error:
        raise ValueError("canonical MessagePack holds integers from -2^63 to 2^64 - 1") from error
    return packed


def decode(encoded: bytes, most_items: int | None = None) -> Any:
    """The value of canonical bytes. Raises MalformedBytes where they are not MessagePack, or not canonical.

    most_items: how many values may be in all lists and maps together, each of which counts as one more, so that
    a megabyte of rubbish is refused before a million objects are compared; None for any number.
    """
    # A value takes a byte, and counts at most twice.
    bounded = {} if most_items is None or 2 * len(encoded) <= most_items else _bounds(most_items)
    try:
        value = msgpack.unpackb(encoded, raw=False, strict_map_key=True, use_list=True, **bounded)
        canonical = encode(value)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedBytes("not canonical MessagePack") from error
    if canonical != encoded:
        raise MalformedBytes("not canonical MessagePack: keys out of order, repeated, or a form not shortest")
    return value


def _bounds(most: int) -> dict[str, Any]:
    """Options with which MessagePack stops with a ValueError at the first list or map that is one too many."""
    left = most

    def counted(items: Any) -> Any:
        nonlocal left
        left -= 1 + len(items)
        if left < 0:
            raise ValueError(f"more than {most} values")
        return items

    return {"list_hook": counted, "object_hook": counted, "max_array_len": most, "max_map_len": most}


def _ordered(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= {bytes}:  # as in a long list of envelopes
            return value
        return [_ordered(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("keys of a canonical map are strings")
        return {key: _ordered(value[key]) for key in sorted(value)}
    raise ValueError(f"canonical MessagePack holds no {type(value).__name__}")


MOST_NAMED = 10
"""How many members of one fault an error names."""


def members(fields: Any, **kinds: type) -> Fields:
    """The members of a map, which are these and of these types; True is no integer.

    Raises ValueError for any other, which names those that are missing, not known or of another type.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"it is a map of {', '.join(kinds)}")
    missing = [name for name in kinds if name not in fields]
    more = [f"{name!a:.40}" for name in fields if name not in kinds]
    others = [name for name in kinds if name in fields and type(fields[name]) is not kinds[name]]
    faults = (("missing", missing), ("not known", more), ("of another type", others))
    if told := "; ".join(f"{fault}: {', '.join(names[:MOST_NAMED])}" for fault, names in faults if names):
        raise ValueError(told)
    return fields


def holds_booleans(value: Any) -> bool:
    """True if there is a boolean anywhere. Python takes True for 1: whole numbers would have two forms."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) or any(map(holds_booleans, items))


def as_terms(value: Any, *but: str) -> Fields:
    """The fields of a dataclass as they stand in signed bytes, but for some.

    Whole numbers and bytes stand as they are, truth values as 0 and 1, a mapping as a map; tuples, fractions and
    dataclasses of numbers as lists.
    """
    return {name: _written(getattr(value, name)) for name in kinds_of(value.__class__) if name not in but}


def from_terms(of: type, fields: Mapping[Any, Any], *but: str) -> Fields | None:
    """The arguments of a dataclass whose `as_terms` these are, but for some; None if they are not of its form.

    Raises ValueError for numbers that cannot be.
    """
    kinds = {name: kind for name, kind in kinds_of(of).items() if name not in but}
    if fields.keys() != kinds.keys():
        return None
    try:
        return {name: _read(kind, fields[name]) for name, kind in kinds.items()}
    except TypeError:
        return None


@lru_cache(maxsize=64)
def kinds_of(of: Any) -> dict[str, Any]:
    """The type of each field of a dataclass, by its name."""
    hints = get_type_hints(of)
    return {each.name: hints[each.name] for each in dataclass_fields(of)}


def _written(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    parts = astuple(value) if is_dataclass(value) and not isinstance(value, type) else value
    if isinstance(parts, tuple):
        return [*map(_written, parts)]
    return int(value) if isinstance(value, bool) else value


def _read(kind: Any, value: Any) -> Any:
    """A value of this type from its form. Raises TypeError for another form."""
    kind, origin = getattr(kind, "__supertype__", kind), get_origin(kind)
    form: Any = {int: int, bool: int, bytes: bytes}.get(kind, dict if origin is Mapping else list)
    if type(value) is not form or (kind is bool and value not in (0, 1)):
        raise TypeError
    if origin is Mapping:
        return {name: _read(get_args(kind)[1], each) for name, each in value.items()}
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], each) for each in value)
    if form is not list:
        return kind(value)
    numbers = [_read(int, each) for each in value]
    is_fraction = kind is Fraction and len(numbers) == 2 and numbers[1] > 0 and gcd(*numbers) == 1
    if not (is_fraction or "__dataclass_fields__" in vars(kind)):
        raise TypeError
    return kind(*numbers)
