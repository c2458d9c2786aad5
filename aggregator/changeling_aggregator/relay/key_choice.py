"""Which of the sealing keys that a server offers a relay serves: one at a time, the same to all, seldom another.

A key's id stands in the open on every envelope, so who holds which key must not tell devices apart. The relay serves
one key and takes envelopes that are sealed to it alone, so a key's id tells nothing but the time. It stays with its key
as long as it may. When it needs another it takes the one that expires first: keys that the server adds later do not
change the choice, and private halves are destroyed as early as can be. However the server's offers change, a relay
changes its key at most once in a given time, so that batches, which are of one key each, have time to fill. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from changeling_protocol import SealingKey, UnixSeconds


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """A key that was chosen.

    signed: as the authority signed it. key: what that says. chosen: when, in Unix seconds.
    offered: whether the server offers it still.
    """

    signed: bytes
    key: SealingKey
    chosen: int
    offered: bool = True

    def serves_at(self, now: UnixSeconds) -> bool:
        """Whether it is served, and taken, at this Unix time, in seconds."""
        return self.offered and self.key.valid_at(now)


def choose(
    before: KeyChoice | None, offered: Mapping[bytes, SealingKey], now: UnixSeconds, rest: int
) -> KeyChoice | None:
    """The choice from now on.

    before: the choice so far. offered: the server's keys, by their signed bytes. now: Unix seconds.
    rest: for so many seconds after a choice there is no other; and a key is given up so long before it expires, if
    there is another, as envelopes that are sealed to it may wait so long.
    """
    valid = {signed: key for signed, key in offered.items() if key.valid_at(now)}
    lasting = {signed: key for signed, key in valid.items() if now + rest <= key.expires}
    usable = lasting or valid
    if before is not None:
        if before.signed in usable:
            return replace(before, offered=True)
        if 0 <= now - before.chosen < rest:
            return replace(before, offered=before.signed in offered)
    if not usable:
        return before and replace(before, offered=before.signed in offered)
    signed, key = min(usable.items(), key=lambda item: (item[1].expires, item[1].id))
    return KeyChoice(signed, key, int(now))
