"""Uploads over HTTP: envelopes in, appended to the log, acknowledged when they are on disk.

The acknowledgement names the envelopes that were not appended, and why. Whatever it does not name is durable. A request
of which nothing is refused is appended as it was sent. This is the endpoint that many devices call, so it is a plain
ASGI application: it reads the body itself and makes no objects of the framework for an upload that is taken.
"""

from collections import Counter
from typing import Annotated

from changeling_protocol import MalformedBytes
from changeling_protocol.wire import (
    MOST_BODY_BYTES,
    MOST_ENVELOPES_TAKEN,
    MSGPACK,
    ErrorCode,
    decode_upload_request,
    encode_acknowledgement,
    encode_upload_request,
)
from msgspec import Meta
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from ..errors import TurnedDown
from ..ingest import refusals_of, takes_whole
from ..store import TokenScope
from .openapi import Binary, Body, Count, Described, described
from .requests import check_scope, read_from, require_admission, token_in
from .responses import answer_to
from .service import Service

_ALL_TAKEN = encode_acknowledgement({})


class Envelopes(Body):
    """An upload."""

    envelopes: Annotated[list[Binary], Meta(max_length=MOST_ENVELOPES_TAKEN)]


class RefusedEnvelopes(Body):
    """For each envelope that was refused its place and the reason; all others are on disk."""

    refused: list[list[Count | str]]


@described(
    Described(
        gives={200: {MSGPACK: RefusedEnvelopes}},
        takes={MSGPACK: Envelopes},
        scope=TokenScope.UPLOAD,
        open_too=True,
    )
)
class Uploads:
    """The endpoint of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST envelopes; answers when those that are not refused are on disk."""
        try:
            taken = await self._taken(scope, receive)
        except Exception as error:
            answer = answer_to(error)
            await answer(scope, receive, send)
            if answer.status_code == 500:
                raise  # a defect: the server's log says where
        else:
            headers = [(b"content-length", b"%d" % len(taken)), (b"content-type", MSGPACK.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": taken})

    async def _taken(self, scope: Scope, receive: Receive) -> bytes:
        """Appends what a request brings; returns the acknowledgement."""
        service, settings = self._service, self._service.settings
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if settings.uploads_need_token:
            shown = headers.get(b"authorization", b"").decode("latin-1")
            check_scope(token_in(service.registry, shown), TokenScope.UPLOAD)
        body = await read_from(receive, headers.get(b"content-length", b""), service.bodies, MOST_BODY_BYTES)
        service.traffic.upload_bytes.inc(len(body))
        if settings.admission is not None:
            await require_admission(settings.admission, Headers(scope=scope), body)
        if takes_whole(body, service.registry, service.clock()):
            await service.committer.append(body)
            return _ALL_TAKEN
        try:
            envelopes = decode_upload_request(body)
        except MalformedBytes as error:
            raise TurnedDown(ErrorCode.MALFORMED, f"the body is no upload: {error}") from error
        refused = refusals_of(envelopes, service.registry, service.clock())
        if refused:
            service.committer.count_refused(Counter((survey, why) for survey, why in refused.values() if survey))
            body = encode_upload_request([each for place, each in enumerate(envelopes) if place not in refused])
        if len(refused) < len(envelopes):
            await service.committer.append(body)
        return encode_acknowledgement({place: reason for place, (_, reason) in refused.items()})
