"""States as bytes: MessagePack by their types, arrays to the last bit, fractions exact.

What is read back must give the same bytes again, so a field too many, another order or a number in a longer form is
refused like any other damage. Whether the numbers fit a mechanism is for the mechanism to say (`check`).
"""

from fractions import Fraction
from typing import TypeVar

import numpy as np
from changeling_statistics import Counts
from numpy.typing import NDArray

from .errors import BadState

State = TypeVar("State")

ARRAY = 1
"""The MessagePack extension that holds an array: its type, its shape and its cells."""
CELLS = ("<i8", "<f8")


def written_state(identity: str, state: object) -> bytes:
    """The state as bytes. identity: what it belongs to. ValueError for a number of more than 64 bits."""
    import msgspec  # of the extra `central`

    try:
        return msgspec.msgpack.encode((identity, state), enc_hook=_plain)
    except OverflowError as error:
        raise ValueError("a state holds whole numbers of at most 64 bits") from error


def read_state(saved: bytes, identity: str, kind: type[State]) -> State:
    """The state that `written_state` wrote. Raises BadState for other bytes, and for a state of another identity."""
    import msgspec

    try:
        whose, state = msgspec.msgpack.decode(saved, type=tuple[str, kind], dec_hook=_typed, ext_hook=_array)  # type: ignore[valid-type]
    except (msgspec.DecodeError, ValueError, TypeError, OverflowError, ZeroDivisionError, RecursionError) as error:
        raise BadState(f"not the saved state of {identity}: it is damaged, or of another mechanism") from error
    if whose != identity:
        raise BadState(f"the saved state is of {whose}, not of {identity}")
    if written_state(identity, state) != saved:
        raise BadState(f"not the saved state of {identity}: it is not in the form that it was written in")
    typed: State = state
    return typed


def check_counts(array: Counts, shape: tuple[int, ...]) -> None:
    """Raises BadState unless the array holds whole numbers of 64 bits and has this shape."""
    if array.dtype != np.int64 or array.shape != shape:
        raise BadState(f"the state holds {array.dtype} of shape {array.shape}, not int64 of shape {shape}")


def _plain(value: object) -> object:
    """What MessagePack has no form for."""
    import msgspec

    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        parts = (array.dtype.newbyteorder("<").str, value.shape, array.astype(array.dtype.newbyteorder("<")).tobytes())
        return msgspec.msgpack.Ext(ARRAY, msgspec.msgpack.encode(parts))
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(f"a state holds no {type(value).__name__}")


def _typed(kind: type, value: object) -> object:
    """A value of a type that MessagePack has no form for."""
    if kind is Fraction and isinstance(value, str):
        return Fraction(value)
    if isinstance(value, np.ndarray):
        return value
    raise ValueError(f"not a {kind}")


def _array(code: int, content: memoryview) -> NDArray[np.generic]:
    import msgspec

    if code != ARRAY:
        raise ValueError(f"no extension {code} is known")
    cells, shape, written = msgspec.msgpack.decode(content, type=tuple[str, tuple[int, ...], bytes])
    if cells not in CELLS or any(size < 0 for size in shape):
        raise ValueError(f"no array of {cells} and shape {shape} is saved")
    return np.frombuffer(written, cells).reshape(shape).copy()
