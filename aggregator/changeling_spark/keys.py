"""Private keys for the executors: handed out by the driver over the network, to those who show the run's token.

Spark keeps what a task is made of in blocks, which may be written to disk. So a task holds no key but a token of its
run, of 32 random bytes, and the process that runs it asks the driver: it shows the token by a code over an ephemeral
public key, and gets the keys sealed to that one. Neither a disk nor a record of the network then opens an upload: the
ephemeral half lives in the process alone, and a token is worth nothing once its run has ended.
"""

import hmac
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Event, Lock, Thread
from time import monotonic

import msgpack
from changeling_aggregator.errors import AggregatorError
from changeling_protocol import hpke_seal, hpke_unseal
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

_INFO = b"changeling keys of a run"
_PUBLIC_BYTES, _CODE_BYTES, _TOKEN_BYTES = 32, 32, 32
_MOST_WAIT_SECONDS = 30.0
"""How long either side waits for all that the other says."""
_MOST_BYTES = 2**22
_MOST_AT_ONCE = 200
"""With one more the connection that has waited longest is ended. Executors do not wait: the token is answered at
once."""


class KeysWithheld(AggregatorError):
    """An executor could not get the run's private keys from the driver; the task is tried again elsewhere."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a run's keys are to be had. host, port: the driver's. token: 32 bytes, the run's own."""

    host: str
    port: int
    token: bytes = field(repr=False)


class KeyService:
    """Gives these private keys, by id, to whoever shows the token, until it is closed.

    host: the driver's address, as executors know it. bind: the address to listen on.
    """

    def __init__(self, keys: Mapping[bytes, X25519PrivateKey], host: str, bind: str) -> None:
        raw = {id_: key.private_bytes_raw() for id_, key in keys.items()}
        self._packed: bytes = msgpack.packb(raw)
        self._listening = socket.create_server((bind, 0))
        self.source = KeySource(host, self._listening.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES))
        self._changing, self._ended = Lock(), Event()
        self._asking: list[socket.socket] = []
        self._thread = Thread(target=self._serve, name="keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give no more keys, nor to those who are asking."""
        with self._changing:
            self._ended.set()
            for each in [self._listening, *self._asking]:
                _end(each)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:  # it has ended, or one who asked has gone, or the system gives no more files just now
                self._ended.wait(0.05)
                continue
            with self._changing:
                if self._ended.is_set():
                    connection.close()
                    return
                if len(self._asking) == _MOST_AT_ONCE:
                    _end(self._asking.pop(0))
                self._asking.append(connection)
            Thread(target=self._give, args=(connection,), daemon=True).start()

    def _give(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, EOFError, ValueError):
                self._answer(connection)
        finally:
            with self._changing:
                if connection in self._asking:
                    self._asking.remove(connection)
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        end = monotonic() + _MOST_WAIT_SECONDS
        asked = _received(connection, _PUBLIC_BYTES + _CODE_BYTES, end)
        public, code = asked[:_PUBLIC_BYTES], asked[_PUBLIC_BYTES:]
        if not self._ended.is_set() and hmac.compare_digest(code, _code(self.source.token, b"asked", public)):
            recipient = X25519PublicKey.from_public_bytes(public)
            sealed = hpke_seal(self._packed, recipient, _INFO, X25519PrivateKey.generate())
            given = _code(self.source.token, b"given", public + sealed)
            connection.sendall(len(sealed).to_bytes(4) + given + sealed)


@lru_cache(maxsize=1)
def keys_from(source: KeySource) -> dict[bytes, X25519PrivateKey]:
    """The private keys of a run, by id; asked for once in a process.

    Raises KeysWithheld where there are none.
    """
    ephemeral = X25519PrivateKey.generate()
    public = ephemeral.public_key().public_bytes_raw()
    end = monotonic() + _MOST_WAIT_SECONDS
    try:
        with socket.create_connection((source.host, source.port), _MOST_WAIT_SECONDS) as connection:
            connection.sendall(public + _code(source.token, b"asked", public))
            head = _received(connection, 4 + _CODE_BYTES, end)
            size = int.from_bytes(head[:4])
            if size > _MOST_BYTES:
                raise ValueError("more than keys take")
            sealed = _received(connection, size, end)
        if not hmac.compare_digest(head[4:], _code(source.token, b"given", public + sealed)):
            raise ValueError("another code than the run's")
    except (OSError, EOFError, ValueError) as error:
        raise KeysWithheld(f"the driver at {source.host} gave no keys: {error}") from None
    raw = msgpack.unpackb(hpke_unseal(sealed, ephemeral, _INFO))
    return {id_: X25519PrivateKey.from_private_bytes(key) for id_, key in raw.items()}


def _code(token: bytes, purpose: bytes, said: bytes) -> bytes:
    return hmac.digest(token, purpose + said, "sha256")


def _end(connection: socket.socket) -> None:
    """Whoever waits for something of it hears at once that nothing comes."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _received(connection: socket.socket, size: int, end: float) -> bytes:
    """As many bytes as asked for. end: by the monotonic clock, when nothing more is waited for."""
    received = b""
    while len(received) < size:
        connection.settimeout(max(end - monotonic(), 0.001))
        some = connection.recv(size - len(received))
        if not some:
            raise EOFError("it ended the connection")
        received += some
    return received
