"""A client of a server for those who read, publish and operate: one way to send a token, and to read an error.

A token goes over TLS, and to this machine, alone; and to this machine past any proxy that the environment names, which
would read it. An answer that has not changed is not sent again: the server is shown the tag of the one remembered.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Self

import httpx
import msgpack
from changeling_protocol import ChangelingError, MalformedBytes, SealingKey, Survey, UnixSeconds
from changeling_protocol.wire import (
    FOLD,
    KEYS,
    MSGPACK,
    SERIES,
    STATUS,
    SURVEYS,
    ErrorAnswer,
    ErrorCode,
    decode_key_list,
    is_loopback,
    survey_path,
)

TIMEOUT_SECONDS = 60.0
MOST_REMEMBERED = 32
Parameter = tuple[str, str | int | float | bool | None]


class ServerAnswered(ChangelingError):
    """A server's answer that is an error.

    status: of HTTP. code: why; None where what answered is no server of ours. detail: what it says was wrong.
    """

    def __init__(self, status: int, code: ErrorCode | None, detail: str) -> None:
        super().__init__(f"the server answered {status}: {detail}")
        self.status, self.code, self.detail = status, code, detail


class ServerClient:
    """A client of one server; use as a context, or close it.

    url: the server's base URL. token: one of its tokens, or None for what is open to all.
    timeout: seconds for each request. transport: instead of a connection, for tests.
    Every method raises ServerAnswered for an error of the server's, httpx.HTTPError where it cannot be reached, and
    MalformedBytes or ValueError for what is no answer to what was asked.
    Raises ValueError for a token that would go over plain HTTP to another machine.

    >>> ServerClient("http://surveys.example.org", token="secret")
    Traceback (most recent call last):
    ValueError: http://surveys.example.org would be sent a token that anybody on the way can read: use https
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        base = httpx.URL(url)
        self.url, self.is_here = url, is_loopback(base.host)
        if token is not None and base.scheme != "https" and not self.is_here:
            raise ValueError(f"{url} would be sent a token that anybody on the way can read: use https")
        self._http = httpx.Client(
            base_url=base,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            transport=transport,
            trust_env=not self.is_here,  # a proxy for plain HTTP would read the token
        )
        self._remembered: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        query: Sequence[Parameter] = (),
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """The server's answer to a request. path: one of the protocol's."""
        try:
            answer = self._http.request(method, path, params=tuple(query), content=body, headers=headers)
        except httpx.TransportError as failed:  # whose words do not say which server it was
            raise type(failed)(f"{self.url}: {failed}", request=failed.request) from failed
        if answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED:
            return answer
        try:
            error = ErrorAnswer.decode(answer.content)
        except MalformedBytes:
            raise ServerAnswered(answer.status_code, None, "no reason given") from None
        raise ServerAnswered(answer.status_code, error.code, error.detail)

    def put(self, path: str, body: bytes, query: Mapping[str, str] | None = None) -> bool:
        """Publish signed bytes; False where the same bytes were published already."""
        return self.request("PUT", path, [*(query or {}).items()], body).status_code == httpx.codes.CREATED

    def read(self, path: str, query: Sequence[Parameter] = ()) -> dict[str, Any]:
        """Results, which are remembered: where they have not changed the server sends them once."""
        key = str(httpx.URL(path, params=tuple(query)))
        tag, known = self._remembered.get(key, ("", {}))
        answer = self.request("GET", path, query, headers={"accept": MSGPACK} | ({"if-none-match": tag} if tag else {}))
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            self._remembered.move_to_end(key)
            return known
        content = _map(msgpack.unpackb(answer.content))
        self._remembered[key] = answer.headers.get("etag", ""), content
        if len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return content

    def json(self, path: str, query: Sequence[Parameter] = ()) -> dict[str, Any]:
        """An answer in JSON."""
        answer = self.request("GET", path, query)
        try:
            return _map(answer.json())
        except RecursionError:
            raise MalformedBytes("the server's answer is nested too deeply") from None

    def status(self, survey: str) -> dict[str, Any]:
        """How far a survey is; with an operator's token also what was refused. survey: its id, in hex."""
        return self.json(survey_path(survey) + STATUS)

    def surveys(self) -> list[dict[str, Any]]:
        """The id, question, last period, openness (`public`) and newest edition, if any, of every published survey."""
        listed: list[dict[str, Any]] = self.json(SURVEYS)["surveys"]
        return listed

    def series(self, survey: str, question: str | None = None) -> dict[str, Any]:
        """All histograms that are shown of a survey. survey: its id, in hex. question: its name, of several."""
        return self.json(survey_path(survey) + SERIES, [] if question is None else [("question", question)])

    def survey(self, survey: str) -> Survey:
        """A survey as it is published there, its signature not checked. survey: its id, in hex."""
        answer = self.request("GET", survey_path(survey), headers={"accept": MSGPACK})
        found = Survey.unverified(answer.content)
        if found.id.hex() != survey.lower():
            raise MalformedBytes(f"the server sent survey {found.id.hex()}, and not {survey}, which was asked for")
        return found

    def sealing_key(self) -> tuple[SealingKey | None, UnixSeconds]:
        """The sealing key that is valid longest, its signature not checked, if any is; and the server's time."""
        answer = self.request("GET", KEYS)
        now = UnixSeconds(parsedate_to_datetime(answer.headers.get("date", "")).timestamp())
        keys = [SealingKey.unverified(signed) for signed in decode_key_list(answer.content)]
        return max((key for key in keys if key.valid_at(now)), key=lambda key: key.expires, default=None), now

    def fold(self) -> None:
        """Have it count all that it has taken."""
        self.request("POST", FOLD)


def _map(content: Any) -> dict[str, Any]:
    """What an answer holds. Raises MalformedBytes where that is no map."""
    if not isinstance(content, dict):
        raise MalformedBytes("the server's answer holds no names of figures")
    return content
