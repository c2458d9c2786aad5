"""POST /v1/uploads: envelopes in, appended to the log, acknowledged when they are on disk.

A body is canonical MessagePack {"envelopes": [bytes, …]}; the answer {"refused": [[index, reason], …]} names those
not appended, and why. Whatever it does not name is durable.
"""

import asyncio
from collections import Counter

from changeling_protocol import MalformedBytes, canonical
from changeling_protocol.refusal import Refusal
from changeling_protocol.upload import MOST_BODY_BYTES, MOST_ENVELOPES
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..ingest import refusal_of
from .requests import read_body, service_of
from .responses import packed

_FRAME_ITEMS = 3
"""The map, its one value, and the list of envelopes."""


async def upload(request: Request) -> Response:
    service = service_of(request)
    envelopes = _envelopes(await read_body(request, MOST_BODY_BYTES))
    now = service.clock()
    accepted: list[bytes] = []
    refused: list[tuple[int, str]] = []
    counts: Counter[tuple[bytes, Refusal]] = Counter()
    for index, envelope in enumerate(envelopes):
        refusal = refusal_of(envelope, service.registry, now)
        if refusal is None:
            accepted.append(envelope)
            continue
        survey, reason = refusal
        refused.append((index, reason.value))
        if survey:
            counts[survey, reason] += 1
    if counts:
        service.committer.count_refused(counts)
    if accepted:
        await asyncio.wrap_future(service.committer.submit(accepted))
    return packed({"refused": refused})


def _envelopes(body: bytes) -> list[bytes]:
    try:
        content = canonical.decode(body, most_items=MOST_ENVELOPES + _FRAME_ITEMS)
    except MalformedBytes as error:
        raise HTTPException(400, f"the body is {error}") from error
    match content:
        case {"envelopes": [*envelopes], **rest} if not rest and len(envelopes) <= MOST_ENVELOPES:
            return envelopes
    raise HTTPException(400, f'the body is {{"envelopes": [...]}}, at most {MOST_ENVELOPES} of them')
