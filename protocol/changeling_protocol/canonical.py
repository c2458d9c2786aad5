"""Canonical MessagePack: one value, one byte string. Sorted keys, shortest forms, no floats."""

from typing import Any, TypeAlias

import msgpack

from .errors import MalformedBytes

Fields: TypeAlias = dict[str, Any]
"""A canonical map: names, and under each None, a boolean, an integer, a string, bytes, a list or another map."""


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
    bounded = {} if most_items is None else _bounds(most_items)
    try:
        value = msgpack.unpackb(encoded, raw=False, strict_map_key=True, use_list=True, **bounded)
        canonical = encode(value)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedBytes("not canonical MessagePack") from error
    if canonical != encoded:
        raise MalformedBytes("not canonical MessagePack: keys out of order, repeated, or a form not shortest")
    return value


def holds_booleans(value: Any) -> bool:
    """Whether there is a boolean anywhere. Python takes True for 1: whole numbers would have two forms."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) or any(map(holds_booleans, items))


def _bounds(most: int) -> dict[str, Any]:
    """What makes MessagePack stop with a ValueError at the first list or map that is one too many."""
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
