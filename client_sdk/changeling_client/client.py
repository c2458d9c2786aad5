"""The client an app embeds: one store, one server, the authority it trusts, and the most that surveys may cost."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from decimal import Decimal
    from types import TracebackType

    import httpx
    from changeling_protocol import SurveyId

    from .delivery import Server
    from .errors import ClientError
    from .explain import Explanation
    from .flushing import Flushed
    from .handle import SurveyHandle
    from .ledger import Account
    from .reports import SurveyReports
    from .witness import Witness


class Beside:
    """The default witness: a sidecar folder in its usual place."""


BESIDE = Beside()


class Client:
    """Joins surveys, records answers through the handles it gives, and reports in the background.

    server: the server's base URL. It must be HTTPS; plain HTTP is allowed on loopback only.
    authority: the Ed25519 public keys of the survey authority, 32 bytes each: the current one, and the next.
    max_epsilon: the most that the epsilons of all surveys in this store may add up to, above 0.
    app: the app's name, such as "org.example.tea"; the store is then in the data folder of that name.
    path: the store's own path, instead; one SQLite file, made with its folder if there is none.
    key: 32 bytes under which the store encrypts what it keeps of answers; always the same ones.
    witness: sees that a backup of the store was put back, or a copy made: a sidecar in its usual place, or in the
    folder named here, or what the host app keeps (`Callbacks`); with None nothing does.
    consent: whether the person takes part. Without, whatever was kept is wiped, and nothing is recorded or sent.
    strict: whether a wrong answer raises ValueError, as tests and development want it, or is dropped and counted.
    background: whether a thread reports by itself; else the app calls `flush` whenever it runs.
    development: surveys that go to loopback do not count against max_epsilon; for servers on loopback only.
    upload_token: names the app to a server that asks for it, with each upload: the same in all copies of the app, never
    a person's or a device's. Relays that surveys declare are not shown it.
    on_error: called, from any thread, with what cannot be raised into the app; the logger "changeling" tells it too.
    proxy, verify, transport: as httpx takes them.
    clock: gives the time in Unix seconds.

    Threads may share a client, and processes a store; a client lives on in a forked child.
    Raises StoreUnusable for a file that is no sound store, StoreFull, StoreReadOnly, StoreBusy, or ValueError for a bad
    argument. Nothing here but `flush` waits for a network.
    """

    def __init__(
        self,
        *,
        server: str,
        authority: Sequence[bytes],
        max_epsilon: Decimal | float,
        app: str | None = None,
        path: str | os.PathLike[str] | None = None,
        key: bytes | None = None,
        witness: Witness | str | os.PathLike[str] | Beside | None = BESIDE,
        consent: bool = True,
        strict: bool = False,
        background: bool = True,
        development: bool = False,
        upload_token: str | None = None,
        on_error: Callable[[ClientError], None] | None = None,
        proxy: str | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        from dataclasses import replace

        from changeling_protocol import SystemCoins

        from .delivery import Server
        from .device import Device
        from .reporter import Reporter
        from .route import Route, is_loopback
        from .settings import Settings, checked_authority, checked_epsilon, default_witness, store_path
        from .witness import Sidecar

        route = Route(server.rstrip("/"), transport, proxy, verify, upload_token)
        if development and not is_loopback(server):
            raise ValueError(f"development is for servers on loopback, got {server!r}")
        file = store_path(app, path)
        if isinstance(witness, Beside):
            witness = default_witness(app, file)
        elif isinstance(witness, str | os.PathLike):
            witness = Sidecar(witness)
        settings = Settings(
            checked_authority(authority),
            checked_epsilon(max_epsilon),
            witness,
            strict=strict,
            development=development,
            on_error=on_error,
            clock=clock,
        )

        def connect(url: str) -> Server:
            token = upload_token if url == route.url else None  # what a relay forwards is under its own
            return Server(replace(route, url=url, upload_token=token), clock, SystemCoins())

        self._device = Device(file, key, route.url, settings, connect, consent)
        self._reporter = Reporter(self._device)
        if background:
            self._reporter.start()

    def join(
        self,
        survey_id: bytes | str,
        *,
        entries: int = 1,
        one_person: bool = False,
        signed: bytes | None = None,
        answers: Sequence[str] | None = None,
        stratum: Mapping[str, str] | None = None,
    ) -> SurveyHandle:
        """Takes part in the survey with this id from now on, if it has not done so before.

        The survey need not be known yet: it is fetched in the background, and what was recorded meanwhile is judged,
        counted and reported then. The handle's `status` says how it stands; a survey that may not be joined is told to
        `on_error`.

        survey_id: 16 bytes, or 32 hex digits.
        entries: how many answers the app holds for this survey, numbered from 0; the number never changes.
        one_person: whether all entries are one person's, who then spends the survey's epsilon for each of them.
        signed: the signed survey, if the app brings it; then it is joined before this returns.
        answers: the first answer of each entry. A closed cohort needs them; later calls pass over them.
        stratum: a value for each of the survey's breakdowns, such as {"platform": "linux"}: the stratum of all entries.
        It is public, so it must not hang on an answer. A survey with breakdowns needs it; later calls pass over it.

        Returns the handle through which answers are recorded.
        Raises CannotJoin for signed bytes that may not be joined, a store's errors, or ValueError for a bad argument.
        """
        from .handle import SurveyHandle
        from .surveys import Known, Status

        id_ = _id(survey_id)
        asked = Known(
            id_, Status.ASKED, entries, one_person, self._device.now_ms(), self._device.url, stratum=dict(stratum or {})
        )
        self._device.join(asked, answers, signed)
        self._reporter.wake()
        return SurveyHandle(id_, self._device)

    def flush(self, timeout: float = 30.0) -> Flushed:
        """Joins what was asked for, answers every node that is due, then sends all reports that wait.

        timeout: how long the network may take in all, in seconds.
        Returns what became of the reports. Trouble with the server is told there, and loses none of them.
        Raises a store's errors, or ClientClosed.
        """
        return self._device.flush(timeout)

    def leave(self, survey_id: bytes | str) -> None:
        """Leaves a survey: all it knew is wiped at once, nothing more is sent, and it is never joined again."""
        self._device.leave(_id(survey_id))

    @property
    def consent(self) -> bool:
        """Whether the person takes part."""
        return self._device.consent

    def set_consent(self, given: bool) -> None:
        """Takes part from now on; or leaves all surveys, and wipes all that was kept before this returns.

        A survey that was left is never joined again, whatever is consented to later.
        """
        self._device.set_consent(given)
        self._reporter.wake()

    def ledger(self) -> Account:
        """What all surveys of this store have cost, and may cost at most; `str` of it is in plain words."""
        return self._device.account()

    def reports(self) -> tuple[SurveyReports, ...]:
        """What was sent for each survey, what waits, and what could be sent next; `str` of each is in plain words.

        The last 1,024 answers of an entry are kept, until the survey ends. Raises a store's errors.
        """
        from .reports import reports

        return reports(self._device)

    def explain(self, survey_id: bytes | str) -> Explanation:
        """What somebody who sees everything that is ever sent for a survey could at most conclude; `str` is in words.

        Raises ValueError for a survey that is not known yet, or that the store does not take part in; a store's errors.
        """
        from .explain import explain
        from .surveys import why_not

        known = self._device.find(_id(survey_id))
        if known is None or not known.payload:
            raise ValueError(why_not(known, _id(survey_id)))
        return explain(known.survey)

    def close(self) -> None:
        """Closes the store and ends what is being sent, within a second; what waits is sent after the next start."""
        self._device.interrupt()
        self._reporter.stop()
        self._device.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _id(named: bytes | str) -> SurveyId:
    from .surveys import survey_id

    return survey_id(named)
