"""Who is signed in at the page: sessions in this process's memory, each begun by showing a token.

A browser keeps a random number that says nothing by itself; here its hash is kept, beside that of the token. So a
session can do what its token may, ends when that is revoked, and with the process.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

LIFE_SECONDS = 8 * 3600
MOST_SESSIONS = 1000
"""With more the oldest end."""
ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """token: the hash of the token that was shown. ends: when it is over, by the clock of `Sessions`."""

    token: bytes
    ends: float


class Sessions:
    """The sessions of one process. clock: seconds of a clock that nobody sets."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._lock = Lock()

    def begin(self, token: bytes) -> str:
        """Begin a session; what the browser keeps of it. token: the hash of the token that was shown."""
        id_ = secrets.token_urlsafe(ID_BYTES)
        with self._lock:
            self._sessions[_hash_of(id_)] = Session(token, self._clock() + LIFE_SECONDS)
            if len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return id_

    def token_of(self, id_: str) -> bytes | None:
        """The hash of the token that a session was begun with; None where there is no such session, or no longer."""
        with self._lock:
            session = self._sessions.get(_hash_of(id_))
            if session is not None and session.ends <= self._clock():
                session = None
                del self._sessions[_hash_of(id_)]
        return None if session is None else session.token

    def end(self, id_: str) -> None:
        """End a session, if it has not ended."""
        with self._lock:
            self._sessions.pop(_hash_of(id_), None)


def _hash_of(id_: str) -> bytes:
    return sha256(id_.encode(errors="surrogateescape")).digest()
