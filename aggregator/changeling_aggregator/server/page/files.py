"""The page's files: our own beside this module, and plotly's script as its Python package brings it.

Nothing comes from another address, no script and no style stands in the page itself, and a browser is told to hold
to that. Files are read and compressed once.
"""

import gzip
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from changeling_protocol.wire import ErrorCode
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ...errors import TurnedDown
from ..entity_tags import is_kept, tag_of

_STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
CHARTS = "plotly.js"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # plotly draws its patterns as pictures in place
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_COMPRESSION = 6


@dataclass(frozen=True, slots=True)
class _File:
    plain: bytes
    packed: bytes
    tag: str
    media_type: str


async def show_index(request: Request) -> Response:
    """GET /: the page; what it shows it asks for itself."""
    return await _answer(request, INDEX)


async def show_file(request: Request) -> Response:
    """GET a script or a style sheet of the page."""
    return await _answer(request, request.path_params["file"])


async def _answer(request: Request, name: str) -> Response:
    if name != CHARTS and name not in _own_files():
        raise TurnedDown(ErrorCode.NOT_FOUND, "the page has no such file")
    file = await run_in_threadpool(_file, name)
    headers = {
        "content-security-policy": CONTENT_POLICY,
        "cache-control": "no-cache",
        "etag": file.tag,
        "vary": "accept-encoding",
    }
    if is_kept(request, file.tag):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type)
    return Response(file.plain, headers=headers, media_type=file.media_type)


@cache
def _own_files() -> frozenset[str]:
    return frozenset(path.name for path in _STATIC.iterdir() if path.suffix in MEDIA_TYPES)


@cache
def _file(name: str) -> _File:
    plain = (_charts() if name == CHARTS else _STATIC / name).read_bytes()
    return _File(plain, gzip.compress(plain, _COMPRESSION, mtime=0), tag_of(plain), MEDIA_TYPES[Path(name).suffix])


def _charts() -> Path:
    """Plotly's script. Its package is found, and not imported: that would take half a second."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise TurnedDown(ErrorCode.NOT_FOUND, "plotly is not installed, so that the page has no charts")
    return Path(found.origin).parent / "package_data" / "plotly.min.js"
