"""The client an app embeds: one store, one server, the authority it trusts, and a bound on what may be spent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from types import TracebackType
from typing import TYPE_CHECKING

from changeling_protocol import Survey

from . import entries, surveys
from .clock import DeviceClock, keep_heard, known_lead
from .delivery import Server
from .enrolment import check_count, enrol
from .errors import WrongSurvey
from .flushing import Flushed, Flusher
from .handle import SurveyHandle
from .sealing_keys import SealingKeys
from .store import Store

if TYPE_CHECKING:
    import httpx

AUTHORITY_KEY_BYTES = 32


class Client:
    """Joins surveys, records answers through their handles, and reports when `flush` is called.

    path: the store, made if there is none. server: the base URL; HTTPS, but on loopback. authority: the survey
    authority's Ed25519 public keys, current and next, 32 bytes each. max_epsilon: the most that the stated
    epsilons of all surveys in this store may add up to. http: a client of the app's to send through; its
    cookies, headers and credentials are not used. clock: gives Unix time in seconds.

    May be shared by threads, and the store by processes.
    Raises StoreUnusable for a file that is no sound store; ValueError for a bad argument.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        server: str,
        authority: Sequence[bytes],
        *,
        max_epsilon: Decimal | float,
        http: httpx.Client | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authority = _checked_authority(authority)
        self._max_epsilon = _checked_epsilon(max_epsilon)
        self._clock = DeviceClock(clock, lead_ms=0)
        self._server = Server(server, http, self._clock)
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
    ) -> SurveyHandle:
        """The survey with this id, joined now if this store has not joined it before.

        survey_id: 16 bytes, or hex. entries: how many answers the app holds for it, for good. signed: the
        signed survey, if the app brings it; else the server is asked. answers: the entries' first answers,
        recorded as the store joins; a closed cohort asks for them.

        Raises CannotJoin, ServerTrouble, ValueError, or the protocol's BadSignature, MalformedBytes and
        UnderstatedEpsilon; then nothing is joined.
        """
        id_ = surveys.survey_id(survey_id)
        survey = self._joined(id_, entries)
        if survey is None:
            self._clock.forget_heard()
            survey = self._verified(id_, signed)
            with self._store.transaction() as db:
                keep_heard(db, self._clock)
                enrol(db, survey, entries, answers, self._max_epsilon, self._clock)
        return SurveyHandle(survey, self._store, self._clock)

    def flush(self) -> Flushed:
        """Answers every node that is due, then sends what waits. Call it whenever the app runs.

        Trouble with the server is told in what is returned, and costs no report. Raises StoreBusy or
        StoreUnusable.
        """
        return self._flusher.flush()

    @property
    def spent(self) -> Decimal:
        """The sum of the stated epsilons of all surveys this store has joined."""
        with self._store.transaction() as db:
            return surveys.spent(db)

    def close(self) -> None:
        """Closes the store, and the connections that are the client's own. Sends nothing."""
        self._server.close()
        self._store.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _joined(self, id_: bytes, count: int) -> Survey | None:
        with self._store.transaction() as db:
            survey = surveys.load(db, id_)
            if survey is not None:
                check_count(entries.count(db, id_), count)
            return survey

    def _verified(self, id_: bytes, signed: bytes | None) -> Survey:
        """Survey.from_signed computes the cost again, and refuses one that is understated."""
        survey = Survey.from_signed(self._server.survey(id_) if signed is None else signed, self._authority)
        if survey.id != id_:
            raise WrongSurvey(f"asked for survey {id_.hex()}, the signed bytes are of {survey.id.hex()}")
        return survey


def _checked_authority(authority: Sequence[bytes]) -> tuple[bytes, ...]:
    keys = tuple(authority)
    if not keys or not all(isinstance(key, bytes) and len(key) == AUTHORITY_KEY_BYTES for key in keys):
        raise ValueError(f"the authority is one or more public keys of {AUTHORITY_KEY_BYTES} bytes, got {keys!r}")
    return keys


def _checked_epsilon(max_epsilon: Decimal | float) -> Decimal:
    """As written: 0.3 is three tenths, not the float below it."""
    try:
        epsilon = Decimal(str(max_epsilon))
    except InvalidOperation:
        epsilon = Decimal("nan")
    if not epsilon.is_finite() or epsilon <= 0:
        raise ValueError(f"max_epsilon must be a number above 0, got {max_epsilon!r}")
    return epsilon
