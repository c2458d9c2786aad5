"""Sealing keys over HTTP: the one valid now, and publishing one that was made here and signed by the authority.

Keys are made with `changeling keys new` on the store itself, never over the network.
"""

from changeling_protocol import SealingKey
from changeling_protocol.wire import JSON, MSGPACK, ErrorCode, encode_key_list
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import TurnedDown
from ..store.sealing_keys import publish_key
from ..store.tokens import TokenScope
from .admission import require
from .caching import cache_control_of_keys
from .described import Described, described
from .entity_tags import is_kept, tag_of
from .requests import read_body, reading_signed, service_of
from .schemas import BYTES, SIGNED, TEXT, listed, record
from .service import Service

MOST_KEY_BYTES = 4096


@described(Described({200: {MSGPACK: record(keys=listed(BYTES))}, 304: {}}))
async def list_keys(request: Request) -> Response:
    """GET the key that is valid by the server's clock, as the authority signed it: a list of one, or none."""
    service = service_of(request)
    now = service.clock()
    offered = service.registry.offered(now)
    keys = encode_key_list([] if offered is None else [offered.signed])
    kept = cache_control_of_keys(None if offered is None else offered.key, now)
    headers = {"etag": tag_of(keys), "cache-control": kept}
    if is_kept(request, headers["etag"]):
        return Response(status_code=304, headers=headers)
    return Response(keys, headers=headers, media_type=MSGPACK)


@described(
    Described(
        gives={200: {JSON: record(id=TEXT)}, 201: {JSON: record(id=TEXT)}},
        takes={MSGPACK: SIGNED},
        refuses=(ErrorCode.BAD_SIGNATURE, ErrorCode.CONFLICT),
        scope=TokenScope.SURVEY_WRITE,
    )
)
async def put_key(request: Request) -> Response:
    """PUT a signed key that this server made: 201, or 200 where it was published before."""
    require(request, TokenScope.SURVEY_WRITE)
    service = service_of(request)
    signed = await read_body(request, MOST_KEY_BYTES)
    try:
        with reading_signed():
            key = SealingKey.from_signed(signed, service.settings.authority)
        added = await run_in_threadpool(_publish, service, key, signed)
    except ValueError as error:
        raise TurnedDown(ErrorCode.CONFLICT, f"{error}") from error
    return JSONResponse({"id": key.id.hex()}, 201 if added else 200)


def _publish(service: Service, key: SealingKey, signed: bytes) -> bool:
    with service.store.writing() as connection:
        added = publish_key(connection, key, signed)
    service.registry.refresh()
    return added
