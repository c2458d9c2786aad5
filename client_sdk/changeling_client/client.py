"""The client an app embeds: one store, one server, the authority it trusts, and the most that surveys may cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from types import TracebackType
from typing import TYPE_CHECKING

from changeling_protocol import Coins, ProtocolError, Survey, SystemCoins
from changeling_protocol.quantities import SurveyId

from . import entries, surveys
from .clock import DeviceClock, keep_heard, known_lead
from .delivery import Server
from .enrolment import check_count, enrol
from .errors import BadSurvey, WrongSurvey
from .exchange import Deadline
from .flushing import Flushed, Flusher
from .handle import SurveyHandle
from .route import Route
from .sealing_keys import SealingKeys
from .store import Store

if TYPE_CHECKING:
    import ssl

    import httpx

AUTHORITY_KEY_BYTES = 32
JOIN_SECONDS = 30.0
"""How long `join` waits for a survey that the app does not bring."""


class Client:
    """Joins surveys, records answers through the handles it gives, and sends reports when `flush` is called.

    path: the store, one SQLite file; made if there is none.
    server: the server's base URL. It must be HTTPS; plain HTTP is allowed on loopback only.
    authority: the Ed25519 public keys of the survey authority, 32 bytes each: the current one, and the next.
    max_epsilon: the most that the epsilons of all surveys in this store may add up to, above 0.
    proxy, verify, transport: how to get to the server, as httpx calls them.
    clock: gives the time in Unix seconds.

    Threads may share a client, and processes a store.
    Raises StoreUnusable for a file that is no sound store, StoreBusy, or ValueError for a bad argument.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        server: str,
        authority: Sequence[bytes],
        *,
        max_epsilon: Decimal | float,
        proxy: str | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authority = _checked_authority(authority)
        self._max_epsilon = _checked_epsilon(max_epsilon)
        self._clock = DeviceClock(clock, lead_ms=0)
        self._coins: Coins = SystemCoins()
        self._server = Server(Route(server, transport, proxy, verify), self._clock, SystemCoins())
        self._store = Store(path)
        with self._store.transaction() as db:
            self._clock.lead_ms = known_lead(db)
        keys = SealingKeys(self._store, self._server, self._authority)
        self._flusher = Flusher(self._store, self._server, keys, self._clock)

    def join(
        self,
        survey_id: bytes | str,
        *,
        entries: int = 1,
        signed: bytes | None = None,
        answers: Sequence[str] | None = None,
        stratum: Mapping[str, str] | None = None,
    ) -> SurveyHandle:
        """The survey with this id, which is joined now if this store has not joined it before.

        survey_id: 16 bytes, or 32 hex digits.
        entries: how many answers the app holds for this survey, numbered from 0; the number never changes.
        signed: the signed survey, if the app brings it; without it the server is asked.
        answers: the first answer of each entry, recorded as the store joins. A closed cohort needs them; later
        calls pass over them.
        stratum: a value for each of the survey's breakdowns, such as {"platform": "linux"}: the stratum of all entries.
        It is public, so it must not hang on an answer. A survey with breakdowns needs it; later calls pass over it.

        Returns the handle through which answers are recorded.
        Raises CannotJoin for a survey that must not be joined, ServerTrouble if the server is needed and does not
        answer, StoreBusy, StoreUnusable, or ValueError for a bad argument; then nothing is joined.
        """
        id_ = surveys.survey_id(survey_id)
        survey = self._joined(id_, entries)
        if survey is None:
            self._clock.forget_heard()
            survey = self._verified(id_, signed)
            with self._store.transaction() as db:
                keep_heard(db, self._clock)
                enrol(db, survey, entries, answers, stratum or {}, self._max_epsilon, self._clock, self._coins)
        return SurveyHandle(survey, self._store, self._clock)

    def flush(self, timeout: float = 30.0) -> Flushed:
        """Answers every node that is due, then sends all reports that wait. Call it whenever the app runs.

        timeout: how long the network may take in all, in seconds.
        Returns what became of the reports. Trouble with the server is told there, and loses none of them.
        Raises StoreBusy or StoreUnusable.
        """
        return self._flusher.flush(self._coins, Deadline.after(timeout))

    @property
    def spent(self) -> Decimal:
        """The sum of the epsilons that the surveys of this store state; one that has ended still counts."""
        with self._store.transaction() as db:
            return surveys.spent(db)

    def close(self) -> None:
        """Ends what is under way with the server, and closes the store; what waits is sent after the next start."""
        self._server.close()
        self._store.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _joined(self, id_: SurveyId, count: int) -> Survey | None:
        with self._store.transaction() as db:
            survey = surveys.load(db, id_)
            if survey is not None:
                check_count(entries.count(db, id_), count)
            return survey

    def _verified(self, id_: SurveyId, signed: bytes | None) -> Survey:
        """The survey, once its signature is checked and its cost computed again."""
        encoded = self._server.survey(id_, Deadline.after(JOIN_SECONDS)) if signed is None else signed
        try:
            survey = Survey.from_signed(encoded, self._authority)
        except ProtocolError as error:
            raise BadSurvey(str(error)) from error
        if survey.id != id_:
            raise WrongSurvey(f"asked for survey {id_.hex()}, the signed bytes are of {survey.id.hex()}")
        return survey


def _checked_authority(authority: Sequence[bytes]) -> tuple[bytes, ...]:
    keys = tuple(authority)
    if not keys or not all(isinstance(key, bytes) and len(key) == AUTHORITY_KEY_BYTES for key in keys):
        raise ValueError(f"the authority is one or more public keys of {AUTHORITY_KEY_BYTES} bytes, got {keys!r}")
    return keys


def _checked_epsilon(max_epsilon: Decimal | float) -> Decimal:
    """The number as it is written: 0.3 is three tenths, not the nearest float."""
    try:
        epsilon = Decimal(str(max_epsilon))
    except InvalidOperation:
        epsilon = Decimal("nan")
    if not epsilon.is_finite() or epsilon <= 0:
        raise ValueError(f"max_epsilon must be a number above 0, got {max_epsilon!r}")
    return epsilon
