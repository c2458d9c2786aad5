"""A server's sealing keys: fetched, checked against the pinned authority's keys, and kept for the next time."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from changeling_protocol import ProtocolError, SealingKey, UnixMilliseconds, UnixSeconds

from .delivery import Server
from .errors import ServerTrouble
from .exchange import Deadline
from .store import Store


class SealingKeys:
    """The sealing keys of one server. url: its base URL. authority: the pinned Ed25519 public keys, 32 bytes each."""

    def __init__(self, store: Store, server: Server, url: str, authority: Sequence[bytes]) -> None:
        self._store, self._server, self._url, self._authority = store, server, url, authority

    def newest(self, now_ms: UnixMilliseconds, deadline: Deadline) -> SealingKey:
        """The newest key that is valid now; the server is asked if none is kept. Raises ServerTrouble if it has none.

        now_ms: Unix milliseconds. deadline: of the exchange.
        """
        key = _newest(self._verified(self._kept()).values(), now_ms) or _newest(self.fetch(deadline), now_ms)
        if key is None:
            raise ServerTrouble("the server has no sealing key that is valid now and signed by the authority")
        return key

    def fetch(self, deadline: Deadline) -> list[SealingKey]:
        """Asks the server for its keys, and keeps those the authority signed in place of the old.

        Raises ServerTrouble.
        """
        keys = self._verified(self._server.sealing_keys(deadline))
        with self._store.transaction() as db:
            db.execute("DELETE FROM sealing_keys WHERE url = ?", (self._url,))
            db.executemany("INSERT INTO sealing_keys VALUES (?, ?)", [(self._url, signed) for signed in keys])
        return list(keys.values())

    def forget(self) -> None:
        """Drops the kept keys, so that the next use asks the server."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM sealing_keys WHERE url = ?", (self._url,))

    def _kept(self) -> list[bytes]:
        with self._store.transaction() as db:
            rows = db.execute("SELECT signed FROM sealing_keys WHERE url = ?", (self._url,))
            return [signed for (signed,) in rows]

    def _verified(self, signed: Iterable[bytes]) -> dict[bytes, SealingKey]:
        """Of these signed keys, those that the authority signed, by their signed bytes."""
        verified = {}
        for encoded in signed:
            with suppress(ProtocolError):
                verified[encoded] = SealingKey.from_signed(encoded, self._authority)
        return verified


def _newest(keys: Iterable[SealingKey], now_ms: UnixMilliseconds) -> SealingKey | None:
    valid = [key for key in keys if key.valid_at(UnixSeconds(now_ms / 1000))]
    return max(valid, key=lambda key: (key.begins, key.expires), default=None)
