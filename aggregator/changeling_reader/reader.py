"""Asking a server for what it shows, as arrays and data frames."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self

import httpx
from changeling_protocol.wire import CHANGE, HISTOGRAM, SERIES, WINDOWS, survey_path

from .client import Parameter, ServerClient
from .estimates import Estimates

Method = Literal["online", "retrospective", "smoothed"]
Strata = Mapping[str, Sequence[str]]


class Reader:
    """A reader of one server; use as a context, or close it.

    server: its base URL. token: one of its tokens for reading, if the survey asks for one: it is sent over TLS and on
    loopback only. transport: instead of a connection, for tests. Raises what `ServerClient` raises.
    """

    def __init__(self, server: str, *, token: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self._client = ServerClient(server, token=token, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def histogram(
        self,
        survey: str,
        *,
        period: int | None = None,
        at: datetime | None = None,
        method: Method = "online",
        strata: Strata | None = None,
        confidence: float | None = 0.95,
        covariance: bool = False,
    ) -> Estimates:
        """The histogram at the end of a period, by default of the last one of which anything is shown.

        survey: its id, in hex. at: instead of a period, any time, with a time zone.
        strata: the values, by breakdown, of those who are asked about. Raises ServerAnswered or httpx.HTTPError.
        """
        asked = {"period": period, "time": _instant(at)}
        return self._ask(survey, HISTOGRAM, asked, method, strata, confidence, covariance)

    def series(
        self,
        survey: str,
        *,
        until: int | None = None,
        method: Method = "online",
        strata: Strata | None = None,
        confidence: float | None = 0.95,
        covariance: bool = False,
    ) -> Estimates:
        """The histograms at the ends of the periods 1 to `until`; otherwise as `histogram`."""
        return self._ask(survey, SERIES, {"until": until}, method, strata, confidence, covariance)

    def change(
        self,
        survey: str,
        after: int,
        until: int | None = None,
        *,
        method: Method = "online",
        strata: Strata | None = None,
        confidence: float | None = 0.95,
        covariance: bool = False,
    ) -> Estimates:
        """The change from the end of one period to that of another; otherwise as `histogram`."""
        asked = {"after": after, "until": until}
        return self._ask(survey, CHANGE, asked, method, strata, confidence, covariance)

    def windows(
        self,
        survey: str,
        width: int,
        until: int | None = None,
        *,
        method: Method = "online",
        strata: Strata | None = None,
        confidence: float | None = 0.95,
        covariance: bool = False,
    ) -> Estimates:
        """The changes over all windows of so many periods; otherwise as `histogram`."""
        asked = {"width": width, "until": until}
        return self._ask(survey, WINDOWS, asked, method, strata, confidence, covariance)

    def status(self, survey: str) -> dict[str, Any]:
        """How far a survey is; with an operator's token also what was refused."""
        return self._client.status(survey)

    def _ask(
        self,
        survey: str,
        what: str,
        asked: Mapping[str, int | str | None],
        method: Method,
        strata: Strata | None,
        confidence: float | None,
        covariance: bool,
    ) -> Estimates:
        query: list[Parameter] = [(name, str(value)) for name, value in asked.items() if value is not None]
        query += [("method", method)] + ([("confidence", repr(confidence))] if confidence is not None else [])
        query += [("stratum", f"{name}:{value}") for name, values in (strata or {}).items() for value in values]
        query += [("covariance", "true")] if covariance else []
        return Estimates.of(self._client.read(survey_path(survey) + what, query))


def _instant(at: datetime | None) -> str | None:
    if at is not None and at.tzinfo is None:
        raise ValueError(f"a time has a time zone, got {at.isoformat()}")
    return None if at is None else at.isoformat()
