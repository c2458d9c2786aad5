"""Exact uniform integers from a secret: the only source of chance on a device.

The coins of a report are the HMAC-SHA256 stream of a subkey over a fixed-width context. The true input is part of the
context: who answers again with the same input gets the same coins, and another input gets coins of its own.
"""

import hmac


class Coins:
    """A stream of uniform integers, the same for the same key and context.

    key: 32 bytes. context: the caller's fixed-width bytes; block i of the stream is HMAC(key, context ‖ i).
    """

    __slots__ = ("_blank", "_block", "_unused")

    def __init__(self, key: bytes, context: bytes) -> None:
        self._blank = hmac.new(key, context, "sha256")
        self._block = 0
        self._unused = b""

    def below(self, n: int) -> int:
        """A uniform integer in [0, n), by rejection: exact for every n >= 1."""
        if n < 1:
            raise ValueError(f"there is no integer in [0, {n})")
        bits = (n - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            drawn = int.from_bytes(self._take(size)) >> (8 * size - bits)
            if drawn < n:
                return drawn

    def _take(self, size: int) -> bytes:
        while len(self._unused) < size:
            block = self._blank.copy()
            block.update(self._block.to_bytes(4))
            self._unused += block.digest()
            self._block += 1
        taken, self._unused = self._unused[:size], self._unused[size:]
        return taken
