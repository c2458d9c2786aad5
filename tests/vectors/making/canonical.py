"""Canonical MessagePack: values with their bytes, and bytes that are no canonical value."""

import pytest
from changeling_protocol import MalformedBytes, decode, encode

from .notation import Case, tagged

_VALUES = (
    None,
    False,
    True,
    *(0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53 + 1, 2**63, 2**64 - 1),
    *(-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)),
    *("", "tea", "é", "茶", "a" * 31, "a" * 32, "a" * 255, "a" * 256),
    *(b"", b"\0", bytes(255), bytes(256)),
    [],
    [*range(15)],
    [*range(16)],
    [[], [None, [True]]],
    {},
    {"b": 1, "a": [b"", ""], "ab": {"": -1}, "é": None, "z": 2, "B": 3},
    {"￿": 1, "\U00010000": 2},
    {f"{i:02}": i for i in range(15)},
    {f"{i:02}": i for i in range(16)},
)
_REFUSED = {
    "nothing": "",
    "something after it": "0000",
    "cut short": "a2 61",
    "a list that is cut short": "92 00",
    "keys out of order": "82 a162 01 a161 01",
    "a key twice": "82 a161 01 a161 01",
    "a key that is no string": "81 01 01",
    "a key that is bytes": "81 c40161 01",
    "an integer in a longer form": "cc 01",
    "a negative integer in a longer form": "d0 ff",
    "a positive integer in a signed form": "d1 0100",
    "a string in a longer form": "d9 01 61",
    "bytes in a longer form": "c5 0001 00",
    "bytes in the longest form": "c6 00000001 00",
    "a list in a longer form": "dc 0001 00",
    "a map in a longer form": "de 0001 a161 00",
    "a float": "ca 3f800000",
    "a double": "cb 3ff0000000000000",
    "an extension": "d4 01 00",
    "a time": "d6 ff 00000000",
    "a byte that is never used": "c1",
    "a string that is no UTF-8": "a1 ff",
    "a string with half a surrogate pair": "a3 eda080",
    "a longer form deep inside": "81 a161 91 cc01",
}


def cases() -> list[Case]:
    """Values with their bytes; bytes that must be refused."""
    return [*(_value(value) for value in _VALUES), *(_refused(why, encoded) for why, encoded in _REFUSED.items())]


def _value(value: object) -> Case:
    return {"kind": "value", "value": tagged(value), "encoded": encode(value).hex()}


def _refused(why: str, encoded: str) -> Case:
    with pytest.raises(MalformedBytes):
        decode(bytes.fromhex(encoded))
    return {"kind": "refused", "why": why, "encoded": bytes.fromhex(encoded).hex()}
