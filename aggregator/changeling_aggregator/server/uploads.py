"""Uploads over HTTP: envelopes in, appended to the log, acknowledged when they are on disk.

The acknowledgement names the envelopes that were not appended, and why. Whatever it does not name is durable. A request
of which nothing is refused is appended as it was sent.
"""

from collections import Counter

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
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ..errors import TurnedDown
from ..ingest import refusals_of, takes_whole
from ..store.tokens import TokenScope
from .admission import require_admission, require_app
from .described import Described, described
from .requests import read_body
from .responses import answer_to
from .schemas import BYTES, COUNT, TEXT, either, listed, record
from .service import Service

_ALL_TAKEN = encode_acknowledgement({})


@described(
    Described(
        gives={200: {MSGPACK: record(refused=listed(listed(either(COUNT, TEXT))))}},
        takes={MSGPACK: record(envelopes=listed(BYTES, MOST_ENVELOPES_TAKEN))},
        scope=TokenScope.UPLOAD,
        open_too=True,
    )
)
class Uploads:
    """The endpoint, an application of its own: the one that many devices call, spared whatever the others need."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST envelopes; answers when those that are not refused are on disk."""
        try:
            taken = await self._taken(Request(scope, receive))
        except Exception as error:
            answer = answer_to(error)
            await answer(scope, receive, send)
            if answer.status_code == 500:
                raise  # a defect: the server's log says where
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _headers(taken)})
            await send({"type": "http.response.body", "body": taken})

    async def _taken(self, request: Request) -> bytes:
        """Appends what a request brings; returns the acknowledgement."""
        service = self._service
        require_app(request)
        body = await read_body(request, MOST_BODY_BYTES)
        await require_admission(request, body)
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
        if not refused:
            return _ALL_TAKEN
        return encode_acknowledgement({place: reason for place, (_, reason) in refused.items()})


def _headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % len(body)), (b"content-type", MSGPACK.encode())]
