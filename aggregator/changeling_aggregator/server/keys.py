"""Sealing keys over HTTP: those valid now, and publishing one that was made here and signed by the authority.

Keys are made with `changeling keys new` on the store itself, never over the network.
"""

from changeling_protocol import BadSignature, MalformedBytes, SealingKey
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..store.sealing_keys import publish_key
from .requests import read_body, require_admin, service_of
from .responses import packed
from .service import Service

MOST_KEY_BYTES = 4096


async def list_keys(request: Request) -> Response:
    service = service_of(request)
    now = service.clock()
    return packed({"keys": [k.signed for k in service.registry.keys.values() if k.key.valid_at(now)]})


async def put_key(request: Request) -> Response:
    require_admin(request)
    service = service_of(request)
    signed = await read_body(request, MOST_KEY_BYTES)
    try:
        key = SealingKey.from_signed(signed, service.settings.authority)
        added = await run_in_threadpool(_publish, service, key, signed)
    except BadSignature as error:
        raise HTTPException(403, f"{error}") from error
    except MalformedBytes as error:
        raise HTTPException(400, f"{error}") from error
    except ValueError as error:
        raise HTTPException(409, f"{error}") from error
    return JSONResponse({"id": key.id.hex()}, 201 if added else 200)


def _publish(service: Service, key: SealingKey, signed: bytes) -> bool:
    with service.store.writing() as connection:
        added = publish_key(connection, key, signed)
    service.registry.refresh()
    return added
