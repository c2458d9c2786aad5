"""Uploads over HTTP: envelopes in, appended to the log, acknowledged when they are on disk.

The acknowledgement names the envelopes that were not appended, and why. Whatever it does not name is durable.
"""

import asyncio
from collections import Counter

from changeling_protocol import MalformedBytes
from changeling_protocol.refusal import Refusal
from changeling_protocol.wire import MOST_BODY_BYTES, ErrorCode, decode_upload_request, encode_acknowledgement
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TurnedDown
from ..ingest import refusal_of
from ..store.counted import RefusalCounts
from .requests import read_body, service_of
from .responses import packed


async def upload(request: Request) -> Response:
    """POST envelopes; answers when those that are not refused are on disk."""
    service = service_of(request)
    body = await read_body(request, MOST_BODY_BYTES)
    try:
        envelopes = decode_upload_request(body)
    except MalformedBytes as error:
        raise TurnedDown(ErrorCode.MALFORMED, f"the body is no upload: {error}") from error
    now = service.clock()
    accepted: list[bytes] = []
    refused: dict[int, Refusal] = {}
    counts: RefusalCounts = Counter()
    for index, envelope in enumerate(envelopes):
        refusal = refusal_of(envelope, service.registry, now)
        if refusal is None:
            accepted.append(envelope)
            continue
        survey, refused[index] = refusal
        if survey:
            counts[survey, refused[index]] += 1
    if counts:
        service.committer.count_refused(counts)
    if accepted:
        await asyncio.wrap_future(service.committer.submit(accepted))
    return packed(encode_acknowledgement(refused))
