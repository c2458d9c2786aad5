"""Talking to the server: three requests, sent with good manners.

Requests carry nothing of the host app: no cookies, no credentials, no headers of a client that it shares. Whatever
goes wrong is ServerTrouble, whose words hold nothing but a status or the name of an error.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from changeling_protocol import MalformedBytes
from changeling_protocol.quantities import SurveyId, UnixMilliseconds
from changeling_protocol.wire import (
    MOST_BODY_BYTES,
    MSGPACK,
    decode_acknowledgement,
    decode_key_list,
    encode_upload_request,
    survey_path,
)
from changeling_protocol.wire.paths import KEYS, UPLOADS

from .clock import Heard
from .errors import ServerTrouble

if TYPE_CHECKING:
    import ssl

    import httpx

TIMEOUT_SECONDS = 10.0
"""How long to wait for a connection, and for each part of an answer."""
MOST_SECONDS = 60.0
"""How long an answer's body may take in all."""
MOST_RETRY_AFTER_SECONDS = 86_400
"""A server that asks for more silence than a day is asked again after a day."""


class Server:
    """The aggregation server, as a device speaks with it.

    url: its base URL; HTTPS, or on loopback.
    http: the app's own client, if requests are to go through it.
    clock: hears the server's time with every answer.
    Raises ValueError for a URL that will not do.
    """

    def __init__(
        self,
        url: str,
        *,
        proxy: str | None,
        verify: ssl.SSLContext | bool,
        transport: httpx.BaseTransport | None,
        clock: Callable[[], float],
    ) -> None:
        check_url(url)
        self._url = url.rstrip("/")
        self._proxy, self._verify, self._transport = proxy, verify, transport
        self._own: httpx.Client | None = None
        self._clock = clock
        self.heard: Heard | None = None
        self._silent_ms = range(0)
        """When not to ask, by the device's clock: a range, so that a clock that was set back does not wait longer."""

    def survey(self, survey: SurveyId) -> bytes:
        """The signed survey that the server has under this id; nothing of it is checked. Raises ServerTrouble."""
        return self._ask("GET", survey_path(survey.hex()))

    def sealing_keys(self) -> list[bytes]:
        """The server's signed sealing keys; their signatures are not checked. Raises ServerTrouble."""
        body = self._ask("GET", KEYS)
        try:
            return decode_key_list(body)
        except MalformedBytes:
            raise ServerTrouble("the server's list of sealing keys cannot be read") from None

    def upload(self, envelopes: Sequence[bytes]) -> dict[int, str]:
        """Hands envelopes over, at most MOST_ENVELOPES of them.

        Returns the reasons of those that were refused, by place; all others are on the server's disk.
        Raises ServerTrouble; then any of them may have arrived.
        """
        body = self._ask("POST", UPLOADS, encode_upload_request(envelopes))
        try:
            return decode_acknowledgement(body, len(envelopes))
        except MalformedBytes:
            raise ServerTrouble("the server's acknowledgement cannot be read") from None

    def close(self) -> None:
        """Closes the connections that are our own."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        import httpx

        asked = UnixMilliseconds(int(self._clock() * 1000))
        if asked in self._silent_ms:
            raise ServerTrouble("the server asked to be left alone for a while")
        headers = {"accept-encoding": "identity"} | ({"content-type": MSGPACK} if body is not None else {})
        timeout = {"timeout": httpx.Timeout(TIMEOUT_SECONDS).as_dict()}
        request = httpx.Request(method, self._url + path, content=body, headers=headers, extensions=timeout)
        try:
            response = self._http().send(request, auth=None, follow_redirects=False, stream=True)
            with closing(response):
                self._hear(response, asked)
                if response.status_code != 200:
                    raise ServerTrouble(f"the server answered with status {response.status_code}")
                return _content(response)
        except ServerTrouble:
            raise
        except Exception as error:  # a client of the app's may be closed, or have hooks that raise what they like
            raise ServerTrouble(f"the server could not be reached: {type(error).__name__}") from None

    def _http(self) -> httpx.Client:
        if self._own is None:
            import httpx

            self._own = httpx.Client(proxy=self._proxy, verify=self._verify, transport=self._transport)
        return self._own

    def _hear(self, response: httpx.Response, asked_ms: UnixMilliseconds) -> None:
        """Takes in the server's time, and for how long it asks not to be asked."""
        if (date := _unix_ms(response.headers.get("date", ""))) is not None:
            self.heard = Heard(date, asked_ms)
        after = response.headers.get("retry-after", "")
        if response.status_code == 200 or not after:
            return
        if after.isascii() and after.isdigit():
            seconds = int(after[:9])
        elif (until := _unix_ms(after)) is not None:
            seconds = (until - (asked_ms if date is None else date)) // 1000
        else:
            return
        self._silent_ms = range(asked_ms, asked_ms + 1000 * min(max(seconds, 0), MOST_RETRY_AFTER_SECONDS))


def check_url(url: str) -> None:
    """Raises ValueError unless it is the base URL of a server: HTTPS, or on loopback."""
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError where it is no number
    if parts.username or parts.password:
        raise ValueError("the server's URL must not hold credentials")
    if parts.query or parts.fragment or not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError(f"the server's URL must be like https://host/path, got {url!r}")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(f"the server's URL must be https, but on loopback, got {url!r}")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _content(response: httpx.Response) -> bytes:
    """The body of an answer. Raises ServerTrouble for one that is compressed, too long or too slow."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ServerTrouble("the server packed an answer that was to be plain")
    body, deadline = bytearray(), monotonic() + MOST_SECONDS
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ServerTrouble(f"the server's answer is longer than {MOST_BODY_BYTES} bytes")
        if monotonic() > deadline:
            raise ServerTrouble(f"the server's answer takes longer than {MOST_SECONDS:g} seconds")
    return bytes(body)


def _unix_ms(date: str) -> UnixMilliseconds | None:
    """The Unix milliseconds of an HTTP date; None if it is none."""
    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:  # "-0000": nothing to do with the zone the device is in
            moment = moment.replace(tzinfo=UTC)
        return UnixMilliseconds(int(moment.timestamp()) * 1000)
    except (ValueError, TypeError, OverflowError):
        return None
