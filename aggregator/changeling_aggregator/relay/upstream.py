"""The server behind a relay, as the relay speaks with it: always in the same words, whoever's envelopes it forwards."""

import asyncio
import json
from collections.abc import Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.parse import urlsplit

import httpx
from changeling_protocol import ID_BYTES, MalformedBytes, Refusal, SurveyId
from changeling_protocol.wire import (
    KEYS,
    MOST_BODY_BYTES,
    MSGPACK,
    SURVEYS,
    UPLOADS,
    decode_acknowledgement,
    decode_key_list,
    encode_upload_request,
    is_loopback,
    survey_path,
)

from ..errors import UpstreamTrouble

TIMEOUT_SECONDS = 30.0
"""A whole exchange takes no longer."""
_REASONS = {each.value: each for each in Refusal}
_HEADERS = {"user-agent": "changeling-relay", "accept": "*/*", "accept-encoding": "identity"}


class Upstream:
    """A server.

    url: its base URL, HTTPS or on loopback. token: the relay's own, shown with uploads alone; None for none. Devices
    need none for the relay, and theirs would not be passed on. Raises ValueError for a URL that will not do.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        local = is_loopback(parts.hostname or "")
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"the server's URL must be like https://host/path, got {url!r}")
        if parts.scheme == "http" and not local:
            raise ValueError(f"the server's URL must be https, but on loopback, got {url!r}")
        self._url = url.rstrip("/")
        self._uploading = {"content-type": MSGPACK}
        if token is not None:
            self._uploading["authorization"] = f"Bearer {token}"
        self._http = httpx.AsyncClient(
            headers=_HEADERS,
            timeout=TIMEOUT_SECONDS,
            trust_env=not local,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def surveys(self) -> list[SurveyId]:
        """The ids of the surveys that are published there. Raises UpstreamTrouble."""
        try:
            rows = json.loads(await self._ask("GET", SURVEYS))["surveys"]
            ids = [SurveyId(bytes.fromhex(row["id"])) for row in rows]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UpstreamTrouble("the server's list of surveys cannot be read") from error
        return [id_ for id_ in ids if len(id_) == ID_BYTES]

    async def survey(self, survey: SurveyId) -> bytes:
        """The signed survey that it has under this id; nothing of it is checked. Raises UpstreamTrouble."""
        return await self._ask("GET", survey_path(survey.hex()))

    async def keys(self) -> list[bytes]:
        """The signed sealing keys; their signatures are not checked. Raises UpstreamTrouble."""
        try:
            return decode_key_list(await self._ask("GET", KEYS))
        except MalformedBytes as error:
            raise UpstreamTrouble("the server's list of keys cannot be read") from error

    async def upload(self, envelopes: Sequence[bytes]) -> list[Refusal | None]:
        """Hands envelopes over; returns the reason of each that was refused, None where we do not know it.

        All others are on the server's disk. Raises UpstreamTrouble; then any of them may have arrived.
        """
        answer = await self._ask("POST", UPLOADS, encode_upload_request(envelopes))
        try:
            reasons = decode_acknowledgement(answer, len(envelopes)).values()
        except MalformedBytes as error:
            raise UpstreamTrouble("the server's acknowledgement cannot be read") from error
        return [_REASONS.get(reason) for reason in reasons]

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {} if body is None else self._uploading
        content = bytearray()
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),  # httpx bounds each read, and not what they add up to
                self._http.stream(method, self._url + path, content=body, headers=headers) as response,
            ):
                if response.status_code != 200:
                    silence = response.headers.get("retry-after", "")
                    raise UpstreamTrouble(
                        f"the server answered with status {response.status_code}",
                        response.status_code,
                        int(silence[:9]) if silence.isascii() and silence.isdigit() else 0,
                    )
                async for chunk in response.aiter_raw():  # never unpacked: a few bytes could become many
                    content += chunk
                    if len(content) > MOST_BODY_BYTES:
                        raise UpstreamTrouble(f"the server's answer is longer than {MOST_BODY_BYTES} bytes")
        except (httpx.HTTPError, OSError) as error:
            raise UpstreamTrouble(f"the server could not be reached: {type(error).__name__}") from error
        return bytes(content)
