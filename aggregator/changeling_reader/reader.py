"""Asking a server for what it shows.

An answer that has not changed is not sent again: the server is shown the tag of the one that is remembered.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self

import httpx
import msgpack
from changeling_protocol import MalformedBytes
from changeling_protocol.wire import CHANGE, HISTOGRAM, MSGPACK, SERIES, STATUS, WINDOWS, ErrorAnswer, survey_path

from .errors import ReaderError
from .estimates import Estimates

Method = Literal["online", "retrospective", "smoothed"]
Strata = Mapping[str, Sequence[str]]
Parameter = tuple[str, str | int | float | bool | None]
TIMEOUT_SECONDS = 60.0
MOST_REMEMBERED = 32


class Reader:
    """A reader of one server; use as a context, or close it.

    server: its base URL.
    token: what it wants to see, if anything. It is sent over TLS and on loopback only.
    transport: instead of a connection, for tests.
    Raises ValueError for a token that would go over plain HTTP.
    """

    def __init__(self, server: str, *, token: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        url = httpx.URL(server)
        if token is not None and url.scheme != "https" and url.host not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError(f"a token is sent over https only, not to {server}")
        headers = {"accept": MSGPACK} | ({"authorization": f"Bearer {token}"} if token else {})
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, transport=transport)
        self._remembered: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

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
        strata: the values, by breakdown, of those who are asked about. Raises ReaderError or httpx.HTTPError.
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
        response = self._http.get(survey_path(survey) + STATUS)
        _check(response)
        content: dict[str, Any] = response.json()
        return content

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
        return Estimates.of(self._get(survey_path(survey) + what, query))

    def _get(self, path: str, query: list[Parameter]) -> dict[str, Any]:
        key = str(httpx.URL(path, params=tuple(query)))
        tag, known = self._remembered.get(key, ("", {}))
        response = self._http.get(path, params=tuple(query), headers={"if-none-match": tag} if tag else {})
        if response.status_code == httpx.codes.NOT_MODIFIED:
            self._remembered.move_to_end(key)
            return known
        _check(response)
        answer: dict[str, Any] = msgpack.unpackb(response.content)
        self._remembered[key] = response.headers.get("etag", ""), answer
        if len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return answer


def _instant(at: datetime | None) -> str | None:
    if at is not None and at.tzinfo is None:
        raise ValueError(f"a time has a time zone, got {at.isoformat()}")
    return None if at is None else at.isoformat()


def _check(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        answer = ErrorAnswer.decode(response.content)
    except MalformedBytes:
        raise ReaderError(response.status_code, None, "no reason given") from None
    raise ReaderError(response.status_code, answer.code.value, answer.detail)
